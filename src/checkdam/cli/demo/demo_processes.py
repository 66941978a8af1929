"""The processes of a job, found by a mark in the environment that each inherits from its parent."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

MARK = "CHECKDAM_DEMO"
_PROC = Path("/proc")
_SLOT_MODULE = b"checkdam.runtime.slot"


def can_find_processes() -> bool:
    return (_PROC / "self" / "environ").exists()


def marked(mark: str) -> dict[int, bytes]:
    """Return pid and command line of every live process that carries the mark."""
    wanted = f"{MARK}={mark}".encode()
    found = {}
    for directory in _PROC.glob("[0-9]*"):
        try:
            if wanted in (directory / "environ").read_bytes().split(b"\0"):
                command = (directory / "cmdline").read_bytes()
                if command:  # empty for a process that has ended but is not reaped
                    found[int(directory.name)] = command
        except OSError:
            continue  # it has just ended, or belongs to another user
    return found


def slots(mark: str) -> list[int]:
    return sorted(pid for pid, command in marked(mark).items() if _SLOT_MODULE in command.split(b"\0"))


def wait_until_gone(mark: str, seconds: float) -> list[int]:
    """Return the processes that still exist after this long."""
    deadline = time.monotonic() + seconds
    while left := sorted(pid for pid in marked(mark) if pid != os.getpid()):
        if time.monotonic() > deadline:
            return left
        time.sleep(0.1)
    return []


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
