"""Clocks that can be injected, so that tests need not wait; and instants as milliseconds since 1970."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class Clock(Protocol):
    """Two readings of time: a UTC instant to show, and a monotonic one to measure with."""

    def now(self) -> datetime:
        """Return the current instant, in UTC."""

    def monotonic(self) -> float:
        """Return seconds since some fixed moment; never goes back."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


def to_milliseconds(instant: datetime) -> int:
    """Return whole milliseconds since 1970, rounded down."""
    return (instant - _BEGINNING) // _MILLISECOND


def from_milliseconds(milliseconds: float) -> datetime:
    """Return the UTC instant. Raises OverflowError outside the years 1 to 9999."""
    return _BEGINNING + timedelta(milliseconds=milliseconds)


def milliseconds_in(duration: timedelta) -> int:
    """Return the whole milliseconds of a duration, rounded down."""
    return duration // _MILLISECOND
