"""Turns the slots' reports into a completed checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from checkdam.checkpoint.completed import RETENTION_SETTING, TERM_SETTING, CompletedCheckpoint, OperatorEntry
from checkdam.checkpoint.decisions import AcknowledgedCheckpoint
from checkdam.clock import to_milliseconds
from checkdam.graph.levels import JobPlan
from checkdam.graph.operators import TimestampsKind
from checkdam.ids import OperatorUid, SubtaskIndex
from checkdam.runtime.job import Job
from checkdam.runtime.monitor.job_events import CheckpointStats
from checkdam.state.snapshot_handles import OperatorSnapshot


def completed_checkpoint(
    job: Job,
    acknowledged: AcknowledgedCheckpoint,
    source_position: bytes,
    at: datetime,
    event_time: Mapping[int, int] | None = None,
    watermarks: Mapping[int, int] | None = None,
    term: int = 0,
) -> CompletedCheckpoint:
    """Return the checkpoint as it is stored.

    `event_time` has the largest timestamp that each assigner (by id) has seen, `watermarks` the watermark of each
    operator (by id). Both are stored only for operators with a uid; no other operator has state.
    """
    names = assigner_names(job.plan)
    uids = {op.id: op.uid for op in job.plan.operators if op.uid is not None}
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
        settings={
            "mode": job.mode.value,
            RETENTION_SETTING: job.checkpoints.retention.value,
            **({TERM_SETTING: str(term)} if term else {}),
        },
        event_time={names[op]: timestamp for op, timestamp in (event_time or {}).items() if op in names},
        watermarks={uids[op]: watermark for op, watermark in (watermarks or {}).items() if op in uids},
    )


def assigner_names(plan: JobPlan) -> dict[int, str]:
    """Return the name of each timestamp assigner in checkpoints: its uid, or one made from its nearest neighbours with
    a uid.

    Neighbours are downstream operators, or upstream ones if there are none. Assigners with the same neighbours are
    numbered by place, and the name includes how many they are: if one is added or removed, none is mistaken for
    another. An assigner without such neighbours has no name: its timestamp is not stored, and no state depends on it.
    """
    assigners = [op for op in plan.operators if isinstance(op.kind, TimestampsKind)]
    in_front = {op.id: op.all_inputs for op in plan.operators}
    behind = {op.id: tuple(each.id for each in plan.operators if op.id in each.all_inputs) for op in plan.operators}
    uids = {op.id: op.uid for op in plan.operators if op.uid is not None and not op.has_derived_uid}
    alike: dict[str, list[int]] = {}
    for word, neighbours in (("before", behind), ("behind", in_front)):
        for op in assigners:
            nearest = _nearest(op.id, neighbours, uids)
            if op.uid is None and nearest:
                alike.setdefault(f"{word} {', '.join(nearest)}", []).append(op.id)
    names: dict[int, str] = {op.id: op.uid for op in assigners if op.uid is not None}
    for name, ids in sorted(alike.items(), key=lambda each: len(each[1])):  # unique names are assigned first
        for place, each in enumerate(ids, 1):
            names.setdefault(each, name if len(ids) == 1 else f"{name}, {place} of {len(ids)}")
    return names


def _nearest(operator: int, neighbours: Mapping[int, Sequence[int]], uids: Mapping[int, str]) -> list[str]:
    """Return the uids that are the fewest steps away."""
    around = set(neighbours[operator])
    while around and not around & uids.keys():
        around = {further for each in around for further in neighbours[each]}
    return sorted(uids[each] for each in around if each in uids)


def _entries(job: Job, acknowledged: AcknowledgedCheckpoint) -> tuple[OperatorEntry, ...]:
    """Regroup the slots' snapshots by operator."""
    entries: dict[OperatorUid, OperatorEntry] = {}
    planned = {op.uid: op for level in job.plan.levels for op in level.operators if op.uid is not None}
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
        seconds=(to_milliseconds(checkpoint.completed_at) - to_milliseconds(checkpoint.triggered_at)) / 1000,
        sync_seconds=max(snapshot.sync_seconds for snapshot in snapshots),
        async_seconds=max(snapshot.async_seconds for snapshot in snapshots),
        state_bytes=checkpoint.state_bytes,
        new_bytes=sum(file.size for snapshot in snapshots for file in snapshot.new_files) + checkpoint.inline_bytes,
    )
