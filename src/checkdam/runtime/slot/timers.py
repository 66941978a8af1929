"""Timers: one per key, time and domain, kept with the keyed state, fired in the order of their times.

Rules:

* Timers fire in the order of their times, ties in the order of registration (after a restore, in the order in which the
  backend returns them).
* A timer whose time has passed when it is registered fires at the end of the current epoch.
* `on_timer` may register more. Those for a later time than its own fire in the same round if they are due; one for its
  own time or an earlier one waits for the next round, so that a timer that renews itself does not fire for ever.
* The end of all input fires every existing event-time timer, and none that those register in turn, except within a
  window that ends: a periodic timer would never end. Processing-time timers that are not due by then do not fire.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Any, Final, Protocol

from checkdam.backends.contract import NO_KEY, KeyedStateStore
from checkdam.errors import StateAccessError
from checkdam.graph.contexts import TimeDomain
from checkdam.graph.watermarks import MAX_WATERMARK, MIN_WATERMARK
from checkdam.runtime.slot.context import OperatorTime
from checkdam.state.spec import StateKind, StateSpec
from checkdam.types.type_info import TypeInfo, type_info

STATE_NAMES: Final = {TimeDomain.EVENT_TIME: "_timers/event", TimeDomain.PROCESSING_TIME: "_timers/processing"}
_FEW: Final = 1000  # stale heap entries below this are not worth a rebuild
OF_WINDOWS: Final = "_window-timers"


def timer_state(domain: TimeDomain, window: TypeInfo | None = None) -> StateSpec:
    """Return the state that holds an operator's timers of one domain; those of windows have the window as namespace."""
    name = STATE_NAMES[domain] + ("" if window is None else OF_WINDOWS)
    return StateSpec(name, StateKind.TIMER, type_info(bool), map_key=type_info(int), namespace=window)


class CurrentHolder(Protocol):
    """Holds what a timer belongs to: the current key, or the current key and window."""

    current_key: Any


class KeyAndWindow:
    """The current key and window of a store, as one value."""

    __slots__ = ("_store",)

    def __init__(self, store: KeyedStateStore) -> None:
        self._store = store

    @property
    def current_key(self) -> Any:
        return self._store.current_key, self._store.current_namespace

    @current_key.setter
    def current_key(self, holder: Any) -> None:
        if holder is NO_KEY:
            self._store.current_key, self._store.current_namespace = NO_KEY, None
        else:
            self._store.current_key, self._store.current_namespace = holder


