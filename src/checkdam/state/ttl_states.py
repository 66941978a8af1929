"""State with TTL: each element is stored with the time it was last touched, as the pair (element, touched).

Values, reductions and aggregates age as a whole, lists by element, maps by entry. An element has expired once its time
to live has passed since it was touched: by the clock in processing time, by the watermark in event time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from checkdam.errors import StateAccessError
from checkdam.state.handle_checks import ElementFit
from checkdam.state.kinds import HoldsNone, StoredMap
from checkdam.state.stored import Cells, Maps, Prune
from checkdam.state.ttl import StateTtlConfig, TtlTime, TtlUpdateType, TtlVisibility


class StateTime(Protocol):
    """The current time for the state of one operator, in milliseconds since 1970."""

    def processing_time(self) -> int: ...

    @property
    def watermark(self) -> int:
        """The operator's watermark; the smallest 64-bit number before the first one."""

    @property
    def timestamp(self) -> int | None:
        """The event time of the current record, timer or window; None if it has none."""


class Lifetime:
    """The TTL rules of one state.

    In event time an element is touched at the timestamp of the current record, timer or window, but never moved back:
    a late record does not make an element older. Writing without a timestamp is an error; reading without one leaves
    the age unchanged.
    """

    __slots__ = ("_time", "_where", "is_event_time", "length", "now", "reads_touch", "shows_expired", "sweep_count")

    def __init__(self, ttl: StateTtlConfig, time: StateTime, where: str) -> None:
        self._time = time
        self._where = where
        self.length = ttl.milliseconds
        self.is_event_time = ttl.time is TtlTime.EVENT_TIME
        self.now: Callable[[], int] = self._watermark if self.is_event_time else time.processing_time
        self.reads_touch = ttl.update_type is TtlUpdateType.ON_READ_AND_WRITE
        self.shows_expired = ttl.visibility is TtlVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP
        self.sweep_count = 0 if ttl.incremental is None else ttl.incremental.cleanup_size

    def _watermark(self) -> int:
        return self._time.watermark

    def deadline(self) -> int:
        """Return the deadline: elements touched at that time or earlier have expired."""
        return self.now() - self.length

    def of_write(self) -> int:
        """Return the touch time of a write."""
        if not self.is_event_time:
            return self._time.processing_time()
        stamp = self._time.timestamp
        if stamp is None:
            raise StateAccessError(
                f"{self._where} expires by event time, but the current record has no timestamp",
                hint="Assign timestamps upstream with assign_timestamps_and_watermarks, or use "
                "TtlTime.PROCESSING_TIME.",
            )
        return stamp

    def of_read(self) -> int | None:
        """Return the touch time of a read; None if there is no timestamp."""
        return self._time.timestamp if self.is_event_time else self._time.processing_time()


class Expiry:
    """The prune of a state with TTL, which a backend calls to drop expired elements. Thread-safe."""

    __slots__ = ("_deadline", "_without")

    def __init__(self, deadline: Callable[[], int], without: Callable[[Any, int], Any]) -> None:
        self._deadline = deadline
        self._without = without

    def __call__(self, stored: Any) -> Any:
        return self._without(stored, self._deadline())

    def as_of_now(self) -> Prune:
        deadline, without = self._deadline(), self._without
        return lambda stored: without(stored, deadline)

    def in_bulk(self, every: int) -> Prune:
        return _Bulk(self, every)

    def shortened(self, by: int) -> Prune:
        return Expiry(lambda: self._deadline() + by, self._without)


class _Bulk:
    """An expiry that does not read the clock for every element."""

    __slots__ = ("_every", "_expiry", "_left", "_prune")

    def __init__(self, expiry: Expiry, every: int) -> None:
        self._expiry = expiry
        self._every = self._left = every
        self._prune = expiry.as_of_now()

    def __call__(self, stored: Any) -> Any:
        if self._left == 0:
            self._prune = self._expiry.as_of_now()
            self._left = self._every
        self._left -= 1
        return self._prune(stored)


def fresh_element(stored: Any, deadline: int) -> Any:
    """Return a stored pair, or None if it has expired."""
    return stored if stored[1] > deadline else None


def fresh_elements(stored: list[Any], deadline: int) -> list[Any] | None:
    """Return a stored list without expired elements: the list itself if none has expired, None if all have."""
    kept = [pair for pair in stored if pair[1] > deadline]
    return stored if len(kept) == len(stored) else kept or None


class TtlCell:
    """One value that ages as a whole: the handle of ValueState, and the basis of reductions and aggregates with TTL.

    A read drops an expired value. If expired values are visible, that read returns it one last time.
    """

    __slots__ = ("_cells", "_life")

    def __init__(self, cells: Cells, life: Lifetime) -> None:
        self._cells = cells
        self._life = life

    def value(self) -> Any:
        stored = self._cells.value()
        found = None if stored is None else self._read(stored)
        self._sweep()  # after the read, so that a visible expired value is not swept before it is returned
        return found

    def _read(self, stored: Any) -> Any:
        life = self._life
        element, touched = stored
        if touched <= life.deadline():
            self._cells.clear()
            return element if life.shows_expired else None
        if life.reads_touch:
            stamp = life.of_read()
            if stamp is not None and stamp > touched:
                self._cells.update((element, stamp))
        return element

    def peek(self) -> Any:
        """Return what `value` would return, without touching, dropping or sweeping."""
        stored = self._cells.value()
        if stored is None or (not self._life.shows_expired and stored[1] <= self._life.deadline()):
            return None
        return stored[0]

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
            return
        stamp = self._life.of_write()
        if self._life.is_event_time:
            stored = self._cells.value()
            stamp = stamp if stored is None else max(stamp, stored[1])
        self._cells.update((value, stamp))
        self._sweep()

    def clear(self) -> None:
        self._cells.clear()
        self._sweep()

    def _sweep(self) -> None:
        if self._life.sweep_count:
            self._cells.sweep(self._life.sweep_count)


