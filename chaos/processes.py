"""The processes of a round: each inherits a mark in its environment, by which it is found and ended."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from checkdam.processes import parent_of

MARK = "CHECKDAM_CHAOS_ROUND"


def marked(mark: str) -> Iterator[int]:
    """Yield the processes that carry the mark, except this one."""
    needle = f"{MARK}={mark}".encode()
    for pid in _all_processes():
        if pid == os.getpid():
            continue
        try:
            if needle in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                yield pid
        except OSError:
            continue  # it has just ended, or belongs to another user


def survivors(mark: str, patience_seconds: float) -> list[str]:
    """Return the commands of marked processes that do not end within this time."""
    deadline = time.monotonic() + patience_seconds
    while alive := list(marked(mark)):
        if time.monotonic() > deadline:
            return [f"{pid} {command_of(pid)[:200].replace(bytes(1), b' ').decode()}" for pid in alive]
        _wait_for_exit(alive[0], seconds=1.0)
    return []


def kill_all(mark: str) -> None:
    """End every marked process, including those started meanwhile."""
    while alive := list(marked(mark)):
        send(signal.SIGKILL, alive)
        _wait_for_exit(alive[0], seconds=1.0)


def send(number: signal.Signals, pids: Iterable[int]) -> None:
    """Send a signal to each of these processes that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped the process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def executors_of(driver: int) -> list[int]:
    """Return the executor processes below a driver, in a local cluster."""
    return [pid for pid in descendants(driver) if b"CoarseGrainedExecutorBackend" in command_of(pid)]


def descendants(pid: int) -> list[int]:
    parents: dict[int, int] = {}
    for each in _all_processes():
        with contextlib.suppress(OSError, ValueError):  # it has just ended
            parents[each] = parent_of(each)
    found, frontier = [], {pid}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier}
        found += sorted(frontier)
    return found


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _all_processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _wait_for_exit(pid: int, seconds: float) -> None:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        select.select([fd], [], [], seconds)
    finally:
        os.close(fd)