class TimerQueue:
    """The timers of one domain of one operator in one subtask.

    Every timer is an entry of the keyed state, so it is part of each snapshot and moves with its key group. In memory
    the timers of one time are together, and a heap finds the next time.
    """

    def __init__(self, store: KeyedStateStore, domain: TimeDomain, window: TypeInfo | None = None) -> None:
        """Open the timers of a domain; with `window`, its type, each belongs to a window of its key."""
        self.domain = domain
        self._current: CurrentHolder = store if window is None else KeyAndWindow(store)
        self._has_windows = window is not None
        self._kept = store.table(timer_state(domain, window))
        self._at: dict[int, dict[Any, None]] = {}  # by time: the holders of timers, in the order of registration
        self._times: list[int] = []  # a heap of the times in `_at`
        self._count = 0
        self._firing: int | None = None  # the time of the timer that fires now
        self._is_ending = False  # whether it fires because all input has ended
        self._waiting: dict[tuple[int, Any], None] = {}  # registered while firing, for the next round
        for entry, _ in self._kept.all():
            self._insert(entry[-1], entry[0] if window is None else entry[:2])

    def __len__(self) -> int:
        return self._count

    @property
    def holders(self) -> Iterator[Any]:
        """The key, or key and window, of each timer."""
        return chain.from_iterable(self._at.values())

    def register(self, timestamp: int) -> None:
        """Register a timer of the current key; idempotent."""
        _check(timestamp)
        holder = self._current.current_key
        held = self._at.get(timestamp)
        if held is not None and holder in held:
            return
        if self._firing is not None and self._waits(timestamp, holder):
            if (timestamp, holder) in self._waiting:
                return
            self._waiting[timestamp, holder] = None
            self._count += 1
        else:
            self._insert(timestamp, holder)
        self._kept.put(self._entry(holder, timestamp), True)  # noqa: FBT003  the value of the entry is irrelevant

    def register_all(self, timestamp: int, holders: Collection[Any]) -> None:
        """Register a timer for each of these holders; idempotent."""
        held = self._at.get(timestamp)
        if held is None:
            held = self._at[timestamp] = {}
            heapq.heappush(self._times, timestamp)
        before = len(held)
        held.update(dict.fromkeys(holders))
        self._count += len(held) - before
        self._kept.put_all({self._entry(holder, timestamp): True for holder in holders})

    def register_each(self, timers: Iterable[tuple[int, Any]]) -> None:
        """Register timers, given by time and holder; idempotent. Not while timers fire."""
        added = {}
        for timestamp, holder in timers:
            held = self._at.get(timestamp)
            if held is None:
                held = self._at[timestamp] = {}
                heapq.heappush(self._times, timestamp)
            elif holder in held:
                continue
            held[holder] = None
            added[self._entry(holder, timestamp)] = True
        self._count += len(added)
        self._kept.put_all(added)

    def delete_each(self, timers: Iterable[tuple[int, Any]]) -> None:
        """Delete timers, given by time and holder, as far as they exist. Not while timers fire."""
        removed = []
        for timestamp, holder in timers:
            held = self._at.get(timestamp)
            if held is None or holder not in held:
                continue
            del held[holder]
            if not held:
                self._forget_time(timestamp)
            removed.append(self._entry(holder, timestamp))
        self._count -= len(removed)
        self._kept.remove_all(removed)

    def delete(self, timestamp: int) -> None:
        """Delete a timer of the current key, if it exists."""
        _check(timestamp)
        holder = self._current.current_key
        held = self._at.get(timestamp)
        if held is not None and holder in held:
            del held[holder]
            if not held and timestamp != self._firing:
                self._forget_time(timestamp)
        elif (timestamp, holder) in self._waiting:
            del self._waiting[timestamp, holder]
        else:
            return
        self._count -= 1
        self._kept.remove(self._entry(holder, timestamp))

    def due(self, until: int) -> Iterator[int]:
        """Remove and yield, one by one, the timers up to this time; the holder of each is current while it is handled.

        No key is current afterwards, also when handling a timer fails.
        """
        self._is_ending = until == MAX_WATERMARK
        try:
            while (timestamp := self.next_time) is not None and timestamp <= until:
                self._firing = timestamp
                held = self._at[timestamp]
                for holder in list(held):
                    if holder not in held:
                        continue  # deleted by an earlier one
                    del held[holder]
                    self._count -= 1
                    self._kept.remove(self._entry(holder, timestamp))
                    self._current.current_key = holder
                    yield timestamp
        finally:
            self._current.current_key = NO_KEY
            self._firing = None
            waiting, self._waiting = self._waiting, {}
            self._count -= len(waiting)
            for timestamp, holder in waiting:
                self._insert(timestamp, holder)

    def take_due(self, until: int) -> list[tuple[int, list[Any]]]:
        """Remove and return the timers up to this time, by time, each time with all its holders."""
        due = []
        while (timestamp := self.next_time) is not None and timestamp <= until:
            due.append((timestamp, list(self._at.pop(timestamp))))
            heapq.heappop(self._times)
        entries = [self._entry(holder, timestamp) for timestamp, holders in due for holder in holders]
        self._count -= len(entries)
        self._kept.remove_all(entries)
        return due

    @property
    def next_time(self) -> int | None:
        """The time of the earliest timer."""
        while self._times and not self._at.get(self._times[0]):
            self._at.pop(heapq.heappop(self._times), None)
        return self._times[0] if self._times else None

    def _insert(self, timestamp: int, holder: Any) -> None:
        held = self._at.get(timestamp)
        if held is None:
            held = self._at[timestamp] = {}
            heapq.heappush(self._times, timestamp)
        held[holder] = None
        self._count += 1

    def _forget_time(self, timestamp: int) -> None:
        """Drop a time without timers. Its entry in the heap stays until it is reached, or there are too many."""
        del self._at[timestamp]
        if len(self._times) > 2 * len(self._at) + _FEW:
            self._times = list(self._at)
            heapq.heapify(self._times)

    def _waits(self, timestamp: int, holder: Any) -> bool:
        """Return whether a timer that is registered while another fires has to wait for the next round."""
        assert self._firing is not None
        if timestamp <= self._firing:
            return True
        return self._is_ending and not (self._has_windows and holder[1].max_timestamp < MAX_WATERMARK)

    def _entry(self, holder: Any, timestamp: int) -> Any:
        return (*holder, timestamp) if self._has_windows else (holder, timestamp)


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

    def __init__(self, store: KeyedStateStore, time: OperatorTime, window: TypeInfo | None = None) -> None:
        self._time = time
        self.event = TimerQueue(store, TimeDomain.EVENT_TIME, window)
        self.processing = TimerQueue(store, TimeDomain.PROCESSING_TIME, window)
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
