"""The health of a job at a glance: restarts, failing checkpoints, watermark lag. Not in Flink."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from checkdam.graph.watermarks import MAX_WATERMARK, MIN_WATERMARK
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_records import JobRecord, OperatorFigures

RECENT_RESTART: Final = 5 * 60_000
"""How long a restart counts as trouble after the job has failed, in milliseconds."""

_EARLIEST_DATE = 100_000_000_000  # event times of smaller size are counters, not dates: the clock says nothing of them


class RestartHealth(msgspec.Struct, frozen=True, rename="kebab"):
    """The latest restart; `most` is null if the restart strategy has no limit."""

    attempt: int
    most: int | None
    reason: str
    failed_at: int
    next_at: int


class CheckpointHealth(msgspec.Struct, frozen=True, rename="kebab"):
    """Checkpoints that have failed since the last one that completed; the job fails over after `tolerated`."""

    failed_in_a_row: int
    tolerated: int
    since: int
    reason: str


class Health(msgspec.Struct, frozen=True, rename="kebab"):
    """`level` is "warning" after a recent restart or while checkpoints fail, "failing" while the job does not run.

    `watermark_lag` is that of the operator that lags most, in milliseconds.
    """

    level: Literal["ok", "warning", "failing", "ended"] = "ok"
    restart: RestartHealth | None = None
    checkpoints: CheckpointHealth | None = None
    watermark_lag: int | None = None


def health(record: JobRecord, now: int) -> Health:
    if record.status.has_ended:
        return Health("ended")
    restart, trouble = record.restart, record.checkpoint_trouble
    tolerated = max(record.settings.tolerable_failures, 0)
    return Health(
        _level(record, now),
        None
        if restart is None
        else RestartHealth(restart.attempt, restart.most, restart.reason, restart.failed_at, restart.next_at),
        None
        if trouble is None
        else CheckpointHealth(trouble.failed_in_a_row, tolerated, trouble.since, trouble.reason),
        max((lag for each in record.figures if (lag := operator_lag(record, each, now)) is not None), default=None),
    )


def _level(record: JobRecord, now: int) -> Literal["ok", "warning", "failing"]:
    restart = record.restart
    if record.status is JobStatus.FAILING or (record.status is JobStatus.RESTARTING and restart is not None):
        return "failing"
    is_recent = restart is not None and now - restart.failed_at < RECENT_RESTART
    return "warning" if is_recent or record.checkpoint_trouble is not None else "ok"


def operator_lag(record: JobRecord, operator: OperatorFigures, now: int) -> int | None:
    """Return the watermark lag of the subtask that lags most; None while the job does not run."""
    marks = [each.watermark for each in operator.subtasks if each.watermark is not None]
    return watermark_lag(min(marks), now) if marks and record.status is JobStatus.RUNNING else None


def watermark_lag(watermark: int, now: int) -> int | None:
    """Return how far event time is behind the clock, in milliseconds; None where event time is not the clock's."""
    if watermark in (MIN_WATERMARK, MAX_WATERMARK) or abs(watermark) < _EARLIEST_DATE:
        return None
    return now - watermark
