"""Detects an attempt without progress: in a slot, the Spark job of an epoch, or the storage of its checkpoints."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from checkdam.clock import Clock
from checkdam.errors import CheckdamError, JobFailedError, SlotLostError
from checkdam.ids import SubtaskIndex
from checkdam.runtime.slot.slot_watch import Beat
from checkdam.runtime.stalls import StackWatch, Stall

_HINT = "If it only needs longer, raise execution.checkpointing.timeout."


class HangWatch:
    """Decides when an attempt counts as hung: after `patience`, the timeout of checkpoints.

    In Flink a stuck task lets checkpoints expire, which fails the job over. The same happens here if checkpoints are
    periodic; this watch covers all other epochs too, and reports where they hang.
    """

    def __init__(
        self,
        patience: timedelta,
        interval: timedelta,
        clock: Clock,
        engine_progress: Callable[[], Hashable],
        committer_stall: Callable[[], Stall | None],
        listener_is_slow: Callable[[], bool] = lambda: False,
        longest_start: timedelta = timedelta(0),
    ) -> None:
        """Watch from the start of an attempt.

        `listener_is_slow` returns whether the driver waits for its listener, which is not a hang of the job. Until
        `begun`, slots may show no progress for `longest_start`: they restore state and open functions.
        """
        self._patience = patience.total_seconds()
        self._beat_patience = max(self._patience, longest_start.total_seconds())
        self._longest_look = 2 * interval  # a driver that was itself stopped did not look meanwhile
        self._clock = clock
        self._engine_progress = engine_progress
        self._committer_stall = committer_stall
        self._listener_is_slow = listener_is_slow
        self._lock = threading.Lock()
        self._beats: dict[SubtaskIndex, Beat] = {}
        self._work: tuple[str, StackWatch] | None = None
        self._work_patience = self._patience
        self._progress: Hashable = None
        self._still = 0.0  # seconds without progress
        self._looked_at = clock.monotonic()

    def begun(self) -> None:
        """Expect the usual progress from now on: the slots have their state."""
        self._beat_patience = self._patience

    @contextmanager
    def expecting_progress(self, work: str, at_least: timedelta = timedelta(0)) -> Iterator[None]:
        """Expect progress of this thread, a slot or a Spark task until the block ends.

        `at_least` lengthens the patience for work that normally shows no progress.
        """
        with self._lock:
            self._work_patience = max(self._patience, at_least.total_seconds())
            own = self._work = work, StackWatch(self._clock, self._longest_look)
            self._still, self._progress = 0.0, None
        try:
            yield
        finally:
            with self._lock:
                if self._work is own:  # otherwise the next one began before this thread came to end it
                    self._work = None

    def beat(self, subtask: SubtaskIndex, beat: Beat) -> CheckdamError | None:
        """Record a slot's heartbeat. Return the reason if the slot, or a Spark task, counts as hung."""
        with self._lock:
            self._beats[subtask] = beat
        return _reason(subtask, beat, self._beat_patience)

    def look(self) -> CheckdamError | None:
        """Check the whole attempt. Return the reason if it counts as hung."""
        if self._listener_is_slow():
            with self._lock:
                self._still, self._looked_at = 0.0, self._clock.monotonic()
            return None
        stall = self._committer_stall()
        if stall is not None and stall.seconds >= self._patience:
            return JobFailedError(f"{stall}\n{_HINT}")
        engine = self._engine_progress()  # outside the lock: heartbeats must not wait for it
        with self._lock:
            now, before = self._clock.monotonic(), self._looked_at
            self._looked_at = now
            if self._work is None:
                return None
            work, thread = self._work
            progress = engine, tuple((subtask, beat.steps) for subtask, beat in self._beats.items())
            if progress != self._progress or thread.seconds_still() == 0.0:
                self._progress, self._still = progress, 0.0
                return None
            self._still += min(now - before, self._longest_look.total_seconds())
            if self._still < self._work_patience:
                return None
            where = thread.stall(work)
            known = [reason for each, beat in self._beats.items() if (reason := _reason(each, beat, 0.0)) is not None]
        if known:
            return known[0]  # the place of the hang says more than "nothing moves"
        return JobFailedError(
            f"{work} hangs: no slot and no Spark task has got anything done for {self._still:.0f} s; "
            f"the driver waits at:\n{where.stack.rstrip()}\n{_HINT}"
        )


def _reason(subtask: SubtaskIndex, beat: Beat, patience: float) -> CheckdamError | None:
    if beat.stall is not None and beat.stall.seconds >= patience:
        return SlotLostError(f"slot {subtask} hangs: {beat.stall}\n{_HINT}")
    if beat.task_stall is not None and beat.task_stall.seconds >= patience:
        return JobFailedError(f"{beat.task_stall}\n{_HINT}")
    return None
