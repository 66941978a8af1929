"""Windows by the clock, by count, of whole streams and of users' own making; and state of window functions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from tests.support.one_window import Event, OneWindow, Show, ShowAnywhere, Shown, ms

from checkdam import (
    AllWindowFunction,
    CountTrigger,
    DataStream,
    EventTimeTrigger,
    GlobalWindow,
    GlobalWindows,
    ListStateDescriptor,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessingTimeTrigger,
    ProcessWindowFunction,
    RuntimeContext,
    SlidingProcessingTimeWindows,
    StateRequestError,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    ValueStateDescriptor,
    WindowAssigner,
    WindowContext,
)
from checkdam.graph.watermarks import MAX_WATERMARK

# -- processing time


def test_windows_by_the_clock_fire_when_it_passes_their_end(backend: str) -> None:
    def by_clock(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by("key").window(TumblingProcessingTimeWindows(timedelta(seconds=10))).process(Show())

    with OneWindow(by_clock, backend=backend, is_stamped=False) as windows:
        began = windows.now  # a multiple of ten seconds
        windows.epoch(Event("a", 0, 1), Event("b", 0, 2))
        windows.clock.advance(9.999)
        assert windows.epoch(Event("a", 0, 3)) == []
        assert windows.subtasks[0].process.next_due == began + 10_000

        windows.clock.advance(0.001)
        assert windows.epoch() == [Shown("a", began, began + 10_000, [1, 3]), Shown("b", began, began + 10_000, [2])]
        assert windows.states() == {}
        assert windows.subtasks[0].process.next_due is None


def test_a_window_by_the_clock_takes_records_until_its_last_millisecond_is_over(backend: str) -> None:
    def by_clock(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by("key").window(TumblingProcessingTimeWindows(timedelta(seconds=10))).process(Show())

    with OneWindow(by_clock, backend=backend, is_stamped=False) as windows:
        began = windows.now
        windows.epoch(Event("a", 0, 1))
        windows.clock.advance(9.999)
        assert windows.epoch(Event("a", 0, 2)) == []
        assert windows.epoch(Event("a", 0, 3)) == []

        windows.clock.advance(0.001)
        assert windows.epoch(Event("a", 0, 4)) == [Shown("a", began, began + 10_000, [1, 2, 3])]


def test_a_record_that_comes_after_the_end_of_a_window_by_the_clock_belongs_to_the_next(backend: str) -> None:
    def by_clock(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by("key").window(TumblingProcessingTimeWindows(timedelta(seconds=10))).process(Show())

    with OneWindow(by_clock, backend=backend, is_stamped=False) as windows:
        began = windows.now
        windows.epoch(Event("a", 0, 1))
        windows.clock.advance(15)

        assert windows.epoch(Event("a", 0, 2)) == [Shown("a", began, began + 10_000, [1])]
        windows.clock.advance(5)
        assert windows.epoch() == [Shown("a", began + 10_000, began + 20_000, [2])]


def test_windows_by_the_clock_do_not_fire_at_the_end_of_input_and_know_no_late_records(backend: str) -> None:
    late = OutputTag("late", Event)

    def by_clock(stream: DataStream[Any]) -> DataStream[Any]:
        windowed = stream.key_by("key").window(TumblingProcessingTimeWindows(timedelta(seconds=10)))
        return windowed.allowed_lateness(ms(5)).side_output_late_data(late).process(Show())

    with OneWindow(by_clock, backend=backend, aside=[late]) as windows:
        began = windows.now
        windows.epoch(Event("a", 5, 1), watermark=1_000)
        windows.epoch(Event("a", 5, 2), watermark=1_000)
        assert windows.epoch(watermark=MAX_WATERMARK) == []
        assert windows.aside(late) == []
        windows.clock.advance(10)
        assert windows.epoch() == [Shown("a", began, began + 10_000, [1, 2])]
        assert windows.stamps == [began + 9_999]  # the stream has event time, so the result carries one


def test_sliding_windows_by_the_clock(backend: str) -> None:
    def by_clock(stream: DataStream[Any]) -> DataStream[Any]:
        windowed = stream.key_by("key").window(SlidingProcessingTimeWindows(ms(10), ms(5)))
        return windowed.process(Show())

    with OneWindow(by_clock, backend=backend, is_stamped=False) as windows:
        began = windows.now
        windows.epoch(Event("a", 0, 1))
        windows.clock.advance(0.007)
        assert windows.epoch(Event("a", 0, 2)) == [Shown("a", began - 5, began + 5, [1])]
        windows.clock.advance(1)

        assert windows.epoch() == [Shown("a", began, began + 10, [1, 2]), Shown("a", began + 5, began + 15, [2])]
        assert windows.states() == {}


def test_windows_by_the_clock_continue_after_a_restore(backend: str) -> None:
    def by_clock(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by("key").window(TumblingProcessingTimeWindows(timedelta(seconds=10))).process(Show())

    windows = OneWindow(by_clock, backend=backend, is_stamped=False)
    began = windows.now
    windows.epoch(Event("a", 0, 1))
    windows.clock.advance(60)
    with windows.restored() as again:
        assert again.subtasks[0].process.next_due == began + 10_000
        assert again.epoch() == [Shown("a", began, began + 10_000, [1])]
        assert again.states() == {}


# -- count windows


def test_a_count_window_fires_with_its_last_record_and_begins_anew(backend: str) -> None:
    with OneWindow(lambda s: s.key_by("key").count_window(3).process(ShowAnywhere()), backend=backend) as windows:
        records = [Event("a", 0, n) for n in range(7)]
        assert windows.epoch(*records, Event("b", 0, 9)) == [("a", [0, 1, 2]), ("a", [3, 4, 5])]

        assert windows.states() == {
            "window-contents": {
                ("a", GlobalWindow()): [Event("a", 0, 6)],
                ("b", GlobalWindow()): [Event("b", 0, 9)],
            },
            "count": {("a", GlobalWindow()): 1, ("b", GlobalWindow()): 1},
        }
        assert windows.epoch(watermark=MAX_WATERMARK) == []  # half a window never fires


def test_a_sliding_count_window_fires_every_slide_with_the_newest_records(backend: str) -> None:
    with OneWindow(lambda s: s.key_by("key").count_window(3, 2).process(ShowAnywhere()), backend=backend) as windows:
        fired = windows.epoch(*(Event("a", 0, n) for n in range(7)))

        assert fired == [("a", [0, 1]), ("a", [1, 2, 3]), ("a", [3, 4, 5])]
        assert len(windows.states()["window-contents"]["a", GlobalWindow()]) == 4  # three, and the one since


@pytest.mark.parametrize("is_stamped", [True, False])
def test_a_count_window_needs_no_timestamps(is_stamped: bool, backend: str) -> None:
    build = lambda s: s.key_by("key").count_window(2).sum("n")  # noqa: E731
    with OneWindow(build, backend=backend, is_stamped=is_stamped) as windows:
        assert windows.epoch(Event("a", 1, 1), Event("a", 2, 2)) == [Event("a", 1, 3)]
        assert windows.stamps == [MAX_WATERMARK if is_stamped else None]


@pytest.mark.parametrize("to", ["hashmap", "rocksdb"])
def test_a_count_window_continues_from_a_savepoint(to: str, backend: str) -> None:
    windows = OneWindow(lambda s: s.key_by("key").count_window(3).process(ShowAnywhere()), backend=backend)
    windows.epoch(Event("a", 0, 1), Event("a", 0, 2))

    with windows.restored(backend=to, parallelism=2) as again:
        assert again.epoch(Event("a", 0, 3)) == [("a", [1, 2, 3])]
        assert again.states() == {}


def test_global_windows_fire_by_their_trigger_alone(backend: str) -> None:
    def by_default(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by("key").window(GlobalWindows()).process(ShowAnywhere())

    with OneWindow(by_default, backend=backend) as windows:
        assert windows.epoch(Event("a", 0, 1), watermark=1_000) == []
        assert windows.epoch(watermark=MAX_WATERMARK) == []
        assert list(windows.states()) == ["window-contents"]


def test_global_windows_with_an_event_time_trigger_fire_at_the_end_of_input(backend: str) -> None:
    def at_the_end(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by("key").window(GlobalWindows()).trigger(EventTimeTrigger()).process(ShowAnywhere())

    with OneWindow(at_the_end, backend=backend) as windows:
        assert windows.epoch(Event("a", 0, 1), Event("a", 5, 2), watermark=1_000) == []
        assert windows.epoch(watermark=MAX_WATERMARK) == [("a", [1, 2])]


# -- whole streams


class All(ProcessAllWindowFunction[Event, tuple[int, list[str]]]):
    def process(self, ctx: WindowContext, elements: Sequence[Event]) -> Iterator[tuple[int, list[str]]]:
        yield ctx.window.start, [each.key for each in elements]


class ApplyAll(AllWindowFunction[Event, tuple[int, int]]):
    def apply(self, window: TimeWindow, elements: Sequence[Event]) -> list[tuple[int, int]]:
        return [(window.end, len(elements))]


@pytest.mark.parametrize(
    ("function", "result"),
    [
        (lambda windowed: windowed.process(All()), [(0, ["a", "b"])]),
        (lambda windowed: windowed.apply(ApplyAll()), [(10, 2)]),
        (lambda windowed: windowed.sum("n"), [Event("a", 1, 3)]),
        (lambda windowed: windowed.reduce(lambda one, other: other, ApplyAll()), [(10, 1)]),
    ],
)
def test_all_records_of_a_stream_are_in_one_window(function: Any, result: list[Any], backend: str) -> None:
    build = lambda stream: function(stream.window_all(TumblingEventTimeWindows(ms(10))))  # noqa: E731
    with OneWindow(build, backend=backend, parallelism=3) as windows:
        assert len(windows.subtasks) == 1
        assert windows.epoch(Event("a", 1, 1), Event("b", 2, 2), watermark=9) == result
        assert windows.states() == {}


def test_count_windows_of_a_whole_stream(backend: str) -> None:
    with OneWindow(lambda stream: stream.count_window_all(2).sum("n"), backend=backend) as windows:
        assert windows.epoch(Event("a", 1, 1), Event("b", 2, 2), Event("c", 3, 3)) == [Event("a", 1, 3)]
    with OneWindow(lambda stream: stream.count_window_all(2, 1).sum("n"), backend=backend) as windows:
        fired = windows.epoch(Event("a", 1, 1), Event("b", 2, 2), Event("c", 3, 3))
        assert [each.n for each in fired] == [1, 3, 5]


# -- state of window functions


class Versions(ProcessWindowFunction[str, Event, tuple[str, int, int, int]]):
    """Counts how often a window, and how often a key, has fired."""

    def open(self, ctx: RuntimeContext) -> None:
        self.keys = ctx.get_state(ValueStateDescriptor("in open", int, default=0))

    def process(self, key: str, ctx: WindowContext, elements: Sequence[Event]) -> Iterator[tuple[str, int, int, int]]:
        of_window = ctx.window_state().get_state(ValueStateDescriptor("version", int, default=0))
        of_key = ctx.global_state().get_state(ValueStateDescriptor("firings", int, default=0))
        of_window.update(of_window.value() + 1)
        of_key.update(of_key.value() + 1)
        self.keys.update(self.keys.value() + 1)
        yield key, ctx.window.start, of_window.value(), of_key.value()

    def clear(self, ctx: WindowContext) -> None:
        ctx.window_state().get_state(ValueStateDescriptor("version", int, default=0)).clear()


def test_functions_have_state_by_window_and_by_key_and_clear_that_of_windows(backend: str) -> None:
    def versions(stream: DataStream[Any]) -> DataStream[Any]:
        windowed = stream.key_by("key").window(TumblingEventTimeWindows(ms(10))).allowed_lateness(ms(20))
        return windowed.process(Versions())

    with OneWindow(versions, backend=backend) as windows:
        assert windows.epoch(Event("a", 1), Event("a", 11), watermark=19) == [("a", 0, 1, 1), ("a", 10, 1, 2)]
        assert windows.epoch(Event("a", 2), watermark=19) == [("a", 0, 2, 3)]
        states = windows.states()
        assert states["version"] == {("a", TimeWindow(0, 10)): 2, ("a", TimeWindow(10, 20)): 1}
        assert states["firings"] == states["in open"] == {"a": 3}

        windows.epoch(watermark=29)
        assert windows.states()["version"] == {("a", TimeWindow(10, 20)): 1}
        windows.epoch(watermark=MAX_WATERMARK)
        assert windows.states() == {"firings": {"a": 3}, "in open": {"a": 3}}


@pytest.mark.parametrize("to", ["hashmap", "rocksdb"])
def test_state_by_window_continues_from_a_savepoint(to: str, backend: str) -> None:
    def versions(stream: DataStream[Any]) -> DataStream[Any]:
        windowed = stream.key_by("key").window(TumblingEventTimeWindows(ms(10))).allowed_lateness(ms(20))
        return windowed.process(Versions())

    windows = OneWindow(versions, backend=backend)
    windows.epoch(Event("a", 1), watermark=9)
    with windows.restored(backend=to, parallelism=2) as again:
        assert again.epoch(Event("a", 2), watermark=9) == [("a", 0, 2, 2)]


class Notes(ProcessWindowFunction[str, Event, int]):
    """Looks at the times, and emits the number of records to a side output."""

    def process(self, key: str, ctx: WindowContext, elements: Sequence[Event]) -> None:
        ctx.output(SIZE, (ctx.current_watermark, ctx.current_processing_time, len(elements)))


SIZE = OutputTag("size", tuple[int, int, int])


def test_functions_know_the_times_and_have_side_outputs(backend: str) -> None:
    def notes(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by("key").window(TumblingEventTimeWindows(ms(10))).process(Notes())

    with OneWindow(notes, backend=backend, aside=[SIZE]) as windows:
        assert windows.epoch(Event("a", 1), Event("a", 2), watermark=15) == []
        assert windows.aside(SIZE) == [(15, windows.now, 2)]


class SameName(ProcessWindowFunction[str, Event, int]):
    """Asks for state by window under a name that the trigger uses."""

    def process(self, key: str, ctx: WindowContext, elements: Sequence[Event]) -> Iterator[int]:
        ctx.window_state().get_list_state(ListStateDescriptor("count", int)).add(1)
        yield 1


def test_a_state_by_window_cannot_take_the_name_of_another(backend: str) -> None:
    def same_name(stream: DataStream[Any]) -> DataStream[Any]:
        windowed = stream.key_by("key").window(TumblingEventTimeWindows(ms(10)))
        return windowed.trigger(CountTrigger(1)).process(SameName())

    windows = OneWindow(same_name, backend=backend)

    with pytest.raises(StateRequestError, match='asks for state "count"'):
        windows.epoch(Event("a", 1))


# -- windows of users' own making


class Day(NamedTuple):
    """A window with a name."""

    name: str
    end: int

    @property
    def max_timestamp(self) -> int:
        return self.end - 1


class Weekdays(WindowAssigner[Event, Day]):
    """Two windows of ten milliseconds that take turns, and one over all."""

    window_type = Day

    def assign_windows(self, value: Event, timestamp: int, ctx: Any) -> Collection[Day]:
        number = timestamp // 10
        return [Day("even" if number % 2 == 0 else "odd", number * 10 + 10), Day("all", 100)]

    def get_default_trigger(self) -> Trigger[Any, Any]:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True


class ShowDay(ProcessWindowFunction[str, Event, tuple[str, int, list[int]], Day]):
    def process(
        self, key: str, ctx: WindowContext[Day], elements: Sequence[Event]
    ) -> Iterator[tuple[str, int, list[int]]]:
        yield ctx.window.name, ctx.window.end, [each.n for each in elements]


@pytest.mark.parametrize("to", ["hashmap", "rocksdb"])
def test_users_write_assigners_with_windows_of_their_own(to: str, backend: str) -> None:
    def weekdays(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by("key").window(Weekdays()).process(ShowDay())

    windows = OneWindow(weekdays, backend=backend)
    windows.epoch(Event("a", 3, 1), Event("a", 14, 2), watermark=0)
    with windows.restored(backend=to) as again:
        assert again.epoch(Event("a", 5, 3), watermark=50) == [("even", 10, [1, 3]), ("odd", 20, [2])]
        assert again.epoch(watermark=99) == [("all", 100, [1, 2, 3])]
        assert again.states() == {}


class ByClock(WindowAssigner[Event, TimeWindow]):
    """One window from now on, a second long."""

    def assign_windows(self, value: Event, timestamp: int, ctx: Any) -> Collection[TimeWindow]:
        return [TimeWindow(ctx.current_processing_time, ctx.current_processing_time + 1_000)]

    def get_default_trigger(self) -> Trigger[Any, Any]:
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        return False


def test_users_write_assigners_by_the_clock(backend: str) -> None:
    build = lambda stream: stream.key_by("key").window(ByClock()).process(Show())  # noqa: E731
    with OneWindow(build, backend=backend, is_stamped=False) as windows:
        began = windows.now
        windows.epoch(Event("a", 0, 1), Event("a", 0, 2))
        windows.clock.advance(1)
        assert windows.epoch() == [Shown("a", began, began + 1_000, [1, 2])]


class Every(Trigger[Event, TimeWindow]):
    """A trigger with state of every kind of timer: fires at every second record, and a minute after the first."""

    def on_element(self, value: Event, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        seen = ctx.get_partitioned_state(ListStateDescriptor("seen", int))
        if not seen.get():
            ctx.register_processing_time_timer(ctx.current_processing_time + 60_000)
        seen.add(value.n)
        return TriggerResult.FIRE if len(seen.get()) % 2 == 0 else TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return TriggerResult.FIRE_AND_PURGE

    def clear(self, window: TimeWindow, ctx: Any) -> None:
        ctx.get_partitioned_state(ListStateDescriptor("seen", int)).clear()


@pytest.mark.parametrize("to", ["hashmap", "rocksdb"])
def test_users_write_triggers_with_state_and_timers(to: str, backend: str) -> None:
    def every(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by("key").window(TumblingEventTimeWindows(ms(10))).trigger(Every()).process(Show())

    windows = OneWindow(every, backend=backend)
    assert windows.epoch(Event("a", 1, 1), Event("a", 2, 2), Event("a", 3, 3), watermark=0) == [
        Shown("a", 0, 10, [1, 2])
    ]
    with windows.restored(backend=to) as again:
        assert again.epoch(Event("a", 4, 4), watermark=0) == [Shown("a", 0, 10, [1, 2, 3, 4])]
        again.clock.advance(60)
        assert again.epoch(watermark=0) == []
        again.clock.advance(0.001)
        assert again.epoch(watermark=0) == [Shown("a", 0, 10, [1, 2, 3, 4])]
        assert again.states()["seen"] == {("a", TimeWindow(0, 10)): [1, 2, 3, 4]}
        assert again.epoch(watermark=9) == []
        assert again.states() == {}
