"""Evictors: remove records from a window when it fires, before or after its function has seen them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Generic, NamedTuple, Protocol

from typing_extensions import TypeVar

from checkdam.errors import JobGraphError
from checkdam.graph.watermarks import MIN_WATERMARK
from checkdam.graph.windowing.arguments import checked_count, checked_duration

T = TypeVar("T", default=Any)
W_contra = TypeVar("W_contra", contravariant=True, default=Any)


class TimestampedValue(NamedTuple, Generic[T]):
    """A record of a window with its timestamp; None if it has none."""

    value: T
    timestamp: int | None


class EvictorContext(Protocol):
    @property
    def current_processing_time(self) -> int: ...

    @property
    def current_watermark(self) -> int: ...


class Evictor(Generic[T, W_contra]):
    """Removes records from a window. Subclass it for an evictor of your own.

    Both methods get the records in the order of their arrival and return those that stay. With an evictor a window
    keeps every record, also for `reduce` and `aggregate`.
    """

    def evict_before(
        self, elements: list[TimestampedValue[T]], window: W_contra, ctx: EvictorContext
    ) -> list[TimestampedValue[T]]:
        """Return the records that the window's function gets; the others are dropped."""
        return elements

    def evict_after(
        self, elements: list[TimestampedValue[T]], window: W_contra, ctx: EvictorContext
    ) -> list[TimestampedValue[T]]:
        """Return the records that stay in the window after its function has seen them."""
        return elements


class _OneSided(Evictor[T, Any]):
    """An evictor that works before the window's function, or after it."""

    def __init__(self, *, after: bool) -> None:
        self._is_after = after

    def evict_before(
        self, elements: list[TimestampedValue[T]], window: Any, ctx: EvictorContext
    ) -> list[TimestampedValue[T]]:
        return elements if self._is_after else self._kept(elements)

    def evict_after(
        self, elements: list[TimestampedValue[T]], window: Any, ctx: EvictorContext
    ) -> list[TimestampedValue[T]]:
        return self._kept(elements) if self._is_after else elements

    def _kept(self, elements: list[TimestampedValue[T]]) -> list[TimestampedValue[T]]:
        raise NotImplementedError


class CountEvictor(_OneSided[Any]):
    """Keeps the newest records, up to a count."""

    def __init__(self, count: int, *, after: bool = False) -> None:
        super().__init__(after=after)
        self.count = checked_count("the count of an evictor", count)

    def _kept(self, elements: list[TimestampedValue[Any]]) -> list[TimestampedValue[Any]]:
        return elements[-self.count :]


class TimeEvictor(_OneSided[Any]):
    """Keeps the records whose timestamp is less than `size` older than the newest."""

    def __init__(self, size: timedelta, *, after: bool = False) -> None:
        super().__init__(after=after)
        self.size = checked_duration("the size of an evictor", size)

    def _kept(self, elements: list[TimestampedValue[Any]]) -> list[TimestampedValue[Any]]:
        if not elements or elements[0].timestamp is None:
            return elements
        oldest = max(_time_of(each) for each in elements) - self.size
        return [each for each in elements if _time_of(each) > oldest]


class DeltaEvictor(_OneSided[T]):
    """Keeps the records whose difference from the last record is less than a threshold.

    `delta_function(record, last)` returns the difference.
    """

    def __init__(self, threshold: float, delta_function: Callable[[T, T], float], *, after: bool = False) -> None:
        super().__init__(after=after)
        if not callable(delta_function):
            raise JobGraphError(f"DeltaEvictor() takes a function of two records, not {delta_function!r}")
        self.threshold = threshold
        self.delta_function = delta_function

    def _kept(self, elements: list[TimestampedValue[T]]) -> list[TimestampedValue[T]]:
        if not elements:
            return elements
        last = elements[-1].value
        return [each for each in elements if self.delta_function(each.value, last) < self.threshold]


def _time_of(element: TimestampedValue[Any]) -> int:
    """Return the time of a record; one without a timestamp is older than all others."""
    return MIN_WATERMARK if element.timestamp is None else element.timestamp
