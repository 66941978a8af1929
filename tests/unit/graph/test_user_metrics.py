"""What the metrics of user functions promise: Flink's kinds and names, bounds, and values that can be sent."""

from __future__ import annotations

import math
import sys
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from checkdam.errors import JobGraphError
from checkdam.graph.metrics import (
    LONGEST_TEXT,
    MOST_METRICS,
    REMEMBERED,
    HistogramStatistics,
    MeterReading,
    MetricGroup,
    MetricValue,
    OperatorMetrics,
)
from checkdam.runtime.slot.control_messages import pack_answer, unpack_answer
from checkdam.runtime.slot.messages import EpochReport

LARGEST = sys.float_info.max


def _group() -> tuple[OperatorMetrics, MetricGroup]:
    metrics = OperatorMetrics("count")
    return metrics, MetricGroup(metrics)


def test_each_kind_has_its_value() -> None:
    metrics, group = _group()
    counter, meter, histogram = group.counter("seen"), group.meter("events"), group.histogram("sizes")
    group.gauge("mode", lambda: "fast")

    counter.inc()
    counter.inc(4)
    counter.dec(2)
    meter.mark_event()
    meter.mark_event(9)
    for size in range(1, 101):
        histogram.update(size)

    told = metrics.read()
    assert (told["seen"], told["events"], told["mode"]) == (3, MeterReading(10, 60.0), "fast")
    assert (counter.get_count(), meter.get_count(), histogram.get_count()) == (3, 10, 100)
    sizes = told["sizes"]
    assert isinstance(sizes, HistogramStatistics)
    assert (sizes.count, sizes.min, sizes.max, sizes.mean, sizes.median) == (100, 1.0, 100.0, 50.5, 50.5)
    assert sizes.stddev == pytest.approx(29.011, abs=0.001)
    assert sizes.p75 < sizes.p90 < sizes.p95 < sizes.p98 < sizes.p99 <= sizes.p999 <= sizes.max


def test_groups_stand_before_the_name_and_separators_become_underscores() -> None:
    metrics, group = _group()
    group.add_group("cache").counter("hits")
    group.add_group("topic", "my.orders").add_group("by user").counter("lag: max")

    assert list(metrics.read()) == ["cache.hits", "topic.my_orders.by_user.lag__max"]


def test_asking_again_returns_the_same_metric() -> None:
    metrics, group = _group()
    group.counter("seen").inc()

    group.counter("seen").inc()

    assert metrics.read() == {"seen": 2}
    assert group.histogram("a") is group.distribution("a")  # PyFlink's name


@pytest.mark.parametrize("name", ["", "a" * 81, "a\nb", "größe", 'a"b', "a{b}", "a/b", None, 3])
def test_a_name_that_could_not_be_shown_is_refused(name: Any) -> None:
    _, group = _group()

    with pytest.raises(JobGraphError, match="cannot have the name"):
        group.counter(name)
    with pytest.raises(JobGraphError, match="cannot have the name"):
        group.add_group(name)


def test_two_metrics_never_have_one_name() -> None:
    _, group = _group()
    group.counter("a-b")
    group.add_group("x").counter("y_z")

    with pytest.raises(JobGraphError, match='"a-b" of operator "count" is a counter already, and cannot be a meter'):
        group.meter("a-b")
    with pytest.raises(JobGraphError, match='same name in Prometheus as "a-b"'):
        group.counter("a_b")
    with pytest.raises(JobGraphError, match="same name in Prometheus"):
        group.add_group("x").add_group("y").counter("z")
    with pytest.raises(JobGraphError, match="name of a metric that every operator has"):
        group.counter("numRecordsIn")


def test_their_number_is_limited() -> None:
    _, group = _group()
    for number in range(MOST_METRICS):
        group.counter(f"c{number}")

    group.counter("c0")
    with pytest.raises(JobGraphError, match="one too many: an operator has at most 200"):
        group.counter("another")


@pytest.mark.parametrize("span", [0, -1, 1e9, math.nan])
def test_the_time_span_of_a_meter_is_limited(span: float) -> None:
    _, group = _group()

    with pytest.raises(JobGraphError, match="time span"):
        group.meter("events", span)


def test_a_gauge_needs_a_function() -> None:
    _, group = _group()

    with pytest.raises(JobGraphError, match='gauge "size" needs a function'):
        group.gauge("size", 5)  # type: ignore[arg-type]


