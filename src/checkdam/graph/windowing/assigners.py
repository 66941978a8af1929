"""Window assigners: decide to which windows a record belongs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import timedelta
from typing import Any, Generic, Protocol

from typing_extensions import TypeVar

from checkdam.clock import milliseconds_in
from checkdam.errors import JobGraphError
from checkdam.graph.windowing.arguments import checked_duration
from checkdam.graph.windowing.triggers import EventTimeTrigger, NeverTrigger, ProcessingTimeTrigger, Trigger
from checkdam.graph.windowing.windows import GlobalWindow, TimeWindow, Window
from checkdam.types.type_info import TypeInfo, type_info

T_contra = TypeVar("T_contra", contravariant=True, default=Any)
W = TypeVar("W", bound=Window, default=TimeWindow)

NOTHING = timedelta(0)


class WindowAssignerContext(Protocol):
    @property
    def current_processing_time(self) -> int: ...


class WindowAssigner(Generic[T_contra, W]):
    """Assigns records to windows. Subclass it for windows of your own.

    `window_type` is the class of the windows, which must be immutable and have a durable type: it is the namespace of
    the window's state.
    """

    window_type: type[Any] = TimeWindow

    def assign_windows(self, value: T_contra, timestamp: int, ctx: WindowAssignerContext) -> Collection[W]:
        """Return the windows of a record. A record without event time has the smallest 64-bit number as timestamp."""
        raise NotImplementedError(f"{type(self).__name__} must define assign_windows(value, timestamp, ctx)")

    def get_default_trigger(self) -> Trigger[Any, Any]:
        """Return the trigger that is used unless the job sets another."""
        raise NotImplementedError(f"{type(self).__name__} must define get_default_trigger()")

    def is_event_time(self) -> bool:
        """Return whether windows end by the watermark, rather than by the clock."""
        raise NotImplementedError(f"{type(self).__name__} must define is_event_time()")


class MergingWindowAssigner(WindowAssigner[T_contra, W]):
    """An assigner whose windows may grow together, such as sessions."""

    def merge_windows(self, windows: Collection[W]) -> Iterable[tuple[W, Collection[W]]]:
        """Return each merged window with the windows that it replaces; leave out those that stay as they are."""
        raise NotImplementedError(f"{type(self).__name__} must define merge_windows(windows)")


class _EventTime:
    def is_event_time(self) -> bool:
        return True

    def get_default_trigger(self) -> Trigger[Any, Any]:
        return EventTimeTrigger()


class _ProcessingTime:
    def is_event_time(self) -> bool:
        return False

    def get_default_trigger(self) -> Trigger[Any, Any]:
        return ProcessingTimeTrigger()


class TumblingWindows(WindowAssigner[Any, TimeWindow]):
    """Windows of one size, side by side; the base of those in event time and in processing time."""

    def __init__(self, size: timedelta, offset: timedelta = NOTHING) -> None:
        self.size = checked_duration("the size of a window", size)
        self.offset = _checked_offset(offset, self.size, "size")

    def window_of(self, timestamp: int) -> TimeWindow:
        start = timestamp - (timestamp - self.offset) % self.size
        return TimeWindow(start, start + self.size)


class TumblingEventTimeWindows(_EventTime, TumblingWindows):
    """Windows of one size, side by side, by the timestamps of records."""

    def assign_windows(self, value: Any, timestamp: int, ctx: WindowAssignerContext) -> Collection[TimeWindow]:
        return (self.window_of(timestamp),)


class TumblingProcessingTimeWindows(_ProcessingTime, TumblingWindows):
    """Windows of one size, side by side, by the clock."""

    def assign_windows(self, value: Any, timestamp: int, ctx: WindowAssignerContext) -> Collection[TimeWindow]:
        return (self.window_of(ctx.current_processing_time),)


class SlidingWindows(WindowAssigner[Any, TimeWindow]):
    """Windows of one size, one beginning every `slide`; the base of those in event time and in processing time."""

    def __init__(self, size: timedelta, slide: timedelta, offset: timedelta = NOTHING) -> None:
        self.size = checked_duration("the size of a window", size)
        self.slide = checked_duration("the slide of windows", slide)
        self.offset = _checked_offset(offset, self.slide, "slide")

    def windows_of(self, timestamp: int) -> list[TimeWindow]:
        last = timestamp - (timestamp - self.offset) % self.slide
        return [TimeWindow(start, start + self.size) for start in range(last, timestamp - self.size, -self.slide)]


class SlidingEventTimeWindows(_EventTime, SlidingWindows):
    """Windows of one size, one beginning every `slide`, by the timestamps of records."""

    def assign_windows(self, value: Any, timestamp: int, ctx: WindowAssignerContext) -> Collection[TimeWindow]:
        return self.windows_of(timestamp)


class SlidingProcessingTimeWindows(_ProcessingTime, SlidingWindows):
    """Windows of one size, one beginning every `slide`, by the clock."""

    def assign_windows(self, value: Any, timestamp: int, ctx: WindowAssignerContext) -> Collection[TimeWindow]:
        return self.windows_of(ctx.current_processing_time)


class SessionWindows(MergingWindowAssigner[T_contra, TimeWindow]):
    """Windows that end when no record has come for `gap`: a duration, or a function of the record that returns one."""

    def __init__(self, gap: timedelta | Callable[[T_contra], timedelta]) -> None:
        self.fixed_gap = None if callable(gap) else checked_duration("the gap of a session", gap)  # milliseconds
        self._gap_of = gap if callable(gap) else None

    def window_of(self, value: T_contra, timestamp: int) -> TimeWindow:
        if self.fixed_gap is not None:
            return TimeWindow(timestamp, timestamp + self.fixed_gap)
        assert self._gap_of is not None
        return TimeWindow(timestamp, timestamp + checked_duration("the gap of a session", self._gap_of(value)))

    def merge_windows(self, windows: Collection[TimeWindow]) -> Iterable[tuple[TimeWindow, Collection[TimeWindow]]]:
        return merged_times(windows)


class EventTimeSessionWindows(_EventTime, SessionWindows[T_contra]):
    """Sessions by the timestamps of records."""

    def assign_windows(self, value: T_contra, timestamp: int, ctx: WindowAssignerContext) -> Collection[TimeWindow]:
        return (self.window_of(value, timestamp),)


class ProcessingTimeSessionWindows(_ProcessingTime, SessionWindows[T_contra]):
    """Sessions by the clock."""

    def assign_windows(self, value: T_contra, timestamp: int, ctx: WindowAssignerContext) -> Collection[TimeWindow]:
        return (self.window_of(value, ctx.current_processing_time),)


class GlobalWindows(WindowAssigner[Any, GlobalWindow]):
    """One window for all records of a key. It never ends, so it needs a trigger that fires."""

    window_type = GlobalWindow
    _THE_WINDOW = (GlobalWindow(),)

    def assign_windows(self, value: Any, timestamp: int, ctx: WindowAssignerContext) -> Collection[GlobalWindow]:
        return self._THE_WINDOW

    def get_default_trigger(self) -> Trigger[Any, Any]:
        return NeverTrigger()

    def is_event_time(self) -> bool:
        return False


def checked_window_type(assigner: WindowAssigner[Any, Any]) -> TypeInfo:
    """Return the type of an assigner's windows: the namespace of their state.

    Raises:
        JobGraphError: it is mutable, has no durable form, or does not say when a window ends.
    """
    of = type_info(assigner.window_type)
    names = (*dir(assigner.window_type), *getattr(assigner.window_type, "__annotations__", ()))
    if "max_timestamp" not in names:
        raise JobGraphError(
            f"{type(assigner).__name__} makes windows of type {of.name}, which have no max_timestamp",
            hint="Make its window_type a NamedTuple of plain values, with a property max_timestamp.",
        )
    if not of.is_durable or not of.is_immutable:
        raise JobGraphError(
            f"{type(assigner).__name__} makes windows of type {of.name}, which cannot be kept",
            hint="Make its window_type a NamedTuple of plain values, with a property max_timestamp.",
        )
    return of


def merged_times(windows: Collection[TimeWindow]) -> Iterator[tuple[TimeWindow, list[TimeWindow]]]:
    """Yield the windows that overlapping or touching ones merge into, each with those it replaces."""
    merged: TimeWindow | None = None
    parts: list[TimeWindow] = []
    for window in sorted(windows):
        if merged is not None and merged.intersects(window):
            merged = merged.cover(window)
            parts.append(window)
            continue
        if merged is not None and len(parts) > 1:
            yield merged, parts
        merged, parts = window, [window]
    if merged is not None and len(parts) > 1:
        yield merged, parts


def _checked_offset(given: Any, size: int, of: str) -> int:
    if not isinstance(given, timedelta):
        raise JobGraphError(f"the offset of windows must be a timedelta, not {given!r}")
    offset = milliseconds_in(given)
    if abs(offset) >= size:
        raise JobGraphError(
            f"the offset of windows is {given}, which is not less than their {of}",
            hint="Windows repeat, so a smaller offset does the same.",
        )
    return offset
