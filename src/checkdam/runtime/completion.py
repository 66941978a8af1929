"""From what the slots report to the checkpoint as it is kept."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from checkdam.checkpoint.completed import RETENTION_SETTING, CompletedCheckpoint, OperatorEntry
from checkdam.checkpoint.coordinator import AcknowledgedCheckpoint
from checkdam.runtime.events import CheckpointStats
from checkdam.runtime.job import Job


def completed_checkpoint(
    job: Job, acknowledged: AcknowledgedCheckpoint, source_position: bytes, at: datetime
) -> CompletedCheckpoint:
    return CompletedCheckpoint(
        checkpoint_id=acknowledged.checkpoint_id,
        job_id=job.job_id,
        job_name=job.name,
        epoch=acknowledged.epoch,
        triggered_at=acknowledged.triggered_at,
        completed_at=at,
        parallelism=job.plan.slots,
        max_parallelism=job.plan.max_parallelism,
        operators=_entries(job, acknowledged),
        source_position=source_position,
        settings={"mode": job.mode.value, RETENTION_SETTING: job.checkpoints.retention.value},
    )


def _entries(job: Job, acknowledged: AcknowledgedCheckpoint) -> tuple[OperatorEntry, ...]:
    """The slots' snapshots, turned from by-slot to by-operator."""
    entries: dict[str, OperatorEntry] = {}
    widths = {op.uid: op.parallelism or 1 for level in job.plan.levels for op in level.operators}
    for subtask, snapshot in sorted(acknowledged.snapshots.items()):
        for operator in snapshot.operators:
            width = widths[operator.uid]
            entry = entries.get(operator.uid) or OperatorEntry(
                operator.uid, operator.name, width, job.plan.max_parallelism
            )
            if operator.keyed is not None and subtask < width:
                entry = replace(entry, subtasks={**entry.subtasks, subtask: operator.keyed})
            entries[operator.uid] = replace(entry, committables=entry.committables + operator.committables)
    return tuple(entries.values())


def checkpoint_stats(
    acknowledged: AcknowledgedCheckpoint, checkpoint: CompletedCheckpoint, path: str
) -> CheckpointStats:
    snapshots = acknowledged.snapshots.values()
    return CheckpointStats(
        checkpoint_id=checkpoint.checkpoint_id,
        epoch=checkpoint.epoch,
        path=path,
        seconds=(checkpoint.completed_at - checkpoint.triggered_at).total_seconds(),
        sync_seconds=max(snapshot.sync_seconds for snapshot in snapshots),
        async_seconds=max(snapshot.async_seconds for snapshot in snapshots),
        state_bytes=sum(file.size for file in checkpoint.files()),
        new_bytes=sum(file.size for snapshot in snapshots for file in snapshot.new_files),
    )
