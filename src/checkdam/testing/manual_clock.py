"""A clock that stands still until a test moves it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta


class ManualClock:
    def __init__(self, start: datetime = datetime(2024, 1, 1, tzinfo=UTC)) -> None:
        self._now = start.astimezone(UTC)
        self._monotonic = 0.0
        self.on_advance: Callable[[], None] = lambda: None  # wakes threads that wait for time to pass

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, by: timedelta | float) -> None:
        """Advance both readings; a number counts seconds."""
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        if step < timedelta(0):
            raise ValueError("a clock does not go back")
        self._now += step
        self._monotonic += step.total_seconds()
        self.on_advance()
