"""Checkpoints that lie on storage, as records: all that can be known of a job that nobody runs and nobody archived.

What a checkpoint took to write is not on storage: sync, async and written bytes are 0 here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from checkdam.checkpoint.completed import RETENTION_SETTING, CompletedCheckpoint, OperatorEntry
from checkdam.ids import SubtaskIndex
from checkdam.runtime.monitor.job_description import vertex_id_of_uid
from checkdam.runtime.monitor.job_records import (
    NEVER,
    CheckpointCounts,
    CheckpointRecord,
    CheckpointStatus,
    JobRecord,
    JobSettings,
    JobStatus,
    OperatorCheckpoint,
    OperatorFigures,
    OperatorRecord,
    SnapshotKind,
    SubtaskCheckpoint,
)
from checkdam.state.snapshot_handles import StateFile


class Found(msgspec.Struct, frozen=True):
    """One complete checkpoint, its directory, and the size of its `_metadata`."""

    checkpoint: CompletedCheckpoint
    path: str
    metadata_bytes: int


def job_from_checkpoints(found: Sequence[Found], storage: str, status: JobStatus, since: int | None) -> JobRecord:
    """A job of which only checkpoints are left, newest first; its operators are those that the newest one names.

    It entered its status with the newest checkpoint, unless `since` says when.
    """
    newest, oldest = found[0].checkpoint, found[-1].checkpoint
    operators = tuple(
        OperatorRecord(
            id=place,
            vertex_id=vertex_id_of_uid(entry.uid),
            uid=entry.uid,
            name=entry.name,
            kind="operator",
            parallelism=entry.parallelism,
            max_parallelism=entry.max_parallelism,
            level=1,
            is_stateful=True,
        )
        for place, entry in enumerate(newest.operators)
    )
    places = {operator.uid: operator.id for operator in operators if operator.uid is not None}
    records = tuple(checkpoint_record(each, places) for each in found)
    return JobRecord(
        id=newest.job_id,
        name=newest.job_name,
        status=status,
        timestamps={
            JobStatus.INITIALIZING: milliseconds(oldest.triggered_at),
            status: since if since is not None else milliseconds(newest.completed_at),
        },
        parallelism=newest.parallelism,
        max_parallelism=newest.max_parallelism,
        settings=_settings(newest, storage),
        operators=operators,
        figures=tuple(
            OperatorFigures(each.operator, state_bytes=sum(part.state_bytes for part in each.subtasks))
            for each in records[0].operators
        ),
        checkpoints=records,
        checkpoint_counts=CheckpointCounts(total=len(records), completed=len(records)),
        epoch=newest.epoch,
    )


def checkpoint_record(found: Found, places: Mapping[str, int]) -> CheckpointRecord:
    """One of them; `places` has the job's operators by uid, and others are left out."""
    checkpoint = found.checkpoint
    triggered, completed = milliseconds(checkpoint.triggered_at), milliseconds(checkpoint.completed_at)
    return CheckpointRecord(
        id=checkpoint.checkpoint_id,
        kind=SnapshotKind.SAVEPOINT if checkpoint.is_savepoint else SnapshotKind.CHECKPOINT,
        status=CheckpointStatus.COMPLETED,
        triggered_at=triggered,
        epoch=checkpoint.epoch,
        num_subtasks=sum(entry.parallelism for entry in checkpoint.operators),
        savepoint_format=checkpoint.savepoint_format.value if checkpoint.savepoint_format is not None else None,
        finished_at=completed,
        duration=float(completed - triggered),
        state_bytes=checkpoint.state_bytes,
        metadata_bytes=found.metadata_bytes,
        path=found.path,
        operators=tuple(
            OperatorCheckpoint(
                places[entry.uid],
                entry.parallelism,
                tuple(_subtask(entry, subtask, triggered, completed) for subtask in _named(entry)),
            )
            for entry in checkpoint.operators
            if entry.uid in places
        ),
    )


def milliseconds(instant: datetime) -> int:
    return int(instant.timestamp() * 1000)


def _named(entry: OperatorEntry) -> list[SubtaskIndex]:
    """Return the subtasks that wrote something; the parallelism may be a number that a forged file claims."""
    return sorted(entry.subtasks.keys() | entry.operator_states.keys() | entry.finished)


def _subtask(entry: OperatorEntry, subtask: SubtaskIndex, triggered: int, completed: int) -> SubtaskCheckpoint:
    keyed, operator = entry.subtasks.get(subtask), entry.operator_states.get(subtask)
    size = sum(file.size for file in keyed.files) if keyed is not None else 0
    if operator is not None:
        size += operator.content.size if isinstance(operator.content, StateFile) else len(operator.content)
    return SubtaskCheckpoint(subtask, completed, 0.0, 0.0, float(completed - triggered), 0, size)


def _settings(checkpoint: CompletedCheckpoint, storage: str) -> JobSettings:
    """The few settings that a checkpoint tells; the others as if nobody had set them."""
    backends = {handle.backend for entry in checkpoint.operators for handle in entry.subtasks.values()}
    return JobSettings(
        mode=checkpoint.settings.get("mode", "exactly_once"),
        interval=NEVER,
        timeout=NEVER,
        min_pause=0,
        max_concurrent=1,
        tolerable_failures=0,
        retention=checkpoint.settings.get(RETENTION_SETTING, "retain_on_cancellation"),
        num_retained=1,
        state_backend=min(backends, default="hashmap"),
        storage=storage,
        savepoint_directory=None,
        restart_strategy="not known",
    )
