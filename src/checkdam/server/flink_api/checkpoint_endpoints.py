"""What became of the job's checkpoints: counts, history, summary, and one of them down to its subtasks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from checkdam import config
from checkdam.runtime.monitor.job_records import (
    NEVER,
    CheckpointRecord,
    CheckpointStatus,
    JobRecord,
    OperatorCheckpoint,
    OperatorRecord,
    SubtaskCheckpoint,
)
from checkdam.runtime.monitor.masking import without_credentials
from checkdam.server.app.endpoint import Call, Endpoint
from checkdam.server.app.http_errors import RestError
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api import checkpoint_shapes as shapes
from checkdam.server.flink_api.statistics import ZERO, statistics

_NO_PERIOD = 2**63 - 1  # how Flink writes that there are no periodic checkpoints
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


def _statistics(jobs: Jobs, call: Call) -> shapes.CheckpointingStatistics:
    record = jobs.record(call.job_id)
    if record.settings.storage is None and not record.checkpoints and not record.savepoints:
        raise RestError(404, "Checkpointing has not been enabled.")
    completed = [c for c in record.checkpoints if c.status is CheckpointStatus.COMPLETED]
    counts = record.checkpoint_counts
    return shapes.CheckpointingStatistics(
        shapes.Counts(counts.restored, counts.total, counts.in_progress, counts.completed, counts.failed),
        shapes.Summary(
            statistics(c.checkpointed_bytes for c in completed),
            statistics(c.state_bytes for c in completed),
            statistics(c.duration for c in completed),
            ZERO,
            ZERO,
            ZERO,
        ),
        shapes.Latest(
            _entry_or_none(record, [c for c in completed if not c.kind.is_savepoint]),
            _entry_or_none(record, record.savepoints or [c for c in completed if c.kind.is_savepoint]),
            _entry_or_none(record, [c for c in record.checkpoints if c.status is CheckpointStatus.FAILED]),
            _restored(record),
        ),
        [_entry(record, checkpoint, {}) for checkpoint in record.checkpoints],
    )


def _entry_or_none(record: JobRecord, found: Sequence[CheckpointRecord]) -> shapes.Entry | None:
    return _entry(record, found[0], {}) if found else None


def _restored(record: JobRecord) -> shapes.Restored | None:
    restored = record.restored
    if restored is None:
        return None
    path = without_credentials(restored.path)
    return shapes.Restored(restored.checkpoint_id, restored.restored_at, restored.is_savepoint, path)


def _entry(record: JobRecord, checkpoint: CheckpointRecord, tasks: dict[str, shapes.Task]) -> shapes.Entry:
    acknowledged = [subtask for operator in checkpoint.operators for subtask in operator.subtasks]
    latest = max((subtask.acknowledged_at for subtask in acknowledged), default=NEVER)
    is_done = checkpoint.status is CheckpointStatus.COMPLETED
    if is_done and latest < 0:
        latest = checkpoint.finished_at
    facts: dict[str, Any] = {
        "id": checkpoint.id,
        "status": checkpoint.status.value,
        "is_savepoint": checkpoint.kind.is_savepoint,
        "savepoint_format": checkpoint.savepoint_format,
        "checkpoint_type": checkpoint.kind.value,
        "trigger_timestamp": checkpoint.triggered_at,
        "latest_ack_timestamp": latest,
        "end_to_end_duration": int(checkpoint.duration)
        if is_done
        else max(0, latest - checkpoint.triggered_at)
        if latest >= 0
        else NEVER,
        "checkpointed_size": checkpoint.checkpointed_bytes or sum(s.checkpointed_bytes for s in acknowledged),
        "state_size": checkpoint.state_bytes or sum(s.state_bytes for s in acknowledged),
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": 0,
        "num_subtasks": checkpoint.num_subtasks,
        "num_acknowledged_subtasks": checkpoint.num_subtasks if is_done else len(acknowledged),
        "tasks": tasks,
    }
    if is_done:
        path = None if checkpoint.path is None else without_credentials(checkpoint.path)
        return shapes.CompletedEntry(**facts, external_path=path, discarded=checkpoint.is_discarded)
    if checkpoint.status is CheckpointStatus.FAILED:
        reason = None if checkpoint.failure is None else without_credentials(checkpoint.failure)
        return shapes.FailedEntry(**facts, failure_timestamp=checkpoint.finished_at, failure_message=reason)
    return shapes.InProgressEntry(**facts)


def _details(jobs: Jobs, call: Call) -> shapes.Entry:
    record = jobs.record(call.job_id)
    checkpoint = _find(record, call.path["checkpointid"])
    vertices = {operator.id: operator for operator in record.operators}
    tasks = {
        vertices[part.operator].vertex_id: shapes.Task(**_task(checkpoint, part))
        for part in checkpoint.operators
        if part.operator in vertices
    }
    return _entry(record, checkpoint, tasks)


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
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": 0,
        "num_subtasks": part.num_subtasks,
        "num_acknowledged_subtasks": len(part.subtasks),
    }


def _subtasks(jobs: Jobs, call: Call) -> shapes.TaskDetails:
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
    return shapes.TaskDetails(
        **_task(checkpoint, part),
        summary=_task_summary(part.subtasks),
        subtasks=[
            _completed(by_index[index]) if index in by_index else shapes.PendingSubtask(index)
            for index in range(part.num_subtasks)
        ],
    )


def _vertex(record: JobRecord, vertex_id: str) -> OperatorRecord | None:
    return next((operator for operator in record.operators if operator.vertex_id == vertex_id), None)


def _task_summary(subtasks: Sequence[SubtaskCheckpoint]) -> shapes.TaskSummary:
    return shapes.TaskSummary(
        statistics(s.checkpointed_bytes for s in subtasks),
        statistics(s.state_bytes for s in subtasks),
        statistics(s.end_to_end_ms for s in subtasks),
        shapes.DurationSummary(statistics(s.sync_ms for s in subtasks), statistics(s.async_ms for s in subtasks)),
        shapes.AlignmentSummary(ZERO, ZERO, ZERO, ZERO),
        statistics(_start_delay(s) for s in subtasks),
    )


def _start_delay(subtask: SubtaskCheckpoint) -> int:
    """From the trigger until the subtask began: what of its time it neither sealed nor wrote."""
    return max(0, int(subtask.end_to_end_ms - subtask.sync_ms - subtask.async_ms))


def _completed(subtask: SubtaskCheckpoint) -> shapes.CompletedSubtask:
    return shapes.CompletedSubtask(
        index=subtask.subtask,
        ack_timestamp=subtask.acknowledged_at,
        end_to_end_duration=int(subtask.end_to_end_ms),
        checkpointed_size=subtask.checkpointed_bytes,
        state_size=subtask.state_bytes,
        checkpoint=shapes.SubtaskDuration(int(subtask.sync_ms), int(subtask.async_ms)),
        alignment=shapes.SubtaskAlignment(0, 0, 0, 0),
        start_delay=_start_delay(subtask),
    )


def _config(jobs: Jobs, call: Call) -> shapes.CheckpointConfig:
    settings = jobs.record(call.job_id).settings
    if settings.storage is None:
        raise RestError(404, f"Checkpointing is not enabled for this job ({call.job_id}).")
    return shapes.CheckpointConfig(
        mode=settings.mode.lower(),
        interval=settings.interval if settings.interval >= 0 else _NO_PERIOD,
        timeout=settings.timeout,
        min_pause=settings.min_pause,
        max_concurrent=settings.max_concurrent,
        externalization=shapes.Externalization(
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
    base = "/jobs/{jobid}/checkpoints"
    return [
        Endpoint(
            "GET",
            base,
            partial(_statistics, jobs),
            "Counts, summary, latest and history of the job's checkpoints",
            response=shapes.CheckpointingStatistics,
            errors=(404,),
        ),
        Endpoint(
            "GET",
            base + "/config",
            partial(_config, jobs),
            "How the job takes checkpoints",
            response=shapes.CheckpointConfig,
            errors=(404,),
        ),
        Endpoint(
            "GET",
            base + "/details/{checkpointid}",
            partial(_details, jobs),
            "One checkpoint, by operator",
            response=shapes.Entry,
            errors=(404,),
        ),
        Endpoint(
            "GET",
            base + "/details/{checkpointid}/subtasks/{vertexid}",
            partial(_subtasks, jobs),
            "One operator of a checkpoint, by subtask",
            response=shapes.TaskDetails,
            errors=(404,),
        ),
    ]
