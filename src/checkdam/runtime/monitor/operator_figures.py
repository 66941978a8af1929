"""Figures of operators, by subtask: totals of an attempt, and rates over the last few seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

import msgspec

from checkdam.graph.levels import JobPlan
from checkdam.graph.metrics import MeterReading, MetricValue
from checkdam.graph.watermarks import MIN_WATERMARK
from checkdam.runtime.monitor.job_events import EpochStats
from checkdam.runtime.monitor.job_records import NEVER, OperatorFigures, OperatorRecord, SubtaskFigures
from checkdam.runtime.monitor.meter_rates import MeterRate
from checkdam.runtime.monitor.source_side import source_side_counts
from checkdam.runtime.slot.messages import EpochReport, OperatorCounts

WINDOW_SECONDS: Final = 10.0
"""The window of rates and busy shares. Flink uses a minute; a page that is being watched should show changes sooner."""
_SAMPLE_SECONDS = 0.5

_Counted = Mapping[tuple[int, int], SubtaskFigures]  # by operator and subtask


class Figures:
    """The figures of one attempt. Times are readings of a monotonic clock, in seconds."""

    def __init__(self, plan: JobPlan, operators: tuple[OperatorRecord, ...], now: float) -> None:
        self._plan = plan
        self._operators = operators
        self._by_spark = {op.id for op in plan.source_side if op.is_source}
        self._sources = self._by_spark | {op.id for op in operators if op.is_source}
        self._on_source_side = {op.id for op in plan.source_side}
        self._counted: dict[tuple[int, int], SubtaskFigures] = {
            (op.id, subtask): self._nothing_yet(op.id, subtask) for op in operators for subtask in range(_width(op))
        }
        self._samples: deque[tuple[float, _Counted]] = deque([(now, self._counted)])
        self._last = self._began = now
        self._meters: dict[tuple[int, int, str], MeterRate] = {}  # by operator, subtask and name
        self._longest_meter = 0.0  # the longest time span

    def epoch_ended(self, stats: EpochStats, now: float, at: int = NEVER) -> None:
        """Add the counts of an epoch, which ended `at` this time in milliseconds since 1970."""
        counted = dict(self._counted)
        for report in stats.reports:
            for operator, counts in report.operators.items():
                user = self._read(operator, report, now)
                self._add(counted, operator, report.subtask, counts, report.watermarks.get(operator), user, at=at)
        watermarks = self._watermarks_before_slots(stats)
        for (operator, subtask), counts in source_side_counts(self._plan, stats).items():
            self._add(counted, operator, subtask, counts, watermarks.get(operator), at=at)
        self._counted, self._last = counted, now
        if now - self._samples[-1][0] >= _SAMPLE_SECONDS:
            self._samples.append((now, counted))
            while len(self._samples) > 1 and self._samples[1][0] <= now - WINDOW_SECONDS:
                self._samples.popleft()

    def sources_seen(self, pending: Mapping[int, int]) -> None:
        """Set how many records the sources have not read yet. Spark knows that of a whole source: subtask 0 has it."""
        for source in self._by_spark:
            known = self._counted.get((source, 0)) or self._nothing_yet(source, 0)
            self._counted[source, 0] = msgspec.structs.replace(known, pending_records=pending.get(source))

    def is_moving(self, now: float) -> bool:
        """Return whether rates may still change though nothing happens."""
        return now - self._last <= 2 * max(WINDOW_SECONDS, self._longest_meter)

    def records(self, state_bytes: Mapping[int, int], now: float) -> tuple[OperatorFigures, ...]:
        then, before = self._before(now)
        seconds = max(now - then, 1e-3)
        by_operator: dict[int, list[SubtaskFigures]] = {op.id: [] for op in self._operators}
        for key, figures in self._counted.items():
            begun = before.get(key) or SubtaskFigures(figures.subtask)
            by_operator[key[0]].append(self._with_meters(key[0], _with_rates(figures, begun, seconds), now))
        return tuple(
            OperatorFigures(op, tuple(sorted(subtasks, key=lambda each: each.subtask)), state_bytes.get(op, 0))
            for op, subtasks in by_operator.items()
        )

    def _before(self, now: float) -> tuple[float, _Counted]:
        """Return the counts at the start of the window, and their time."""
        begin = now - WINDOW_SECONDS
        if self._last <= begin:
            return begin, self._counted
        known = [sample for sample in self._samples if sample[0] <= begin]
        return known[-1] if known else self._samples[0]

    def _nothing_yet(self, operator: int, subtask: int) -> SubtaskFigures:
        return SubtaskFigures(subtask, is_busy_known=operator not in self._by_spark)

    def _watermarks_before_slots(self, stats: EpochStats) -> Mapping[int, int]:
        """Return the watermarks of the assigners upstream of all slots, from the timestamps that the slots heard of."""
        seen = [report.event_time for report in stats.reports]
        return {
            assigner: max(strategy.watermark(max(largest)), MIN_WATERMARK)
            for assigner, strategy in self._plan.strategies.items()
            if assigner in self._on_source_side and (largest := [each[assigner] for each in seen if assigner in each])
        }

    def _read(self, operator: int, report: EpochReport, now: float) -> dict[str, MetricValue]:
        """Return the metrics of an operator's function, and note the events of its meters."""
        values = dict(report.metrics.get(operator, {}))
        for name, value in values.items():
            if isinstance(value, MeterReading):
                self._meters.setdefault((operator, report.subtask, name), MeterRate(self._began)).add(value, now)
                self._longest_meter = max(self._longest_meter, value.seconds)
        return values

    def _with_meters(self, operator: int, figures: SubtaskFigures, now: float) -> SubtaskFigures:
        rated = {
            name: msgspec.structs.replace(
                value, rate=self._meters[operator, figures.subtask, name].rate(value.seconds, now)
            )
            for name, value in figures.user.items()
            if isinstance(value, MeterReading)
        }
        return msgspec.structs.replace(figures, user=figures.user | rated) if rated else figures

    def _add(
        self,
        counted: dict[tuple[int, int], SubtaskFigures],
        operator: int,
        subtask: int,
        counts: OperatorCounts,
        watermark: int | None,
        user: dict[str, MetricValue] | None = None,
        *,
        at: int,
    ) -> None:
        before = counted.get((operator, subtask))
        if before is None:
            if operator not in self._on_source_side:
                return  # of an earlier plan
            before = self._nothing_yet(operator, subtask)
        counted[operator, subtask] = SubtaskFigures(
            subtask,
            records_in=before.records_in + counts.records_in,
            records_out=before.records_out + counts.records_out,
            bytes_in=before.bytes_in + counts.bytes_in,
            bytes_out=before.bytes_out + counts.bytes_out,
            busy_ms=before.busy_ms + counts.busy_seconds * 1000,
            watermark=before.watermark if watermark is None else watermark,
            entries=counts.held.entries,
            late_records_dropped=_sum(before.late_records_dropped, counts.late_records_dropped),
            user=user or {},
            is_busy_known=counts.is_timed,
            pending_records=before.pending_records,
            emitted_at=at if operator in self._sources and counts.records_out else before.emitted_at,
            keys=counts.held.keys,
            is_estimated=not counts.held.is_exact,
        )


def _width(operator: OperatorRecord) -> int:
    """Return how many subtasks are known beforehand: where Spark runs the operator, its partitions decide."""
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
