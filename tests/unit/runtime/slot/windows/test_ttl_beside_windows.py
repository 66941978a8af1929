"""State that expires in an operator of windows: what the windows themselves keep stays until they end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from tests.support.one_window import Event, OneWindow

from checkdam import (
    CleanupFullSnapshot,
    CleanupIncrementally,
    CleanupOnCompaction,
    ContinuousEventTimeTrigger,
    CountTrigger,
    DataStream,
    DeltaTrigger,
    EventTimeSessionWindows,
    ProcessingTimeoutTrigger,
    ProcessWindowFunction,
    RuntimeContext,
    StateTtlConfig,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    WindowContext,
)

LIFE = timedelta(milliseconds=20)
PAST_IT = timedelta(seconds=1)
EVENT_TIMERS, PROCESSING_TIMERS = "_timers/event_window-timers", "_timers/processing_window-timers"
CLEANUP = (
    CleanupFullSnapshot(),
    CleanupIncrementally(100, run_for_every_record=True),
    CleanupOnCompaction(query_time_after_num_entries=1),
)


class Remember(ProcessWindowFunction[str, Event, tuple[str, list[int]]]):
    """Emits the records of a window, and keeps how many there were in state that expires."""

    def __init__(self, *, has_window_state: bool) -> None:
        ttl = StateTtlConfig(LIFE, cleanup=CLEANUP)
        self._in_open = ValueStateDescriptor("in open", int, ttl=ttl)
        self._of_key = ValueStateDescriptor("of key", int, ttl=ttl)
        self._of_window = ValueStateDescriptor("of window", int, ttl=ttl)
        self._has_window_state = has_window_state

    def open(self, ctx: RuntimeContext) -> None:
        self._opened = ctx.get_state(self._in_open)

    def process(self, key: str, ctx: WindowContext, elements: Sequence[Event]) -> Iterator[tuple[str, list[int]]]:
        self._opened.update(len(elements))
        ctx.global_state().get_state(self._of_key).update(len(elements))
        if self._has_window_state:
            ctx.window_state().get_state(self._of_window).update(len(elements))
        yield key, [each.n for each in elements]

    def clear(self, ctx: WindowContext) -> None:
        if self._has_window_state:
            ctx.window_state().get_state(self._of_window).clear()


MINUTE = timedelta(minutes=1)
TUMBLING = TumblingEventTimeWindows(MINUTE)
SESSIONS = EventTimeSessionWindows(MINUTE)
EXPIRING = {"in open", "of key", "of window"}
BY_RECORD: dict[str, tuple[Any, Any, set[str]]] = {
    "continuous": (TUMBLING, ContinuousEventTimeTrigger(MINUTE / 6), {"fire-time"}),
    "count": (TUMBLING, CountTrigger(2), {"count"}),
    "delta": (TUMBLING, DeltaTrigger(2, lambda last, new: new.n - last.n, Event), {"last-element"}),
    "timeout": (TUMBLING, ProcessingTimeoutTrigger(CountTrigger(2), MINUTE), {"count", "timeout", PROCESSING_TIMERS}),
    "sessions by count": (SESSIONS, CountTrigger(2), {"count", "merging-window-set"}),
    "continuous sessions": (SESSIONS, ContinuousEventTimeTrigger(MINUTE / 6), {"fire-time", "merging-window-set"}),
}
BY_EPOCH: dict[str, tuple[Any, set[str]]] = {
    "tumbling": (TumblingEventTimeWindows(timedelta(seconds=5)), set()),
    "sessions": (EventTimeSessionWindows(timedelta(seconds=5)), {"merging-window-set"}),
}


def of_ada(windows: OneWindow) -> dict[str, dict[Any, Any]]:
    """What is kept for one key: by name of the state, then by key or by key and window."""
    found = {
        name: {holder: kept for holder, kept in held.items() if "ada" in (holder, holder[0])}
        for name, held in windows.states().items()
    }
    return {name: held for name, held in found.items() if held}


def lose_nothing_but_state_with_ttl(build: Any, backend: str, kept: set[str]) -> list[Any]:
    """Let the window fire, and time pass; return what it emits for a later record, after a restore."""
    windows = OneWindow(build, backend=backend)
    windows.epoch(Event("ada", 1_000, 0), Event("ada", 2_000, 5), Event("ada", 3_000, 6), watermark=10_000)
    before = of_ada(windows)
    expiring = EXPIRING & set(before)
    assert set(before) == expiring | kept | {"window-contents", EVENT_TIMERS}
    assert {"in open", "of key"} <= expiring

    windows.clock.advance(PAST_IT)
    windows.epoch(watermark=11_000)
    windows.epoch(Event("bob", 10_900), watermark=11_000)  # cleanup runs with each record, and at the end of an epoch

    stays = {name: held for name, held in before.items() if name not in EXPIRING}
    assert of_ada(windows) == stays
    with windows.restored() as again:
        assert of_ada(again) == stays
        fired = again.epoch(Event("ada", 3_500, 9), watermark=20_000)
        return [numbers for key, numbers in fired if key == "ada"]


@pytest.mark.parametrize("case", BY_RECORD)
def test_contents_triggers_and_timers_of_a_window_do_not_expire_with_the_state_of_its_function(
    case: str, backend: str
) -> None:
    assigner, trigger, kept = BY_RECORD[case]

    def remembered(stream: DataStream[Any]) -> DataStream[Any]:
        windowed = stream.key_by("key").window(assigner).trigger(trigger)
        return windowed.process(Remember(has_window_state=assigner is TUMBLING))

    assert lose_nothing_but_state_with_ttl(remembered, backend, kept) == [[0, 5, 6, 9]]


@pytest.mark.parametrize("case", BY_EPOCH)
def test_neither_does_what_is_combined_in_each_epoch(case: str, backend: str) -> None:
    assigner, kept = BY_EPOCH[case]

    def remembered(stream: DataStream[Any]) -> DataStream[Any]:
        windowed = stream.key_by("key").window(assigner).allowed_lateness(MINUTE)
        return windowed.reduce(added, Remember(has_window_state=not kept))

    assert lose_nothing_but_state_with_ttl(remembered, backend, kept) == [[20]]


def added(one: Event, other: Event) -> Event:
    return Event(one.key, one.at, one.n + other.n)
