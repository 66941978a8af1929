"""Windows that merge: what a new record does to the sessions of its key, and what is left of those it replaces."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from tests.support.one_window import Event, OneWindow, Show, Shown, ms

from checkdam import (
    AggregateFunction,
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    DataStream,
    EventTimeSessionWindows,
    EventTimeTrigger,
    MergingWindowAssigner,
    OutputTag,
    ProcessingTimeSessionWindows,
    ProcessWindowFunction,
    PurgingTrigger,
    StateRequestError,
    TimeWindow,
    Trigger,
    TriggerResult,
    UserFunctionError,
    WindowContext,
)
from checkdam.graph.watermarks import MAX_WATERMARK

LATE = OutputTag("late", Event)
TEN = ms(10)


def sessions(stream: DataStream[Any], gap: Any = TEN) -> Any:
    return stream.key_by("key").window(EventTimeSessionWindows(gap))


def shown(stream: DataStream[Any]) -> DataStream[Any]:
    return sessions(stream).process(Show())  # type: ignore[no-any-return]


def sums(stream: DataStream[Any]) -> DataStream[Any]:
    return sessions(stream).sum("n")  # type: ignore[no-any-return]


class Count(AggregateFunction[Event, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Event, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, one: int, other: int) -> int:
        return one + other


def test_records_that_are_closer_than_the_gap_are_one_session(backend: str) -> None:
    with OneWindow(shown, backend=backend) as windows:
        windows.epoch(Event("a", 0, 1), Event("b", 4, 2), Event("a", 9, 3), Event("a", 30, 4), watermark=0)

        assert windows.epoch(watermark=MAX_WATERMARK) == [
            Shown("b", 4, 14, [2]),
            Shown("a", 0, 19, [1, 3]),
            Shown("a", 30, 40, [4]),
        ]
        assert windows.stamps == [13, 18, 39]
        assert windows.states() == {}


def test_sessions_that_touch_merge(backend: str) -> None:
    with OneWindow(shown, backend=backend) as windows:
        assert windows.epoch(Event("a", 0, 1), Event("a", 10, 2), Event("a", 21, 3), watermark=100) == [
            Shown("a", 0, 20, [1, 2]),
            Shown("a", 21, 31, [3]),
        ]


@pytest.mark.parametrize("in_one_epoch", [True, False])
def test_a_record_between_two_sessions_makes_three_one(in_one_epoch: bool, backend: str) -> None:
    records = [Event("a", 0, 1), Event("a", 16, 2), Event("a", 8, 3)]
    with OneWindow(shown, backend=backend) as windows:
        for some in [records] if in_one_epoch else [[each] for each in records]:
            windows.epoch(*some, watermark=-1)

        states = windows.states()
        assert states["merging-window-set"] == {"a": [(TimeWindow(0, 26), TimeWindow(0, 10))]}
        assert list(states["window-contents"]) == [("a", TimeWindow(0, 10))]  # nothing was copied to another window
        assert states["_timers/event_window-timers"] == {("a", TimeWindow(0, 26)): [25]}
        [fired] = windows.epoch(watermark=25)
        assert (fired.start, fired.end, sorted(fired.numbers)) == (0, 26, [1, 2, 3])
        assert windows.states() == {}


@pytest.mark.parametrize(
    ("function", "result"),
    [
        (lambda windowed: windowed.sum("n"), Event("a", 0, 6)),
        (lambda windowed: windowed.max("n"), Event("a", 0, 3)),
        (lambda windowed: windowed.aggregate(Count()), 3),
        (lambda windowed: windowed.reduce(lambda one, other: one._replace(n=one.n + other.n)), Event("a", 0, 6)),
        (lambda windowed: windowed.evictor(CountEvictor(5)).aggregate(Count()), 3),
        (lambda windowed: windowed.evictor(CountEvictor(5)).sum("n"), Event("a", 0, 6)),
    ],
    ids=["sum", "max", "aggregate", "reduce", "aggregate with evictor", "sum with evictor"],
)
def test_every_kind_of_contents_merges(function: Any, result: Any, backend: str) -> None:
    with OneWindow(lambda stream: function(sessions(stream)), backend=backend) as windows:
        windows.epoch(Event("a", 0, 1), Event("a", 16, 2), Event("a", 8, 3), watermark=-1)

        assert windows.epoch(watermark=25) == [result]
        assert windows.states() == {}


def test_a_record_within_a_session_leaves_it_as_it_is(backend: str) -> None:
    with OneWindow(sums, backend=backend) as windows:
        windows.epoch(Event("a", 0, 1), Event("a", 8, 1), watermark=-1)
        before = windows.states()
        windows.epoch(Event("a", 4, 1), watermark=-1)

        after = windows.states()
        assert after.pop("window-contents") == {("a", TimeWindow(0, 10)): Event("a", 0, 3)}
        assert after == {name: state for name, state in before.items() if name != "window-contents"}


def test_a_session_that_begins_earlier_takes_over_the_later_one(backend: str) -> None:
    with OneWindow(shown, backend=backend) as windows:
        windows.epoch(Event("a", 20, 1), watermark=0)
        windows.epoch(Event("a", 12, 2), watermark=0)
        windows.epoch(Event("a", 5, 3), watermark=0)

        [fired] = windows.epoch(watermark=29)
        assert (fired.start, fired.end, sorted(fired.numbers)) == (5, 30, [1, 2, 3])
        assert windows.states() == {}


def test_a_session_may_outlast_many_epochs_and_its_records_then_fire_once(backend: str) -> None:
    with OneWindow(sums, backend=backend) as windows:
        for time in range(0, 100, 5):
            assert windows.epoch(Event("a", time, 1), watermark=time - 1) == []

        assert windows.epoch(watermark=104) == [Event("a", 0, 20)]
        assert windows.states() == {}


def test_the_gap_may_depend_on_the_record(backend: str) -> None:
    with OneWindow(lambda s: sessions(s, lambda event: ms(event.n)).process(Show()), backend=backend) as windows:
        assert windows.epoch(Event("a", 0, 5), Event("a", 6, 20), Event("a", 20, 1), watermark=100) == [
            Shown("a", 0, 5, [5]),
            Shown("a", 6, 26, [20, 1]),
        ]


# -- late records


def test_a_late_record_that_extends_a_session_is_not_late(backend: str) -> None:
    def late_aside(stream: DataStream[Any]) -> DataStream[Any]:
        return sessions(stream).side_output_late_data(LATE).process(Show())  # type: ignore[no-any-return]

    with OneWindow(late_aside, backend=backend, aside=[LATE]) as windows:
        windows.epoch(Event("a", 10, 1), watermark=15)
        windows.epoch(Event("a", 3, 2), Event("b", 3, 3), watermark=15)  # of b there is no session to extend

        assert windows.aside(LATE) == [Event("b", 3, 3)]
        assert list(windows.states()["merging-window-set"]) == ["a"]
        assert windows.epoch(watermark=19) == [Shown("a", 3, 20, [1, 2])]
        assert windows.states() == {}


def test_within_the_allowed_lateness_a_late_record_merges_with_a_session_that_has_fired(backend: str) -> None:
    def lenient(stream: DataStream[Any]) -> DataStream[Any]:
        return sessions(stream).allowed_lateness(ms(20)).side_output_late_data(LATE).process(Show())  # type: ignore[no-any-return]

    with OneWindow(lenient, backend=backend, aside=[LATE]) as windows:
        assert windows.epoch(Event("a", 0, 1), Event("a", 15, 2), watermark=24) == [
            Shown("a", 0, 10, [1]),
            Shown("a", 15, 25, [2]),
        ]

        [fired] = windows.epoch(Event("a", 8, 3), watermark=24)  # three into one, all behind the watermark
        assert (fired.start, fired.end, sorted(fired.numbers)) == (0, 25, [1, 2, 3])
        assert windows.states()["_timers/event_window-timers"] == {("a", TimeWindow(0, 25)): [44]}
        assert windows.epoch(watermark=44) == []
        assert windows.states() == {}
        windows.epoch(Event("a", 8, 4))
        assert windows.aside(LATE) == [Event("a", 8, 4)]


def test_a_late_merge_past_the_watermark_fires_when_the_new_window_ends(backend: str) -> None:
    def lenient(stream: DataStream[Any]) -> DataStream[Any]:
        return sessions(stream).allowed_lateness(ms(20)).process(Show())  # type: ignore[no-any-return]

    with OneWindow(lenient, backend=backend) as windows:
        assert windows.epoch(Event("a", 0, 1), watermark=9) == [Shown("a", 0, 10, [1])]
        assert windows.epoch(Event("a", 6, 2), watermark=14) == []

        assert windows.epoch(watermark=15) == [Shown("a", 0, 16, [1, 2])]
        windows.epoch(watermark=35)
        assert windows.states() == {}


# -- triggers


def test_a_purge_drops_the_records_of_a_session_that_has_grown(backend: str) -> None:
    def purging(stream: DataStream[Any]) -> DataStream[Any]:
        windowed = sessions(stream).trigger(PurgingTrigger(CountTrigger(2)))
        return windowed.process(Show())  # type: ignore[no-any-return]

    with OneWindow(purging, backend=backend) as windows:
        fired = windows.epoch(*(Event("a", 5 * n, n) for n in range(5)), watermark=-1)

        assert fired == [Shown("a", 0, 15, [0, 1]), Shown("a", 0, 25, [2, 3])]
        assert list(windows.states()["window-contents"].values()) == [[Event("a", 20, 4)]]
        windows.epoch(watermark=30)
        assert windows.states() == {}


def test_purging_at_the_end_of_a_session_leaves_late_records_alone(backend: str) -> None:
    def purging(stream: DataStream[Any]) -> DataStream[Any]:
        windowed = sessions(stream).trigger(PurgingTrigger(EventTimeTrigger())).allowed_lateness(ms(50))
        return windowed.process(Show())  # type: ignore[no-any-return]

    with OneWindow(purging, backend=backend) as windows:
        assert windows.epoch(Event("a", 0, 1), Event("a", 5, 2), watermark=20) == [Shown("a", 0, 15, [1, 2])]
        assert windows.epoch(Event("a", 3, 3), watermark=20) == [Shown("a", 0, 15, [3])]


def test_counts_of_merged_sessions_are_added(backend: str) -> None:
    def counted(stream: DataStream[Any]) -> DataStream[Any]:
        return sessions(stream).trigger(CountTrigger(4)).process(Show())  # type: ignore[no-any-return]

    with OneWindow(counted, backend=backend) as windows:
        records = [Event("a", 0, 1), Event("a", 1, 2), Event("a", 16, 3)]
        assert windows.epoch(*records, watermark=-1) == []
        assert windows.states()["count"] == {("a", TimeWindow(0, 11)): 2, ("a", TimeWindow(16, 26)): 1}

        [fired] = windows.epoch(Event("a", 8, 4), watermark=-1)
        assert (fired.start, fired.end, sorted(fired.numbers)) == (0, 26, [1, 2, 3, 4])
        assert "count" not in windows.states()


def test_a_continuous_trigger_keeps_the_earliest_time_of_merged_sessions(backend: str) -> None:
    def continuous(stream: DataStream[Any]) -> DataStream[Any]:
        return sessions(stream).trigger(ContinuousEventTimeTrigger(ms(4))).process(Show())  # type: ignore[no-any-return]

    with OneWindow(continuous, backend=backend) as windows:
        windows.epoch(Event("a", 1, 1), Event("a", 17, 2), Event("a", 9, 3), watermark=-1)
        assert windows.states()["fire-time"] == {("a", TimeWindow(1, 27)): 4}

        fired = windows.epoch(watermark=8)
        assert [(each.start, each.end) for each in fired] == [(1, 27), (1, 27)]  # at 4 and at 8
        assert windows.states()["fire-time"] == {("a", TimeWindow(1, 27)): 12}
        windows.epoch(watermark=26)
        assert windows.states() == {}


class Quiet(Trigger[Event, TimeWindow]):
    """Says that it can merge, and cannot."""

    def on_element(self, value: Event, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True


def test_a_trigger_without_on_merge_fails_with_the_record_that_merges(backend: str) -> None:
    windows = OneWindow(lambda stream: sessions(stream).trigger(Quiet()).process(Show()), backend=backend)

    with pytest.raises(
        UserFunctionError, match=r"Quiet must define on_merge\(window, ctx\), or return False"
    ) as failed:
        windows.epoch(Event("a", 0, 1), Event("a", 5, 2))

    assert failed.value.record == "Event(key='a', at=5, n=2)"


# -- state of functions


class AsksForWindowState(ProcessWindowFunction[str, Event, int]):
    def process(self, key: str, ctx: WindowContext, elements: Sequence[Event]) -> Iterator[int]:
        ctx.window_state()
        yield 1


def test_windows_that_merge_have_no_window_state(backend: str) -> None:
    windows = OneWindow(lambda stream: sessions(stream).process(AsksForWindowState()), backend=backend)

    with pytest.raises(StateRequestError) as refused:
        windows.epoch(Event("a", 0, 1), watermark=MAX_WATERMARK)

    assert "window_state() was called for windows that merge, which have no state of their own" in refused.value.message
    assert refused.value.hint == "Use global_state(), or windows that do not merge."


# -- restoring


@pytest.mark.parametrize("to", ["hashmap", "rocksdb"])
def test_merged_sessions_continue_from_a_savepoint(to: str, backend: str) -> None:
    keys = [f"key {n}" for n in range(12)]
    windows = OneWindow(shown, backend=backend, parallelism=2)
    windows.epoch(*(Event(key, time, time) for key in keys for time in (0, 5, 30)), watermark=-1)

    with windows.restored(backend=to, parallelism=3) as again:
        again.epoch(*(Event(key, time, time) for key in keys for time in (15, 25)), watermark=-1)
        fired = again.epoch(watermark=39)

        assert sorted((each.key, each.start, each.end, sorted(each.numbers)) for each in fired) == sorted(
            (key, 0, 40, [0, 5, 15, 25, 30]) for key in keys
        )
        assert again.states() == {}


def counted(stream: Any) -> Any:
    return sessions(stream).aggregate(Count())


def counted_with_lateness(stream: Any) -> Any:
    return sessions(stream).allowed_lateness(ms(50)).aggregate(Count())


def counted_in_threes(stream: Any) -> Any:
    return sessions(stream).trigger(CountTrigger(3)).aggregate(Count())


def counted_in_threes_and_purged(stream: Any) -> Any:
    return sessions(stream).trigger(PurgingTrigger(CountTrigger(3))).aggregate(Count())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (counted, counted_with_lateness),
        (counted_with_lateness, counted),
        (counted_in_threes, counted),
        (counted_in_threes, counted_with_lateness),
    ],
)
def test_sessions_fire_and_leave_nothing_after_a_change_of_trigger_or_lateness(
    before: Any, after: Any, backend: str
) -> None:
    windows = OneWindow(before, backend=backend)
    windows.epoch(Event("a", 0, 0), Event("a", 5, 5), Event("b", 0, 0), watermark=-1)

    with windows.restored(build=after) as again:
        again.epoch(Event("b", 7, 7), watermark=-1)

        assert sorted(again.epoch(watermark=20)) == [2, 2]
        again.epoch(watermark=MAX_WATERMARK)
        assert again.states() == {}


def test_a_session_that_a_former_trigger_has_purged_goes_on(backend: str) -> None:
    windows = OneWindow(counted_in_threes_and_purged, backend=backend)
    windows.epoch(*(Event("a", time, time) for time in (0, 1, 2, 30, 31, 32)), watermark=-1)

    with windows.restored(build=counted) as again:
        again.epoch(*(Event("a", time, time) for time in (11, 21)), watermark=-1)

        assert again.epoch(watermark=MAX_WATERMARK) == [2]
        assert again.states() == {}


# -- processing time


def test_sessions_by_the_clock_end_when_it_has_passed_the_gap(backend: str) -> None:
    def by_clock(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by("key").window(ProcessingTimeSessionWindows(timedelta(seconds=10))).process(Show())

    with OneWindow(by_clock, backend=backend, is_stamped=False) as windows:
        began = windows.now
        windows.epoch(Event("a", 0, 1))
        windows.clock.advance(8)
        windows.epoch(Event("a", 0, 2), Event("b", 0, 3))
        windows.clock.advance(9.999)
        assert windows.epoch() == []

        windows.clock.advance(0.001)
        assert windows.epoch() == [
            Shown("a", began, began + 18_000, [1, 2]),
            Shown("b", began + 8_000, began + 18_000, [3]),
        ]
        assert windows.states() == {}
        assert windows.stamps == [None, None]


# -- an assigner of one's own


class Tagged(NamedTuple):
    """A window of records with one number."""

    n: int
    until: int

    @property
    def max_timestamp(self) -> int:
        return self.until - 1


class ByNumber(MergingWindowAssigner[Event, Tagged]):
    """Windows of 10 milliseconds by number; those of one number are one."""

    window_type = Tagged

    def assign_windows(self, value: Event, timestamp: int, ctx: Any) -> Collection[Tagged]:
        return [Tagged(value.n, timestamp + 10)]

    def get_default_trigger(self) -> Trigger[Any, Any]:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True

    def merge_windows(self, windows: Collection[Tagged]) -> Iterable[tuple[Tagged, Collection[Tagged]]]:
        for n in {each.n for each in windows}:
            some = [each for each in windows if each.n == n]
            if len(some) > 1:
                yield Tagged(n, max(each.until for each in some)), some


class ShowTag(ProcessWindowFunction[str, Event, tuple[int, int, list[int]], Tagged]):
    def process(
        self, key: str, ctx: WindowContext[Tagged], elements: Sequence[Event]
    ) -> Iterator[tuple[int, int, list[int]]]:
        yield ctx.window.n, ctx.window.until, [each.at for each in elements]


@pytest.mark.parametrize("to", ["hashmap", "rocksdb"])
def test_users_write_assigners_of_windows_that_merge(to: str, backend: str) -> None:
    def by_number(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by("key").window(ByNumber()).process(ShowTag())

    windows = OneWindow(by_number, backend=backend)
    windows.epoch(Event("a", 0, 1), Event("a", 3, 2), Event("a", 5, 1), watermark=-1)
    with windows.restored(backend=to) as again:
        again.epoch(Event("a", 7, 2), watermark=-1)

        assert again.epoch(watermark=14) == [(1, 15, [0, 5])]
        assert again.epoch(watermark=16) == [(2, 17, [3, 7])]
        assert again.states() == {}
