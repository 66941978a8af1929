"""The job's checkpoints: counts, history, summary, and one checkpoint down to its subtasks.

`className` distinguishes the kinds of entries and comes from the struct's tag.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from checkdam import config
from checkdam.runtime.monitor.job_records import (
    NEVER,
    CheckpointCounts,
    CheckpointRecord,
    CheckpointStatus,
    JobRecord,
    OperatorCheckpoint,
    OperatorRecord,
    SubtaskCheckpoint,
)
from checkdam.runtime.monitor.masking import without_credentials
from checkdam.server.app.endpoint import ApiCall, Endpoint, Reads
from checkdam.server.app.http_errors import RestError
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api.statistics import ZERO, Statistics, statistics

_NO_PERIOD = 2**63 - 1  # Flink's value for "no periodic checkpoints"
_FIELDS = {
    config.CHECKPOINT_MODE.key: "mode",
    config.CHECKPOINT_INTERVAL.key: "interval",
    config.CHECKPOINT_TIMEOUT.key: "timeout",
    config.CHECKPOINT_MIN_PAUSE.key: "min_pause",
    config.MAX_CONCURRENT_CHECKPOINTS.key: "max_concurrent",
    config.CHECKPOINT_RETENTION.key: "externalization",
    config.STATE_BACKEND.key: "state_backend",
    config.TOLERABLE_FAILED_CHECKPOINTS.key: "tolerable_failed_checkpoints",
    config.NUM_RETAINED_CHECKPOINTS.key: "num_retained",
    config.CHECKPOINT_DIR.key: "directory",
}
_BACKENDS = {"hashmap": "HashMapStateBackend", "rocksdb": "EmbeddedRocksDBStateBackend"}


class Summary(msgspec.Struct, frozen=True):
    checkpointed_size: Statistics
    state_size: Statistics
    end_to_end_duration: Statistics
    alignment_buffered: Statistics = ZERO
    processed_data: Statistics = ZERO
    persisted_data: Statistics = ZERO


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One operator's part of a checkpoint."""

    id: int
    status: str
    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    alignment_buffered: int = 0
    processed_data: int = 0
    persisted_data: int = 0
    num_subtasks: int
    num_acknowledged_subtasks: int


class _Entry(msgspec.Struct, frozen=True, kw_only=True, tag_field="className"):
    id: int
    status: str
    is_savepoint: bool
    savepoint_format: str | None = msgspec.field(name="savepointFormat")
    checkpoint_type: str
    trigger_timestamp: int
    latest_ack_timestamp: int
    end_to_end_duration: int
    checkpointed_size: int
    state_size: int
    alignment_buffered: int = 0
    processed_data: int = 0
    persisted_data: int = 0
    num_subtasks: int
    num_acknowledged_subtasks: int
    tasks: dict[str, Task]


class CompletedEntry(_Entry, frozen=True, kw_only=True, tag="completed"):
    external_path: str | None
    discarded: bool


class FailedEntry(_Entry, frozen=True, kw_only=True, tag="failed"):
    failure_timestamp: int
    failure_message: str | None


class InProgressEntry(_Entry, frozen=True, kw_only=True, tag="in_progress"):
    pass


Entry: TypeAlias = CompletedEntry | FailedEntry | InProgressEntry


class RestoredCheckpoint(msgspec.Struct, frozen=True):
    id: int
    restore_timestamp: int
    is_savepoint: bool
    external_path: str | None


class Latest(msgspec.Struct, frozen=True):
    completed: Entry | None
    savepoint: Entry | None
    failed: Entry | None
    restored: RestoredCheckpoint | None


class CheckpointingStatistics(msgspec.Struct, frozen=True):
    counts: CheckpointCounts
    summary: Summary
    latest: Latest
    history: list[Entry]


class DurationSummary(msgspec.Struct, frozen=True):
    sync: Statistics
    async_: Statistics = msgspec.field(name="async")


class AlignmentSummary(msgspec.Struct, frozen=True):
    buffered: Statistics = ZERO
    processed: Statistics = ZERO
    persisted: Statistics = ZERO
    duration: Statistics = ZERO


class TaskSummary(msgspec.Struct, frozen=True):
    checkpointed_size: Statistics
    state_size: Statistics
    end_to_end_duration: Statistics
    checkpoint_duration: DurationSummary
    alignment: AlignmentSummary
    start_delay: Statistics


class SubtaskDuration(msgspec.Struct, frozen=True):
    sync: int
    async_: int = msgspec.field(name="async")


class SubtaskAlignment(msgspec.Struct, frozen=True):
    buffered: int = 0
    processed: int = 0
    persisted: int = 0
    duration: int = 0


class CompletedSubtask(msgspec.Struct, frozen=True, kw_only=True, tag_field="className", tag="completed"):
    index: int
    status: Literal["completed"] = "completed"
    ack_timestamp: int
    end_to_end_duration: int
    checkpointed_size: int
    state_size: int
    checkpoint: SubtaskDuration
    alignment: SubtaskAlignment
    start_delay: int
    unaligned_checkpoint: bool = False
    aborted: bool = False


