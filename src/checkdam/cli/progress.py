"""Progress of long work on standard error: a changing line on a terminal, lines in a log."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.status import Status
from rich.text import Text

from checkdam.cli import number_format
from checkdam.cli.error_messages import say

_ASK_EVERY = 0.5  # seconds between two polls
_FIRST_PAUSE = 0.05
_LAST_PAUSE = 1.0


class Progress:
    """Shows progress while it is open; a log does not repeat an unchanged line."""

    def __init__(
        self,
        *,
        is_live: bool | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._is_live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb" if is_live is None else is_live
        self._monotonic = monotonic
        self._pause = pause
        self._started_at = monotonic()
        self._asked_at = self._started_at
        self._shown: str | None = None
        self._status: Status | None = None
        self._next_pause = _FIRST_PAUSE

    def is_due(self) -> bool:
        """Return whether it is time to poll the work's progress again; short work is never polled."""
        if self._monotonic() - self._asked_at < _ASK_EVERY:
            return False
        self._asked_at = self._monotonic()
        return True

    def show(self, what: str | None) -> None:
        """Show the current work; None: nothing is in progress."""
        if what is None:
            return
        if self._is_live:
            if self._status is None:
                self._status = Console(stderr=True).status("")
                self._status.start()
            self._status.update(Text(f"{what} ({number_format.duration(self._monotonic() - self._started_at)})"))
        elif what != self._shown:
            say(what)
        self._shown = what

    def rest(self) -> None:
        """Wait before the next poll, longer each time."""
        self._pause(self._next_pause)
        self._next_pause = min(self._next_pause * 2, _LAST_PAUSE)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._status is not None:
            self._status.stop()
