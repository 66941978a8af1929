"""Who runs a job: one driver at a time may write to a job's directory.

A file `_owner` in the job's directory names the process. A driver that ends in order removes it; after a kill it stays,
and tells the next start that the job is nobody's. Processes of other machines cannot be asked, so their word stands
for nothing either way: such a job can be taken over, but is never cleared away.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from checkdam.checkpoint.store import CheckpointStore
from checkdam.errors import JobFailedError
from checkdam.ids import JobId
from checkdam.storage.contract import Storage

OWNER = "_owner"
PROMISED = "_promised"
"""Tells, in a job's directory, of prepared output that a savepoint refers to: whoever restores it publishes that."""


class Owner(msgspec.Struct, frozen=True):
    """A process that cannot be mistaken for a later one with the same number."""

    machine: str
    pid: int
    started: str

    def is_here(self) -> bool:
        return self.machine == _machine()

    def is_alive(self) -> bool:
        """Whether the process is known to run; only for one of this machine."""
        if not self.is_here():
            return False
        return self.started == _started(self.pid) if self.started else _exists(self.pid)


def this_process() -> Owner:
    return Owner(_machine(), os.getpid(), _started(os.getpid()))


def _machine() -> str:
    """This boot of this machine, and the space its process numbers belong to: containers may share a name."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{os.uname().nodename} {boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return os.uname().nodename


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _started(pid: int) -> str:
    """When a process began, in the kernel's own count; "" if it is gone or the system does not tell."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def take(storage: Storage, job_id: JobId) -> None:
    """Become the owner of a job. Raises JobFailedError if another living process of this machine is."""
    owner = owner_of(storage, job_id)
    if owner is not None and owner.is_alive() and owner != this_process():
        raise JobFailedError(
            f"job {job_id} is running: process {owner.pid} on this machine owns its checkpoints",
            hint="Stop that process first, or start a new job without --resume.",
        )
    storage.write(f"{job_id}/{OWNER}", msgspec.json.encode(this_process()))


def let_go(storage: Storage, job_id: JobId) -> None:
    storage.delete(f"{job_id}/{OWNER}")


def clear_abandoned(storage: Storage) -> list[JobId]:
    """Remove the directories of jobs that were killed before their first checkpoint; nobody can resume those.

    One with a savepoint that refers to its output stays: its output must not be dropped either.
    """
    cleared = []
    for job_id in _job_ids(status.path for status in storage.list("")):
        owner = owner_of(storage, job_id)
        dead = owner is not None and owner.is_here() and not owner.is_alive()
        if dead and not CheckpointStore(storage, job_id).completed() and storage.status(f"{job_id}/{PROMISED}") is None:
            storage.delete_directory(job_id)
            cleared.append(job_id)
    return cleared


def _job_ids(paths: Iterable[str]) -> list[JobId]:
    suffix = f"/{OWNER}"
    return sorted(
        {JobId(path.removesuffix(suffix)) for path in paths if path.endswith(suffix) and path.count("/") == 1}
    )


def owner_of(storage: Storage, job_id: JobId) -> Owner | None:
    """Who runs the job, or ran it when it was killed; None: nobody, or the file cannot be read."""
    try:
        return msgspec.json.decode(storage.read(f"{job_id}/{OWNER}"), type=Owner)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
