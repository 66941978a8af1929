"""Temporary directories that are removed when their owner ends, however it ended.

The owner holds a lock on a file in the directory while it lives. The kernel releases the lock when the process ends,
and the lock works in every container that shares the directory, where process ids mean nothing.

An owner that ends by itself removes the directory. A small process waits for the lock and removes what is still there:
everything, if the owner was killed. A process that writes there and may outlive the owner is noted with `outlived_by`:
when it has ended, what it has made again is removed too.

A container kills the small process as well when its first process ends; then the next start removes the directories
that it finds unlocked.
"""

from __future__ import annotations

import atexit
import fcntl
import inspect
import itertools
import os
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from checkdam.errors import StorageError
from checkdam.runtime import abandoned

PREFIX = "checkdam-"


@dataclass(frozen=True)
class _Owned:
    """A directory of this process, its lock, and the process that removes it."""

    directory: Path
    lock: int
    janitor: subprocess.Popen[bytes]
    numbers: Iterator[int] = field(default_factory=itertools.count)


_one_at_a_time = threading.Lock()
_owned: dict[Path, _Owned] = {}


def work_directory(parent: Path) -> Path:
    """Make a directory that disappears with this process. A process has one such directory, with one janitor, for all
    calls.

    Only the user who runs this process can enter it, whatever the umask.
    """
    with _one_at_a_time:  # slots that share a process, as in tests, open their stores concurrently
        owned = _owned.get(parent)
        if owned is None or not owned.directory.exists():
            parent.mkdir(parents=True, exist_ok=True)
            remove_abandoned(parent)
            if owned is not None:
                os.close(owned.lock)
                owned.janitor.wait()  # it waits only for the lock: its directory is gone
            directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent))
            owned = _owned[parent] = _Owned(directory, _locked(directory), _start_janitor(directory))
        directory = owned.directory / str(next(owned.numbers))  # short: paths of sockets are limited
        directory.mkdir(mode=0o700)
    return directory


def outlived_by(pid: int) -> None:
    """Note a process that writes to the directories of this one, and may end after it."""
    with _one_at_a_time:
        for owned in _owned.values():
            with suppress(FileNotFoundError), (owned.directory / abandoned.WRITERS).open("a") as writers:
                writers.write(f"{pid}\n")  # a directory that someone has removed needs no note


def _locked(directory: Path) -> int:
    """Lock a directory until this process ends. The file gets its name once locked: others try what they find."""
    fresh = directory / f"{abandoned.LOCK}.new"
    lock = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:
        os.close(lock)
        raise StorageError(
            f'no file can be locked in "{directory.parent}": {error.strerror}',
            hint="Set TMPDIR, or state.backend.rocksdb.localdir, to a directory of a local file system.",
        ) from error
    fresh.rename(directory / abandoned.LOCK)
    return lock


def _let_go() -> None:
    """Drop the parent's locks in a forked child: they belong to the parent."""
    global _one_at_a_time  # another thread of the parent may hold it
    _one_at_a_time = threading.Lock()
    for owned in _owned.values():
        os.close(owned.lock)
    _owned.clear()


os.register_at_fork(after_in_child=_let_go)


@atexit.register
def _remove_own() -> None:
    for owned in _owned.values():
        with suppress(OSError):  # children may still write here; the janitor removes the rest
            abandoned.remove(str(owned.directory))
        owned.janitor.returncode = 0  # it outlives this process on purpose; Popen would warn


def _start_janitor(directory: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", inspect.getsource(abandoned), str(directory)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def remove_abandoned(parent: Path) -> None:
    """Remove this user's work directories whose owner is gone. One without a lock may be just created and stays."""
    for directory in parent.glob(f"{PREFIX}*-*"):
        if not _is_own(directory):
            continue
        lock = abandoned.take_lock(str(directory), wait=False)
        if lock is None:
            continue
        try:
            with suppress(OSError):  # its janitor is removing it too, or the next start will
                abandoned.remove(str(directory))
        finally:
            os.close(lock)


def _is_own(directory: Path) -> bool:
    """Return whether this user made the directory: any user may put files into a temporary directory."""
    try:
        status = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
