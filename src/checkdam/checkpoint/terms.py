"""Terms: which driver of a job may write, and which checkpoints a replaced driver completed too late (decisions/0027).

    <job-id>/_terms/<number>-<nonce>    written by a driver when it takes the job; the highest number owns it

A driver checks its term before it publishes and before it deletes, and stops if there is a higher one.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from checkdam.checkpoint.completed import CompletedCheckpoint
from checkdam.checkpoint.metadata_file import from_metadata, read_metadata
from checkdam.errors import FencedError, FormatTooNewError, RestoreError, StorageError
from checkdam.ids import CheckpointId, JobId
from checkdam.processes import Owner, this_process
from checkdam.storage.contract import Storage
from checkdam.storage.names import TEMPORARY_PREFIX
from checkdam.storage.versioned import read_versioned

TERMS = "_terms"
OWNER = "_owner"
"""The file that versions without terms wrote instead of a term."""

_VERSION = 1
_NAME = re.compile(rf"(?:{re.escape(TEMPORARY_PREFIX)})?(?P<number>[0-9]{{1,9}})-(?P<nonce>[0-9a-f]+)(?:-[0-9a-f]+)?")
MOST_TERMS = 10**9 - 1
"""The highest term number that `_NAME` matches."""
ANY_TERM = -1
"""Stands in `seen` for the term of a checkpoint that could not be read."""
_LOOKS = 3
_METADATA = re.compile(r"chk-(?P<id>[0-9]{1,18})/_metadata")
_held: set[str] = set()
"""The nonces of the terms that drivers of this process hold."""


# ---------------------------------------------------------------------------------------------- the files


class TermFile(msgspec.Struct, frozen=True):
    """The content of a term's file."""

    owner: Owner
    version: int = _VERSION
    has_rivals: bool = False
    """Whether an earlier driver of the job may be alive: then the file outlives the job, to fence that driver."""
    has_ended: bool = False
    is_deleting: bool = False
    """Whether the job has ended and its driver may delete every checkpoint: the job cannot be resumed from them."""
    seen: tuple[tuple[int, int], ...] | None = None
    """Id and term of each checkpoint that was complete when the job was taken; None until the driver resumes."""


_decode_term = msgspec.json.Decoder(TermFile).decode
_decode_owner = msgspec.json.Decoder(Owner).decode


@dataclass(frozen=True, order=True)
class TermName:
    """The name of a term's file; a temporary one is being written, or was left by a killed process."""

    number: int
    nonce: str
    file: str

    @property
    def is_temporary(self) -> bool:
        return self.file.startswith(TEMPORARY_PREFIX)


def list_terms(storage: Storage, job_id: JobId, *, temporary: bool = False) -> list[TermName]:
    """List the terms of a job, newest last; with all their temporary files if requested.

    A temporary file without its final file counts as a term: where a rename cannot replace a file (HDFS), the old one
    is deleted first, and a term must not be missed at that moment.
    """
    names = []
    for status in storage.list(f"{job_id}/{TERMS}"):
        file = status.path.rpartition("/")[2]
        if match := _NAME.fullmatch(file):
            names.append(TermName(int(match["number"]), match["nonce"], file))
    if not temporary:
        whole = {name.nonce for name in names if not name.is_temporary}
        names = [name for name in names if not name.is_temporary or name.nonce not in whole]
    return sorted(names)


def read_term(storage: Storage, job_id: JobId, name: TermName) -> TermFile | None:
    """Read a term's file; return None if it is gone or damaged.

    Raises:
        FormatTooNewError: a newer Checkdam runs the job.
    """
    try:
        return read_versioned(storage, f"{job_id}/{TERMS}/{name.file}", _decode_term, _VERSION)
    except (FileNotFoundError, ValueError):
        return None


def is_running(owner: Owner, nonce: str = "") -> bool:
    """Return whether the driver is known to run: a living process of this machine.

    A driver in this same process counts only while it holds the term of that nonce.
    """
    return owner.is_alive() and (owner != this_process() or nonce in _held)