class TtlList:
    """A list whose elements age separately; a read touches all unexpired elements that it returns.

    A read drops expired elements. If they are visible, it drops them only if all have expired or if the read touches
    the others: a list is dropped or written as a whole, as in Flink.
    """

    __slots__ = ("_cells", "_elements", "_life")

    def __init__(self, cells: Cells, life: Lifetime, elements: ElementFit) -> None:
        self._cells = cells
        self._life = life
        self._elements = elements

    def add(self, value: Any) -> None:
        self._elements.check(value)
        self._append([(value, self._life.of_write())])

    def add_all(self, values: Iterable[Any]) -> None:
        """Add the elements in order: all of them, or none if one is invalid."""
        added = self._elements.checked(values)
        if added:
            stamp = self._life.of_write()
            self._append([(value, stamp) for value in added])

    def _append(self, pairs: list[Any]) -> None:
        held = self._cells.value() or []
        held.extend(pairs)
        self._cells.update(held)
        self._sweep()

    def update(self, values: Iterable[Any]) -> None:
        replaced = self._elements.checked(values)
        stamp = self._life.of_write() if replaced else 0
        self._cells.update([(value, stamp) for value in replaced] or None)
        self._sweep()

    def get(self) -> list[Any]:
        stored = self._cells.value()
        found = [] if stored is None else [element for element, _ in self._read(stored)]
        self._sweep()
        return found

    def _read(self, stored: list[Any]) -> list[Any]:
        life = self._life
        deadline = life.deadline()
        fresh = fresh_elements(stored, deadline) or []
        shown = stored if life.shows_expired else fresh
        kept = stored if life.shows_expired and fresh and not life.reads_touch else fresh
        stamp = life.of_read() if life.reads_touch else None
        if stamp is not None and any(touched < stamp for _, touched in kept):
            kept = [(element, max(touched, stamp)) for element, touched in kept]
        if kept is not stored:
            self._cells.update(kept or None)
        return shown

    def peek(self) -> list[Any] | None:
        """Return what `get` would read, with touch times, without side effects; None if there is nothing."""
        stored = self._cells.value()
        return stored if stored is None or self._life.shows_expired else fresh_elements(stored, self._life.deadline())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def clear(self) -> None:
        self._cells.clear()
        self._sweep()

    def _sweep(self) -> None:
        if self._life.sweep_count:
            self._cells.sweep(self._life.sweep_count)


class TtlEntries:
    """The entries of a map, each with its own age. Iterating touches the entries it yields, counting touches none.

    A read drops an expired entry. If expired entries are visible, that read returns it one last time.
    """

    __slots__ = ("_life", "_maps")

    def __init__(self, maps: Maps, life: Lifetime) -> None:
        self._maps = maps
        self._life = life

    def get(self, map_key: Any) -> Any:
        stored = self._maps.get(map_key)
        found = None if stored is None else self._read(map_key, stored, self._life.deadline())
        self._sweep()
        return found

    def _read(self, map_key: Any, stored: Any, deadline: int) -> Any:
        life = self._life
        element, touched = stored
        if touched <= deadline:
            self._maps.remove(map_key)
            return element if life.shows_expired else None
        if life.reads_touch:
            stamp = life.of_read()
            if stamp is not None and stamp > touched:
                self._maps.put(map_key, (element, stamp))
        return element

    def put(self, map_key: Any, value: Any) -> None:
        stamp = self._life.of_write()
        if self._life.is_event_time:
            stored = self._maps.get(map_key)
            stamp = stamp if stored is None else max(stamp, stored[1])
        self._maps.put(map_key, (value, stamp))
        self._sweep()

    def remove(self, map_key: Any) -> None:
        self._maps.remove(map_key)
        self._sweep()

    def items(self) -> Iterator[tuple[Any, Any]]:
        deadline = self._life.deadline()
        for map_key, stored in self._maps.items():
            if self._life.reads_touch or stored[1] <= deadline:
                stored = self._maps.get(map_key)  # the function may have changed it since the iteration read it
            element = None if stored is None else self._read(map_key, stored, deadline)
            if element is not None:
                yield map_key, element
        self._sweep()

    def visible(self) -> Iterator[Any]:
        """Yield the keys that `items` would yield, without touching them."""
        deadline, shows_expired = self._life.deadline(), self._life.shows_expired
        for map_key, (_, touched) in self._maps.items():
            if shows_expired or touched > deadline:
                yield map_key

    def is_empty(self) -> bool:
        found = not any(True for _ in self.visible())  # a key may be None
        self._sweep()
        return found

    def clear(self) -> None:
        self._maps.clear()
        self._sweep()

    def _sweep(self) -> None:
        if self._life.sweep_count:
            self._maps.sweep(self._life.sweep_count)


class TtlMap(StoredMap):
    """A map whose entries age separately. `in` counts as a read of the entry; `len` and `is_empty` do not."""

    _entries: TtlEntries

    def __len__(self) -> int:
        return sum(1 for _ in self._entries.visible())


class TtlMapWithNone(HoldsNone, TtlMap):
    """A map with TTL whose values may be None."""
