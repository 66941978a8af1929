"""Runs in a Spark worker process: lets it end without a traceback after Spark has closed its connection.

When a task fails, Spark cancels the others of its stage by closing their connections. A worker that still has results
to send cannot send them, and PySpark's daemon prints a BrokenPipeError for each, though nothing else is wrong.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any, Final

_DAEMON: Final = "pyspark.daemon"


class _QuietTraceback:
    """The module `traceback`, except that it does not print that the connection is closed."""

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    def print_exc(self) -> None:
        if not isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError):
            traceback.print_exc()


def end_quietly_when_cancelled() -> None:
    """Silence a closed connection in this worker process; exceptions of functions take another way and still show."""
    daemon: Any = sys.modules.get("__main__")
    if getattr(getattr(daemon, "__spec__", None), "name", None) == _DAEMON and daemon.traceback is traceback:
        daemon.traceback = _QuietTraceback()
