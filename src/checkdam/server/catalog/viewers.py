"""Who looks at jobs: pages that ask for a job again and again, and should learn how it ended before the server does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic as _monotonic
from typing import Annotated

import msgspec

from checkdam.runtime.monitor.job_records import JobRecord

ViewerId = Annotated[str, msgspec.Meta(min_length=1, max_length=40)]

MOST_VIEWERS = 200
RECENT = 10.0
"""Seconds after its last question for which a viewer is still waited for: a hidden tab asks every half minute."""


class Viewers:
    """The viewers of a server. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float] = _monotonic) -> None:
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._waiting: dict[str, float] = {}  # viewers of a job that had not ended, to the time of the last look

    def seen(self, viewer: str, record: JobRecord) -> None:
        """Note what a viewer has been shown."""
        with self._changed:
            self._waiting.pop(viewer, None)
            if not record.status.has_ended:
                self._waiting[viewer] = self._monotonic()
                if len(self._waiting) > MOST_VIEWERS:
                    del self._waiting[next(iter(self._waiting))]
            self._changed.notify_all()

    def wait_until_told(self, timeout: float) -> bool:
        """Wait until every recent viewer has seen an end; return False on timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._expected(), timeout)

    def _expected(self) -> bool:
        since = self._monotonic() - RECENT
        return any(at >= since for at in self._waiting.values())
