"""What figures by the second promise: they are of the last seconds, and fade when nothing comes."""

from __future__ import annotations

import pytest
from tests.support.word_count import WordCount

from checkdam.graph.levels import JobPlan
from checkdam.graph.metrics import MeterReading
from checkdam.ids import Epoch, SubtaskIndex
from checkdam.runtime.monitor.job_description import operator_records
from checkdam.runtime.monitor.job_events import EpochStats
from checkdam.runtime.monitor.job_records import SubtaskFigures
from checkdam.runtime.monitor.operator_figures import WINDOW_SECONDS, Figures
from checkdam.runtime.monitor.source_side import source_side_counts
from checkdam.runtime.slot.messages import EdgeCounts, EpochReport, OperatorCounts
from checkdam.state.state_count import StateCount

SOURCE, MAP, SUM, SINK = range(4)


def _plan() -> JobPlan:
    return WordCount([["a"]]).job().job().plan


def _stats(records: int, *, busy: float = 0.0, watermark: int | None = None) -> EpochStats:
    report = EpochReport(
        Epoch(0),
        SubtaskIndex(1),
        {SUM: OperatorCounts(records, records, records * 10, 0, busy, held=StateCount(7, 5, is_exact=False))},
        watermarks={} if watermark is None else {SUM: watermark},
    )
    return EpochStats(Epoch(0), records, 0.1, StateCount(7), [report])


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
        figures.epoch_ended(EpochStats(Epoch(0), 1, 0.1, StateCount(7), [report]), 1.0)

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
    unknown = OperatorCounts(0, 4, is_timed=False)
    counted = {(MAP, 0): OperatorCounts(4, 3, busy_seconds=0.2), (MAP, 1): OperatorCounts(4, 2)}
    stats = EpochStats(
        Epoch(0),
        5,
        0.1,
        StateCount(),
        [],
        {(SOURCE, 0): OperatorCounts(0, 4), (SOURCE, 1): OperatorCounts(0, 4), **counted},
    )

    assert source_side_counts(_plan(), stats) == {(SOURCE, 0): unknown, (SOURCE, 1): unknown, **counted}

    figures = Figures(_plan(), operator_records(_plan()), 0.0)
    figures.epoch_ended(stats, 1.0, at=5_000)
    source, mapped = figures.records({}, 1.0)[SOURCE].subtasks, figures.records({}, 1.0)[MAP].subtasks
    assert [(each.subtask, each.records_out, each.emitted_at, each.is_busy_known) for each in source] == [
        (0, 4, 5_000, False),
        (1, 4, 5_000, False),
    ]
    assert [(each.subtask, each.records_out_per_second, each.busy_ms, each.is_busy_known) for each in mapped] == [
        (0, 3.0, 200.0, True),
        (1, 2.0, 0.0, True),
    ]


def test_where_spark_alone_read_the_source_side_has_what_came_behind_the_exchange() -> None:
    plan = _plan()
    [edge] = plan.edges
    reports = [
        EpochReport(Epoch(0), SubtaskIndex(i), received={edge.id: EdgeCounts(records, records * 8)})
        for i, records in enumerate([3, 4])
    ]

    counts = source_side_counts(plan, EpochStats(Epoch(0), 7, 0.1, StateCount(), reports))

    assert counts == {
        (SOURCE, 0): OperatorCounts(0, 7, is_timed=False),
        (MAP, 0): OperatorCounts(7, 7, 0, 56, is_timed=False),
    }


def _events(count: int) -> EpochStats:
    report = EpochReport(
        Epoch(0), SubtaskIndex(1), {SUM: OperatorCounts()}, metrics={SUM: {"events": MeterReading(count, 60.0)}}
    )
    return EpochStats(Epoch(0), 0, 0.1, StateCount(), [report])


def _rate(figures: Figures, now: float) -> float:
    meter = _sum(figures, now).user["events"]
    assert isinstance(meter, MeterReading)
    return meter.rate


def test_a_meter_tells_the_rate_of_its_time_span_and_fades_without_epochs() -> None:
    figures = Figures(_plan(), operator_records(_plan()), 0.0)
    for second in range(1, 201):
        figures.epoch_ended(_events(1000 * min(second, 100) + 10 * max(0, second - 100)), float(second))

    assert _rate(figures, 200.0) == pytest.approx(10)
    assert _rate(figures, 230.0) == pytest.approx(5, rel=0.1)
    assert figures.is_moving(259.0)
    assert _rate(figures, 261.0) == 0


def test_a_young_meter_is_measured_since_the_attempt_began() -> None:
    figures = Figures(_plan(), operator_records(_plan()), 100.0)
    figures.epoch_ended(_events(50), 105.0)

    assert _rate(figures, 105.0) == pytest.approx(10)


def test_a_meter_keeps_few_samples() -> None:
    figures = Figures(_plan(), operator_records(_plan()), 0.0)
    for step in range(20_000):
        figures.epoch_ended(_events(step), step / 100)

    [meter] = figures._meters.values()
    assert len(meter._counts) <= 63
    assert _rate(figures, 200.0) == pytest.approx(100, rel=0.05)


def test_what_a_source_has_not_read_is_kept_until_it_does_not_tell() -> None:
    figures = Figures(_plan(), operator_records(_plan()), 0.0)
    figures.sources_seen({SOURCE: 90})
    figures.epoch_ended(EpochStats(Epoch(0), 0, 0.1, StateCount(), [], {(SOURCE, 0): OperatorCounts(0, 1)}), 1.0, at=5)

    assert figures.records({}, 1.0)[SOURCE].subtasks[0].pending_records == 90

    figures.sources_seen({})
    assert figures.records({}, 1.0)[SOURCE].subtasks[0].pending_records is None
