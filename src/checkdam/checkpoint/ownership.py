"""Taking over a job: one driver at a time owns a job's directory, by its term (decisions/0027)."""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Callable

from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.checkpoint.terms import (
    ANY_TERM,
    MOST_TERMS,
    OWNER,
    TERMS,
    Fence,
    Term,
    TermFile,
    is_running,
    list_terms,
    older_owner,
    read_term,
)
from checkdam.errors import CheckdamError, CheckpointNotFoundError, JobFailedError, RestoreError, StorageError
from checkdam.ids import JobId
from checkdam.processes import Owner, this_process
from checkdam.storage.contract import Storage

PROMISED = "_promised"
"""Marker in a job's directory: a savepoint refers to its prepared output, which the restored job publishes."""

_OF_AN_OWNER = re.compile(rf"(?P<job>[0-9a-f]{{32}})/(?:{OWNER}|{TERMS}/[^/]+)")


def take(storage: Storage, job_id: JobId, *, take_over: bool = False) -> Term:
    """Start a new term of the job, and fence off all its earlier drivers.

    `take_over` allows this even if the process that owns the job is known to run, or may be deleting its checkpoints.
    Until `Term.begin`, other readers see the same valid checkpoints as before.

    Raises:
        JobFailedError: a living process of this machine owns the job, or another driver takes it at this moment.
        StorageError: the term cannot be written; the job is not taken.
    """
    before = _Before(storage, job_id)
    if before.running is not None and not take_over:
        raise JobFailedError(
            f"job {job_id} is running: {before.running} owns its checkpoints",
            hint="Stop that process first, or start a new job without --resume. If it hangs, --take-over takes the job"
            " from it; it stops by itself when it wakes.",
        )
    if before.highest >= MOST_TERMS:
        raise StorageError(
            f"job {job_id} has a term file of number {before.highest}, above all that drivers write",
            hint=f'Delete the files in "{storage.uri}/{job_id}/{TERMS}" while no driver runs the job.',
        )
    content = TermFile(this_process(), has_rivals=before.has_rivals)
    term = Term(storage, job_id, before.highest + 1, secrets.token_hex(8), content)
    term.replaced = before.unsure
    try:
        term.write(content)
        if term.rivals():
            raise JobFailedError(
                f"job {job_id} is being started by another process at this moment",
                hint="Start it once; if that process has failed as well, try again.",
            )
        # Read after the term was written: a driver that passed its check before that had already completed its
        # checkpoint, and announced what it deletes.
        deleting = _Before(storage, job_id, but=term.number).deleting
        if deleting is not None and not take_over:
            raise JobFailedError(
                f"job {job_id} has ended: {deleting} may be deleting its checkpoints",
                hint="Wait until it is gone, or start a new job from a checkpoint with -s. If it is known to be dead,"
                " --take-over goes on from what it has left.",
            )
        term.is_deletion_possible = deleting is not None
        term.fence = Fence(term.number, _complete(storage, job_id))
    except CheckdamError:
        with contextlib.suppress(StorageError):  # the first error is the one to report
            term.withdraw()
        raise
    return term


class _Before:
    """What earlier drivers have left of their terms."""

    def __init__(self, storage: Storage, job_id: JobId, *, but: int | None = None) -> None:
        self.deleting: Owner | None = None
        self.highest = 0
        self.running: Owner | None = None
        self.unsure: Owner | None = None  # not known to be dead
        self.has_rivals = False
        self.is_known = False  # some owner can be read
        for name in list_terms(storage, job_id):
            if name.number == but:
                continue
            self.highest = name.number
            found = read_term(storage, job_id, name)
            if found is None:
                self.has_rivals = True
            else:
                self.has_rivals |= found.has_rivals
                if found.seen is not None:  # it has resumed, so an earlier driver announced its deletion too late
                    self.deleting = None
                if not found.has_ended:
                    is_unsure = self._add(found.owner, name.nonce)
                    if found.is_deleting and is_unsure:
                        self.deleting = found.owner
        older = older_owner(storage, job_id)
        if older is not None:
            self._add(older)
        elif storage.status(f"{job_id}/{OWNER}") is not None:
            self.has_rivals = True

    def _add(self, owner: Owner, nonce: str = "") -> bool:
        """Record an owner. Return True if it is not known to be dead."""
        self.is_known = True
        runs = is_running(owner, nonce)
        if runs:
            self.running = owner
        if not runs and owner.is_here():
            return False
        self.unsure = owner
        self.has_rivals = True
        return True


def _complete(storage: Storage, job_id: JobId) -> frozenset[tuple[int, int]]:
    """Return id and term of each valid complete checkpoint of the job."""
    store, found = CheckpointStore(storage, job_id), set()
    for checkpoint_id in store.completed():
        try:
            found.add((int(checkpoint_id), store.load(checkpoint_id).term))
        except CheckpointNotFoundError:
            continue  # discarded since it was listed
        except RestoreError:
            found.add((int(checkpoint_id), ANY_TERM))  # it may be repaired, and then show its term
    return frozenset(found)


def clear_abandoned(
    storage: Storage, tells_of_checkpoints: Callable[[JobId], bool] = lambda job_id: False
) -> list[JobId]:
    """Remove the directories of jobs that were killed before their first checkpoint: they cannot be resumed.

    Keeps a job that `tells_of_checkpoints`, which may be brought back; a job with a savepoint that refers to its
    output, which must not be dropped; and a job with a driver that may be alive: its term file fences off earlier
    drivers.
    """
    paths = [status.path for status in storage.list("")]
    matches = (_OF_AN_OWNER.fullmatch(path) for path in paths)
    cleared = []
    for job_id in sorted({JobId(match["job"]) for match in matches if match}):
        try:
            before = _Before(storage, job_id)
        except CheckdamError:
            continue  # of a newer version, or unreadable: not known to be abandoned
        is_promised = any(path.startswith(f"{job_id}/{PROMISED}") for path in paths)
        is_dead = before.is_known and not before.has_rivals
        if not is_dead or is_promised or CheckpointStore(storage, job_id).completed():
            continue
        if not tells_of_checkpoints(job_id):
            storage.delete_directory(job_id)
            cleared.append(job_id)
    return cleared
