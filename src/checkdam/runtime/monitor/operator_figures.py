"""Figures of operators, by subtask: totals of an attempt, and rates over the last few seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

import msgspec

from checkdam.graph.levels import JobPlan
from checkdam.runtime.monitor.job_events import EpochStats
from checkdam.runtime.monitor.job_records import OperatorFigures, OperatorRecord, SubtaskFigures
from checkdam.runtime.monitor.source_side import source_side_counts
from checkdam.runtime.slot.messages import OperatorCounts

WINDOW_SECONDS: Final = 10.0
"""The window of rates and busy shares. Flink uses a minute; a page that is being watched should show changes sooner."""
_SAMPLE_SECONDS = 0.5

_Counted = Mapping[tuple[int, int], SubtaskFigures]  # by operator and subtask


class Figures:
    """The figures of one attempt. Times are readings of a monotonic clock, in seconds."""

    def __init__(self, plan: JobPlan, operators: tuple[OperatorRecord, ...], now: float) -> None:
        self._plan = plan
        self._operators = operators
        self._counted: dict[tuple[int, int], SubtaskFigures] = {
            (op.id, subtask): SubtaskFigures(subtask) for op in operators for subtask in range(_width(op))
        }
        self._samples: deque[tuple[float, _Counted]] = deque([(now, self._counted)])
        self._last = now

    def epoch_ended(self, stats: EpochStats, now: float) -> None:
        """Add the counts of an epoch."""
        counted = dict(self._counted)
        for report in stats.reports:
            for operator, counts in report.operators.items():
                self._add(counted, operator, report.subtask, counts, report.watermarks.get(operator))
        for operator, counts in source_side_counts(self._plan, stats).items():
            self._add(counted, operator, 0, counts, None)
        self._counted, self._last = counted, now
        if now - self._samples[-1][0] >= _SAMPLE_SECONDS:
            self._samples.append((now, counted))
            while len(self._samples) > 1 and self._samples[1][0] <= now - WINDOW_SECONDS:
                self._samples.popleft()

    def is_moving(self, now: float) -> bool:
        """Return whether rates may still change though nothing happens."""
        return now - self._last <= 2 * WINDOW_SECONDS

    def records(self, state_bytes: Mapping[int, int], now: float) -> tuple[OperatorFigures, ...]:
        then, before = self._before(now)
        seconds = max(now - then, 1e-3)
        by_operator: dict[int, list[SubtaskFigures]] = {op.id: [] for op in self._operators}
        for key, figures in self._counted.items():
            by_operator[key[0]].append(_with_rates(figures, before[key], seconds))
        return tuple(
            OperatorFigures(op, tuple(subtasks), state_bytes.get(op, 0)) for op, subtasks in by_operator.items()
        )

    def _before(self, now: float) -> tuple[float, _Counted]:
        """Return the counts at the start of the window, and their time."""
        begin = now - WINDOW_SECONDS
        if self._last <= begin:
            return begin, self._counted
        known = [sample for sample in self._samples if sample[0] <= begin]
        return known[-1] if known else self._samples[0]

    def _add(
        self,
        counted: dict[tuple[int, int], SubtaskFigures],
        operator: int,
        subtask: int,
        counts: OperatorCounts,
        watermark: int | None,
    ) -> None:
        before = counted.get((operator, subtask))
        if before is None:
            return  # of an earlier plan
        counted[operator, subtask] = SubtaskFigures(
            subtask,
            records_in=before.records_in + counts.records_in,
            records_out=before.records_out + counts.records_out,
            bytes_in=before.bytes_in + counts.bytes_in,
            bytes_out=before.bytes_out + counts.bytes_out,
            busy_ms=before.busy_ms + counts.busy_seconds * 1000,
            watermark=before.watermark if watermark is None else watermark,
            entries=counts.entries,
            late_records_dropped=_sum(before.late_records_dropped, counts.late_records_dropped),
        )


def _width(operator: OperatorRecord) -> int:
    """Return how many subtasks have figures of their own: where Spark runs the operator they cannot be separated."""
    return operator.parallelism if operator.level else 1


def _sum(before: int | None, added: int | None) -> int | None:
    return before if added is None else (before or 0) + added


def _with_rates(figures: SubtaskFigures, before: SubtaskFigures, seconds: float) -> SubtaskFigures:
    return msgspec.structs.replace(
        figures,
        busy_ratio=min((figures.busy_ms - before.busy_ms) / 1000 / seconds, 1.0),
        records_in_per_second=(figures.records_in - before.records_in) / seconds,
        records_out_per_second=(figures.records_out - before.records_out) / seconds,
        bytes_in_per_second=(figures.bytes_in - before.bytes_in) / seconds,
        bytes_out_per_second=(figures.bytes_out - before.bytes_out) / seconds,
    )
