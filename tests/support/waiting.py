"""The one way in which tests wait for what posts no event: other processes, and the inside of a running driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.005


def poll(
    holds: Callable[[], object],
    otherwise: str | Callable[[], str] = "it never happened",
    seconds: float = PATIENCE_SECONDS,
) -> None:
    """Look until this holds. Fail with `otherwise` if it does not within the given time."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not holds():
        assert time.monotonic() < deadline, otherwise if isinstance(otherwise, str) else otherwise()
        pause.wait(_PAUSE_SECONDS)
