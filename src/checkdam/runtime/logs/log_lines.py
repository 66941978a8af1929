"""The lines of a log file: time in UTC, level, logger, the operator if one is running, and the message."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from datetime import UTC, datetime

from checkdam.runtime.monitor.masking import without_credentials

_LEVELS = {logging.CRITICAL: "FATAL", logging.ERROR: "ERROR", logging.WARNING: "WARN", logging.INFO: "INFO"}
_CHATTY = ("py4j", "pyspark")
"""Loggers that report each of their steps as INFO."""


def log_line(at: datetime, level: int, name: str, message: str, where: str = "") -> str:
    """Return one entry of a log file. Credentials in addresses are masked."""
    word = next((word for least, word in _LEVELS.items() if level >= least), "DEBUG")
    source = f"{name} {where}" if where else name
    time = at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"
    return f"{time} {word:<5} {source}: {without_credentials(message)}\n"


class FileLogHandler(logging.Handler):
    """Writes the records of `logging` to a log file; `show` gets the messages of warnings, for the terminal."""

    def __init__(
        self, write: Callable[[str], None], where: Callable[[], str], show: Callable[[str], None] | None = None
    ) -> None:
        super().__init__()
        self._write = write
        self._where = where
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.WARNING and record.name.partition(".")[0] in _CHATTY:
            return
        try:
            message = _message(record)
            at = datetime.fromtimestamp(record.created, UTC)
            self._write(log_line(at, record.levelno, record.name, message, self._where()))
            if record.levelno >= logging.WARNING and self._show is not None and not getattr(record, "is_known", False):
                self._show(message)
        except Exception:  # noqa: BLE001  as every handler of logging
            self.handleError(record)


def _message(record: logging.LogRecord) -> str:
    parts = [record.getMessage()]
    if record.exc_info and record.exc_info[1] is not None:
        parts.append("".join(traceback.format_exception(record.exc_info[1])).rstrip())
    if record.stack_info:
        parts.append(record.stack_info)
    return "\n".join(parts)
