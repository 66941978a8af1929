"""The cases of PyFlink's own window tests, as facts: records, windows, and the results that PyFlink expects.

PyFlink's watermark comes every 200 ms, so its tests see none before the end of their input: that is one epoch here. One
case needs a watermark after each record (see NEEDS_WATERMARKS_WITHIN_AN_EPOCH): it passes with an epoch for each one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from checkdam import (
    AggregateFunction,
    AllWindowFunction,
    CountTrigger,
    DataStream,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    PurgingTrigger,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    WindowFunction,
)
from checkdam.testing import LocalJob

Pair = tuple[str, int]
Counted = tuple[str, int, int, int]
LATE = OutputTag("late", Pair)

NEEDS_WATERMARKS_WITHIN_AN_EPOCH = {"side_output_late_data"}


def _ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def _add_values(one: Pair, other: Pair) -> Pair:
    return one[0], one[1] + other[1]


class CountInWindow(ProcessWindowFunction[str, Pair, Counted, Any]):
    def process(self, key: str, ctx: Any, elements: Sequence[Pair]) -> Iterator[Counted]:
        yield key, ctx.window.start, ctx.window.end, len(elements)


class CountAllInWindow(ProcessAllWindowFunction[Pair, tuple[int, int, int], Any]):
    def process(self, ctx: Any, elements: Sequence[Pair]) -> Iterator[tuple[int, int, int]]:
        yield ctx.window.start, ctx.window.end, len(elements)


class CountByKey(ProcessWindowFunction[str, Pair, Pair, Any]):
    def process(self, key: str, ctx: Any, elements: Sequence[Pair]) -> Iterator[Pair]:
        yield key, len(elements)


class SumByKey(WindowFunction[str, Pair, Pair, Any]):
    """Adds the values of a window that has at least so many records."""

    def __init__(self, at_least: int = 1) -> None:
        self._at_least = at_least

    def apply(self, key: str, window: Any, elements: Sequence[Pair]) -> Iterator[Pair]:
        if len(elements) >= self._at_least:
            yield key, sum(value for _, value in elements)


class StartAndResult(ProcessWindowFunction[str, Pair, tuple[int, str, int], Any]):
    def process(self, key: str, ctx: Any, elements: Sequence[Pair]) -> Iterator[tuple[int, str, int]]:
        yield ctx.window.start, *elements[0]


class StartAndResultOfAll(AllWindowFunction[Pair, tuple[int, str, int], Any]):
    def apply(self, window: Any, elements: Sequence[Pair]) -> Iterator[tuple[int, str, int]]:
        yield window.start, *elements[0]


class Told(ProcessWindowFunction[str, Pair, str, Any]):
    def process(self, key: str, ctx: Any, elements: Sequence[Pair]) -> Iterator[str]:
        yield f"{elements[0][0]} sums to {elements[0][1]}"


class ToldOfAll(ProcessAllWindowFunction[Pair, str, Any]):
    def process(self, ctx: Any, elements: Sequence[Pair]) -> Iterator[str]:
        yield f"{elements[0][0]} sums to {elements[0][1]}"


class EvenMinusOdd(AggregateFunction[Pair, tuple[str, dict[int, int]], Pair]):
    """How many more even values there are than odd ones, with the last key."""

    def create_accumulator(self) -> tuple[str, dict[int, int]]:
        return "", {0: 0, 1: 0}

    def add(self, value: Pair, accumulator: tuple[str, dict[int, int]]) -> tuple[str, dict[int, int]]:
        accumulator[1][value[1] % 2] += 1
        return value[0], accumulator[1]

    def get_result(self, accumulator: tuple[str, dict[int, int]]) -> Pair:
        return accumulator[0], accumulator[1][0] - accumulator[1][1]

    def merge(self, one: tuple[str, dict[int, int]], other: tuple[str, dict[int, int]]) -> tuple[str, dict[int, int]]:
        return one[0], {parity: one[1][parity] + other[1][parity] for parity in (0, 1)}


class SumWithLastKey(AggregateFunction[Pair, tuple[int, str], Pair]):
    def create_accumulator(self) -> tuple[int, str]:
        return 0, ""

    def add(self, value: Pair, accumulator: tuple[int, str]) -> tuple[int, str]:
        return accumulator[0] + value[1], value[0]

    def get_result(self, accumulator: tuple[int, str]) -> Pair:
        return accumulator[1], accumulator[0]

    def merge(self, one: tuple[int, str], other: tuple[int, str]) -> tuple[int, str]:
        return one[0] + other[0], one[1]


@dataclass(frozen=True)
class Case:
    name: str
    records: Sequence[tuple[Any, ...]]
    windows: Callable[[DataStream[Any]], DataStream[Any]]
    results: Iterable[Any]
    late: Iterable[Any] | None = None
    time_column: int = 1


def _of_hi(*times: int) -> list[Pair]:
    return [("hi", time) for time in times]


LETTERS = [("a", 1), ("a", 2), ("b", 3), ("a", 6), ("b", 8), ("b", 9), ("a", 15)]
MINUTE = 1676461680000
CHAINED = [
    (MINUTE, "a1", "b1", 1),
    (MINUTE, "a1", "b1", 1),
    (MINUTE, "a2", "b2", 1),
    (MINUTE, "a1", "b2", 1),
    (MINUTE + 60_000, "a1", "b1", 1),
    (MINUTE + 60_000, "a2", "b2", 1),
]
Chained = tuple[int, str, str, int]


def _letters_in_sessions(stream: DataStream[Any]) -> Any:
    return stream.key_by(0).window(EventTimeSessionWindows(_ms(2)))


def _all_in_sessions(stream: DataStream[Any]) -> Any:
    return stream.window_all(EventTimeSessionWindows(_ms(2)))


CASES = [
    Case(
        "event_time_tumbling_window",
        _of_hi(1, 2, 3, 4, 5, 8, 9, 15),
        lambda stream: stream.key_by(0).window(TumblingEventTimeWindows(_ms(5))).process(CountInWindow()),
        [("hi", 0, 5, 4), ("hi", 5, 10, 3), ("hi", 15, 20, 1)],
    ),
    Case(
        "count_tumbling_window",
        [("hi", 1), ("hello", 2), ("hi", 3), ("hello", 4), ("hi", 5), ("hello", 6), ("hello", 6)],
        lambda stream: stream.key_by(0).count_window(3).apply(SumByKey()),
        [("hi", 9), ("hello", 12)],
    ),
    Case(
        "event_time_sliding_window",
        _of_hi(1, 2, 3, 4, 5, 8, 9, 15),
        lambda stream: stream.key_by(0).window(SlidingEventTimeWindows(_ms(5), _ms(2))).process(CountInWindow()),
        [
            ("hi", -2, 3, 2),
            ("hi", 0, 5, 4),
            ("hi", 2, 7, 4),
            ("hi", 4, 9, 3),
            ("hi", 6, 11, 2),
            ("hi", 8, 13, 2),
            ("hi", 12, 17, 1),
            ("hi", 14, 19, 1),
        ],
    ),
    Case(  # PyFlink has only windows that are full; in Java, and here, the first ones of a key have fewer records
        "count_sliding_window",
        [("hi", 1), ("hello", 2), ("hi", 3), ("hello", 4), ("hi", 5), ("hello", 6)],
        lambda stream: stream.key_by(0).count_window(2, 1).apply(SumByKey(at_least=2)),
        [("hello", 6), ("hi", 8), ("hi", 4), ("hello", 10)],
    ),
    Case(
        "event_time_session_window",
        _of_hi(1, 2, 3, 4, 8, 9, 15),
        lambda stream: stream.key_by(0).window(EventTimeSessionWindows(_ms(5))).process(CountInWindow()),
        [("hi", 1, 14, 6), ("hi", 15, 20, 1)],
    ),
    Case(
        "event_time_dynamic_gap_session_window",
        _of_hi(1, 2, 3, 4, 9, 9, 15),
        lambda stream: (
            stream.key_by(0).window(EventTimeSessionWindows(lambda record: _ms(record[1]))).process(CountInWindow())
        ),
        [("hi", 1, 8, 4), ("hi", 9, 30, 3)],
    ),
    Case(
        "window_reduce_passthrough",
        LETTERS,
        lambda stream: _letters_in_sessions(stream).reduce(_add_values),
        [("a", 3), ("a", 6), ("a", 15), ("b", 3), ("b", 17)],
    ),
    Case(
        "window_reduce_process",
        LETTERS,
        lambda stream: _letters_in_sessions(stream).reduce(_add_values, StartAndResult()),
        [(1, "a", 3), (15, "a", 15), (3, "b", 3), (6, "a", 6), (8, "b", 17)],
    ),
    Case(
        "window_aggregate_passthrough",
        LETTERS,
        lambda stream: _letters_in_sessions(stream).aggregate(EvenMinusOdd()),
        [("a", -1), ("a", 0), ("a", 1), ("b", -1), ("b", 0)],
    ),
    Case(
        "window_aggregate_accumulator_type",
        LETTERS,
        lambda stream: _letters_in_sessions(stream).aggregate(
            SumWithLastKey(), accumulator_type=tuple[int, str], output_type=Pair
        ),
        [("a", 15), ("a", 3), ("a", 6), ("b", 17), ("b", 3)],
    ),
    Case(
        "window_aggregate_process",
        LETTERS,
        lambda stream: _letters_in_sessions(stream).aggregate(SumWithLastKey(), Told()),
        ["a sums to 15", "a sums to 3", "a sums to 6", "b sums to 17", "b sums to 3"],
    ),
    Case(
        "session_window_late_merge",
        _of_hi(0, 8, 4),
        lambda stream: stream.key_by(0).window(EventTimeSessionWindows(_ms(5))).process(CountInWindow()),
        [("hi", 0, 13, 3)],
    ),
    Case(
        "event_time_session_window_with_purging_trigger",
        _of_hi(1, 2, 3, 4, 8, 9, 15),
        lambda stream: (
            stream.key_by(0)
            .window(EventTimeSessionWindows(_ms(3)))
            .trigger(PurgingTrigger(EventTimeTrigger()))
            .process(CountInWindow())
        ),
        [("hi", 1, 7, 4), ("hi", 8, 12, 2), ("hi", 15, 18, 1)],
    ),
    Case(
        "global_window_with_purging_trigger",
        _of_hi(1, 1, 1, 1, 1, 1, 1),
        lambda stream: (
            stream.key_by(0).window(GlobalWindows()).trigger(PurgingTrigger(CountTrigger(2))).process(CountByKey())
        ),
        [("hi", 2), ("hi", 2), ("hi", 2)],
    ),
    Case(
        "event_time_tumbling_window_all",
        [("hi", 1), ("hello", 2), ("hi", 3), ("hello", 4), ("hello", 5), ("hi", 8), ("hi", 9), ("hi", 15)],
        lambda stream: stream.window_all(TumblingEventTimeWindows(_ms(5))).process(CountAllInWindow()),
        [(0, 5, 4), (15, 20, 1), (5, 10, 3)],
    ),
    Case(
        "window_all_reduce",
        LETTERS,
        lambda stream: _all_in_sessions(stream).reduce(_add_values),
        [("a", 15), ("a", 6), ("a", 23)],
    ),
    Case(
        "window_all_reduce_process",
        LETTERS,
        lambda stream: _all_in_sessions(stream).reduce(_add_values, StartAndResultOfAll()),
        [(1, "a", 6), (6, "a", 23), (15, "a", 15)],
    ),
    Case(
        "window_all_aggregate",
        LETTERS,
        lambda stream: _all_in_sessions(stream).aggregate(EvenMinusOdd()),
        [("a", -1), ("b", -1), ("b", 1)],
    ),
    Case(
        "window_all_aggregate_process",
        LETTERS,
        lambda stream: _all_in_sessions(stream).aggregate(
            SumWithLastKey(), ToldOfAll(), accumulator_type=tuple[int, str], output_type=str
        ),
        ["b sums to 6", "b sums to 23", "a sums to 15"],
    ),
    Case(
        "side_output_late_data",
        [("a", 0), ("a", 8), ("a", 4), ("a", 6)],
        lambda stream: (
            stream.key_by(0)
            .window(TumblingEventTimeWindows(_ms(5)))
            .allowed_lateness(_ms(0))
            .side_output_late_data(LATE)
            .process(CountInWindow())
        ),
        [("a", 0, 5, 1), ("a", 5, 10, 2)],
        late=[("a", 4)],
    ),
    Case(
        "chained_window",
        CHAINED,
        lambda stream: (
            stream.key_by(lambda record: record[:3], key_type=tuple[int, str, str])
            .window(TumblingEventTimeWindows(timedelta(minutes=1)))
            .reduce(lambda one, other: (*one[:3], one[3] + other[3]))
            .uid("windows")
            .map(lambda record: (record[0], record[1], record[3]), output_type=tuple[int, str, int])
        ),
        [
            (MINUTE, "a1", 1),
            (MINUTE, "a1", 2),
            (MINUTE, "a2", 1),
            (MINUTE + 60_000, "a1", 1),
            (MINUTE + 60_000, "a2", 1),
        ],
        time_column=0,
    ),
]


def _run(case: Case, epochs: Sequence[Sequence[Any]], parallelism: int) -> tuple[list[Any], list[Any]]:
    results: list[Any] = []
    late: list[Any] = []

    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        strategy = WatermarkStrategy.for_monotonous_timestamps(lambda record: record[case.time_column])
        output = case.windows(stream.assign_timestamps_and_watermarks(strategy)).uid("output")
        output.sink_to_spark(lambda rows, epoch: results.extend(rows))
        if case.late is not None:
            output.get_side_output(LATE).sink_to_spark(lambda rows, epoch: late.extend(rows))

    record_type = Chained if case.time_column == 0 else Pair
    LocalJob(build, epochs, None, parallelism=parallelism, record_type=record_type).run()
    return sorted(results), sorted(late)


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_windows_have_the_results_that_pyflink_expects(case: Case, parallelism: int) -> None:
    each_an_epoch = [[record] for record in case.records]
    epochs = each_an_epoch if case.name in NEEDS_WATERMARKS_WITHIN_AN_EPOCH else [case.records]

    results, late = _run(case, epochs, parallelism)

    assert results == sorted(case.results)
    assert late == sorted(case.late or ())


def test_no_record_is_late_in_the_epoch_that_brings_later_ones() -> None:
    case = next(case for case in CASES if case.name == "side_output_late_data")

    results, late = _run(case, [case.records], parallelism=1)

    assert results == [("a", 0, 5, 2), ("a", 5, 10, 2)]
    assert late == []


def test_the_first_sliding_count_windows_of_a_key_are_not_full() -> None:
    records = [("hi", 1), ("hi", 3), ("hi", 5)]
    case = Case("", records, lambda stream: stream.key_by(0).count_window(2, 1).apply(SumByKey()), ())

    results, _ = _run(case, [records], parallelism=1)

    assert results == [("hi", 1), ("hi", 4), ("hi", 8)]
