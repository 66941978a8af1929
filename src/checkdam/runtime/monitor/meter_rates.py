"""Rates of the meters of user functions: slots count the events; the driver knows how time passes without epochs."""

from __future__ import annotations

from collections import deque
from typing import Final

from checkdam.graph.metrics import MeterReading

_SAMPLES: Final = 60  # for each time span


class MeterRate:
    """The events of one meter over its time span. Times are readings of a monotonic clock, in seconds."""

    def __init__(self, began: float) -> None:
        self._counts: deque[tuple[float, int | float]] = deque([(began, 0)])
        self._latest: tuple[float, int | float] = began, 0

    def add(self, reading: MeterReading, now: float) -> None:
        self._latest = now, reading.count
        if now - self._counts[-1][0] >= reading.seconds / _SAMPLES:
            self._counts.append(self._latest)
            while len(self._counts) > 1 and self._counts[1][0] <= now - reading.seconds:
                self._counts.popleft()

    def rate(self, seconds: float, now: float) -> float:
        """Return the events per second over the last seconds, or since the attempt began if that is less."""
        since = now - seconds
        at, count = self._latest
        if at <= since:
            return 0.0
        before = [sample for sample in self._counts if sample[0] <= since] or [self._counts[0]]
        began, counted = before[-1]
        return (count - counted) / max(now - began, 1e-3)
