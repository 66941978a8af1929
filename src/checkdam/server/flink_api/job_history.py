"""Endpoints that Flink does not have: a job's savepoints, and time series for plots."""

from __future__ import annotations

import msgspec

from checkdam.errors import CheckdamError
from checkdam.runtime.monitor.job_records import CheckpointRecord
from checkdam.runtime.monitor.masking import without_credentials
from checkdam.server.app.endpoint import ApiCall, Endpoint, Natural, Query, Reads
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api.statistics import now_ms
from checkdam.storage.filesystem import open_storage


class SavepointEntry(msgspec.Struct, frozen=True):
    id: int
    path: str | None
    format: str | None
    kind: str
    trigger_timestamp: int
    completed_timestamp: int
    state_size: int
    exists: bool


class Savepoints(msgspec.Struct, frozen=True):
    savepoints: list[SavepointEntry]


class EpochPoint(msgspec.Struct, frozen=True):
    epoch: int
    ended: int
    duration: float
    records: int
    keys: int


class CheckpointPoint(msgspec.Struct, frozen=True):
    id: int
    triggered: int
    duration: float
    checkpointed_size: int
    state_size: int
    status: str
    is_savepoint: bool


class Series(msgspec.Struct, frozen=True):
    now: int
    epochs: list[EpochPoint]
    checkpoints: list[CheckpointPoint]


def _savepoints(jobs: Jobs, call: ApiCall) -> Savepoints:
    return Savepoints([_savepoint(savepoint) for savepoint in jobs.record(call.job_id).savepoints])


def _savepoint(savepoint: CheckpointRecord) -> SavepointEntry:
    return SavepointEntry(
        savepoint.id,
        None if savepoint.path is None else without_credentials(savepoint.path),
        savepoint.savepoint_format,
        savepoint.kind,
        savepoint.triggered_at,
        savepoint.finished_at,
        savepoint.state_bytes,
        savepoint.path is not None and _exists(savepoint.path),
    )


def _exists(path: str) -> bool:
    """Return whether the savepoint still exists; True if its storage does not answer."""
    try:
        return open_storage(path).status("_metadata") is not None
    except CheckdamError:
        return True


def _series(jobs: Jobs, call: ApiCall) -> Series:
    record, since = jobs.record(call.job_id), call.query["since"]
    return Series(
        now_ms(),
        [
            EpochPoint(epoch.epoch, epoch.ended_at, epoch.duration, epoch.records, epoch.keys)
            for epoch in record.epochs
            if epoch.ended_at >= since
        ],
        [
            CheckpointPoint(
                checkpoint.id,
                checkpoint.triggered_at,
                checkpoint.duration,
                checkpoint.checkpointed_bytes,
                checkpoint.state_bytes,
                checkpoint.status,
                checkpoint.kind.is_savepoint,
            )
            for checkpoint in reversed(record.checkpoints)
            if max(checkpoint.triggered_at, checkpoint.finished_at) >= since
        ],
    )


def routes(jobs: Jobs) -> list[Endpoint]:
    get = Reads(jobs, "/jobs/{jobid}")
    since = Query("since", Natural, "Only what ended at or after this, in ms", default=0)
    return [
        get("/savepoints", _savepoints, "The job's savepoints, newest first", Savepoints),
        get("/series", _series, "Epochs and checkpoints over time, oldest first", Series, since),
    ]
