"""Removes a directory that is locked while its owner lives; also a program that waits for the owner's end.

It needs only the standard library, so that it starts at once and without a path to this package.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import time

LOCK = "owner.lock"
WRITERS = "writers"
"""The file with the ids of processes that write to the directory and may outlive its owner."""

_TRIES = 20
_PAUSE_SECONDS = 0.25
_PATIENCE_SECONDS = 60.0


def take_lock(directory: str, *, wait: bool) -> int | None:
    """Take the lock of a directory whose owner is gone. Return None if the owner lives, or there is no lock to take."""
    try:
        lock = os.open(os.path.join(directory, LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def remove(directory: str) -> bool:
    """Remove everything that can be removed, the lock last: what a kill leaves is still known to be abandoned."""
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        elif name != LOCK:
            os.unlink(path)
    if os.listdir(directory) not in ([LOCK], []):
        return False
    shutil.rmtree(directory, ignore_errors=True)
    return True


def noted_writers(directory: str) -> list[int]:
    """Return the ids of the processes that may still write to the directory."""
    try:
        with open(os.path.join(directory, WRITERS)) as noted:
            return [int(line) for line in noted if line.strip().isdecimal()]
    except OSError:
        return []


def is_running(pid: int) -> bool:
    """Return whether a process has not ended. Its id may have gone to another one, which is waited for in vain."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def main() -> None:
    """Wait for the end of the directory's owner, then remove the directory."""
    directory = sys.argv[1]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if take_lock(directory, wait=True) is None:
        return  # removed by another process
    writers = noted_writers(directory)
    for _ in range(_TRIES):
        try:
            if remove(directory):
                break
        except FileNotFoundError:
            break  # the owner or another start has removed it
        except OSError:
            pass  # children of the owner may still write here; they end soon
        time.sleep(_PAUSE_SECONDS)
    given_up_at = time.monotonic() + _PATIENCE_SECONDS
    while any(map(is_running, writers)) and time.monotonic() < given_up_at:
        time.sleep(_PAUSE_SECONDS)
    shutil.rmtree(directory, ignore_errors=True)  # what they have made again


if __name__ == "__main__":
    main()
