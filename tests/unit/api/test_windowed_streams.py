"""What calls on windows and joins refuse, with what they say."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from tests.support.one_window import Event, OneWindow, Show, ms

from checkdam import (
    AggregateFunction,
    AllWindowFunction,
    CoGroupFunction,
    CountEvictor,
    CountTrigger,
    DataStream,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    JobGraphError,
    JoinFunction,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessingTimeoutTrigger,
    ProcessingTimeSessionWindows,
    ProcessJoinFunction,
    ProcessWindowFunction,
    PurgingTrigger,
    StreamExecutionEnvironment,
    TimeWindow,
    Trigger,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    UserFunctionError,
    ValueStateDescriptor,
    WatermarkStrategy,
    WindowAssigner,
    WindowFunction,
)
from checkdam.graph.operators import WindowKind
from checkdam.testing import local_environment
from checkdam.types.batch import Batch
from checkdam.types.type_info import type_info

TENS = TumblingEventTimeWindows(ms(10))
SESSIONS = EventTimeSessionWindows(ms(10))
BY_TIME = WatermarkStrategy.for_monotonous_timestamps(lambda event: event.at)


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return local_environment()


@pytest.fixture
def events(env: StreamExecutionEnvironment) -> DataStream[Event]:
    return env.from_collection([Event("a", 1, 1)]).assign_timestamps_and_watermarks(BY_TIME)


def windowed(events: DataStream[Event], assigner: Any = TENS) -> Any:
    return events.key_by(lambda event: event.key).window(assigner)


def interval_join(events: DataStream[Event]) -> Any:
    return events.key_by("key").interval_join(events.key_by("key")).between(ms(0), ms(1))


class Whole(ProcessAllWindowFunction[Event, int]):
    def process(self, ctx: Any, elements: Sequence[Event]) -> Iterator[int]:
        yield len(elements)


class Applied(WindowFunction[str, Event, int]):
    def apply(self, key: str, window: Any, elements: Sequence[Event]) -> list[int]:
        return [len(elements)]


class AppliedAll(AllWindowFunction[Event, int]):
    def apply(self, window: Any, elements: Sequence[Event]) -> list[int]:
        return [len(elements)]


class Count(AggregateFunction[Event, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Event, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator


class Opaque(AggregateFunction):
    """Says nothing about its accumulator."""

    def create_accumulator(self):  # type: ignore[no-untyped-def]
        return object()

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator

    def get_result(self, accumulator: Any) -> int:
        return 0


# -- results


def test_windows_and_joins_give_streams_of_the_right_type(events: DataStream[Event]) -> None:
    by_window = windowed(events)
    pairs = events.join(events).where("key").equal_to("key").window(TENS)

    assert by_window.sum("n").type == by_window.reduce(lambda one, _: one).type == type_info(Event)
    assert by_window.aggregate(Count()).type == type_info(int)
    assert by_window.apply(Applied()).type == type_info(int)
    assert by_window.process(Show(), output_type=str).type == type_info(str)
    assert events.window_all(TENS).process(Whole()).type == type_info(int)
    assert by_window.aggregate(Count(), Applied()).type == type_info(int)
    assert pairs.apply(lambda one, other: 1.0, output_type=float).type == type_info(float)


def test_calls_on_windows_leave_the_windows_before_as_they_are(events: DataStream[Event]) -> None:
    plain = windowed(events)
    plain.trigger(CountTrigger(1)).evictor(CountEvictor(1)).allowed_lateness(ms(5)).sum("n").uid("other")

    kind = _kind(plain.sum("n"))

    assert isinstance(kind.trigger, EventTimeTrigger)
    assert (kind.evictor, kind.allowed_lateness) == (None, 0)


def _kind(stream: DataStream[Any]) -> WindowKind:
    kind = stream._environment._operators[stream._operator_id].kind
    assert isinstance(kind, WindowKind)
    return kind


def test_windows_of_a_whole_stream_run_in_one_subtask(
    env: StreamExecutionEnvironment, events: DataStream[Event]
) -> None:
    events.window_all(TENS).sum("n").uid("sum").set_parallelism(2).print()

    with pytest.raises(JobGraphError) as refused:
        env._prepare("job")

    assert refused.value.message == (
        'parallelism 2 of operator "window sum" is not between 1 and the max parallelism 1'
    )


# -- windows without what they need


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda stream: windowed(stream).sum("n"), "window sum"),
        (lambda stream: windowed(stream, SESSIONS).process(Show()), "window process"),
        (lambda stream: stream.window_all(TENS).process(Whole()), "window process"),
        (lambda stream: stream.join(stream).where("key").equal_to("key").window(TENS).apply(Both()), "window join"),
        (
            lambda stream: (
                stream.key_by("key").interval_join(stream.key_by("key")).between(ms(0), ms(1)).process(Match())
            ),
            "interval join",
        ),
    ],
)
def test_windows_in_event_time_need_timestamps(env: StreamExecutionEnvironment, build: Any, name: str) -> None:
    build(env.from_collection([Event("a", 1, 1)])).uid("it").print()

    with pytest.raises(JobGraphError) as refused:
        env._prepare("job")

    assert refused.value.message == f'operator "{name}" works in event time, and its records have no timestamps'
    assert refused.value.hint == (
        "Call assign_timestamps_and_watermarks(WatermarkStrategy…) in front of it, before key_by."
    )


class Both(JoinFunction[Event, Event, int]):
    def join(self, first: Event, second: Event) -> int:
        return 1


class Match(ProcessJoinFunction[Event, Event, int]):
    def process_element(self, left: Event, right: Event, ctx: Any) -> list[int]:
        return [1]


def test_one_stream_of_a_join_without_timestamps_is_enough_to_refuse_it(
    env: StreamExecutionEnvironment, events: DataStream[Event]
) -> None:
    plain = env.from_collection([Event("a", 1, 1)])
    events.join(plain).where("key").equal_to("key").window(TENS).apply(Both()).uid("join").print()

    with pytest.raises(JobGraphError, match="works in event time, and its records have no timestamps"):
        env._prepare("job")


@pytest.mark.parametrize(
    "build",
    [
        lambda stream: windowed(stream, TumblingProcessingTimeWindows(ms(10))).sum("n"),
        lambda stream: windowed(stream, ProcessingTimeSessionWindows(ms(10))).sum("n"),
        lambda stream: windowed(stream, GlobalWindows()).trigger(CountTrigger(1)).sum("n"),
        lambda stream: stream.key_by("key").count_window(2).sum("n"),
        lambda stream: stream.count_window_all(2).sum("n"),
    ],
)
def test_other_windows_need_no_timestamps(env: StreamExecutionEnvironment, build: Any) -> None:
    build(env.from_collection([Event("a", 1, 1)])).uid("it").print()

    env._prepare("job")


def test_a_record_without_timestamp_among_others_fails_in_windows_of_event_time() -> None:
    windows = OneWindow(lambda stream: windowed(stream).sum("n"))
    opened = windows.subtasks[0]

    with pytest.raises(
        UserFunctionError, match="the record has no timestamp: windows in event time need a time of its own"
    ) as failed:
        opened.process(
            Batch(type_info(Event), rows=[Event("a", 1), Event("a", 2, 2)], timestamps=[1, None]),
            Batch(type_info(str), rows=["a", "a"]),
            0,
        )

    assert failed.value.record == "Event(key='a', at=2, n=2)"


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda stream: windowed(stream).sum("n"), "window sum"),
        (lambda stream: windowed(stream).process(Show()), "window process"),
        (lambda stream: stream.count_window_all(2).sum("n"), "window sum"),
        (lambda stream: stream.join(stream).where("key").equal_to("key").window(TENS).apply(Both()), "window join"),
        (lambda stream: interval_join(stream).process(Match()), "interval join"),
    ],
)
def test_windows_and_joins_need_a_uid(
    env: StreamExecutionEnvironment, events: DataStream[Event], build: Any, name: str
) -> None:
    build(events).print()

    with pytest.raises(JobGraphError) as refused:
        env._prepare("job")

    assert refused.value.message == f'stateful operator "{name}" has no uid'


# -- arguments


def test_a_stream_is_divided_by_an_assigner(events: DataStream[Event]) -> None:
    keyed = events.key_by(lambda event: event.key)
    with pytest.raises(JobGraphError) as refused:
        keyed.window(TumblingEventTimeWindows)  # type: ignore[arg-type]
    assert refused.value.message == f"windows are made by a WindowAssigner, not {TumblingEventTimeWindows!r}"
    assert refused.value.hint == "Make one: TumblingEventTimeWindows(…)."

    with pytest.raises(JobGraphError) as refused:
        events.window_all(timedelta(seconds=1))  # type: ignore[arg-type]
    assert refused.value.message == f"windows are made by a WindowAssigner, not {timedelta(seconds=1)!r}"
    assert refused.value.hint == "Write TumblingEventTimeWindows(timedelta(minutes=1))."


@pytest.mark.parametrize("size", [0, -1, 1.0, True])
def test_count_windows_hold_a_positive_number_of_records(events: DataStream[Event], size: Any) -> None:
    keyed = events.key_by(lambda event: event.key)
    expected = f"must be a whole number of at least 1, not {size!r}"
    for call in (lambda: keyed.count_window(size), lambda: events.count_window_all(size)):
        with pytest.raises(JobGraphError, match=f"the size of a count window {expected}"):
            call()
    for slide in (lambda: keyed.count_window(1, size), lambda: events.count_window_all(1, size)):
        with pytest.raises(JobGraphError, match=f"the slide of count windows {expected}"):
            slide()


class BadDefault(WindowAssigner[Event, Any]):
    def assign_windows(self, value: Event, timestamp: int, ctx: Any) -> Collection[Any]:
        return ()

    def get_default_trigger(self) -> Any:
        return "always"

    def is_event_time(self) -> bool:
        return True


def test_the_default_trigger_of_an_assigner_is_a_trigger(events: DataStream[Event]) -> None:
    with pytest.raises(JobGraphError) as refused:
        windowed(events, BadDefault())

    assert refused.value.message == "get_default_trigger() of the assigner takes a Trigger, not 'always'"


class CannotMerge(EventTimeSessionWindows[Event]):
    def get_default_trigger(self) -> Trigger[Any, Any]:
        return DeltaTrigger(1, lambda last, new: 1.0, Event)


def test_the_default_trigger_of_windows_that_merge_can_merge(events: DataStream[Event]) -> None:
    with pytest.raises(
        JobGraphError, match="DeltaTrigger cannot work with windows that merge, as those of CannotMerge"
    ):
        windowed(events, CannotMerge(ms(1))).process(Show())


class OwnTrigger(Trigger[Event, Any]):
    pass


@pytest.mark.parametrize(
    "trigger",
    [
        DeltaTrigger(1, lambda last, new: 1.0, Event),
        ProcessingTimeoutTrigger(EventTimeTrigger(), ms(5)),
        OwnTrigger(),
    ],
    ids=lambda trigger: type(trigger).__name__,
)
@pytest.mark.parametrize("assigner", [SESSIONS, ProcessingTimeSessionWindows(ms(10))])
def test_a_trigger_that_cannot_merge_is_refused_for_sessions(
    events: DataStream[Event], trigger: Trigger[Any, Any], assigner: Any
) -> None:
    with pytest.raises(JobGraphError) as refused:
        windowed(events, assigner).trigger(trigger)

    assert refused.value.message == (
        f"{type(trigger).__name__} cannot work with windows that merge, as those of {type(assigner).__name__} do"
    )
    assert refused.value.hint == "Use another trigger, or define can_merge() and on_merge(window, ctx) in it."
    with pytest.raises(JobGraphError, match="PurgingTrigger cannot work with windows that merge"):
        windowed(events, assigner).trigger(PurgingTrigger(trigger))


def test_triggers_and_evictors_are_objects(events: DataStream[Event]) -> None:
    with pytest.raises(JobGraphError) as refused:
        windowed(events).trigger(EventTimeTrigger)
    assert refused.value.message == f"trigger() takes a Trigger, not {EventTimeTrigger!r}"
    assert refused.value.hint == "Make one: EventTimeTrigger()."

    with pytest.raises(JobGraphError) as refused:
        windowed(events).evictor(CountEvictor)
    assert refused.value.message == f"evictor() takes an Evictor, not {CountEvictor!r}"
    assert refused.value.hint == "Write evictor(CountEvictor(10))."


def test_the_allowed_lateness_is_not_negative(events: DataStream[Event]) -> None:
    with pytest.raises(JobGraphError, match=r"the allowed lateness must be at least zero, not -1 day, 23:59:59"):
        windowed(events).allowed_lateness(timedelta(seconds=-1))
    with pytest.raises(JobGraphError, match="the allowed lateness must be a timedelta, not 5"):
        windowed(events).allowed_lateness(5)
    assert _kind(windowed(events).allowed_lateness(ms(0)).sum("n")).allowed_lateness == 0


# -- late records


def test_late_records_go_to_one_tag(events: DataStream[Event]) -> None:
    late, other = OutputTag("late", Event), OutputTag("other", Event)
    for again in (late, other):
        with pytest.raises(JobGraphError) as refused:
            windowed(events).side_output_late_data(late).side_output_late_data(again)
        assert refused.value.message == 'late records already go to the side output "late"'
        assert refused.value.hint == "Call side_output_late_data() once."


def test_late_records_go_to_a_tag_of_their_type(events: DataStream[Event]) -> None:
    with pytest.raises(JobGraphError) as refused:
        windowed(events).side_output_late_data(OutputTag("late", str)).sum("n")
    assert refused.value.message == (
        f'late records are of type {type_info(Event).name}, and the side output "late" is of type str'
    )
    assert refused.value.hint == "Give the OutputTag the type of the stream."

    with pytest.raises(
        JobGraphError, match=re.escape("side_output_late_data() takes an OutputTag, not 'late'")
    ) as refused:
        windowed(events).side_output_late_data("late")
    assert refused.value.hint == 'Write OutputTag("late", <type>).'


def test_joins_in_windows_have_no_side_output_for_late_records(events: DataStream[Event]) -> None:
    pairs = events.join(events).where("key").equal_to("key").window(TENS)
    groups = events.co_group(events).where("key").equal_to("key").window(TENS)
    for two in (pairs, groups):
        with pytest.raises(JobGraphError, match="a join of windows has no side output for late records"):
            two.side_output_late_data(OutputTag("late", Event))


# -- functions


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (
            lambda w: w.process(Applied()),
            "process() on windows takes a ProcessWindowFunction, not Applied",
            "Subclass ProcessWindowFunction and define process(key, ctx, elements).",
        ),
        (
            lambda w: w.process(Show),
            "process() on windows takes a ProcessWindowFunction, not the class Show itself",
            "Create an object: Show().",
        ),
        (
            lambda w: w.process(lambda key, ctx, elements: []),
            "process() on windows takes a ProcessWindowFunction, not function",
            "Subclass ProcessWindowFunction and define process(key, ctx, elements).",
        ),
        (
            lambda w: w.process(Whole()),
            "process() on windows takes a ProcessWindowFunction, not Whole",
            "Subclass ProcessWindowFunction and define process(key, ctx, elements).",
        ),
        (
            lambda w: w.apply(Show()),
            "apply() on windows takes a WindowFunction, not Show",
            "Subclass WindowFunction and define apply(key, window, elements).",
        ),
        (
            lambda w: w.apply(Applied),
            "apply() on windows takes a WindowFunction, not the class Applied itself",
            "Create an object: Applied().",
        ),
        (
            lambda w: w.aggregate(Show()),
            "aggregate() takes an AggregateFunction, not Show",
            "Subclass AggregateFunction and define create_accumulator(), add() and get_result().",
        ),
        (
            lambda w: w.aggregate(Count),
            "aggregate() takes an AggregateFunction, not the class Count itself",
            "Create an object: Count().",
        ),
        (
            lambda w: w.aggregate(Count(), Whole()),
            "the window function takes a ProcessWindowFunction, not Whole",
            "Subclass ProcessWindowFunction and define process(key, ctx, elements).",
        ),
        (
            lambda w: w.reduce(lambda one, other: one, Show),
            "the window function takes a ProcessWindowFunction, not the class Show itself",
            "Create an object: Show().",
        ),
    ],
)
def test_windows_take_functions_of_the_right_kind(
    events: DataStream[Event], call: Any, message: str, hint: str
) -> None:
    with pytest.raises(JobGraphError) as refused:
        call(windowed(events))

    assert (refused.value.message, refused.value.hint) == (message, hint)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda w: w.process(Show()), "process() on windows takes a ProcessAllWindowFunction, not Show"),
        (lambda w: w.apply(Applied()), "apply() on windows takes an AllWindowFunction, not Applied"),
        (lambda w: w.aggregate(Count(), Show()), "the window function takes a ProcessAllWindowFunction, not Show"),
    ],
)
def test_windows_of_a_whole_stream_take_functions_without_a_key(
    events: DataStream[Event], call: Any, message: str
) -> None:
    with pytest.raises(JobGraphError) as refused:
        call(events.window_all(TENS))

    assert refused.value.message == message


def test_reduce_takes_a_function(events: DataStream[Event]) -> None:
    with pytest.raises(JobGraphError, match="reduce: ") as refused:
        windowed(events).reduce("n")

    assert refused.value.hint == "Pass a function, a lambda or a function object."


def test_an_accumulator_must_have_a_durable_type(events: DataStream[Event]) -> None:
    with pytest.raises(JobGraphError) as refused:
        windowed(events).aggregate(Opaque())

    assert refused.value.message == "the accumulator of Opaque is of type object, which has no durable form"
    assert refused.value.hint == (
        "Annotate the result of create_accumulator, or pass accumulator_type=tuple[int, int]."
    )


def test_sessions_need_an_aggregate_that_merges(events: DataStream[Event]) -> None:
    with pytest.raises(JobGraphError) as refused:
        windowed(events, SESSIONS).aggregate(Count())

    assert refused.value.message == "Count cannot merge two accumulators, which windows that merge need"
    assert refused.value.hint == "Define merge(one, other) in it."
    windowed(events).aggregate(Count())


@pytest.mark.parametrize(
    "call",
    [
        lambda w: w.process(Show()),
        lambda w: w.apply(Applied()),
        lambda w: w.reduce(lambda one, other: one),
        lambda w: w.sum(),
    ],
)
def test_records_that_windows_keep_must_have_a_durable_type(env: StreamExecutionEnvironment, call: Any) -> None:
    opaque = (
        env.from_collection([1])
        .map(lambda n: object())
        .assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps(lambda _: 0))
    )

    with pytest.raises(JobGraphError, match="keeps records as state, but their type object has no durable form"):
        call(opaque.key_by(lambda _: 1, key_type=int).window(TENS))


@pytest.mark.parametrize("field", ["m", 3])
def test_fields_to_sum_exist(events: DataStream[Event], field: Any) -> None:
    with pytest.raises(JobGraphError, match=r"sum\("):
        windowed(events).sum(field)
    with pytest.raises(JobGraphError, match="cannot be summed"):
        windowed(events).sum("key")


# -- windows of one's own


@dataclass
class Mutable:
    end: int

    @property
    def max_timestamp(self) -> int:
        return self.end


class MutableWindows(BadDefault):
    window_type = Mutable

    def get_default_trigger(self) -> Trigger[Any, Any]:
        return EventTimeTrigger()


def test_windows_of_ones_own_are_immutable(env: StreamExecutionEnvironment, events: DataStream[Event]) -> None:
    with pytest.raises(JobGraphError) as refused:
        windowed(events, MutableWindows()).sum("n")

    assert refused.value.message == "MutableWindows makes windows of type Mutable, which cannot be kept"
    assert refused.value.hint == "Make its window_type a NamedTuple of plain values, with a property max_timestamp."


class NumberedWindows(BadDefault):
    window_type: type[Any] = int

    def get_default_trigger(self) -> Trigger[Any, Any]:
        return EventTimeTrigger()


def test_windows_of_ones_own_have_an_end(env: StreamExecutionEnvironment, events: DataStream[Event]) -> None:
    with pytest.raises(JobGraphError) as refused:
        windowed(events, NumberedWindows()).sum("n")

    assert refused.value.message == "NumberedWindows makes windows of type int, which have no max_timestamp"


class OfNoTime(NumberedWindows):
    window_type = TimeWindow

    def is_event_time(self) -> Any:
        return None


def test_an_assigner_says_by_which_time_its_windows_end(events: DataStream[Event]) -> None:
    with pytest.raises(JobGraphError) as refused:
        windowed(events, OfNoTime())

    assert refused.value.message == "is_event_time() of OfNoTime must return True or False, and returned None"


class OneState(EventTimeTrigger):
    states: Any = ValueStateDescriptor("last", int)


def test_a_trigger_names_its_states_in_a_list(events: DataStream[Event]) -> None:
    with pytest.raises(JobGraphError) as refused:
        windowed(events).trigger(OneState()).sum("n")

    assert refused.value.message.startswith("OneState.states must be a property that returns a list of descriptors")


class OtherWindows(BadDefault):
    """Makes windows of another type than it says."""

    def assign_windows(self, value: Event, timestamp: int, ctx: Any) -> Collection[Any]:
        return [(1, 2)]

    def get_default_trigger(self) -> Trigger[Any, Any]:
        return EventTimeTrigger()


def test_an_assigner_that_makes_other_windows_than_it_says_fails_with_the_record() -> None:
    windows = OneWindow(lambda stream: windowed(stream, OtherWindows()).sum("n"))

    with pytest.raises(UserFunctionError) as failed:
        windows.epoch(Event("a", 1))

    assert failed.value.record == "Event(key='a', at=1, n=0)"


def gap_that_fails(event: Event) -> timedelta:
    return ms(10 // event.n)


@pytest.mark.parametrize(
    ("gap", "cause"),
    [
        (gap_that_fails, "ZeroDivisionError: integer division or modulo by zero"),
        (lambda event: ms(0), "the gap of a session must be at least one millisecond, not 0:00:00"),
        (lambda event: 10, "the gap of a session must be a timedelta, not 10"),
    ],
)
@pytest.mark.parametrize("sessions", [EventTimeSessionWindows, ProcessingTimeSessionWindows])
@pytest.mark.parametrize("finish", [lambda sessions: sessions.sum("n"), lambda sessions: sessions.process(Show())])
def test_a_gap_function_that_fails_is_told_with_the_record(gap: Any, cause: str, sessions: Any, finish: Any) -> None:
    windows = OneWindow(lambda stream: finish(windowed(stream, sessions(gap))))

    with pytest.raises(UserFunctionError) as failed:
        windows.epoch(Event("a", 1, 0))

    assert cause in failed.value.cause
    assert failed.value.record == "Event(key='a', at=1, n=0)"
    if gap is gap_that_fails:
        assert "in gap_that_fails" in failed.value.user_traceback


class FailsAtTheEnd(ProcessWindowFunction[str, Event, int]):
    def process(self, key: str, ctx: Any, elements: Sequence[Event]) -> Iterator[int]:
        raise ValueError("no")


def test_a_function_that_fails_when_a_window_ends_is_told_with_window_and_key() -> None:
    windows = OneWindow(lambda stream: windowed(stream).process(FailsAtTheEnd()))

    with pytest.raises(UserFunctionError, match="ValueError: no") as failed:
        windows.epoch(Event("a", 1, 0), watermark=9)

    assert failed.value.where == "window TimeWindow(start=0, end=10) of key 'a' at 9"
    assert failed.value.record == ""


# -- joins


def test_a_join_needs_both_keys_of_one_type(events: DataStream[Event]) -> None:
    with pytest.raises(JobGraphError, match=r"the key of one stream is missing: call where\(key\) before window"):
        events.join(events).equal_to("key").window(TENS)
    with pytest.raises(JobGraphError, match=r"the key of one stream is missing: call equal_to\(key\) before window"):
        events.co_group(events).where("key").window(TENS)
    with pytest.raises(JobGraphError) as refused:
        events.join(events).where("key").equal_to("n").window(TENS)
    assert refused.value.message == "the keys of both streams have different types: str and int"
    assert refused.value.hint == "Pass key_type=… to where() and equal_to()."


def test_a_join_takes_streams_of_one_environment(events: DataStream[Event]) -> None:
    other = local_environment().from_collection([Event("a", 1, 1)])
    with pytest.raises(JobGraphError, match="streams of different environments cannot be joined"):
        events.join(other)
    with pytest.raises(JobGraphError, match="streams of different environments cannot be joined"):
        events.key_by("key").interval_join(other.key_by("key"))
    with pytest.raises(JobGraphError, match="a stream is joined with another stream, not with list"):
        events.join([])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (
            lambda s: s.join(s).where("key").equal_to("key").window(TENS).apply(5),
            "join: ",
            "Pass a function",
        ),
        (
            lambda s: s.join(s).where("key").equal_to("key").window(TENS).apply(Both),
            "apply() of a join takes a JoinFunction, not the class Both itself",
            "Create an object: Both().",
        ),
        (
            lambda s: s.co_group(s).where("key").equal_to("key").window(TENS).apply(Both()),
            "apply() of a co_group takes a CoGroupFunction, not Both",
            "Subclass CoGroupFunction and define co_group(first, second).",
        ),
        (
            lambda s: s.co_group(s).where("key").equal_to("key").window(TENS).apply(Grouped),
            "apply() of a co_group takes a CoGroupFunction, not the class Grouped itself",
            "Create an object: Grouped().",
        ),
        (
            lambda s: interval_join(s).process(Both()),
            "process() of an interval join takes a ProcessJoinFunction, not Both",
            "Subclass ProcessJoinFunction and define process_element(left, right, ctx).",
        ),
        (
            lambda s: s.key_by("key").interval_join(s),
            "interval_join() takes a keyed stream",
            "Put key_by in front of both streams.",
        ),
        (
            lambda s: s.key_by("key").interval_join(s.key_by("n")),
            "the keys of both streams have different types: str and int",
            None,
        ),
        (
            lambda s: s.key_by("key").interval_join(s.key_by("key")).between(1, ms(1)),
            "the bounds of an interval join must be timedeltas, not 1",
            "Write between(timedelta(minutes=-5), timedelta(minutes=5)).",
        ),
        (
            lambda s: s.key_by("key").interval_join(s.key_by("key")).between(ms(2), ms(1)),
            "no time lies between the bounds 0:00:00.002000 and 0:00:00.001000",
            None,
        ),
        (
            lambda s: s.key_by("key").interval_join(s.key_by("key")).between(ms(1), ms(1), upper_exclusive=True),
            "no time lies between the bounds 0:00:00.001000 and 0:00:00.001000",
            None,
        ),
    ],
)
def test_joins_refuse_what_they_cannot_use(
    events: DataStream[Event], call: Any, message: str, hint: str | None
) -> None:
    with pytest.raises(JobGraphError) as refused:
        call(events)

    assert refused.value.message.startswith(message)
    assert hint is None if refused.value.hint is None else hint is not None and refused.value.hint.startswith(hint)


class Grouped(CoGroupFunction[Event, Event, int]):
    def co_group(self, first: Sequence[Event], second: Sequence[Event]) -> list[int]:
        return []


def test_each_side_of_an_interval_join_has_a_late_tag_of_its_own(events: DataStream[Event]) -> None:
    joined = interval_join(events)
    late = OutputTag("late", Event)

    with pytest.raises(JobGraphError) as refused:
        joined.side_output_left_late_data(late).side_output_right_late_data(late)
    assert refused.value.message == 'late records already go to the side output "late"'
    assert refused.value.hint == "Use another tag."
    with pytest.raises(JobGraphError) as refused:
        joined.side_output_right_late_data(late).side_output_right_late_data(OutputTag("other", Event))
    assert refused.value.message == 'late records already go to the side output "late"'
    assert refused.value.hint == "Set one tag for each side."
    with pytest.raises(JobGraphError) as refused:
        joined.side_output_left_late_data("late")
    assert refused.value.message == "late records go to an OutputTag, not 'late'"
    assert refused.value.hint == 'Write OutputTag("late", <type>).'


def test_a_late_tag_of_an_interval_join_leaves_the_join_before_as_it_is(events: DataStream[Event]) -> None:
    joined = interval_join(events)

    joined.side_output_left_late_data(OutputTag("one", Event)).process(Match()).uid("one")
    plain = joined.process(Match())

    assert events._environment._operators[plain._operator_id].kind.late_tags == (None, None)


def test_late_tags_of_an_interval_join_have_the_type_of_their_side(events: DataStream[Event]) -> None:
    joined = interval_join(events)

    with pytest.raises(
        JobGraphError, match='late records are of type Event, and the side output "late" is of type str'
    ):
        joined.side_output_left_late_data(OutputTag("late", str)).process(Match())


def test_keys_of_a_join_leave_the_join_before_as_it_is(events: DataStream[Event]) -> None:
    plain = events.join(events)
    by_key = plain.where("key")
    by_key.equal_to("key")

    with pytest.raises(JobGraphError, match=r"call where\(key\) before window"):
        plain.window(TENS)
    with pytest.raises(JobGraphError, match=r"call equal_to\(key\) before window"):
        by_key.window(TENS)


LATE = OutputTag("late", Event)


class ToLate(ProcessWindowFunction[str, Event, int]):
    def process(self, key: str, ctx: Any, elements: Sequence[Event]) -> None:
        ctx.output(LATE, elements[0])


def test_a_function_cannot_use_the_tag_of_its_late_records() -> None:
    windows = OneWindow(lambda stream: windowed(stream).side_output_late_data(LATE).process(ToLate()), aside=[LATE])

    with pytest.raises(UserFunctionError, match='uses the tag "late", which takes the late records of the same'):
        windows.epoch(Event("a", 1), watermark=9)


@pytest.mark.parametrize("call", [lambda w: w.sum("n"), lambda w: w.process(Show())])
def test_late_records_are_counted_if_they_are_dropped(call: Any) -> None:
    dropping = OneWindow(lambda stream: call(windowed(stream)))
    aside = OneWindow(lambda stream: call(windowed(stream).side_output_late_data(LATE)), aside=[LATE])
    for windows in (dropping, aside):
        windows.epoch(watermark=20)
        windows.epoch(Event("a", 1), Event("a", 2), Event("a", 25))

    assert dropping.subtasks[0].process.late_records_dropped == 2
    assert aside.subtasks[0].process.late_records_dropped == 0
