"""Runs in a Spark worker process: reports to a slot whether the functions on the source side make progress.

They run in Spark's own tasks, which report nothing to the driver before they end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from checkdam.clock import SystemClock
from checkdam.errors import SlotLostError
from checkdam.runtime.stalls import StackWatch, Stall

T = TypeVar("T")

Report = Callable[[Stall | None], None]


@dataclass(frozen=True, eq=False)
class _WatchedStep:
    work: str
    report: Report
    watch: StackWatch


class TaskWatch:
    """Looks at the worker's one task every `interval`. Costs nothing while tasks are short."""

    def __init__(self, interval: timedelta) -> None:
        self._interval = interval
        self._step: _WatchedStep | None = None  # in progress
        self._last: _WatchedStep | None = None  # the last that was begun
        threading.Thread(target=self._run, daemon=True, name="task-watch").start()

    def watched(self, work: str, report: Report, produced: Iterator[T]) -> Iterator[T]:
        """Watch this thread while it produces, not while Spark consumes what it has produced."""
        while True:
            self._step = self._last = _WatchedStep(work, report, StackWatch(SystemClock(), 2 * self._interval))
            try:
                each = next(produced)
            except StopIteration:
                return
            finally:
                self._step = None
            yield each

    def _run(self) -> None:
        seen: _WatchedStep | None = None
        while True:
            time.sleep(self._interval.total_seconds())
            seen = self._look(seen)

    def _look(self, seen: _WatchedStep | None) -> _WatchedStep | None:
        """Report on the step seen last. Return the step to look at next."""
        step, last = self._step, self._last
        if last is None or (step is None and last is seen):
            return last  # no task, or one that waits for Spark
        still = last.watch.seconds_still() if step is last else 0.0
        if seen is not None:
            with suppress(SlotLostError):  # the driver has noticed, and ends this task
                last.report(last.watch.stall(last.work) if still > 0.0 else None)
        return last


_watches: dict[timedelta, TaskWatch] = {}


def task_watch(interval: timedelta) -> TaskWatch:
    """Return the watch of this process."""
    if interval not in _watches:
        _watches[interval] = TaskWatch(interval)
    return _watches[interval]