def owner_of(storage: Storage, job_id: JobId) -> Owner | None:
    """Return the process that runs the job, or ran it when it was killed; None if the last one ended regularly."""
    for name in reversed(list_terms(storage, job_id)):
        found = read_term(storage, job_id, name)
        if found is not None:
            return None if found.has_ended else found.owner
    return older_owner(storage, job_id)


def older_owner(storage: Storage, job_id: JobId) -> Owner | None:
    """Return the owner as recorded by versions without terms."""
    try:
        return _decode_owner(storage.read(f"{job_id}/{OWNER}"))
    except (FileNotFoundError, ValueError, RecursionError):
        return None


# ---------------------------------------------------------------------------------------------- the fence


@dataclass(frozen=True)
class Fence:
    """The rule of the newest term for checkpoints of older terms: only those it has seen are valid."""

    number: int
    seen: frozenset[tuple[int, int]]

    def excludes(self, checkpoint: CompletedCheckpoint) -> bool:
        """Return whether a replaced driver completed the checkpoint too late: its output was never published."""
        if checkpoint.term >= self.number:
            return False
        return self.seen.isdisjoint((checkpoint.checkpoint_id, term) for term in (checkpoint.term, ANY_TERM))


def fence_of(storage: Storage, job_id: JobId) -> Fence | None:
    """Return the fence of the newest term that has one; None if there is none."""
    for _ in range(_LOOKS):
        names = list_terms(storage, job_id)
        for name in reversed(names):
            if (fence := _read_fence(storage, job_id, name)) is not None:
                return fence
        if not names:
            return None
        # A take-over may have replaced the files since they were listed.
    return None


def _read_fence(storage: Storage, job_id: JobId, name: TermName) -> Fence | None:
    found = read_term(storage, job_id, name)
    return None if found is None or found.seen is None else Fence(name.number, frozenset(found.seen))


# ---------------------------------------------------------------------------------------------- the term


