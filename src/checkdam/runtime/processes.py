"""Processes that must not outlive one another."""

from __future__ import annotations

import os
import select
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

_POLL_SECONDS = 0.5


def when_any_exits(pids: Iterable[int], act: Callable[[], None]) -> threading.Thread:
    """Call `act` once, from another thread, as soon as one of these processes is gone."""
    watched = list(pids)

    def watch() -> None:
        if not _wait_with_pidfd(watched):
            while all(is_alive(pid) for pid in watched):
                time.sleep(_POLL_SECONDS)
        act()

    thread = threading.Thread(target=watch, daemon=True, name="parent-watch")
    thread.start()
    return thread


def _wait_with_pidfd(pids: list[int]) -> bool:
    """Wait until one is gone; False if the system has no such thing."""
    if not hasattr(os, "pidfd_open"):
        return False
    poll = select.poll()
    for pid in pids:
        try:
            poll.register(os.pidfd_open(pid), select.POLLIN)
        except ProcessLookupError:
            return True
        except OSError:
            return False  # forbidden, or an old kernel
    poll.poll()
    return True


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def parent_of(pid: int) -> int:
    """The parent of any process."""
    stat = Path(f"/proc/{pid}/stat")
    if stat.exists():
        return int(stat.read_text().rpartition(")")[2].split()[1])
    return int(subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, check=True).stdout)
