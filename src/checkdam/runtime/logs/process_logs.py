"""The two log files of a process: its log, and what it prints."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO, cast

from checkdam.runtime.current_operator import CURRENT
from checkdam.runtime.logs.line_stream import Echo, LineStream, beneath
from checkdam.runtime.logs.log_lines import FileLogHandler
from checkdam.runtime.logs.log_reader import LOG, STDOUT
from checkdam.runtime.logs.log_settings import LogSettings, private_directory
from checkdam.runtime.logs.rotating_file import RotatingFile

_SETTLE_SECONDS = 0.5
_echoes: dict[str, Echo] = {}  # one is enough for a process: each has a thread


class ProcessLogs:
    """The log files of a driver or slot. The directory is made, and the files are opened, with the first line."""

    def __init__(self, settings: LogSettings, process: str, complain: Callable[[str], None]) -> None:
        self._directory = Path(settings.directory)
        self._complain = complain
        self._is_ready = False
        self._log, self._out = (
            RotatingFile(
                self._directory / f"{process}.{kind}", settings.max_bytes, settings.max_old_files, self._tell_once
            )
            for kind in (LOG, STDOUT)
        )
        self._has_told = False

    def write_log(self, entry: str) -> None:
        self._make_directory()
        self._log.write(entry)

    def write_out(self, line: str) -> None:
        self._make_directory()
        self._out.write(f"{line}\n")

    def close(self) -> None:
        self._log.close()
        self._out.close()

    def _make_directory(self) -> None:
        if not self._is_ready:
            self._is_ready = True
            try:
                private_directory(self._directory)
            except OSError as error:
                self._tell_once(f"{self._directory} cannot be used for log files: {error.strerror or error}")

    def _tell_once(self, problem: str) -> None:
        if not self._has_told:
            self._has_told = True
            self._complain(f"WARNING: {problem}")


def prefixed(line: str, subtask: int | None) -> str:
    """Return a line that user code prints, after its operator and subtask."""
    where = where_now(subtask)
    return f"{where}> {line}" if where else line


def where_now(subtask: int | None) -> str:
    """Return the operator and subtask that this thread works for, such as "counts[0]"; "" if it works for none."""
    operator = CURRENT.get()
    return operator if subtask is None or not operator else f"{operator}[{subtask}]"


@contextmanager
def output_captured(
    settings: LogSettings, process: str, subtask: int, marker: str = "", *, is_until_end: bool
) -> Iterator[ProcessLogs]:
    """Send what this process prints and logs to files: the process of a slot, or a worker of Spark.

    It is still shown on standard error, as far as that takes it without waiting. `marker` precedes each line there, so
    that the driver, which reads it, can tell it from other output. With `is_until_end` the process ends afterwards:
    what is still to be shown is then waited for a while.
    """
    stdout, stderr, root = sys.stdout, sys.stderr, logging.getLogger()
    level = root.level
    echo = _echoes.setdefault(marker, Echo(beneath(stderr), marker))
    logs = ProcessLogs(settings, process, echo)

    def take(line: str) -> None:
        text = prefixed(line, subtask)
        logs.write_out(text)
        echo(text)

    handler = FileLogHandler(logs.write_log, lambda: where_now(subtask), echo)
    streams = [LineStream(stdout, take, passes_on=False), LineStream(stderr, take, passes_on=False)]
    sys.stdout, sys.stderr = (cast("TextIO", stream) for stream in streams)
    root.addHandler(handler)
    root.setLevel(logging.getLevelName(settings.level))
    logging.captureWarnings(capture=True)
    try:
        yield logs
    finally:
        logging.captureWarnings(capture=False)
        root.removeHandler(handler)
        root.setLevel(level)
        sys.stdout, sys.stderr = stdout, stderr
        for stream in streams:
            stream.end_lines()
        logs.close()
        if is_until_end:
            echo.settle(_SETTLE_SECONDS)
