"""Epochs without records: when one is due, and how they and epochs with records take turns."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from checkdam.clock import Clock
from checkdam.graph.levels import JobPlan
from checkdam.graph.operators import SourceFunctionKind
from checkdam.runtime.slot.messages import EpochReport

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


class Turns:
    """Who may touch all slots now: one at a time, and whoever brings records before whoever could also wait."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._count = threading.Lock()
        self._waiting = 0

    @property
    def is_taken(self) -> bool:
        return self._waiting > 0 or self._turn.locked()

    @contextmanager
    def wait(self) -> Iterator[None]:
        with self._count:
            self._waiting += 1
        try:
            self._turn.acquire()
        finally:
            with self._count:
                self._waiting -= 1
        try:
            yield
        finally:
            self._turn.release()

    @contextmanager
    def take_if_free(self) -> Iterator[bool]:
        """Gives False, at once, if somebody else has the turn or waits for it."""
        if self._waiting or not self._turn.acquire(blocking=False):
            yield False
            return
        try:
            yield True
        finally:
            self._turn.release()


class Pending:
    """What is to be done though no records come, as the slots told it at the end of the last epoch."""

    def __init__(self, plan: JobPlan, clock: Clock, *, restored: bool) -> None:
        self._clock = clock
        self.has_unfinished_sources = any(isinstance(op.kind, SourceFunctionKind) for op in plan.operators)
        # What a checkpoint brought along may be due already: only an epoch can tell.
        self._next_due: int | None = 0 if restored and plan.has_ticks else None

    def epoch_ended(self, reports: Sequence[EpochReport]) -> None:
        self.has_unfinished_sources = any(report.unfinished_sources for report in reports)
        self._next_due = min((r.next_due for r in reports if r.next_due is not None), default=None)

    def seconds_until_due(self) -> float | None:
        """How long until an epoch should run without records; None if nothing waits for time to pass."""
        if self.has_unfinished_sources:
            return 0.0
        if self._next_due is None:
            return None
        now = (self._clock.now() - _BEGINNING) // timedelta(milliseconds=1)
        return max(0, self._next_due - now) / 1000
