"""Signal handling of a process that runs a job: Ctrl-C cancels the job, SIGTERM suspends it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from checkdam.checkpoint.settings import JobEnd
from checkdam.runtime.job_result import JobResult

if TYPE_CHECKING:
    from checkdam.runtime.driver.job_master import JobMaster

_INIT = 1  # the process id of a container's first process
EXIT_SUSPENDED = 128 + signal.SIGTERM
"""The exit code of a process that SIGTERM ended, as shells and supervisors count it."""

_is_terminating = threading.Event()


def exit_if_terminating() -> None:
    """Raise SystemExit if SIGTERM arrived while a job was ending and the process still runs."""
    if _is_terminating.is_set():
        raise SystemExit(EXIT_SUSPENDED)


def exit_if_suspended(result: JobResult, received: Collection[signal.Signals]) -> None:
    """End the program if SIGTERM has suspended its job; if it received too late for that, end before the next job."""
    if signal.SIGTERM in received:
        if result.end is JobEnd.SUSPENDED:
            raise SystemExit(EXIT_SUSPENDED)
        _is_terminating.set()


@contextmanager
def ended_by_signals(master: JobMaster, grace: timedelta) -> Iterator[Collection[signal.Signals]]:
    """Let Ctrl-C cancel the job and SIGTERM suspend it; a repeated signal ends the process at once.

    Yields the signals received so far. Does nothing outside the main thread: signals reach no other thread.
    """
    received: set[signal.Signals] = set()
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    actions: dict[signal.Signals, Callable[[], None]] = {
        signal.SIGINT: master.cancel,
        signal.SIGTERM: partial(master.suspend, grace),
    }

    def on_signal(number: int, frame: Any) -> None:
        received.add(signal.Signals(number))
        signal.signal(number, _exit_at_once if os.getpid() == _INIT else signal.SIG_DFL)
        threading.Thread(target=actions[signal.Signals(number)], daemon=True, name="end").start()

    before = {number: signal.signal(number, on_signal) for number in actions}
    try:
        yield received
    finally:
        for number, handler in reversed(before.items()):  # SIGINT last: from then on Ctrl-C raises, also in here
            signal.signal(number, handler)


def _exit_at_once(number: int, frame: Any) -> None:
    """End the process explicitly: the kernel ignores unhandled signals for a container's first process."""
    os._exit(128 + number)
