"""What figures by the second promise: they are of the last seconds, and fade when nothing comes."""

from __future__ import annotations

import pytest
from tests.support.word_count import WordCount

from checkdam.graph.levels import JobPlan
from checkdam.ids import Epoch, SubtaskIndex
from checkdam.runtime.monitor.job_description import operator_records
from checkdam.runtime.monitor.job_events import EpochStats
from checkdam.runtime.monitor.job_records import SubtaskFigures
from checkdam.runtime.monitor.operator_figures import WINDOW_SECONDS, Figures
from checkdam.runtime.monitor.source_side import source_side_counts
from checkdam.runtime.slot.messages import EdgeCounts, EpochReport, OperatorCounts

SOURCE, MAP, SUM, SINK = range(4)


def _plan() -> JobPlan:
    return WordCount([["a"]]).job().job().plan


def _stats(records: int, *, busy: float = 0.0, watermark: int | None = None) -> EpochStats:
    report = EpochReport(
        Epoch(0),
        SubtaskIndex(1),
        {SUM: OperatorCounts(records, records, records * 10, 0, busy, entries=7)},
        watermarks={} if watermark is None else {SUM: watermark},
    )
    return EpochStats(Epoch(0), records, 0.1, 7, [report])


def _sum(figures: Figures, now: float) -> SubtaskFigures:
    return figures.records({}, now)[SUM].subtasks[1]


def test_rates_are_those_of_the_window_and_counts_those_of_the_attempt() -> None:
    figures = Figures(_plan(), operator_records(_plan()), 0.0)
    for second in range(1, 101):
        figures.epoch_ended(_stats(1000 if second <= 50 else 10, busy=0.5), float(second))

    told = _sum(figures, 100.0)

    assert told.records_in == 50_500
    assert told.records_in_per_second == pytest.approx(10)
    assert told.bytes_in_per_second == pytest.approx(100)
    assert told.busy_ratio == pytest.approx(0.5)
    assert told.busy_ms == pytest.approx(50_000)
    assert told.entries == 7


def test_late_records_dropped_are_those_of_the_attempt() -> None:
    figures = Figures(_plan(), operator_records(_plan()), 0.0)
    for dropped in (2, 0, 3):
        counts = {SUM: OperatorCounts(1, 1, late_records_dropped=dropped)}
        report = EpochReport(Epoch(0), SubtaskIndex(1), counts, watermarks={})
        figures.epoch_ended(EpochStats(Epoch(0), 1, 0.1, 7, [report]), 1.0)

    assert _sum(figures, 2.0).late_records_dropped == 5
    assert figures.records({}, 2.0)[MAP].subtasks[0].late_records_dropped is None


def test_rates_fade_when_nothing_comes_any_more() -> None:
    figures = Figures(_plan(), operator_records(_plan()), 0.0)
    figures.epoch_ended(_stats(1000), 1.0)
    figures.epoch_ended(_stats(1000), 1.2)  # so soon that no sample of it is kept

    soon, late = _sum(figures, 2.0), _sum(figures, 1.3 + WINDOW_SECONDS)

    assert soon.records_in_per_second == pytest.approx(1000)
    assert late.records_in_per_second == 0
    assert late.records_in == 2000


def test_many_short_epochs_keep_few_samples() -> None:
    figures = Figures(_plan(), operator_records(_plan()), 0.0)
    for step in range(10_000):
        figures.epoch_ended(_stats(1), step / 100)

    assert len(figures._samples) <= WINDOW_SECONDS * 2 + 2
    assert _sum(figures, 100.0).records_in_per_second == pytest.approx(100, rel=0.1)


def test_a_watermark_stays_until_there_is_a_later_one() -> None:
    figures = Figures(_plan(), operator_records(_plan()), 0.0)
    figures.epoch_ended(_stats(1, watermark=99), 1.0)
    figures.epoch_ended(_stats(1), 2.0)

    assert _sum(figures, 2.0).watermark == 99


def test_what_python_counted_on_the_source_side_is_told() -> None:
    counted = {SOURCE: OperatorCounts(0, 8), MAP: OperatorCounts(8, 5)}
    stats = EpochStats(Epoch(0), 5, 0.1, 0, [], counted)

    assert source_side_counts(_plan(), stats) == counted


def test_where_spark_alone_read_the_source_side_has_what_came_behind_the_exchange() -> None:
    plan = _plan()
    [edge] = plan.edges
    reports = [
        EpochReport(Epoch(0), SubtaskIndex(i), received={edge.id: EdgeCounts(records, records * 8)})
        for i, records in enumerate([3, 4])
    ]

    counts = source_side_counts(plan, EpochStats(Epoch(0), 7, 0.1, 0, reports))

    assert counts == {SOURCE: OperatorCounts(0, 7), MAP: OperatorCounts(7, 7, 0, 56)}
