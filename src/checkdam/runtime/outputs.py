"""The driver's side of every transactional sink of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from checkdam.checkpoint.completed import CompletedCheckpoint
from checkdam.checkpoint.ownership import PROMISED
from checkdam.checkpoint.settings import JobEnd
from checkdam.checkpoint.terms import Term
from checkdam.connectors.contract import SinkCommitter
from checkdam.errors import CheckpointDamagedError, FormatTooNewError
from checkdam.graph.levels import JobPlan
from checkdam.graph.operators import SinkKind
from checkdam.ids import JobId, OperatorUid
from checkdam.runtime.restore import Restored
from checkdam.storage.contract import Storage
from checkdam.storage.subtree import subtree

_VERSION = 1


class _Promises(msgspec.Struct, frozen=True):
    """The file of promises: committables that savepoints refer to, by uid; some may have been published since."""

    version: int
    committables: dict[str, list[bytes]]


class Outputs:
    """Commits by operator uid. `files` is the job's own directory, where it remembers what savepoints refer to."""

    def __init__(self, committers: Mapping[OperatorUid, SinkCommitter], files: Storage | None = None) -> None:
        self._committers = committers
        self._files = files
        self._term: Term | None = None
        self._promised: dict[OperatorUid, set[bytes]] = {uid: set() for uid in committers}

    @classmethod
    def of(cls, plan: JobPlan, job_id: JobId, storage: Storage | None = None) -> Outputs:
        committers = {}
        for operator in plan.operators:
            if isinstance(operator.kind, SinkKind) and operator.uid is not None:
                committer = operator.kind.spec.open_committer(job_id, operator.uid)
                if committer is not None:
                    committers[operator.uid] = committer
        return cls(committers, subtree(storage, job_id) if storage is not None else None)

    def check(self) -> None:
        """Raise now if a sink could not be written."""
        for committer in self._committers.values():
            committer.check()

    def commit(self, uid: OperatorUid, committables: Sequence[bytes]) -> None:
        if committables and uid in self._committers:
            self._committers[uid].commit(committables)
            self._promised[uid].difference_update(committables)

    def check_term(self) -> None:
        """Raise FencedError if another driver has taken the job."""
        if self._term is not None:
            self._term.check()

    def recall(self, term: Term | None = None) -> None:
        """Learn what earlier drivers of the job have promised, now that the job is taken.

        Raises:
            CheckpointDamagedError, FormatTooNewError: a file that tells it cannot be read.
        """
        self._term = term
        for name in self._promise_files():
            self._recall(name)

    def _promise_files(self) -> list[str]:
        """One of each term that promised something: a replaced driver must not write over that of another."""
        found = self._files.list("") if self._files is not None else []
        return [status.path for status in found if status.path.startswith(PROMISED)]

    def _recall(self, name: str) -> None:
        assert self._files is not None
        try:
            kept = msgspec.json.decode(self._files.read(name), type=_Promises)
        except FileNotFoundError:
            return
        except (ValueError, RecursionError) as error:
            raise CheckpointDamagedError(
                f'"{self._files.uri}/{name}" is damaged: {error}',
                hint="Delete it, if no savepoint of the job will be restored any more.",
            ) from error
        if kept.version > _VERSION:
            raise FormatTooNewError(
                f'"{self._files.uri}/{name}" has format {kept.version}; this Checkdam reads up to {_VERSION}',
                hint="Run the job with the Checkdam that wrote it, or a newer one.",
            )
        for uid, committables in kept.committables.items():
            if uid in self._promised:
                self._promised[OperatorUid(uid)].update(committables)

    def note(self, savepoint: CompletedCheckpoint) -> None:
        """Before it is a savepoint: let the job's next driver know, too, what it refers to."""
        found = {entry.uid: entry.committables for entry in savepoint.operators if entry.uid in self._promised}
        if self._files is None or not any(found.values()):
            return
        known = {uid: sorted(promised | set(found.get(uid, ()))) for uid, promised in self._promised.items()}
        promises = _Promises(_VERSION, {str(uid): committables for uid, committables in known.items()})
        self.check_term()
        name = PROMISED if self._term is None else f"{PROMISED}-{self._term.number}"
        self._files.write(name, msgspec.json.encode(promises))

    def promise(self, savepoint: CompletedCheckpoint) -> None:
        """A savepoint refers to this output: it is not dropped, so that whoever restores the savepoint publishes it.

        The job itself publishes it with its next checkpoint, and then nobody has to any more.
        """
        for entry in savepoint.operators:
            if entry.uid in self._promised:
                self._promised[entry.uid].update(entry.committables)

    def resume(self, restored: Restored | None) -> None:
        """Publish what the checkpoint covers, drop what came after it and no savepoint refers to."""
        self.check_term()
        for uid, committer in self._committers.items():
            covered = restored.committables(uid) if restored else ()
            committer.commit(covered)
            self._promised[uid].difference_update(covered)
            committer.abandon_all_but([*covered, *self._promised[uid]], self.check_term)

    def forget(self, job_id: JobId) -> None:
        """Drop what another job prepared, which died before its first checkpoint."""
        for committer in self._committers.values():
            committer.forget(job_id)

    def close(self, end: JobEnd) -> None:
        """The job has ended. One that has finished has published everything; one that was cancelled may have left
        output to a savepoint."""
        for uid, committer in self._committers.items():
            if end is JobEnd.FINISHED or not self._promised[uid]:
                committer.close(self.check_term)
        if self._files is not None and (end is JobEnd.FINISHED or not any(self._promised.values())):
            names = self._promise_files()
            self.check_term()
            for name in names:
                self._files.delete(name)
