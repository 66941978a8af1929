"""The driver's side of every transactional sink of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from checkdam.checkpoint.completed import CompletedCheckpoint
from checkdam.checkpoint.settings import JobEnd
from checkdam.connectors.contract import SinkCommitter
from checkdam.graph.levels import JobPlan
from checkdam.graph.operators import SinkKind
from checkdam.ids import JobId, OperatorUid
from checkdam.runtime.restore import Restored


class Outputs:
    """Commits by operator uid."""

    def __init__(self, committers: Mapping[OperatorUid, SinkCommitter]) -> None:
        self._committers = committers
        self._promised: dict[OperatorUid, set[bytes]] = {uid: set() for uid in committers}

    @classmethod
    def of(cls, plan: JobPlan, job_id: JobId) -> Outputs:
        committers = {}
        for operator in plan.operators:
            if isinstance(operator.kind, SinkKind) and operator.uid is not None:
                committer = operator.kind.spec.open_committer(job_id, operator.uid)
                if committer is not None:
                    committers[operator.uid] = committer
        return cls(committers)

    def check(self) -> None:
        """Raise now if a sink could not be written."""
        for committer in self._committers.values():
            committer.check()

    def commit(self, uid: OperatorUid, committables: Sequence[bytes]) -> None:
        if committables and uid in self._committers:
            self._committers[uid].commit(committables)
            self._promised[uid].difference_update(committables)

    def promise(self, savepoint: CompletedCheckpoint) -> None:
        """A savepoint refers to this output: it is not dropped, so that whoever restores the savepoint publishes it.

        The job itself publishes it with its next checkpoint, and then nobody has to any more.
        """
        for entry in savepoint.operators:
            if entry.uid in self._promised:
                self._promised[entry.uid].update(entry.committables)

    def resume(self, restored: Restored | None) -> None:
        """Publish what the checkpoint covers, drop what came after it and no savepoint refers to."""
        for uid, committer in self._committers.items():
            covered = restored.committables(uid) if restored else ()
            committer.commit(covered)
            self._promised[uid].difference_update(covered)
            committer.abandon_all_but([*covered, *self._promised[uid]])

    def forget(self, job_id: JobId) -> None:
        """Drop what another job prepared, which died before its first checkpoint."""
        for committer in self._committers.values():
            committer.forget(job_id)

    def close(self, end: JobEnd) -> None:
        """The job has ended. One that has finished has published everything; one that was cancelled may have left
        output to a savepoint."""
        for uid, committer in self._committers.items():
            if end is JobEnd.FINISHED or not self._promised[uid]:
                committer.close()
