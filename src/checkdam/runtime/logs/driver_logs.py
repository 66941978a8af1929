"""The log files of a driver: its log, and what the program and its sinks print in this process."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO, cast

from checkdam.clock import Clock, SystemClock
from checkdam.ids import JobId
from checkdam.runtime.logs.line_stream import LineStream, beneath
from checkdam.runtime.logs.log_lines import FileLogHandler, log_line
from checkdam.runtime.logs.log_reader import DRIVER
from checkdam.runtime.logs.log_settings import LogSettings, held, private_directory, remove_old_logs, user_logs
from checkdam.runtime.logs.process_logs import ProcessLogs, prefixed, where_now
from checkdam.runtime.monitor.job_events import JobListener

JOB_LOGGER = "checkdam.job"
"""The name under which the events of a job are in its log."""


class DriverLog(JobListener):
    """Writes to the driver's files. What this process prints is taken from the start of the job on.

    Register it after the listener that owns the terminal, which may put a stream of its own in place of standard
    output.
    """

    def __init__(self, logs: ProcessLogs, clock: Clock) -> None:
        self._logs = logs
        self._clock = clock
        self._takes_prints = False

    def write(self, level: int, message: str) -> None:
        """Write an event of the job, with its time."""
        self._logs.write_log(log_line(self._clock.now(), level, JOB_LOGGER, message))

    def job_started(self, job_id: JobId, name: str, slots: int) -> None:
        if not self._takes_prints:
            self._takes_prints = True
            _prints.add(self._take)

    def close(self) -> None:
        if self._takes_prints:
            _prints.remove(self._take)
        self._logs.close()

    def _take(self, line: str) -> None:
        self._logs.write_out(prefixed(line, None))


@contextmanager
def driver_logged(settings: LogSettings, clock: Clock | None = None) -> Iterator[DriverLog]:
    """Send the records of `logging` of this process to the driver's log until the block ends.

    A program that has set up logging keeps its levels and handlers. For one that has not, warnings are still shown on
    standard error.
    """
    logs = ProcessLogs(settings, DRIVER, _to_terminal)
    lock = _hold(Path(settings.directory))
    log = DriverLog(logs, clock or SystemClock())
    root = logging.getLogger()
    level = root.level
    is_configured = bool(root.handlers) or level != logging.WARNING
    handler = FileLogHandler(logs.write_log, lambda: where_now(None), lambda message: _show_unless_shown(root, message))
    root.addHandler(handler)
    if not is_configured:
        root.setLevel(logging.getLevelName(settings.level))
    try:
        yield log
    finally:
        root.removeHandler(handler)
        if not is_configured:
            root.setLevel(level)
        log.close()
        if lock is not None:
            os.close(lock)


def _hold(directory: Path) -> int | None:
    """Make the directory and keep others from removing it. Return None if that fails: the first line complains."""
    try:
        private_directory(directory)
        lock = held(directory)
    except OSError:
        return None
    if directory.parent == user_logs():
        remove_old_logs(directory.parent)
    return lock


def _show_unless_shown(root: logging.Logger, message: str) -> None:
    """Show a warning as Python does for a program without handlers of its own."""
    if all(isinstance(each, FileLogHandler) for each in root.handlers):
        _to_terminal(message)


def _to_terminal(line: str) -> None:
    with suppress(OSError, ValueError, AttributeError):  # it is closed, or there is none
        terminal = beneath(sys.stderr)
        terminal.write(f"{line}\n")
        terminal.flush()


class _Prints:
    """What this process prints, for all jobs of the process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._takers: tuple[Callable[[str], None], ...] = ()

    def add(self, take: Callable[[str], None]) -> None:
        with self._lock:
            self._takers = (*self._takers, take)
            if not isinstance(sys.stdout, LineStream):
                sys.stdout = cast("TextIO", LineStream(sys.stdout, self._take, passes_on=True))
            if not isinstance(sys.stderr, LineStream):
                sys.stderr = cast("TextIO", LineStream(sys.stderr, self._take, passes_on=True))

    def remove(self, take: Callable[[str], None]) -> None:
        """Stop passing lines on. The last one to leave puts the streams back, unless they were replaced meanwhile."""
        with self._lock:
            streams = [each for each in (sys.stdout, sys.stderr) if isinstance(each, LineStream)]
            if self._takers == (take,):
                for stream in streams:
                    stream.end_lines()
                sys.stdout, sys.stderr = beneath(sys.stdout), beneath(sys.stderr)
            self._takers = tuple(each for each in self._takers if each != take)

    def _take(self, line: str) -> None:
        for take in self._takers:
            take(line)


_prints = _Prints()
