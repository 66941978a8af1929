"""A gate that a test keeps closed until something has happened."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Gate:
    """Opens once, and stays open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Callable[[], None]] = []
        self.is_open = False

    def open(self) -> None:
        with self._lock:
            self.is_open = True
            waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    def when_open(self, call: Callable[[], None]) -> None:
        """Call the callback once, now or when the gate opens."""
        with self._lock:
            if not self.is_open:
                self._waiting.append(call)
                return
        call()
