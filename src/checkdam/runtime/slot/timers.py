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
from itertools import chain, islice, repeat
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
    the timers of one time are together, and a heap finds the next time. The store holds no second copy: it asks for
    the changes when an epoch ends, and for all timers when it writes a full snapshot.
    """

    def __init__(self, store: KeyedStateStore, domain: TimeDomain, window: TypeInfo | None = None) -> None:
        """Open the timers of a domain; with `window`, its type, each belongs to a window of its key."""
        self.domain = domain
        self._current: CurrentHolder = store if window is None else KeyAndWindow(store)
        self._has_windows = window is not None
        self.window_type = window
        self._at: dict[int, dict[Any, Any]] = {}  # by time: the holders of timers with their entries, as registered
        self._times: list[int] = []  # a heap of the times in `_at`
        self._count = 0
        self._changed: list[Any] = []  # the entries added and removed since `take_changes`, in order
        self._is_added: list[bool] = []  # for each of them
        self._firing: int | None = None  # the time of the timer that fires now
        self._is_ending = False  # whether it fires because all input has ended
        self._waiting: dict[tuple[int, Any], None] = {}  # registered while firing, for the next round
        for entry in store.kept_set(timer_state(domain, window), self):
            self._at.setdefault(entry[-1], {})[entry[0] if window is None else entry[:2]] = entry
            self._count += 1
        self._times = sorted(self._at)  # which is a heap

    def __len__(self) -> int:
        return self._count

    def members(self) -> Iterator[Any]:
        """Return the entry of each timer."""
        return chain.from_iterable(map(dict.values, self._at.values()))

    def take_changes(self) -> tuple[list[Any], list[bool]]:
        """Return what was added and removed since the last call, as `MemberOwner` promises."""
        changes = self._changed, self._is_added
        self._changed, self._is_added = [], []
        return changes

    @property
    def holders(self) -> Iterator[Any]:
        """The key, or key and window, of each timer."""
        return chain.from_iterable(self._at.values())

    def register(self, timestamp: int) -> None:
        """Register a timer of the current key; idempotent."""
        if type(timestamp) is not int or not MIN_WATERMARK <= timestamp <= MAX_WATERMARK:
            _check(timestamp)
        holder = self._current.current_key
        held = self._at.get(timestamp)
        if held is not None and holder in held:
            return
        if self._firing is not None and self._waits(timestamp, holder):
            self._waiting[timestamp, holder] = None
            return
        entry = (*holder, timestamp) if self._has_windows else (holder, timestamp)
        if held is None:
            self._at[timestamp] = {holder: entry}
            heapq.heappush(self._times, timestamp)
        else:
            held[holder] = entry
        self._count += 1
        self._changed.append(entry)
        self._is_added.append(True)

    def register_all(self, timestamp: int, holders: Collection[Any]) -> None:
        """Register a timer for each of these holders; idempotent."""
        self.register_each((timestamp, holder) for holder in holders)

    def register_each(self, timers: Iterable[tuple[int, Any]]) -> None:
        """Register timers, given by time and holder; idempotent. Not while timers fire."""
        for timestamp, holder in timers:
            held = self._at.get(timestamp)
            if held is None or holder not in held:
                self._insert(timestamp, holder)

    def delete_each(self, timers: Iterable[tuple[int, Any]]) -> None:
        """Delete timers, given by time and holder, as far as they exist. Not while timers fire."""
        for timestamp, holder in timers:
            held = self._at.get(timestamp)
            if held is not None and holder in held:
                self._drop(timestamp, held, holder)

    def delete(self, timestamp: int) -> None:
        """Delete a timer of the current key, if it exists."""
        _check(timestamp)
        holder = self._current.current_key
        held = self._at.get(timestamp)
        if held is not None and holder in held:
            self._drop(timestamp, held, holder)
        elif (timestamp, holder) in self._waiting:
            del self._waiting[timestamp, holder]

    def due(self, until: int) -> Iterator[int]:
        """Remove and yield, one by one, the timers up to this time; the holder of each is current while it is handled.

        No key is current afterwards, also when handling a timer fails.
        """
        self._is_ending = until == MAX_WATERMARK
        at, current = self._at, self._current
        changed, is_added = self._changed.append, self._is_added.append
        ahead: list[int] = []  # due times that are no longer in the heap, the earliest last
        try:
            while ahead or (ahead := self._take_times(until)[::-1]):
                if self._times and self._times[0] < ahead[-1]:
                    ahead.append(heapq.heappop(self._times))  # registered by a timer that fired
                timestamp = ahead.pop()
                held = at.get(timestamp)
                if held is None:
                    continue  # deleted by an earlier one
                self._firing = timestamp
                for holder in list(held):
                    entry = held.pop(holder, None)
                    if entry is None:
                        continue  # likewise
                    self._count -= 1
                    changed(entry)
                    is_added(False)  # noqa: FBT003  an element
                    current.current_key = holder
                    yield timestamp
                del at[timestamp]
        finally:
            current.current_key = NO_KEY
            if self._firing in at:
                ahead.append(self._firing)  # handling a timer failed
            self._firing = None
            for timestamp in ahead:
                heapq.heappush(self._times, timestamp)
            waiting, self._waiting = self._waiting, {}
            for timestamp, holder in waiting:
                self._insert(timestamp, holder)

    def take_due(self, until: int) -> list[tuple[int, list[Any]]]:
        """Remove and return the timers up to this time, by time, each time with all its holders."""
        due = []
        for timestamp in self._take_times(until):
            held = self._at.pop(timestamp, None)
            if held is not None:
                due.append((timestamp, list(held)))
                self._changed += held.values()
                self._is_added += repeat(False, len(held))  # noqa: FBT003  an element
                self._count -= len(held)
        return due

    def _take_times(self, until: int) -> list[int]:
        """Remove the times up to this one from the heap and return them, the earliest first."""
        times = self._times
        taken: list[int] = []
        one_by_one = max(_FEW, len(times) // 8)
        while times and times[0] <= until:
            if len(taken) == one_by_one:  # so many that a look at all is quicker
                taken += sorted([time for time in times if time <= until])
                times = self._times = [time for time in times if time > until]
                heapq.heapify(times)
                break
            taken.append(heapq.heappop(times))
        return taken

    @property
    def next_time(self) -> int | None:
        """The time of the earliest timer."""
        while self._times and self._times[0] not in self._at:
            heapq.heappop(self._times)
        return self._times[0] if self._times else None

    def earliest(self, count: int) -> list[tuple[int, Any]]:
        """Return time and holder of at most this many timers, the earliest first, without looking at the others."""
        found: list[tuple[int, Any]] = []
        ahead = [(self._times[0], 0)] if self._times else []  # the next times, with their places in the heap
        last = None
        while ahead and len(found) < count:
            timestamp, place = heapq.heappop(ahead)
            if timestamp != last:  # a time may be in the heap twice: its timers were deleted, and others registered
                found += ((timestamp, holder) for holder in islice(self._at.get(timestamp, ()), count - len(found)))
            last = timestamp
            for child in (2 * place + 1, 2 * place + 2):
                if child < len(self._times):
                    heapq.heappush(ahead, (self._times[child], child))
        return found

    def _insert(self, timestamp: int, holder: Any) -> None:
        """Add a timer that does not exist."""
        entry = self._entry(holder, timestamp)
        held = self._at.get(timestamp)
        if held is None:
            self._at[timestamp] = {holder: entry}
            heapq.heappush(self._times, timestamp)
        else:
            held[holder] = entry
        self._count += 1
        self._changed.append(entry)
        self._is_added.append(True)

    def _drop(self, timestamp: int, held: dict[Any, Any], holder: Any) -> None:
        """Delete a timer that exists, from the timers of its time."""
        self._changed.append(held.pop(holder))
        self._is_added.append(False)
        self._count -= 1
        if not held and timestamp != self._firing:
            self._forget_time(timestamp)

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
    def queues(self) -> tuple[TimerQueue, TimerQueue]:
        return self.event, self.processing

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
