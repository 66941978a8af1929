"""Timers fire in the epoch that a simple model says, however many subtasks there are and whatever is lost."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.graph.contexts import OutputTag
from checkdam.graph.functions import KeyedProcessFunction
from checkdam.graph.watermarks import WatermarkStrategy
from checkdam.testing import MemoryStorage
from checkdam.testing.local_job import LocalJob
from checkdam.testing.scripted_source import ScriptedSource
from checkdam.testing.trouble import Step, Trouble, kill_slot
from checkdam.types.type_info import type_info

pytestmark = pytest.mark.slow

Event = tuple[str, int]
LATE = 3


class Alarm(KeyedProcessFunction):
    def process_element(self, value: Event, ctx: Any) -> None:
        ctx.timer_service.register_event_time_timer(value[1])

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Event]:
        yield ctx.current_key, timestamp


def expected(first: list[list[Event]], second: list[list[Event]]) -> list[list[Event]]:
    """What rings in each epoch, and at the end: a timer once, unless its record comes again later."""
    rings: list[list[Event]] = []
    largest: dict[int, int] = {}
    timers: set[Event] = set()
    for epoch in range(max(len(first), len(second))):
        for stream, events in enumerate((first[epoch : epoch + 1], second[epoch : epoch + 1])):
            for event in [each for some in events for each in some]:
                timers.add(event)
                largest[stream] = max(event[1], largest.get(stream, event[1]))
        watermark = min(largest[0] - 1, largest[1] - LATE - 1) if len(largest) == 2 else -1
        due = {event for event in timers if event[1] <= watermark}
        timers -= due
        rings.append(sorted(due))
    return [*rings, sorted(timers)]


streams = st.lists(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 20)), max_size=4), min_size=1, max_size=4)
steps = st.sampled_from([Step.BEFORE_LEVEL, Step.AFTER_LEVEL, Step.EPOCH_DONE, Step.EPOCH_ENDED, Step.BEFORE_WRITING])
troubles = st.lists(
    st.builds(lambda step, n: Trouble(step, kill_slot(n), number=n), steps, st.integers(1, 5)), max_size=2
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(streams, streams, st.integers(1, 4), troubles, st.booleans())
def test_timers_fire_with_the_epoch_that_brings_the_slower_stream_there(
    first: list[list[Event]], second: list[list[Event]], parallelism: int, troubles: list[Trouble], joins_batches: bool
) -> None:
    rings: dict[int, list[Event]] = {}

    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        one = WatermarkStrategy.for_monotonous_timestamps(lambda event: event[1])
        late = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(milliseconds=LATE), lambda event: event[1])
        spec = ScriptedSource(tuple(map(tuple, second)))
        other = environment._source("other", spec, type_info(tuple[str, int])).assign_timestamps_and_watermarks(late)
        both = stream.assign_timestamps_and_watermarks(one).union(other).key_by(0, key_type=str)
        both.process(Alarm(), output_type=tuple[str, int]).uid("alarm").sink_to_spark(ring)

    def ring(rows: list[Event], epoch: int) -> None:
        if rings and epoch <= max(rings):  # again, after a failover
            for later in [each for each in rings if each > epoch]:
                del rings[later]
        rings[epoch] = sorted(rows)

    LocalJob(
        build,
        first,
        MemoryStorage(),
        record_type=tuple[str, int],
        parallelism=parallelism,
        troubles=troubles,
        joins_batches=joins_batches,
    ).run()

    rung = [event for epoch in sorted(rings) for event in rings[epoch]]
    model = expected(first, second)
    assert sorted(rung) == sorted(event for epoch in model for event in epoch)
    if not any(trouble.happened.is_set() for trouble in troubles):  # a restart may put ticks in between
        assert [rings[epoch] for epoch in sorted(rings)] == model


class Stamp(KeyedProcessFunction):
    """Passes each record on with its own timestamp, as many times as it says, and one copy aside."""

    def process_element(self, value: Event, ctx: Any) -> Iterator[tuple[str, int, int | None]]:
        ctx.output(ASIDE, (*value[:2], ctx.timestamp))
        for _ in range(value[1] % 3):
            yield value[0], value[1], ctx.timestamp


Stamped = tuple[str, int, int | None]
ASIDE = OutputTag("aside", Stamped)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(streams, streams, st.integers(1, 3), st.booleans(), st.booleans())
def test_every_record_keeps_its_timestamp_or_has_none_whatever_it_travels_with(
    first: list[list[Event]],
    second: list[list[Event]],
    parallelism: int,
    is_stamped_first: bool,
    joins_batches: bool,
) -> None:
    passed: list[Stamped] = []
    aside: list[Stamped] = []

    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        by_time = WatermarkStrategy.for_monotonous_timestamps(lambda event: event[1])
        other = environment._source("other", ScriptedSource(tuple(map(tuple, second))), type_info(tuple[str, int]))
        stamped = stream.assign_timestamps_and_watermarks(by_time)
        both = stamped.union(other) if is_stamped_first else other.union(stamped)
        once = both.key_by(0, key_type=str).process(Stamp(), output_type=Stamped).uid("once")
        once.get_side_output(ASIDE).key_by(0, key_type=str).process(Again(), output_type=Stamped).uid(
            "aside"
        ).sink_to_spark(lambda rows, epoch: aside.extend(rows))
        again = once.key_by(0, key_type=str).process(Again(), output_type=Stamped).uid("again")
        again.sink_to_spark(lambda rows, epoch: passed.extend(rows))

    LocalJob(
        build,
        first,
        MemoryStorage(),
        record_type=tuple[str, int],
        parallelism=parallelism,
        joins_batches=joins_batches,
    ).run()

    expected: list[Stamped] = [(*event, event[1]) for epoch in first for event in epoch]
    expected += [(*event, None) for epoch in second for event in epoch]
    assert sorted(aside, key=repr) == sorted(expected, key=repr)
    assert sorted(passed, key=repr) == sorted((each for each in expected for _ in range(each[1] % 3)), key=repr)


class Again(KeyedProcessFunction):
    """Says the timestamp of a record that another exchange brought, in place of that of the one before."""

    def process_element(self, value: Stamped, ctx: Any) -> Iterator[Stamped]:
        assert ctx.timestamp == value[2]
        yield value[0], value[1], ctx.timestamp
