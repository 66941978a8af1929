"""Figures in Flink's form: statistics with percentiles, and the input and output of tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from checkdam.clock import SystemClock, to_milliseconds
from checkdam.graph.metrics import percentile
from checkdam.runtime.monitor.job_records import JobRecord, OperatorFigures, SubtaskFigures

Percentile = float | Literal["NaN"]


class Statistics(msgspec.Struct, frozen=True):
    """Statistics of a figure. Percentiles are the text "NaN" if there are no values."""

    min: int
    max: int
    avg: int
    p50: Percentile
    p90: Percentile
    p95: Percentile
    p99: Percentile
    p999: Percentile


class TaskMetrics(msgspec.Struct, frozen=True, rename="kebab", kw_only=True):
    """Input and output of a subtask, or of all subtasks of a vertex."""

    read_bytes: int
    read_bytes_complete: bool = True
    write_bytes: int
    write_bytes_complete: bool = True
    read_records: int
    read_records_complete: bool = True
    write_records: int
    write_records_complete: bool = True
    accumulated_backpressured_time: int = 0
    accumulated_idle_time: int
    accumulated_busy_time: float


def now_ms() -> int:
    return to_milliseconds(SystemClock().now())


def statistics(values: Iterable[float]) -> Statistics:
    """Return the statistics of values cut to whole numbers, as Flink's are: no percentile exceeds the maximum."""
    ordered = sorted(map(int, values))
    if not ordered:
        return Statistics(0, 0, 0, "NaN", "NaN", "NaN", "NaN", "NaN")
    return Statistics(
        ordered[0],
        ordered[-1],
        int(sum(ordered) / len(ordered)),
        *(percentile(ordered, percent) for percent in (50.0, 90.0, 95.0, 99.0, 99.9)),
    )


ZERO = statistics([0])
"""Statistics of what never happens here: barriers lie between epochs, so nothing is aligned, buffered or in flight."""


def task_metrics(subtasks: Sequence[SubtaskFigures], running_ms: int) -> TaskMetrics:
    """Return the metrics of subtasks that have each been running for `running_ms`."""
    busy = sum(subtask.busy_ms for subtask in subtasks)
    return TaskMetrics(
        read_bytes=sum(subtask.bytes_in for subtask in subtasks),
        write_bytes=sum(subtask.bytes_out for subtask in subtasks),
        read_records=sum(subtask.records_in for subtask in subtasks),
        write_records=sum(subtask.records_out for subtask in subtasks),
        accumulated_idle_time=max(0, running_ms * len(subtasks) - int(busy)),
        accumulated_busy_time=float(busy),
    )


def figures_of(record: JobRecord, operator: int, parallelism: int) -> tuple[SubtaskFigures, ...]:
    """Return one entry for each subtask, including those that have reported nothing yet."""
    by_subtask = {figures.subtask: figures for figures in operator_figures(record, operator).subtasks}
    return tuple(by_subtask.get(subtask) or SubtaskFigures(subtask) for subtask in range(parallelism))


def operator_figures(record: JobRecord, operator: int) -> OperatorFigures:
    return next((figures for figures in record.figures if figures.operator == operator), OperatorFigures(operator))


def duration(record: JobRecord, now: int) -> int:
    end = record.ended_at
    return max(0, (end if end >= 0 else now) - record.started_at) if record.started_at >= 0 else 0