class PendingSubtask(msgspec.Struct, frozen=True, tag_field="className", tag="pending"):
    """A subtask that has not acknowledged, and may never do so."""

    index: int
    status: Literal["pending_or_failed"] = "pending_or_failed"


class TaskDetails(Task, frozen=True, kw_only=True):
    summary: TaskSummary
    subtasks: list[CompletedSubtask | PendingSubtask]


class Externalization(msgspec.Struct, frozen=True):
    enabled: bool
    delete_on_cancellation: bool


class CheckpointConfigInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoint settings. Flink's settings that have no meaning here have their defaults: aligned, no changelog.

    From `num_retained` on the fields are ours. `origins` maps each field to the origin of its value.
    """

    mode: str
    interval: int
    timeout: int
    min_pause: int
    max_concurrent: int
    externalization: Externalization
    state_backend: str
    checkpoint_storage: str
    unaligned_checkpoints: bool = False
    aligned_checkpoint_timeout: int = 0
    tolerable_failed_checkpoints: int
    checkpoints_after_tasks_finish: bool = True
    state_changelog_enabled: bool = False
    changelog_periodic_materialization_interval: int = 600_000
    changelog_storage: str | None = None
    num_retained: int
    directory: str | None
    origins: dict[str, str]


def _statistics(jobs: Jobs, call: ApiCall) -> CheckpointingStatistics:
    record = jobs.record_as_stored(call.job_id)
    if record.settings.storage is None and not record.checkpoints and not record.savepoints:
        raise RestError(404, "Checkpointing has not been enabled.")
    completed = [c for c in record.checkpoints if c.status is CheckpointStatus.COMPLETED]
    return CheckpointingStatistics(
        record.checkpoint_counts,
        Summary(
            statistics(c.checkpointed_bytes for c in completed),
            statistics(c.state_bytes for c in completed),
            statistics(c.end_to_end for c in completed),
        ),
        Latest(
            _first_entry([c for c in completed if not c.kind.is_savepoint]),
            _first_entry(record.savepoints or [c for c in completed if c.kind.is_savepoint and not c.is_discarded]),
            _first_entry([c for c in record.checkpoints if c.status is CheckpointStatus.FAILED]),
            _restored(record),
        ),
        [_entry(checkpoint, {}) for checkpoint in record.checkpoints],
    )


def _first_entry(found: Sequence[CheckpointRecord]) -> Entry | None:
    return _entry(found[0], {}) if found else None


def _restored(record: JobRecord) -> RestoredCheckpoint | None:
    restored = record.restored
    if restored is None:
        return None
    path = without_credentials(restored.path)
    return RestoredCheckpoint(restored.checkpoint_id, restored.restored_at, restored.is_savepoint, path)


def _entry(checkpoint: CheckpointRecord, tasks: dict[str, Task]) -> Entry:
    acknowledged = [subtask for operator in checkpoint.operators for subtask in operator.subtasks]
    is_done = checkpoint.status is CheckpointStatus.COMPLETED
    facts: dict[str, Any] = {
        "id": checkpoint.id,
        "status": checkpoint.status.value,
        "is_savepoint": checkpoint.kind.is_savepoint,
        "savepoint_format": checkpoint.savepoint_format,
        "checkpoint_type": checkpoint.kind.value,
        "trigger_timestamp": checkpoint.triggered_at,
        "latest_ack_timestamp": checkpoint.last_ack,
        "end_to_end_duration": checkpoint.end_to_end,
        "checkpointed_size": checkpoint.checkpointed_bytes or sum(s.checkpointed_bytes for s in acknowledged),
        "state_size": checkpoint.state_bytes or sum(s.state_bytes for s in acknowledged),
        "num_subtasks": checkpoint.num_subtasks,
        "num_acknowledged_subtasks": checkpoint.num_subtasks if is_done else len(acknowledged),
        "tasks": tasks,
    }
    if is_done:
        path = None if checkpoint.path is None else without_credentials(checkpoint.path)
        return CompletedEntry(**facts, external_path=path, discarded=checkpoint.is_discarded)
    if checkpoint.status is CheckpointStatus.FAILED:
        reason = None if checkpoint.failure is None else without_credentials(checkpoint.failure)
        return FailedEntry(**facts, failure_timestamp=checkpoint.finished_at, failure_message=reason)
    return InProgressEntry(**facts)


def _details(jobs: Jobs, call: ApiCall) -> Entry:
    record = jobs.record_as_stored(call.job_id)
    checkpoint = _find(record, call.path["checkpointid"])
    vertices = {operator.id: operator for operator in record.operators}
    tasks = {
        vertices[part.operator].vertex_id: Task(**_task(checkpoint, part))
        for part in checkpoint.operators
        if part.operator in vertices
    }
    return _entry(checkpoint, tasks)


def _find(record: JobRecord, checkpoint_id: int) -> CheckpointRecord:
    for checkpoint in (*record.checkpoints, *record.savepoints):
        if checkpoint.id == checkpoint_id:
            return checkpoint
    raise RestError(404, f"Could not find checkpointing statistics for checkpoint {checkpoint_id}.")


def _task(checkpoint: CheckpointRecord, part: OperatorCheckpoint) -> dict[str, Any]:
    is_whole = len(part.subtasks) >= part.num_subtasks
    failed = checkpoint.status is CheckpointStatus.FAILED
    return {
        "id": checkpoint.id,
        "status": "COMPLETED" if is_whole else "FAILED" if failed else "IN_PROGRESS",
        "latest_ack_timestamp": max((s.acknowledged_at for s in part.subtasks), default=NEVER),
        "checkpointed_size": sum(s.checkpointed_bytes for s in part.subtasks),
        "state_size": sum(s.state_bytes for s in part.subtasks),
        "end_to_end_duration": max((int(s.end_to_end_ms) for s in part.subtasks), default=NEVER),
        "num_subtasks": part.num_subtasks,
        "num_acknowledged_subtasks": len(part.subtasks),
    }


def _subtasks(jobs: Jobs, call: ApiCall) -> TaskDetails:
    record = jobs.record(call.job_id)
    checkpoint = _find(record, call.path["checkpointid"])
    operator = _vertex(record, call.path["vertexid"])
    part = next((part for part in checkpoint.operators if operator is not None and part.operator == operator.id), None)
    if part is None:
        raise RestError(
            404,
            f"There is no task statistics for checkpoint {checkpoint.id} and vertex {call.path['vertexid']}.",
        )
    by_index = {subtask.subtask: subtask for subtask in part.subtasks}
    return TaskDetails(
        **_task(checkpoint, part),
        summary=_task_summary(part.subtasks),
        subtasks=[
            _completed(by_index[index]) if index in by_index else PendingSubtask(index)
            for index in range(part.num_subtasks)
        ],
    )


def _vertex(record: JobRecord, vertex_id: str) -> OperatorRecord | None:
    return next((operator for operator in record.operators if operator.vertex_id == vertex_id), None)


def _task_summary(subtasks: Sequence[SubtaskCheckpoint]) -> TaskSummary:
    return TaskSummary(
        statistics(s.checkpointed_bytes for s in subtasks),
        statistics(s.state_bytes for s in subtasks),
        statistics(s.end_to_end_ms for s in subtasks),
        DurationSummary(statistics(s.sync_ms for s in subtasks), statistics(s.async_ms for s in subtasks)),
        AlignmentSummary(),
        statistics(_start_delay(s) for s in subtasks),
    )


def _start_delay(subtask: SubtaskCheckpoint) -> int:
    """Return the time from the trigger until the subtask began: its duration without the sync and async parts."""
    return max(0, int(subtask.end_to_end_ms) - int(subtask.sync_ms) - int(subtask.async_ms))


def _completed(subtask: SubtaskCheckpoint) -> CompletedSubtask:
    return CompletedSubtask(
        index=subtask.subtask,
        ack_timestamp=subtask.acknowledged_at,
        end_to_end_duration=int(subtask.end_to_end_ms),
        checkpointed_size=subtask.checkpointed_bytes,
        state_size=subtask.state_bytes,
        checkpoint=SubtaskDuration(int(subtask.sync_ms), int(subtask.async_ms)),
        alignment=SubtaskAlignment(),
        start_delay=_start_delay(subtask),
    )


def _config(jobs: Jobs, call: ApiCall) -> CheckpointConfigInfo:
    settings = jobs.record(call.job_id).settings
    if settings.storage is None:
        raise RestError(404, f"Checkpointing is not enabled for this job ({call.job_id}).")
    return CheckpointConfigInfo(
        mode=settings.mode.lower(),
        interval=settings.interval if settings.interval >= 0 else _NO_PERIOD,
        timeout=settings.timeout,
        min_pause=settings.min_pause,
        max_concurrent=settings.max_concurrent,
        externalization=Externalization(
            enabled=settings.retention.upper() != "NO_EXTERNALIZED_CHECKPOINTS",
            delete_on_cancellation=settings.retention.upper() != "RETAIN_ON_CANCELLATION",
        ),
        state_backend=_BACKENDS.get(settings.state_backend, settings.state_backend),
        checkpoint_storage=(
            "JobManagerCheckpointStorage" if settings.storage.startswith("memory:") else "FileSystemCheckpointStorage"
        ),
        tolerable_failed_checkpoints=settings.tolerable_failures,
        num_retained=settings.num_retained,
        directory=without_credentials(settings.storage),
        origins={_FIELDS[each.key]: each.origin for each in settings.options if each.key in _FIELDS},
    )


def routes(jobs: Jobs) -> list[Endpoint]:
    get = Reads(jobs, "/jobs/{jobid}/checkpoints")
    one = "/details/{checkpointid}"
    return [
        get("", _statistics, "Counts, summary, latest and history of the job's checkpoints", CheckpointingStatistics),
        get("/config", _config, "How the job takes checkpoints", CheckpointConfigInfo),
        get(one, _details, "One checkpoint, by operator", Entry),
        get(one + "/subtasks/{vertexid}", _subtasks, "One operator of a checkpoint, by subtask", TaskDetails),
    ]
