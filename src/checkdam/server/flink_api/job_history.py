"""Endpoints that Flink does not have: a job's savepoints, and time series for plots."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from checkdam.runtime.monitor.job_records import NEVER, CheckpointRecord, JobEventKind, JobRecord, SeriesPoint
from checkdam.runtime.monitor.masking import without_credentials
from checkdam.runtime.monitor.time_series import series_of
from checkdam.server.app.endpoint import ApiCall, Endpoint, Natural, Query, Reads
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api.statistics import now_ms


class SavepointEntry(msgspec.Struct, frozen=True):
    id: int
    path: str | None
    format: str | None
    kind: str
    trigger_timestamp: int
    completed_timestamp: int
    state_size: int
    epoch: int
    exists: bool = True  # always: others are not listed


class Savepoints(msgspec.Struct, frozen=True):
    savepoints: list[SavepointEntry]


class JobEvent(msgspec.Struct, frozen=True):
    at: int
    kind: JobEventKind
    text: str


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Figures over time, as columns: one entry for each stretch of time, null where nothing is known of it.

    Durations are in milliseconds, sizes in bytes. Recent stretches are a second wide, old ones up to 20 minutes.
    """

    now: int
    start: list[int]
    width: list[int]
    records_per_second: list[float | None]
    epoch_duration: list[float | None]
    epoch_duration_max: list[float | None]
    entries: list[int | None]
    checkpoint_duration: list[float | None]
    checkpoint_duration_max: list[float | None]
    checkpoint_size: list[int | None]
    state_size: list[int | None]
    events: list[JobEvent]


def _savepoints(jobs: Jobs, call: ApiCall) -> Savepoints:
    return Savepoints([_savepoint(savepoint) for savepoint in jobs.record_as_stored(call.job_id).savepoints])


def _savepoint(savepoint: CheckpointRecord) -> SavepointEntry:
    return SavepointEntry(
        savepoint.id,
        None if savepoint.path is None else without_credentials(savepoint.path),
        savepoint.savepoint_format,
        savepoint.kind,
        savepoint.triggered_at,
        savepoint.finished_at,
        savepoint.state_bytes,
        savepoint.epoch,
    )


def _series(jobs: Jobs, call: ApiCall) -> Series:
    record, since = jobs.record(call.job_id), call.query["since"]
    points = [point for point in _points(record) if point.start + point.width > since]
    return Series(
        now=now_ms(),
        start=[point.start for point in points],
        width=[point.width for point in points],
        records_per_second=[_ratio(1000 * point.records, point.covered) for point in points],
        epoch_duration=[_ratio(point.epoch_ms, point.epochs) for point in points],
        epoch_duration_max=[point.longest_epoch_ms if point.epochs else None for point in points],
        entries=[_known(point.entries) for point in points],
        checkpoint_duration=[_ratio(point.checkpoint_ms, point.checkpoints) for point in points],
        checkpoint_duration_max=[point.longest_checkpoint_ms if point.checkpoints else None for point in points],
        checkpoint_size=[
            point.checkpointed_bytes // point.checkpoints if point.checkpoints else None for point in points
        ],
        state_size=[_known(point.state_bytes) for point in points],
        events=[JobEvent(event.at, event.kind, event.text) for event in record.events if event.at >= since],
    )


def _points(record: JobRecord) -> Sequence[SeriesPoint]:
    return record.series or series_of(record.epochs, reversed(record.checkpoints))


def _ratio(amount: float, of: float) -> float | None:
    return round(amount / of, 3) if of > 0 else None


def _known(value: int) -> int | None:
    return None if value == NEVER else value


def routes(jobs: Jobs) -> list[Endpoint]:
    get = Reads(jobs, "/jobs/{jobid}")
    since = Query("since", Natural, "Only stretches of time that end after this, in ms", default=0)
    return [
        get("/savepoints", _savepoints, "The job's savepoints that exist, newest first", Savepoints),
        get("/series", _series, "Epochs, checkpoints and events over time, oldest first", Series, since),
    ]