def test_a_gauge_that_fails_has_no_value_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    metrics, group = _group()
    group.counter("seen").inc()
    group.gauge("broken", lambda: 1 // 0)

    assert metrics.read() == metrics.read() == {"seen": 1}
    assert [record.message for record in caplog.records] == [
        'gauge "broken" of operator "count" has no value: reading it failed'
    ]


class _Unreadable:
    """Can be counted, but is no number."""

    def __radd__(self, other: object) -> _Unreadable:
        return self

    def __float__(self) -> float:
        raise OverflowError("too large")


def test_whatever_was_counted_no_metric_fails_an_epoch(caplog: pytest.LogCaptureFixture) -> None:
    metrics, group = _group()
    group.counter("c").inc(_Unreadable())  # type: ignore[arg-type]
    group.meter("m").mark_event(_Unreadable())  # type: ignore[arg-type]
    group.gauge("g", lambda: 5)

    assert metrics.read() == metrics.read() == {"g": 5}
    assert [record.message for record in caplog.records] == [
        'counter "c" of operator "count" has no value: reading it failed',
        'meter "m" of operator "count" has no value: reading it failed',
    ]


class _Shown:
    def __str__(self) -> str:
        return "shown"


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (True, 1),
        (2**63 - 1, 2**63 - 1),
        (10**30, 1e30),
        (10**400, "Infinity"),
        (-(10**400), "-Infinity"),
        (math.inf, "Infinity"),
        (math.nan, "NaN"),
        (Decimal("nan"), "NaN"),
        (Decimal("1.5"), 1.5),
        ("x" * 1000, "x" * LONGEST_TEXT),
        ("\ud800", "?"),
        (_Shown(), "shown"),
        (None, "None"),
    ],
)
def test_every_value_of_a_gauge_can_be_sent(value: object, sent: MetricValue) -> None:
    metrics, group = _group()
    group.gauge("g", lambda: value)

    report = EpochReport(1, 0, metrics={3: metrics.read()})  # type: ignore[arg-type]

    assert unpack_answer("end_epoch", pack_answer(report)).metrics == {3: {"g": sent}}


@pytest.mark.parametrize("events", [math.nan, math.inf, -math.inf, 1e308, 10**400])
def test_a_meter_whose_rate_would_not_be_finite_has_no_value(events: Any) -> None:
    metrics, group = _group()
    group.meter("m").mark_event(events)

    assert metrics.read() == {}


def test_histograms_and_meters_arrive_as_they_were_sent() -> None:
    values: dict[str, MetricValue] = {"h": HistogramStatistics(3, 1.0, 2.0), "m": MeterReading(5, 60.0)}

    report = EpochReport(1, 0, metrics={3: values})  # type: ignore[arg-type]

    assert unpack_answer("end_epoch", pack_answer(report)).metrics == {3: values}


def test_a_histogram_is_of_its_latest_values() -> None:
    metrics, group = _group()
    histogram = group.histogram("h")
    for value in range(5 * REMEMBERED):
        histogram.update(value)
    histogram.update(math.nan)

    told = metrics.read()["h"]

    assert isinstance(told, HistogramStatistics)
    assert (told.count, told.min, told.max) == (5 * REMEMBERED + 1, 4 * REMEMBERED + 1, 5 * REMEMBERED - 1)
    assert metrics.read()["h"] is told  # not worked out again


@pytest.mark.parametrize(
    ("values", "mean", "stddev"),
    [
        ([1e200, 1.0], 5e199, math.sqrt(0.5) * 1e200),
        ([1e308] * 3, 1e308, 0.0),
        ([-1e308, 1e308], 0.0, math.sqrt(2) * 1e308),
        ([-LARGEST, LARGEST], 0.0, LARGEST),  # the true one is larger than any number
        ([LARGEST] * 7, LARGEST, 0.0),
    ],
)
def test_a_histogram_of_huge_values_has_statistics(values: list[float], mean: float, stddev: float) -> None:
    metrics, group = _group()
    for value in values:
        group.histogram("h").update(value)

    told = metrics.read()["h"]

    assert isinstance(told, HistogramStatistics)
    assert all(math.isfinite(each) for each in msgspec.structs.astuple(told))
    assert (told.count, told.min, told.max) == (len(values), min(values), max(values))
    assert (told.mean, told.stddev, told.median) == pytest.approx((mean, stddev, mean))
    assert told.p75 <= told.p99 <= told.p999 <= told.max


def test_a_histogram_takes_numbers_only_and_says_so_where_it_is_updated() -> None:
    _, group = _group()

    with pytest.raises(ValueError, match="could not convert"):
        group.histogram("h").update("much")  # type: ignore[arg-type]


def test_a_histogram_without_values_is_empty() -> None:
    metrics, group = _group()
    group.histogram("h")

    assert msgspec.to_builtins(metrics.read()["h"])["count"] == 0
