"""Windows that aggregate by epoch give what windows that handle record by record give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from checkdam import (
    AggregateFunction,
    DataStream,
    EventTimeSessionWindows,
    OutputTag,
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    TimeWindow,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    WindowContext,
)
from checkdam.runtime.slot.windows import window_aggregation
from checkdam.testing import LocalJob, MemoryStorage, OutputDirectory

pytestmark = pytest.mark.slow

Event = tuple[str, int, int]
Pair = tuple[str, int]
LATE = OutputTag("late", Event)


class Average(AggregateFunction[Event, tuple[int, int], str]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Event, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value[1], accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> str:
        return f"{accumulator[0]} of {accumulator[1]}"

    def merge(self, one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
        return one[0] + other[0], one[1] + other[1]


class Named(ProcessWindowFunction[str, str, str, TimeWindow]):
    def process(self, key: str, ctx: WindowContext[TimeWindow], elements: Sequence[str]) -> Iterator[str]:
        yield f"{key} {ctx.window} {elements[0]}"


add = lambda a, b: (a[0], a[1] + b[1])  # noqa: E731  Checkdam knows this one
averaged: Any = Average()


def first_and_sum(one: Event, other: Event) -> Event:
    """Combine two events in a way that depends on their order."""
    return one[0], one[1] + other[1], one[2]


def ms(count: int) -> timedelta:
    return timedelta(milliseconds=count)


def gap_by_value(event: Event) -> timedelta:
    return ms(2 + event[1])


@st.composite
def assigners(draw: st.DrawFn) -> TumblingEventTimeWindows | SlidingEventTimeWindows | EventTimeSessionWindows[Event]:
    size = draw(st.sampled_from([5, 10, 12]))
    kind = draw(st.sampled_from(["tumbling", "sliding", "session"]))
    if kind == "tumbling":
        return TumblingEventTimeWindows(ms(size), ms(draw(st.sampled_from([0, 1, -2]))))
    if kind == "session":
        return EventTimeSessionWindows(draw(st.sampled_from([ms(3), ms(8)])) if draw(st.booleans()) else gap_by_value)
    slide = draw(st.sampled_from([1, 3, 5, 7, 40]))
    return SlidingEventTimeWindows(ms(size), ms(slide), ms(draw(st.sampled_from([0, slide - 1]))))


events = st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(-30, 60))
epochs_of_events = st.lists(st.lists(events, max_size=12), min_size=1, max_size=5)


@given(
    epochs=epochs_of_events,
    assigner=assigners(),
    disorder=st.sampled_from([0, 3, 20]),
    lateness=st.sampled_from([0, 5, 25]),
    function=st.sampled_from(["sum", "min", "max", "reduce", "aggregate"]),
    are_pairs=st.booleans(),
)
@settings(max_examples=examples(160), deadline=None)
def test_the_way_of_aggregating_does_not_change_the_result(
    epochs: list[list[Event]], assigner: Any, disorder: int, lateness: int, function: str, are_pairs: bool
) -> None:
    late_records: OutputTag[Any] = OutputTag("late", Pair) if are_pairs else LATE  # pairs are combined as columns

    def results(*, is_by_epoch: bool) -> tuple[list[str], list[str]]:
        output, late = OutputDirectory(), OutputDirectory()

        def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
            strategy = WatermarkStrategy.for_bounded_out_of_orderness(ms(disorder), lambda event: event[2])
            timed = stream.map(tuple, output_type=Event).assign_timestamps_and_watermarks(strategy)
            records: DataStream[Any] = timed.map(lambda event: event[:2], output_type=Pair) if are_pairs else timed
            windows = (
                records.key_by(lambda event: event[0], key_type=str)
                .window(assigner)
                .allowed_lateness(ms(lateness))
                .side_output_late_data(late_records)
            )
            made: DataStream[Any]
            if function == "aggregate":
                made = windows.aggregate(averaged, Named())
            elif function == "reduce":
                made = windows.reduce(add if are_pairs else first_and_sum)
            else:
                made = getattr(windows, function)(1)
            made.uid("windows")
            made.get_side_output(late_records).sink_to_files(late.uri).uid("late")
            made.map(str, output_type=str).sink_to_files(output.uri).uid("out")

        with pytest.MonkeyPatch.context() as patch:
            if not is_by_epoch:
                patch.setattr(window_aggregation, "is_aggregable", lambda kind: False)
            LocalJob(build, epochs, MemoryStorage(), parallelism=2).run()
        return sorted(map(str, output.rows())), sorted(map(str, late.rows()))

    assert results(is_by_epoch=True) == results(is_by_epoch=False)
