"""The report of a slot with each heartbeat: whether it makes progress and, if not, its stack."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from checkdam.clock import Clock
from checkdam.runtime.stalls import StackWatch, Stall

T = TypeVar("T")

_FORGOTTEN_AFTER = 3
"""A Spark task without reports for this many heartbeats is gone."""


@dataclass(frozen=True)
class Beat:
    """A heartbeat. `steps` grows with all progress of the slot, or of a Spark task that reports to it."""

    steps: int
    stall: Stall | None = None  # of the slot itself
    task_stall: Stall | None = None  # of a Spark task
    signals: int = 0  # how often source functions have asked for an epoch


@dataclass
class _Work:
    on: str
    watch: StackWatch
    seen: bool = False


class SlotWatch:
    """Watches the threads that work for the driver. Thread-safe.

    A thread is watched only while it works itself: waiting for records from Spark, for its output to be read, or for
    another thread of the slot does not count as standing still.
    """

    def __init__(self, interval: timedelta, clock: Clock) -> None:
        self._clock = clock
        self._interval = interval
        self._forgotten_after = _FORGOTTEN_AFTER * interval.total_seconds()
        self._lock = threading.Lock()
        self._working: dict[int, _Work] = {}  # by thread
        self._tasks: dict[str, tuple[Stall, float]] = {}  # by task, and when it was reported
        self._steps = 0

    @contextmanager
    def working(self, on: str) -> Iterator[None]:
        """Watch this thread until the block ends."""
        me = threading.get_ident()
        with self._lock:
            self._steps += 1
            self._working[me] = _Work(on, StackWatch(self._clock, 2 * self._interval))
        try:
            yield
        finally:
            with self._lock:
                self._steps += 1
                del self._working[me]

    def watched(self, on: str, produced: Iterator[T]) -> Iterator[T]:
        """Watch this thread while it produces, not while its output is consumed."""
        while True:
            with self.working(on):
                try:
                    each = next(produced)
                except StopIteration:
                    return
            yield each

    def task_reports(self, task: str, stall: Stall | None) -> None:
        """Record that a long Spark task makes progress, or stands still."""
        with self._lock:
            if stall is None:
                self._steps += 1
                self._tasks.pop(task, None)
            else:
                self._tasks[task] = stall, self._clock.monotonic()

    def beat(self, signals: int = 0) -> Beat:
        """Look at the work in progress, and include how often source functions have asked for an epoch."""
        with self._lock:
            stalls = [stall for work in self._working.values() if (stall := self._look(work)) is not None]
            since = self._clock.monotonic() - self._forgotten_after
            self._tasks = {task: (stall, at) for task, (stall, at) in self._tasks.items() if at >= since}
            task_stall = _longest([stall for stall, _ in self._tasks.values()])
            return Beat(self._steps, _longest(stalls), task_stall, signals)

    def _look(self, work: _Work) -> Stall | None:
        if work.watch.seconds_still() == 0.0:
            self._steps += work.seen  # it has moved since the last look
            work.seen = True
            return None
        return work.watch.stall(work.on)


def _longest(stalls: list[Stall]) -> Stall | None:
    return max(stalls, key=lambda stall: stall.seconds, default=None)
