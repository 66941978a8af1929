"""From what the slots report to the checkpoint as it is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from checkdam.checkpoint.completed import RETENTION_SETTING, CompletedCheckpoint, OperatorEntry
from checkdam.checkpoint.coordinator import AcknowledgedCheckpoint
from checkdam.graph.levels import JobPlan
from checkdam.graph.operators import TimestampsKind
from checkdam.ids import OperatorUid, SubtaskIndex
from checkdam.runtime.events import CheckpointStats
from checkdam.runtime.job import Job
from checkdam.state.snapshots import OperatorSnapshot


def completed_checkpoint(
    job: Job,
    acknowledged: AcknowledgedCheckpoint,
    source_position: bytes,
    at: datetime,
    event_time: Mapping[int, int] | None = None,
) -> CompletedCheckpoint:
    """The checkpoint as it is kept; `event_time` has the largest timestamp that each assigner (by id) has seen."""
    names = assigner_names(job.plan)
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
        event_time={names[op]: timestamp for op, timestamp in (event_time or {}).items() if op in names},
    )


def assigner_names(plan: JobPlan) -> dict[int, str]:
    """What each assigner of timestamps is called in checkpoints: its uid, or its place among those without one."""
    assigners = [op for op in plan.operators if isinstance(op.kind, TimestampsKind)]
    return {op.id: op.uid or f"assigner-{place}" for place, op in enumerate(assigners)}


def _entries(job: Job, acknowledged: AcknowledgedCheckpoint) -> tuple[OperatorEntry, ...]:
    """The slots' snapshots, turned from by-slot to by-operator."""
    entries: dict[OperatorUid, OperatorEntry] = {}
    planned = {op.uid or OperatorUid(f"operator-{op.id}"): op for level in job.plan.levels for op in level.operators}
    for subtask, snapshot in sorted(acknowledged.snapshots.items()):
        for operator in snapshot.operators:
            plan = planned[operator.uid]
            width = plan.parallelism or 1
            entry = entries.get(operator.uid) or OperatorEntry(
                operator.uid, operator.name, width, job.plan.key_groups_of(plan.id)
            )
            entries[operator.uid] = _with_snapshot(entry, subtask, operator)
    return tuple(entries.values())


def _with_snapshot(entry: OperatorEntry, subtask: SubtaskIndex, snapshot: OperatorSnapshot) -> OperatorEntry:
    entry = replace(entry, committables=entry.committables + snapshot.committables)
    if subtask >= entry.parallelism:
        return entry
    if snapshot.keyed is not None:
        entry = replace(entry, subtasks={**entry.subtasks, subtask: snapshot.keyed})
    if snapshot.operator_state is not None:
        entry = replace(entry, operator_states={**entry.operator_states, subtask: snapshot.operator_state})
    return replace(entry, finished=entry.finished | {subtask}) if snapshot.is_finished else entry


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
