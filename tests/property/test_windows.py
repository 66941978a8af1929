"""Windowed programs give what a simple model says, however the input is cut, whatever dies and wherever it goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.property.window_model import Windowing, WindowModel, shown

from checkdam import (
    AggregateFunction,
    ContinuousEventTimeTrigger,
    CountTrigger,
    DataStream,
    EventTimeSessionWindows,
    EventTimeTrigger,
    JoinContext,
    OutputTag,
    ProcessJoinFunction,
    ProcessWindowFunction,
    PurgingTrigger,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    Trigger,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    WindowAssigner,
    WindowContext,
)
from checkdam.testing import (
    DriverKilled,
    LocalJob,
    MemoryStorage,
    OutputDirectory,
    Step,
    Trouble,
    kill_driver,
    kill_slot,
)

pytestmark = pytest.mark.slow


class Event(NamedTuple):
    key: str
    at: int
    n: int


LATE = OutputTag("late", Event)
Epochs = list[list[Event]]


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


class Show(ProcessWindowFunction[str, Event, str]):
    def process(self, key: str, ctx: WindowContext, elements: Sequence[Event]) -> Iterator[str]:
        yield shown(key, ctx.window, [each.n for each in elements])


class Gather(AggregateFunction[Event, list[int], list[int]]):
    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Event, accumulator: list[int]) -> list[int]:
        return [*accumulator, value.n]

    def get_result(self, accumulator: list[int]) -> list[int]:
        return accumulator

    def merge(self, one: list[int], other: list[int]) -> list[int]:
        return one + other


class ShowGathered(ProcessWindowFunction[str, list[int], str]):
    def process(self, key: str, ctx: WindowContext, elements: Sequence[list[int]]) -> Iterator[str]:
        [numbers] = elements
        yield shown(key, ctx.window, numbers)


def assigner(of: Windowing) -> WindowAssigner[Any, Any]:
    if of.assigner == "tumbling":
        return TumblingEventTimeWindows(ms(of.size), ms(of.offset % of.size))
    if of.assigner == "sliding":
        return SlidingEventTimeWindows(ms(of.size), ms(of.slide), ms(of.offset % of.slide))
    return EventTimeSessionWindows(ms(of.size))


def trigger(of: Windowing) -> Trigger[Any, Any]:
    triggers: dict[str, Trigger[Any, Any]] = {
        "event time": EventTimeTrigger(),
        "count": CountTrigger(of.every),
        "purging count": PurgingTrigger(CountTrigger(of.every)),
        "continuous": ContinuousEventTimeTrigger(ms(of.every)),
    }
    return triggers[of.trigger]


class Deployment(NamedTuple):
    """Where a job runs: how many subtasks, on which backend."""

    parallelism: int
    backend: str


def run(
    build: Any, epochs: Epochs, troubles: list[Trouble], first: Deployment, second: Deployment, *, joins_batches: bool
) -> LocalJob:
    """Run a job to its end; the driver's death moves it from the first place to the second."""
    storage = MemoryStorage()

    def job(place: Deployment, troubles: list[Trouble]) -> LocalJob:
        def deployed(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
            build(env.set_state_backend(place.backend), stream)

        return LocalJob(
            deployed,
            epochs,
            storage,
            record_type=Event,
            parallelism=place.parallelism,
            troubles=troubles,
            joins_batches=joins_batches,
        )

    running = job(first, troubles)
    try:
        running.run()
    except DriverKilled:
        running = job(second, [])
        running.run()
    return running


def left_of(job: LocalJob, uid: str) -> dict[str, Any]:
    """Return what the last checkpoint keeps for an operator, by the name of the state."""
    savepoint = job.savepoint()
    kept = {state.name: list(savepoint.content_of(state)) for state in savepoint.states(uid)}
    return {name: entries for name, entries in kept.items() if entries}


def with_numbers(epochs: list[list[tuple[str, int]]]) -> Epochs:
    numbers = iter(range(10_000))
    return [[Event(key, time, next(numbers)) for key, time in epoch] for epoch in epochs]


inputs = st.lists(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(-10, 40)), max_size=6), min_size=1, max_size=5
).map(with_numbers)
windowings = st.builds(
    Windowing,
    assigner=st.sampled_from(["tumbling", "sliding", "session"]),
    size=st.integers(1, 12),
    slide=st.integers(1, 15),
    offset=st.integers(0, 14),
    trigger=st.sampled_from(["event time", "event time", "count", "purging count", "continuous"]),
    every=st.integers(1, 5),
    lateness=st.sampled_from([0, 0, 3, 20]),
)
steps = st.sampled_from(
    [Step.BEFORE_LEVEL, Step.AFTER_LEVEL, Step.EPOCH_DONE, Step.EPOCH_ENDED, Step.BEFORE_WRITING, Step.METADATA_WRITTEN]
)
deaths = st.sampled_from([kill_driver, kill_driver, kill_slot(0)])
troubles = st.lists(
    st.builds(lambda step, deed, n: Trouble(step, deed, number=n), steps, deaths, st.integers(1, 5)), max_size=2
)
deployments = st.builds(Deployment, st.integers(1, 3), st.sampled_from(["hashmap", "hashmap", "rocksdb"]))


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    epochs=inputs,
    of=windowings,
    delay=st.integers(0, 10),
    gathers=st.booleans(),
    troubles=troubles,
    first=deployments,
    second=deployments,
    joins_batches=st.booleans(),
)
def test_windows_fire_as_the_model_says_and_leave_nothing(
    epochs: Epochs,
    of: Windowing,
    delay: int,
    gathers: bool,
    troubles: list[Trouble],
    first: Deployment,
    second: Deployment,
    joins_batches: bool,
) -> None:
    of = Windowing(**{**vars(of), "offset": of.offset % (of.slide if of.assigner == "sliding" else of.size)})
    output, late = OutputDirectory(), OutputDirectory()

    def build(_: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(ms(delay), lambda event: event.at)
        keyed = stream.assign_timestamps_and_watermarks(strategy).key_by("key", key_type=str)
        windowed = keyed.window(assigner(of)).trigger(trigger(of)).allowed_lateness(ms(of.lateness))
        windowed = windowed.side_output_late_data(LATE)
        result: DataStream[str] = windowed.aggregate(Gather(), ShowGathered()) if gathers else windowed.process(Show())
        result = result.uid("windows")
        result.sink_to_files(output.uri).uid("out")
        result.get_side_output(LATE).map(lambda event: event.n, output_type=int).sink_to_files(late.uri).uid("late")

    job = run(build, epochs, troubles, first, second, joins_batches=joins_batches)

    model = WindowModel(of).run(epochs, delay)
    assert model.is_empty
    assert sorted(output.rows()) == sorted(model.fired)
    assert sorted(late.rows()) == sorted(model.late)
    assert left_of(job, "windows") == {}


class Match(ProcessJoinFunction[Event, Event, str]):
    def process_element(self, left: Event, right: Event, ctx: JoinContext) -> Iterator[str]:
        yield f"{left.key}: {left.n} with {right.n} at {ctx.timestamp}"


def is_left(event: Event) -> bool:
    return event.n % 2 == 0


def joined(epochs: Epochs, delay: int, lower: int, upper: int) -> list[str]:
    """Return what an interval join of even with odd numbers gives: no record that is late joins any other."""
    largest: dict[bool, int] = {}
    watermark = -(2**63)
    taken: list[tuple[Event, int]] = []  # with the watermark at which it came
    for epoch in epochs:
        taken += [(event, watermark) for event in epoch if event.at >= watermark]
        for event in epoch:
            largest[is_left(event)] = max(event.at, largest.get(is_left(event), event.at))
        if len(largest) == 2:
            watermark = max(watermark, min(largest.values()) - delay - 1)
    pairs = []
    for left, left_came in taken:
        for right, right_came in taken:
            if is_left(left) and not is_left(right) and left.key == right.key:
                is_within = lower <= right.at - left.at <= upper
                # The earlier of both is gone when the watermark has reached its last possible partner
                left_is_kept = right_came < left.at + max(upper, 0) or right_came <= left_came
                right_is_kept = left_came < right.at + max(-lower, 0) or left_came <= right_came
                if is_within and left_is_kept and right_is_kept:
                    pairs.append(f"{left.key}: {left.n} with {right.n} at {max(left.at, right.at)}")
    return sorted(pairs)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    epochs=inputs,
    lower=st.integers(-8, 8),
    length=st.integers(0, 10),
    delay=st.integers(0, 10),
    troubles=troubles,
    first=deployments,
    second=deployments,
)
def test_an_interval_join_gives_the_pairs_that_the_model_says_and_leaves_nothing(
    epochs: Epochs,
    lower: int,
    length: int,
    delay: int,
    troubles: list[Trouble],
    first: Deployment,
    second: Deployment,
) -> None:
    output = OutputDirectory()

    def build(_: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(ms(delay), lambda event: event.at)
        left = stream.filter(is_left).assign_timestamps_and_watermarks(strategy).key_by("key", key_type=str)
        right = stream.filter(lambda event: not is_left(event)).assign_timestamps_and_watermarks(strategy)
        both = left.interval_join(right.key_by("key", key_type=str)).between(ms(lower), ms(lower + length))
        both.process(Match()).uid("join").sink_to_files(output.uri).uid("out")

    job = run(build, epochs, troubles, first, second, joins_batches=True)

    assert sorted(output.rows()) == joined(epochs, delay, lower, lower + length)
    assert left_of(job, "join") == {}
