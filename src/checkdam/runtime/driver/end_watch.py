"""Bounds the time a job takes to end or fail over: work that hangs meanwhile is given up."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import TypeVar

from checkdam.clock import SystemClock
from checkdam.errors import GivenUpError
from checkdam.runtime.stalls import StackWatch, Stall
from checkdam.runtime.workers import settle

T = TypeVar("T")

_log = logging.getLogger(__name__)

_LOOKS = 20  # number of looks within the patience
_HINT = (
    "What it waits for has to answer before the job can run again; "
    "task.cancellation.timeout says how long that is waited for."
)


class EndWatch:
    """Runs a job in its own thread, and abandons that thread if it stands still while the job should end.

    A thread cannot be ended from outside: one that waits for unresponsive storage, or inside a user function, ends with
    the process. So the job fails, and does not start again in this process.
    """

    def __init__(self, patience: timedelta) -> None:
        self._patience = patience
        self._is_ending = threading.Event()

    def begin(self) -> None:
        """Require progress from now on: the job ends, or fails over."""
        self._is_ending.set()

    def end(self) -> None:
        """Require no more progress: the job has failed over, and may wait for its restart and for records."""
        self._is_ending.clear()

    def run(self, job: Callable[[], T], others: Callable[[], Stall | None], cancel: Callable[[], None]) -> T:
        """Run a job to its end. `others` describes a stalled thread that the job waits for, `cancel` ends the job.

        Raises:
            GivenUpError: the job stood still while it should end.
        """
        if not self._patience:
            return job()
        done: Future[T] = Future()
        here, began = contextvars.copy_context(), threading.Event()
        watches: list[StackWatch] = []

        def work() -> None:
            watches.append(StackWatch(SystemClock(), 2 * self._patience / _LOOKS))
            began.set()
            settle(done, lambda: here.run(job))

        threading.Thread(target=work, daemon=True, name="job").start()
        began.wait()
        try:
            self._wait(done, watches[0], others)
        except GivenUpError:
            raise
        except BaseException:
            cancel()  # the caller was interrupted, and must not leave the job running
            self.begin()
            self._wait(done, watches[0], others)
            raise
        return done.result()

    def _wait(self, done: Future[T], watch: StackWatch, others: Callable[[], Stall | None]) -> None:
        still = 0.0
        ended = threading.Event()
        done.add_done_callback(lambda _: ended.set())
        look = (self._patience / _LOOKS).total_seconds()
        while not ended.wait(look):
            try:
                waits = others()
                is_still = watch.seconds_still() > 0.0 and (waits is None or waits.seconds > 0.0)
            except Exception:  # noqa: BLE001  a fault of the watch must not cancel the job
                _log.warning("the end of the job cannot be watched", exc_info=True)
                continue
            still = still + look if is_still and self._is_ending.is_set() else 0.0
            if still >= self._patience.total_seconds():
                raise GivenUpError(f"the job does not come to an end: {waits or watch.stall('its thread')}\n{_HINT}")
