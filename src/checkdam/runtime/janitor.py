"""Temporary directories that are gone when their owner is, however it ended.

A small process waits for the owner's end and then removes the directory; should it be killed as well, the next start
removes what it finds without an owner.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from checkdam.runtime.processes import is_alive

PREFIX = "checkdam-"

_WAIT_AND_REMOVE = """
import os, select, shutil, signal, sys, time
owner, directory = int(sys.argv[1]), sys.argv[2]
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
try:
    select.select([os.pidfd_open(owner)], [], [])
except (AttributeError, OSError):
    while True:
        try:
            os.kill(owner, 0)
        except ProcessLookupError:
            break
        time.sleep(0.5)
for _ in range(20):
    shutil.rmtree(directory, ignore_errors=True)
    if not os.path.exists(directory):
        break
    time.sleep(0.25)
"""


_one_at_a_time = threading.Lock()
_of_process: dict[tuple[int, Path], tuple[Path, subprocess.Popen[bytes]]] = {}


def work_directory(parent: Path) -> Path:
    """A new directory that disappears with this process. All of a process lie in one, with one janitor."""
    owner = os.getpid()
    with _one_at_a_time:  # slots that share a process, as in tests, open their stores at the same time
        directory = _of_process[owner, parent][0] if (owner, parent) in _of_process else None
        if directory is None or not directory.exists():
            parent.mkdir(parents=True, exist_ok=True)
            remove_abandoned(parent)
            directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{owner}-", dir=parent))
            _of_process[owner, parent] = directory, _start_janitor(owner, directory)
    return Path(tempfile.mkdtemp(dir=directory))


def _start_janitor(owner: int, directory: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _WAIT_AND_REMOVE, str(owner), str(directory)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def remove_abandoned(parent: Path) -> None:
    """Remove work directories whose owner is gone."""
    for directory in parent.glob(f"{PREFIX}*-*"):
        owner = directory.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and not is_alive(int(owner)):
            shutil.rmtree(directory, ignore_errors=True)
