"""State that expires by event time in functions of windows, triggers and interval joins: the time of each write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from tests.support.one_window import Event, OneWindow, ms

from checkdam import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    DataStream,
    EventTimeSessionWindows,
    GlobalWindows,
    JoinContext,
    MapStateDescriptor,
    ProcessingTimeoutTrigger,
    ProcessJoinFunction,
    ProcessWindowFunction,
    RuntimeContext,
    SlidingEventTimeWindows,
    StateTtlConfig,
    Trigger,
    TriggerContext,
    TriggerResult,
    TtlTime,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    ValueStateDescriptor,
    WindowContext,
)
from checkdam.errors import UserFunctionError
from checkdam.runtime.slot.windows import window_aggregation
from checkdam.state.descriptors import StateDescriptor

HOUR = StateTtlConfig(timedelta(hours=1), time=TtlTime.EVENT_TIME)
ANY = TumblingEventTimeWindows(ms(10))


class Note(ProcessWindowFunction[str, Event, int, Any]):
    """Keeps in state that expires what each window had when it fired, and which windows have ended."""

    def __init__(self, *, has_window_state: bool = False) -> None:
        self._fired = MapStateDescriptor("fired", int, int, ttl=HOUR)
        self._ended = MapStateDescriptor("ended", int, bool, ttl=HOUR)
        self._of_window = ValueStateDescriptor("of window", int, ttl=HOUR)
        self._has_window_state = has_window_state

    def process(self, key: str, ctx: WindowContext[Any], elements: Sequence[Event]) -> Iterator[int]:
        total = sum(each.n for each in elements)
        ctx.global_state().get_map_state(self._fired)[getattr(ctx.window, "start", 0)] = total
        if self._has_window_state:
            ctx.window_state().get_state(self._of_window).update(total)
        yield total

    def clear(self, ctx: WindowContext[Any]) -> None:
        ctx.global_state().get_map_state(self._ended)[ctx.window.start] = True


def noted(assigner: Any, trigger: Any = None, lateness: int = 0, note: Note | None = None) -> Callable[..., Any]:
    def build(stream: DataStream[Any]) -> DataStream[Any]:
        windows: Any = stream.key_by("key").window(assigner)
        if lateness:
            windows = windows.allowed_lateness(ms(lateness))
        if trigger is not None:
            windows = windows.trigger(trigger)
        result: DataStream[Any] = windows.reduce(added, note or Note())
        return result

    return build


def added(one: Event, other: Event) -> Event:
    return Event(one.key, one.at, one.n + other.n)


def current_timestamp(windows: OneWindow) -> int | None:
    time: int | None = windows.subtasks[0].process._time.timestamp  # type: ignore[attr-defined]
    return time


CASES: dict[str, tuple[Any, dict[int, Any], dict[int, Any]]] = {
    "tumbling": (
        TumblingEventTimeWindows(ms(10)),
        {0: (7, 9), 10: (8, 19)},
        {0: (True, 9)},
    ),
    "sliding": (
        SlidingEventTimeWindows(ms(10), ms(5)),
        {-5: (1, 4), 0: (7, 9), 5: (14, 14), 10: (8, 19)},
        {-5: (True, 4), 0: (True, 9)},
    ),
    "sessions": (
        EventTimeSessionWindows(ms(4)),
        {1: (7, 11), 13: (8, 16)},
        {1: (True, 11)},
    ),
}


@pytest.mark.parametrize("is_by_epoch", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_a_window_function_writes_at_the_last_timestamp_of_its_window(
    case: str, is_by_epoch: bool, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assigner, fired, ended = CASES[case]
    if not is_by_epoch:
        monkeypatch.setattr(window_aggregation, "is_aggregable", lambda kind: False)
    with OneWindow(noted(assigner, lateness=7), backend=backend) as windows:
        windows.epoch(Event("a", 1, 1), Event("a", 5, 2), Event("a", 8, 0), watermark=11)
        windows.epoch(Event("a", 8, 4), Event("a", 13, 8), watermark=19)  # the first is late, and allowed

        assert windows.states()["fired"] == {"a": fired}
        assert windows.states()["ended"] == {"a": ended}
        assert current_timestamp(windows) is None


@pytest.mark.parametrize("is_by_epoch", [True, False])
def test_so_does_it_in_state_of_the_window(is_by_epoch: bool, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_by_epoch:
        monkeypatch.setattr(window_aggregation, "is_aggregable", lambda kind: False)
    build = noted(ANY, note=Note(has_window_state=True))
    with OneWindow(build, backend=backend) as windows:
        windows.epoch(Event("a", 1, 1), watermark=11)
        windows.epoch(Event("a", 12, 2), watermark=19)

        assert windows.states()["of window"] == {("a", (0, 10)): (1, 9), ("a", (10, 20)): (2, 19)}


def test_a_window_that_fires_early_writes_at_its_last_timestamp_too(backend: str) -> None:
    for trigger in (ContinuousEventTimeTrigger(ms(2)), CountTrigger(1)):
        with OneWindow(noted(ANY, trigger), backend=backend) as windows:
            windows.epoch(Event("a", 1, 1), watermark=3)

            assert windows.states()["fired"] == {"a": {0: (1, 9)}}


def test_a_window_without_end_writes_at_the_timestamp_of_the_record_that_fires_it(backend: str) -> None:
    with OneWindow(noted(GlobalWindows(), CountTrigger(2)), backend=backend) as windows:
        windows.epoch(Event("a", 30, 1), Event("a", 7, 2), Event("b", 8), watermark=5)

        assert windows.states()["fired"] == {"a": {0: (3, 7)}}
        assert current_timestamp(windows) is None


@pytest.mark.parametrize(
    ("assigner", "trigger"),
    [
        (TumblingProcessingTimeWindows(ms(10)), None),
        (GlobalWindows(), ProcessingTimeoutTrigger(CountTrigger(9), ms(10))),
    ],
)
def test_a_window_that_the_clock_fires_writes_at_the_watermark(assigner: Any, trigger: Any, backend: str) -> None:
    with OneWindow(noted(assigner, trigger), backend=backend) as windows:
        windows.epoch(Event("a", 30, 1), watermark=25)
        windows.clock.advance(ms(20))
        windows.epoch(watermark=26)

        ((_, entries),) = windows.states()["fired"].items()
        assert list(entries.values()) == [(1, 25)]  # that of the epoch before, as for timers of other functions
        assert current_timestamp(windows) is None


def test_records_without_timestamps_write_at_the_watermark(backend: str) -> None:
    build = noted(GlobalWindows(), CountTrigger(1))
    with OneWindow(build, backend=backend, is_stamped=False, watermark=25) as windows:
        windows.epoch(Event("a", 30, 1))

        assert windows.states()["fired"] == {"a": {0: (1, 25)}}


def test_without_timestamps_and_watermark_it_is_an_error(backend: str) -> None:
    build = noted(GlobalWindows(), CountTrigger(1))
    with OneWindow(build, backend=backend, is_stamped=False) as windows:
        with pytest.raises(UserFunctionError, match="the current record has no timestamp"):
            windows.epoch(Event("a", 30, 1))

        assert current_timestamp(windows) is None


class Fail(Note):
    def process(self, key: str, ctx: WindowContext[Any], elements: Sequence[Event]) -> Iterator[int]:
        yield from super().process(key, ctx, elements)
        raise ValueError("no more")


@pytest.mark.parametrize("assigner", [ANY, EventTimeSessionWindows(ms(5))])
@pytest.mark.parametrize("trigger", [None, CountTrigger(1), ContinuousEventTimeTrigger(ms(100))])
def test_no_timestamp_is_left_after_a_failure(assigner: Any, trigger: Any, backend: str) -> None:
    with OneWindow(noted(assigner, trigger, note=Fail()), backend=backend) as windows:
        with pytest.raises(UserFunctionError, match="no more"):
            windows.epoch(Event("a", 1, 1), watermark=30)

        assert current_timestamp(windows) is None


class Seen(Trigger[Any, Any]):
    """Fires with each record; keeps the last record and timer of a window in state that expires."""

    _records = ValueStateDescriptor("record", int, ttl=HOUR)
    _timers = ValueStateDescriptor("timer", int, ttl=HOUR)

    @property
    def states(self) -> Sequence[StateDescriptor]:
        return self._records, self._timers

    def on_element(self, value: Any, timestamp: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        ctx.get_partitioned_state(self._records).update(value.n)
        ctx.register_event_time_timer(timestamp + 1)
        return TriggerResult.FIRE

    def on_event_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        ctx.get_partitioned_state(self._timers).update(time)
        return TriggerResult.CONTINUE


def test_a_trigger_writes_at_the_time_of_its_record_or_timer(backend: str) -> None:
    with OneWindow(noted(SlidingEventTimeWindows(ms(10), ms(5)), Seen()), backend=backend) as windows:
        windows.epoch(Event("a", 2, 1), Event("a", 6, 3), watermark=3)

        early, middle, late = (("a", (start, start + 10)) for start in (-5, 0, 5))
        assert windows.states()["record"] == {early: (1, 2), middle: (3, 6), late: (3, 6)}
        assert windows.states()["timer"] == {early: (3, 3), middle: (3, 3)}


class Pairs(ProcessJoinFunction[Event, Event, int]):
    def open(self, ctx: RuntimeContext) -> None:
        self._last = ctx.get_state(ValueStateDescriptor("last pair", int, ttl=HOUR))

    def process_element(self, left: Event, right: Event, ctx: JoinContext) -> Iterator[int]:
        self._last.update(left.n + right.n)
        yield left.n + right.n


def test_an_interval_join_writes_at_the_timestamp_of_the_pair(backend: str) -> None:
    def joined(left: DataStream[Any], right: DataStream[Any]) -> DataStream[Any]:
        return left.key_by("key").interval_join(right.key_by("key")).between(ms(-5), ms(5)).process(Pairs())

    with OneWindow(joined, second=Event, backend=backend) as windows:
        windows.epoch(Event("a", 7, 1), second=[Event("a", 4, 2)])

        assert windows.states()["last pair"] == {"a": (3, 7)}
        assert current_timestamp(windows) is None
