"""Timers: one per key, time and domain, kept with the keyed state, fired in the order of their times.

Rules:

* Timers fire in the order of their times, ties in the order of registration (after a restore, in the order in which the
  backend returns them).
* A timer whose time has passed when it is registered fires at the end of the current epoch.
* `on_timer` may register more. Those for a later time than its own fire in the same round if they are due; one for its
  own time or an earlier one waits for the next round, so that a timer that renews itself does not fire for ever.
* The end of all input fires every existing event-time timer, and none that those register in turn: a periodic timer
  would never end. Processing-time timers that are not due by then do not fire.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any, Final

from checkdam.backends.contract import NO_KEY, KeyedStateStore, Maps
from checkdam.errors import StateAccessError
from checkdam.graph.contexts import TimeDomain
from checkdam.graph.watermarks import MAX_WATERMARK, MIN_WATERMARK
from checkdam.runtime.slot.context import OperatorTime
from checkdam.state.spec import StateKind, StateSpec
from checkdam.types.type_info import type_info

STATE_NAMES: Final = {TimeDomain.EVENT_TIME: "_timers/event", TimeDomain.PROCESSING_TIME: "_timers/processing"}
_FEW: Final = 1000  # stale heap entries below this are not worth a rebuild


def timer_state(domain: TimeDomain) -> StateSpec:
    """Return the state that holds an operator's timers of one domain."""
    return StateSpec(STATE_NAMES[domain], StateKind.TIMER, type_info(bool), map_key=type_info(int))


class TimerQueue:
    """The timers of one domain of one operator in one subtask.

    Every timer is an entry of the keyed state, so it is part of each snapshot and moves with its key group. In memory a
    heap finds the next one, and a dict has the entries of the heap that are still valid.
    """

    def __init__(self, store: KeyedStateStore, domain: TimeDomain) -> None:
        self.domain = domain
        self._store = store
        self._kept: Maps = store.maps(timer_state(domain))
        self._live: dict[tuple[Any, int], int] = {}  # key and time of each timer, to the number it was registered under
        self._heap: list[tuple[int, int, Any]] = []
        self._waiting: list[tuple[int, int, Any]] = []  # registered while firing, for the next round
        self._count = 0
        self._firing: int | None = None  # the time of the timer that fires now
        for (key, timestamp), _ in self._kept.all():
            self._live[key, timestamp] = self._count
            self._heap.append((timestamp, self._count, key))
            self._count += 1
        heapq.heapify(self._heap)

    def __len__(self) -> int:
        return len(self._live)

    def register(self, timestamp: int) -> None:
        """Register a timer of the current key; idempotent."""
        _check(timestamp)
        key = self._store.current_key
        if (key, timestamp) in self._live:
            return
        self._live[key, timestamp] = self._count
        entry = (timestamp, self._count, key)
        self._count += 1
        self._kept.put(timestamp, True)  # noqa: FBT003  the value of the entry is irrelevant
        if self._firing is not None and timestamp <= self._firing:
            self._waiting.append(entry)
        else:
            heapq.heappush(self._heap, entry)

    def delete(self, timestamp: int) -> None:
        """Delete a timer of the current key, if it exists."""
        _check(timestamp)
        if self._live.pop((self._store.current_key, timestamp), None) is None:
            return
        self._kept.remove(timestamp)
        if len(self._heap) > 2 * len(self._live) + _FEW:
            self._heap = [entry for entry in self._heap if self._counts(entry)]
            heapq.heapify(self._heap)

    def due(self, until: int) -> Iterator[int]:
        """Remove and yield, one by one, the timers up to this time; the key of each is current while it is handled.

        No key is current afterwards, also when handling a timer fails.
        """
        last = self._count if until == MAX_WATERMARK else None
        try:
            while self._heap and self._heap[0][0] <= until:
                timestamp, number, key = entry = heapq.heappop(self._heap)
                if not self._counts(entry):
                    continue
                if last is not None and number >= last:
                    self._waiting.append(entry)
                    continue
                del self._live[key, timestamp]
                self._store.current_key = key
                self._kept.remove(timestamp)
                self._firing = timestamp
                yield timestamp
        finally:
            self._store.current_key = NO_KEY
            self._firing = None
            for entry in self._waiting:
                heapq.heappush(self._heap, entry)
            self._waiting.clear()

    @property
    def next_time(self) -> int | None:
        """The time of the earliest timer."""
        while self._heap and not self._counts(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _counts(self, entry: tuple[int, int, Any]) -> bool:
        timestamp, number, key = entry
        return self._live.get((key, timestamp)) == number


class ClockOnly:
    """The timer service without timers: it returns the time, and its errors say why there are no timers."""

    def __init__(self, time: OperatorTime, reason: str, hint: str) -> None:
        self._time = time
        self._reason = reason
        self._hint = hint

    @property
    def current_processing_time(self) -> int:
        return self._time.processing_time()

    @property
    def current_watermark(self) -> int:
        return self._time.current_watermark

    def register_event_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def _refuse(self) -> None:
        raise StateAccessError(self._reason, hint=self._hint)


class Timers:
    """The timer service of a keyed operator."""

    def __init__(self, store: KeyedStateStore, time: OperatorTime) -> None:
        self._time = time
        self.event = TimerQueue(store, TimeDomain.EVENT_TIME)
        self.processing = TimerQueue(store, TimeDomain.PROCESSING_TIME)
        self.register_event_time_timer = self.event.register
        self.register_processing_time_timer = self.processing.register
        self.delete_event_time_timer = self.event.delete
        self.delete_processing_time_timer = self.processing.delete

    @property
    def current_processing_time(self) -> int:
        return self._time.processing_time()

    @property
    def current_watermark(self) -> int:
        return self._time.current_watermark


def _check(timestamp: Any) -> None:
    if not isinstance(timestamp, int) or isinstance(timestamp, bool):
        raise StateAccessError(
            f"a timer's time is {timestamp!r}, which is not a whole number",
            hint="Give milliseconds since 1970, as ctx.timestamp and timer_service.current_processing_time are.",
        )
    if not MIN_WATERMARK <= timestamp <= MAX_WATERMARK:
        raise StateAccessError(
            f"a timer's time is {timestamp}, which is not a 64-bit number", hint="Give milliseconds since 1970."
        )