class Term:
    """A driver's term of its job. Thread-safe."""

    def __init__(self, storage: Storage, job_id: JobId, number: int, nonce: str, content: TermFile) -> None:
        self._storage = storage
        self._job_id = job_id
        self._name = TermName(number, nonce, f"{number}-{nonce}")
        self._content = content
        self._lock = threading.Lock()
        self._fenced: str | None = None
        self._written: dict[CheckpointId, bytes] = {}  # the digest of each `_metadata` that this driver wrote
        self.replaced: Owner | None = None
        """The driver of the preceding term, if it may be alive."""
        self.is_deletion_possible = False
        """Whether an earlier driver may be deleting the checkpoints of the job, because the job had ended."""
        self.fence: Fence | None = None
        """Which checkpoints of earlier terms are valid for this one, as of when it was taken."""

    @property
    def number(self) -> int:
        return self._name.number

    def write(self, content: TermFile) -> None:
        """Write the term's file; only its own driver does this."""
        self._content = content
        self._storage.write(self._path, msgspec.json.encode(content))
        _held.add(self._name.nonce)

    def rivals(self) -> list[TermName]:
        """Return the other terms with at least this number. A driver that takes the job gives up if there are any."""
        return self._rivals(list_terms(self._storage, self._job_id), self.number)

    def check(self) -> None:
        """Check that no other driver has taken the job.

        If the file of this term is gone although no other driver took the job, the directory was removed: write the
        file again. If there is a checkpoint that this driver neither wrote nor found, another driver had the job
        meanwhile.

        Raises:
            FencedError: another driver has taken the job; this one must stop without changing anything.
            StorageError: the terms cannot be listed, so the owner is unknown.
        """
        with self._lock:
            if self._fenced is None:
                names = list_terms(self._storage, self._job_id)
                is_listed = any(name.nonce == self._name.nonce for name in names)
                # While the file exists, a later term of the same number has seen it and gives up.
                rivals = self._rivals(names, self.number + 1 if is_listed else self.number)
                is_foreign = not rivals and not is_listed and self._has_foreign_checkpoint()
                if not rivals and not is_listed and not is_foreign:
                    self.write(self._content)
                    rivals = self.rivals()
                    if rivals:
                        self.withdraw()
                if not rivals and not is_foreign:
                    return
                self._fenced = f"{self._new_owner(rivals)} has taken over job {self._job_id}"
            raise FencedError(
                f"{self._fenced}: this driver was taken for dead, and has stopped without touching its files",
                hint="Leave the job to the new driver. If both were started by mistake, look why.",
            )

    def withdraw(self) -> None:
        """Remove the file of this term, which never owned the job."""
        self._storage.delete(self._path)
        self.release()

    @property
    def has_begun(self) -> bool:
        return self._content.seen is not None

    def begin(self) -> None:
        """Resume from a checkpoint: from now on the `fence` of this term applies to all readers, also after its end.

        A driver that refuses to resume changes nothing: checkpoints that are brought back or repaired then are still
        valid.

        Raises:
            FencedError, StorageError: as `check`; or the term cannot be written.
        """
        if self.has_begun:
            return
        self.check()
        seen = tuple(sorted(self.fence.seen)) if self.fence is not None else ()
        self.write(msgspec.structs.replace(self._content, seen=seen))
        with contextlib.suppress(StorageError):  # they have no meaning any more, and `let_go` removes them too
            self._remove_older()

    def _remove_older(self) -> None:
        """Remove the files of earlier terms, except the one with the fence if this term has none."""
        older = [name for name in list_terms(self._storage, self._job_id, temporary=True) if name.number < self.number]
        if not self.has_begun:
            fences = [name for name in older if not name.is_temporary and self._has_fence(name)]
            older = [name for name in older if name not in fences[-1:]]
        for name in older:
            self._storage.delete(f"{self._job_id}/{TERMS}/{name.file}")
        self._storage.delete(f"{self._job_id}/{OWNER}")

    def _has_fence(self, name: TermName) -> bool:
        return _read_fence(self._storage, self._job_id, name) is not None

    def announce_deletion(self) -> None:
        """Announce that the job has ended and its checkpoints will be deleted, before `check` allows that."""
        self.write(msgspec.structs.replace(self._content, is_deleting=True))

    def let_go(self) -> None:
        """End the term regularly. If an earlier driver may be alive, the file stays to fence it."""
        self._remove_older()
        if self._content.has_rivals:
            self.write(msgspec.structs.replace(self._content, has_ended=True, is_deleting=False))
        else:
            self._storage.delete(self._path)

    def release(self) -> None:
        """Record that no driver of this process holds the term any more."""
        _held.discard(self._name.nonce)

    @property
    def _path(self) -> str:
        return f"{self._job_id}/{TERMS}/{self._name.file}"

    def wrote(self, checkpoint_id: CheckpointId, data: bytes) -> None:
        """Record that this driver is about to complete a checkpoint."""
        self._written[checkpoint_id] = hashlib.sha256(data).digest()

    def discarded(self, checkpoint_id: CheckpointId) -> None:
        self._written.pop(checkpoint_id, None)

    def _has_foreign_checkpoint(self) -> bool:
        """Return whether a complete checkpoint exists that this driver has neither written nor found."""
        for status in self._storage.list(self._job_id):
            match = _METADATA.fullmatch(status.path.removeprefix(f"{self._job_id}/"))
            if match is not None and self._is_foreign(CheckpointId(int(match["id"])), status.path):
                return True
        return False

    def _is_foreign(self, checkpoint_id: CheckpointId, path: str) -> bool:
        try:
            data = read_metadata(self._storage, path)
            if hashlib.sha256(data).digest() == self._written.get(checkpoint_id):
                return False
            checkpoint = from_metadata(data, path)
        except FileNotFoundError:
            return False
        except RestoreError:
            return self.fence is None or (checkpoint_id, ANY_TERM) not in self.fence.seen
        return checkpoint.term >= self.number or self.fence is None or self.fence.excludes(checkpoint)

    def _rivals(self, names: Sequence[TermName], lowest: int) -> list[TermName]:
        return [name for name in names if name.number >= lowest and name.nonce != self._name.nonce]

    def _new_owner(self, rivals: Sequence[TermName]) -> str:
        try:
            found = read_term(self._storage, self._job_id, rivals[-1]) if rivals else None
        except (StorageError, FormatTooNewError):
            found = None
        return str(found.owner) if found is not None else "another process"
