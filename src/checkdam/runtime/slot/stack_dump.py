"""Dumps the stacks of a slot that cannot even answer: a function in C may hold Python's lock for minutes.

`faulthandler` writes them from a thread that needs no lock, into a file beside the slot's socket. A process that was
stopped by a signal, or runs on another machine, leaves none.
"""

from __future__ import annotations

import faulthandler
from datetime import timedelta
from pathlib import Path

_UNIX = "grpc+unix://"
_HEAD = "Timeout ("
_BEFORE_TIMEOUT = 0.8
_LONGEST = 5000


class StackDump:
    """Writes the stacks unless postponed in time: before the driver gives the slot up."""

    def __init__(self, location: str, timeout: timedelta) -> None:
        self._seconds = _BEFORE_TIMEOUT * timeout.total_seconds()
        self._file = _file_of(location).open("w") if location.startswith(_UNIX) else None

    def put_off(self) -> None:
        if self._file is not None:
            faulthandler.dump_traceback_later(self._seconds, file=self._file)


def last_dump(location: str) -> str:
    """Return the last dump of a slot; empty if it wrote none, or elsewhere."""
    if not location.startswith(_UNIX) or not _file_of(location).exists():
        return ""
    text = _file_of(location).read_text(encoding="utf-8", errors="replace")
    return text.rpartition(_HEAD)[2].partition("\n")[2][:_LONGEST]


def _file_of(location: str) -> Path:
    return Path(location.removeprefix(_UNIX) + ".stack")
