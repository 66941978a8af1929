"""Windows: the finite parts into which a stream is divided. A window is the namespace of its state."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from checkdam.graph.watermarks import MAX_WATERMARK


class Window(Protocol):
    """A window of any kind: an immutable, hashable value of a durable type, such as a NamedTuple."""

    @property
    def max_timestamp(self) -> int:
        """The last timestamp that belongs to the window. Its results carry it as their timestamp."""


class TimeWindow(NamedTuple):
    """The time from `start` (inclusive) to `end` (exclusive), in milliseconds since 1970."""

    start: int
    end: int

    @property
    def max_timestamp(self) -> int:
        return self.end - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Return whether the windows overlap or touch, so that session windows merge."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """Return the smallest window that contains both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))


class GlobalWindow(NamedTuple):
    """The one window that holds all records of a key. It never ends."""

    id: int = 0

    @property
    def max_timestamp(self) -> int:
        return MAX_WATERMARK
