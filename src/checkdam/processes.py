"""Liveness of processes, this one and others, and actions when one exits."""

from __future__ import annotations

import os
import select
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

_POLL_SECONDS = 0.5
_DEAD = ("Z", "X")
"""States of a process that has exited, but has not been waited for."""


def when_any_exits(pids: Iterable[int], act: Callable[[], None]) -> threading.Thread:
    """Call `act` once, from another thread, as soon as one of these processes has exited."""
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
    """Wait until one has exited; return False if the system does not support pidfds."""
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
    """Return whether a process with this id runs, of any user."""
    if not 0 < pid < 2**31:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def parent_of(pid: int) -> int:
    """Return the parent of any process."""
    stat = Path(f"/proc/{pid}/stat")
    if stat.exists():
        return int(stat.read_text().rpartition(")")[2].split()[1])
    return int(subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, check=True).stdout)


@dataclass(frozen=True)
class Owner:
    """The identity of a process, which distinguishes it from a later one with the same id."""

    machine: str
    pid: int
    started: str

    def __str__(self) -> str:
        where = "this machine" if self.is_here() else self.machine.partition(" ")[0] or "another machine"
        return f"process {self.pid} on {where}"

    def is_here(self) -> bool:
        return self.machine == _machine()

    def is_alive(self) -> bool:
        """Return whether the process is known to run; only for one of this machine.

        If the system hides it, as with `hidepid`, only its id is checked.
        """
        if not self.is_here():
            return False
        state, started = _stat(self.pid)
        if state in _DEAD:
            return False
        return started == self.started if started and self.started else is_alive(self.pid)


def this_process() -> Owner:
    return Owner(_machine(), os.getpid(), _stat(os.getpid())[1])


def _machine() -> str:
    """Return an id of this boot of this machine and its process id namespace: containers may share a host name."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{os.uname().nodename} {boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return os.uname().nodename


def _stat(pid: int) -> tuple[str, str]:
    """Return the state and start time of a process, in the kernel's units; "" if it has exited or is hidden."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", ""
    return fields[0], fields[19]
