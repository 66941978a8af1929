"""Time as something handed in, so that tests need not wait."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Two readings of time: an instant to show, and a monotonic one to measure with."""

    def now(self) -> datetime:
        """The current instant, in UTC."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()
