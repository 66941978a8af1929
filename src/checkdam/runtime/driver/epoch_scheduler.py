"""Epochs without records: when one is due, and how they and epochs with records take turns."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from checkdam.clock import Clock, to_milliseconds
from checkdam.graph.levels import JobPlan
from checkdam.graph.operators import SourceFunctionKind
from checkdam.ids import SubtaskIndex
from checkdam.runtime.slot.messages import EpochReport


class Turns:
    """Who may touch all slots now: one at a time.

    Who was asked for something goes first, then whoever brings records, then whoever could also wait.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_held = False
        self._waiting = 0
        self._urgent = 0

    @property
    def is_taken(self) -> bool:
        return self._is_held or self._waiting > 0 or self._urgent > 0

    @contextmanager
    def wait(self) -> Iterator[None]:
        with self._changed:
            self._waiting += 1
            self._changed.notify_all()
            try:
                self._changed.wait_for(lambda: not self._is_held and not self._urgent)
            finally:
                self._waiting -= 1
            self._is_held = True
        try:
            yield
        finally:
            self._release()

    @contextmanager
    def go_first(self) -> Iterator[None]:
        """The next turn, whoever else waits for it."""
        with self._changed:
            self._urgent += 1
            self._changed.notify_all()
            try:
                self._changed.wait_for(lambda: not self._is_held)
            finally:
                self._urgent -= 1
            self._is_held = True
        try:
            yield
        finally:
            self._release()

    @contextmanager
    def take_if_free(self) -> Iterator[bool]:
        """Gives False, at once, if somebody else has the turn or waits for it."""
        with self._changed:
            is_free = not self.is_taken
            self._is_held = self._is_held or is_free
        try:
            yield is_free
        finally:
            if is_free:
                self._release()

    def _release(self) -> None:
        with self._changed:
            self._is_held = False
            self._changed.notify_all()


class Pending:
    """What is to be done though no records come, as the slots told it at the end of the last epoch."""

    def __init__(self, plan: JobPlan, clock: Clock, *, restored: bool) -> None:
        self._clock = clock
        self.has_unfinished_sources = any(isinstance(op.kind, SourceFunctionKind) for op in plan.operators)
        self._are_sources_ready = self.has_unfinished_sources
        self._signals: dict[SubtaskIndex, int] = {}  # of each slot, when its last epoch ended
        self._newest_signals: dict[SubtaskIndex, int] = {}  # as its heartbeats tell
        # What a checkpoint brought along may be due already: only an epoch can tell.
        self._next_due: int | None = 0 if restored and plan.has_ticks else None

    def epoch_ended(self, reports: Sequence[EpochReport]) -> None:
        self.has_unfinished_sources = any(report.unfinished_sources for report in reports)
        self._are_sources_ready = any(report.ready_sources for report in reports)
        self._signals = {report.subtask: report.signals for report in reports}
        self._next_due = min((r.next_due for r in reports if r.next_due is not None), default=None)

    def signalled(self, subtask: SubtaskIndex, signals: int) -> bool:
        """Take in how often source functions of a slot have asked for an epoch. Return False if that is known."""
        is_news = signals > self._newest_signals.get(subtask, 0)
        if is_news:
            self._newest_signals[subtask] = signals
        return is_news

    @property
    def has_ready_sources(self) -> bool:
        """Whether a source function has records for an epoch, and does not only wait for some."""
        return self._are_sources_ready or any(
            signals > self._signals.get(subtask, 0) for subtask, signals in self._newest_signals.items()
        )

    def seconds_until_due(self) -> float | None:
        """How long until an epoch should run without records; None if nothing waits for time to pass."""
        if self.has_ready_sources:
            return 0.0
        if self._next_due is None:
            return None
        return max(0, self._next_due - to_milliseconds(self._clock.now())) / 1000
