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

_TRIES = 20
_PAUSE_SECONDS = 0.25


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


def main() -> None:
    """Wait for the end of the directory's owner, then remove the directory."""
    directory = sys.argv[1]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if take_lock(directory, wait=True) is None:
        return  # removed by another process
    for _ in range(_TRIES):
        try:
            if remove(directory):
                return
        except FileNotFoundError:
            return  # the owner or another start has removed it
        except OSError:
            pass  # children of the owner may still write here; they end soon
        time.sleep(_PAUSE_SECONDS)


if __name__ == "__main__":
    main()
