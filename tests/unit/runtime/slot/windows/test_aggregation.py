"""Aggregated windows: what functions may not return, and inputs that must not take long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from checkdam import (
    AggregateFunction,
    CheckpointedFunction,
    CountEvictor,
    CountTrigger,
    DataStream,
    EventTimeSessionWindows,
    EventTimeTrigger,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedStream,
    ListStateDescriptor,
    ProcessingTimeoutTrigger,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeContext,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    UserFunctionError,
    WatermarkStrategy,
    WindowContext,
)
from checkdam.graph.windowing.window_contents import WindowCalls
from checkdam.testing import (
    DriverKilled,
    LocalJob,
    ManualClock,
    MemoryStorage,
    Step,
    Trouble,
    kill_driver,
    local_environment,
)

Event = tuple[str, int, int]
TEN = timedelta(milliseconds=10)
Build = Callable[[KeyedStream[str, Any]], DataStream[Any]]


def keyed(events: DataStream[Any]) -> KeyedStream[str, Any]:
    return events.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps(lambda event: event[2])
    ).key_by(lambda event: event[0], key_type=str)


def run(build: Build, events: Sequence[Event]) -> list[Any]:
    environment = local_environment()
    return list(build(keyed(environment.from_collection(events))).uid("windows").execute_and_collect())


class Sum(AggregateFunction[Event, tuple[int, int], int]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Event, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value[1], accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> int:
        return accumulator[0]

    def merge(self, one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
        return one[0] + other[0], one[1] + other[1]


class ForgetsToReturn(Sum):
    def add(self, value: Event, accumulator: tuple[int, int]) -> Any:
        return None if value[1] == 2 else super().add(value, accumulator)


class MergesIntoNothing(Sum):
    def merge(self, one: tuple[int, int], other: tuple[int, int]) -> Any:
        return None


class CannotMerge(Sum):
    def merge(self, one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
        raise ArithmeticError("cannot merge")


class OnlyLarge(Sum):
    def get_result(self, accumulator: tuple[int, int]) -> Any:
        return accumulator[0] if accumulator[0] > 5 else None


EVENTS = [("a", 1, 0), ("a", 2, 1), ("a", 4, 2)]


@pytest.mark.parametrize(
    "build",
    [
        lambda stream: stream.window(TumblingEventTimeWindows(TEN)).reduce(lambda one, other: None),
        lambda stream: stream.window(TumblingEventTimeWindows(TEN)).aggregate(ForgetsToReturn()),
        lambda stream: stream.window(SlidingEventTimeWindows(TEN, TEN / 2)).aggregate(ForgetsToReturn()),
    ],
)
def test_a_function_that_returns_none_is_refused_with_its_record(build: Build) -> None:
    with pytest.raises(UserFunctionError, match=r"\('a', 2, 1\)"):
        run(build, EVENTS)


@pytest.mark.parametrize(
    "build",
    [
        lambda stream: stream.window(EventTimeSessionWindows(2 * TEN)).aggregate(MergesIntoNothing()),
        lambda stream: stream.window(EventTimeSessionWindows(2 * TEN)).reduce(
            lambda one, other: None if 4 in (one[1], other[1]) else one
        ),
    ],
)
def test_sessions_do_not_merge_into_nothing(build: Build) -> None:
    with pytest.raises(UserFunctionError, match="None"):
        run(build, [("a", 1, 0), ("a", 2, 30), ("a", 4, 15)])


def test_an_error_of_merge_names_the_operator() -> None:
    with pytest.raises(UserFunctionError, match=r'"windows".*merge.*cannot merge'):
        run(
            lambda stream: stream.window(SlidingEventTimeWindows(TEN, TEN / 2)).aggregate(CannotMerge()),
            [("a", 1, 0), ("a", 2, 6)],
        )


def test_a_window_whose_result_is_none_emits_nothing() -> None:
    results = run(
        lambda stream: stream.window(TumblingEventTimeWindows(TEN)).aggregate(OnlyLarge(), output_type=int),
        [("a", 1, 0), ("a", 9, 10)],
    )

    assert results == [9]


@pytest.mark.parametrize("assigner", [TumblingEventTimeWindows(TEN), SlidingEventTimeWindows(TEN, TEN / 10)])
def test_records_far_apart_take_no_longer_than_others(assigner: Any) -> None:
    results = run(lambda stream: stream.window(assigner).sum(1), [("a", 1, 0), ("a", 2, 10**15)])

    assert {event[1] for event in results} == {1, 2}


def test_results_of_count_windows_are_refused_by_windows_in_event_time() -> None:
    def build(stream: KeyedStream[str, Any]) -> DataStream[Any]:
        counted = stream.count_window(2).sum(1).uid("counted")
        return counted.key_by(lambda event: event[0], key_type=str).window(TumblingEventTimeWindows(TEN)).sum(1)

    with pytest.raises(UserFunctionError, match="the timestamp of a window without end"):
        run(build, EVENTS)


@dataclass
class Counted:
    key: str
    number: int
    at: int

    def __getitem__(self, field: int) -> Any:
        return (self.key, self.number, self.at)[field]


def in_place(one: Counted, other: Counted) -> Counted:
    one.number += other.number
    return one


def test_a_reduce_in_place_does_not_change_the_records_that_an_evictor_keeps() -> None:
    environment = local_environment()
    events = environment.from_collection([Counted("a", 1, at) for at in range(6)])
    windows = keyed(events).window(TumblingEventTimeWindows(TEN)).trigger(CountTrigger(2)).evictor(CountEvictor(10))

    results = windows.reduce(in_place).uid("windows").execute_and_collect()

    assert [each.number for each in results] == [2, 4, 6]


class Closes(ReduceFunction[Any]):
    is_closed = False

    def close(self) -> None:
        self.is_closed = True


class FailsToClose(ReduceFunction[Any]):
    def close(self) -> None:
        raise OSError("refused by the test")


def test_all_functions_of_a_window_are_closed_though_one_fails() -> None:
    first = Closes()

    with pytest.raises(OSError, match="refused by the test"):
        WindowCalls(first, FailsToClose()).close()

    assert first.is_closed


class Remembers(ProcessWindowFunction[str, Event, str], CheckpointedFunction):
    """Numbers the windows of its subtask in operator state."""

    def initialize_state(self, ctx: FunctionInitializationContext) -> None:
        self.state = ctx.operator_state_store.get_list_state(ListStateDescriptor("fired", int))
        self.fired = sum(self.state.get())

    def snapshot_state(self, ctx: FunctionSnapshotContext) -> None:
        self.state.update([self.fired])

    def open(self, ctx: RuntimeContext) -> None:
        """Do nothing: the state is there already."""

    def process(self, key: str, ctx: WindowContext, elements: Sequence[Event]) -> Iterator[str]:
        self.fired += 1
        yield f"window {self.fired}"


EPOCHS = [[("a", 1, 1)], [("a", 1, 11)], [("a", 1, 21)], [("a", 1, 31)]]


def killed_and_resumed(first: Build, second: Build) -> LocalJob:
    """Run a job, kill its driver in the second epoch, and resume it as another one."""
    storage, clock = MemoryStorage(), ManualClock()

    def job(build: Build, *troubles: Trouble) -> LocalJob:
        def built(env: StreamExecutionEnvironment, events: DataStream[Any]) -> None:
            build(keyed(events.map(tuple, output_type=Event))).uid("windows").print()

        return LocalJob(built, EPOCHS, storage, troubles=troubles, clock=clock)

    with pytest.raises(DriverKilled):
        job(first, Trouble(Step.BEFORE_LEVEL, kill_driver, number=2)).run()
    clock.advance(timedelta(minutes=1))
    resumed = job(second)
    resumed.run()
    assert resumed.heard.restored_from
    return resumed


def test_a_window_function_may_have_operator_state() -> None:
    def build(stream: KeyedStream[str, Any]) -> DataStream[Any]:
        return stream.window(TumblingEventTimeWindows(TEN)).process(Remembers())

    assert killed_and_resumed(build, build).heard.printed_lines[-1].endswith("window 4")


def test_timers_of_a_former_trigger_do_not_stay_due() -> None:
    def timed_out(stream: KeyedStream[str, Any]) -> DataStream[Any]:
        trigger = ProcessingTimeoutTrigger(EventTimeTrigger(), timedelta(seconds=1))
        return stream.window(TumblingEventTimeWindows(TEN)).trigger(trigger).sum(1)

    resumed = killed_and_resumed(timed_out, lambda stream: stream.window(TumblingEventTimeWindows(TEN)).sum(1))

    assert resumed.savepoint().timers("windows").to_arrow().num_rows == 0
