"""The driver's side of every transactional sink of a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from checkdam.checkpoint.completed import CompletedCheckpoint
from checkdam.checkpoint.ownership import PROMISED
from checkdam.checkpoint.settings import CheckpointingMode
from checkdam.checkpoint.terms import Term
from checkdam.connectors.contract import SinkCommitter
from checkdam.errors import CheckpointDamagedError, OutputLostError, RepeatedOutputError
from checkdam.graph.levels import JobPlan
from checkdam.graph.operators import SinkKind
from checkdam.ids import CheckpointId, JobId, OperatorUid
from checkdam.runtime.driver.publish_history import PublishedOutput
from checkdam.runtime.driver.restore import Restored
from checkdam.runtime.monitor.job_events import JobListener
from checkdam.storage.contract import Storage
from checkdam.storage.subtree import subtree
from checkdam.storage.versioned import read_versioned

_VERSION = 1


class _Promises(msgspec.Struct, frozen=True):
    """The file of promises: committables that savepoints refer to, by uid; some may have been published since."""

    version: int
    committables: dict[str, list[bytes]]


_decode = msgspec.json.Decoder(_Promises).decode


class Outputs:
    """Commits sink output, by operator uid.

    `files` is the job's own directory, where it records what savepoints refer to and what it has published. A job that
    publishes with each epoch (AT_LEAST_ONCE) has no history: which output belongs to which checkpoint is unknown.
    """

    def __init__(
        self,
        committers: Mapping[OperatorUid, SinkCommitter],
        files: Storage | None = None,
        mode: CheckpointingMode = CheckpointingMode.EXACTLY_ONCE,
    ) -> None:
        self._committers = committers
        self._has_history = mode is CheckpointingMode.EXACTLY_ONCE
        self._files = files
        self._term: Term | None = None
        self._promised: dict[OperatorUid, set[bytes]] = {uid: set() for uid in committers}
        self._published = PublishedOutput(files)
        self._published_last: dict[OperatorUid, frozenset[bytes]] = {}
        """Published with the last checkpoint. The next may name it again, if it began before that completed."""
        self._published_since: dict[CheckpointId, set[bytes]] = {}
        """For each savepoint in progress, the output published since its barrier, which it names as well."""

    @classmethod
    def of(
        cls,
        plan: JobPlan,
        job_id: JobId,
        storage: Storage | None = None,
        mode: CheckpointingMode = CheckpointingMode.EXACTLY_ONCE,
    ) -> Outputs:
        committers = {}
        for operator in plan.operators:
            if isinstance(operator.kind, SinkKind) and operator.uid is not None:
                committer = operator.kind.spec.open_committer(job_id, operator.uid)
                if committer is not None:
                    committers[operator.uid] = committer
        return cls(committers, subtree(storage, job_id) if storage is not None else None, mode)

    def check(self) -> None:
        """Raise if a sink cannot be written to."""
        for committer in self._committers.values():
            committer.check()

    def verify(self, found: Iterable[tuple[OperatorUid, Sequence[bytes]]]) -> None:
        """Check that staged output exists, before a checkpoint that refers to it completes.

        Raises:
            OutputLostError: some of it is gone; only an older checkpoint can produce it again.
        """
        for uid, committables in self._unpublished(found).items():
            if committables:
                _check_none_lost(self._committers[uid].missing(committables))

    def savepoint_begins(self, savepoint: CheckpointId) -> None:
        """Record output published until the savepoint completes: a reader may remove it before that."""
        self._published_since[savepoint] = set().union(*self._published_last.values())

    def savepoint_ended(self, savepoint: CheckpointId) -> None:
        self._published_since.pop(savepoint, None)

    def verify_savepoint(self, savepoint: CompletedCheckpoint) -> None:
        """Check the output that a savepoint names, like `verify`."""
        published = self._published_since.get(savepoint.checkpoint_id, set())
        self.verify(
            (entry.uid, [each for each in entry.committables if each not in published]) for entry in savepoint.operators
        )

    def publish(self, checkpoint: CompletedCheckpoint, oldest_kept: CheckpointId | None) -> None:
        """Make the output of a checkpoint visible that has just completed.

        Raises:
            OutputLostError: some of it is gone, so the checkpoint must not be restored.
        """
        found = {entry.uid: entry.committables for entry in checkpoint.operators}
        new = self._unpublished(found.items())
        self._published.add(checkpoint.checkpoint_id, new, oldest_kept)
        for uid, committables in new.items():
            self.commit(uid, committables)
        self._published.note_renamed(checkpoint.checkpoint_id)
        self._published_last = {uid: frozenset(committables) for uid, committables in found.items()}

    def commit(self, uid: OperatorUid, committables: Sequence[bytes]) -> None:
        """Make output visible that has just been staged. Raises OutputLostError if some of it is gone."""
        if committables and uid in self._committers:
            for published in list(self._published_since.values()):
                published.update(committables)
            _check_none_lost(self._committers[uid].commit(committables))
            self._promised[uid].difference_update(committables)

    def _unpublished(self, found: Iterable[tuple[OperatorUid, Sequence[bytes]]]) -> dict[OperatorUid, list[bytes]]:
        """Leave out the output published with the last checkpoint: a reader may have removed it."""
        new: dict[OperatorUid, list[bytes]] = {}
        for uid, committables in found:
            if uid in self._committers:
                before = self._published_last.get(uid, frozenset())
                new.setdefault(uid, []).extend(each for each in committables if each not in before)
        return new

    def check_term(self) -> None:
        """Raise FencedError if another driver has taken the job."""
        if self._term is not None:
            self._term.check()

    def recall(self, term: Term | None = None) -> None:
        """Read what earlier drivers of the job have promised and published, now that this driver owns the job.

        Raises:
            CheckpointDamagedError, FormatTooNewError: a file with that record cannot be read.
        """
        self._term = term
        self._published.recall(term)
        for name in self._promise_files():
            self._recall(name)

    def _promise_files(self) -> list[str]:
        """Return the files of promises, one per term: a replaced driver must not overwrite another's."""
        found = self._files.list("") if self._files is not None else []
        return [status.path for status in found if status.path.startswith(PROMISED)]

    def _recall(self, name: str) -> None:
        assert self._files is not None
        try:
            kept = read_versioned(self._files, name, _decode, _VERSION)
        except FileNotFoundError:
            return
        except ValueError as error:
            raise CheckpointDamagedError(
                f'"{self._files.uri}/{name}" is damaged: {error}',
                hint="Delete it, if no savepoint of the job will be restored any more.",
            ) from error
        for uid, committables in kept.committables.items():
            if uid in self._promised:
                self._promised[OperatorUid(uid)].update(committables)

    def note(self, savepoint: CompletedCheckpoint) -> None:
        """Record what a savepoint refers to before it completes, so that the job's next driver knows it too."""
        found = {entry.uid: entry.committables for entry in savepoint.operators if entry.uid in self._promised}
        if self._files is None or not any(found.values()):
            return
        known = {uid: sorted(promised | set(found.get(uid, ()))) for uid, promised in self._promised.items()}
        promises = _Promises(_VERSION, {str(uid): committables for uid, committables in known.items()})
        self.check_term()
        name = PROMISED if self._term is None else f"{PROMISED}-{self._term.number}"
        self._files.write(name, msgspec.json.encode(promises))

    def promise(self, savepoint: CompletedCheckpoint) -> None:
        """Keep the output that a savepoint refers to, so that a job that restores the savepoint can publish it.

        The job itself publishes it with its next checkpoint; after that no other job has to.
        """
        for entry in savepoint.operators:
            if entry.uid in self._promised:
                self._promised[entry.uid].update(entry.committables)

    def check_covered(self, restored: Restored | None) -> None:
        """Raise CheckpointDamagedError if a checkpoint names output that no sink of the job has written."""
        for uid, committer in self._committers.items():
            committer.check_committables(restored.committables(uid) if restored else ())

    def has_published_after(self, checkpoint_id: CheckpointId) -> bool:
        """Return whether a later checkpoint than this one is known to have existed."""
        return self._published.has_later_than(checkpoint_id)

    def check_going_back(self, restored: Restored | None, newer: Sequence[CheckpointId]) -> None:
        """Refuse to resume from a checkpoint older than others were, if that would repeat output.

        `newer` are later checkpoints that still exist but cannot be restored.

        Raises:
            RepeatedOutputError: a sink cannot withdraw the output published since, or that output is unknown.
        """
        base = base_of(restored)
        if not self._committers or not (newer or self._published.has_later_than(base)):
            return
        stuck = sorted(uid for uid in self._outdated(restored) if not self._can_withdraw(uid))
        if stuck:
            repeated = f"sink {', '.join(stuck)} cannot withdraw what it has published since and would publish it again"
        elif not self._published.is_known_after(base) or self._unreadable(restored):
            repeated = "it is not known what was published since, which would be published again"
        else:
            return
        damaged = f"checkpoint {', '.join(map(str, newer))} cannot be restored" if newer else "the newest one is gone"
        start = "the beginning" if restored is None else restored.path
        raise RepeatedOutputError(
            f"{damaged}; the job could go on from {start}, but {repeated}",
            hint="Bring back what is damaged, or resume with --allow-repeated-output.",
        )

    def _can_withdraw(self, uid: OperatorUid) -> bool:
        return uid in self._committers and self._committers[uid].can_withdraw

    def _unreadable(self, restored: Restored | None) -> list[bytes]:
        """Return committables published since that no sink can read because the history is damaged."""
        outdated = self._outdated(restored)
        return [each for uid in outdated for each in outdated[uid] if not self._is_readable(uid, each)]

    def _is_readable(self, uid: OperatorUid, committable: bytes) -> bool:
        try:
            self._committers[uid].check_committables([committable])
        except CheckpointDamagedError:
            return False
        return True

    def _outdated(self, restored: Restored | None) -> dict[OperatorUid, list[bytes]]:
        """Return what was published with checkpoints later than this one."""
        outdated = {}
        for uid, committables in self._published.after(base_of(restored)).items():
            covered = restored.committables(uid) if restored else ()
            outdated[uid] = [each for each in committables if each not in covered]
        return {uid: committables for uid, committables in outdated.items() if committables}

    def resume(self, restored: Restored | None, listener: JobListener) -> None:
        """Make the visible output match a checkpoint, before the job resumes from it.

        Withdraws what was published with later checkpoints, then does the same as `publish_again`.
        """
        self.check_term()
        for uid, committables in self._outdated(restored).items():
            if self._can_withdraw(uid):
                committables = [each for each in committables if self._is_readable(uid, each)]
                withdrawn = self._committers[uid].withdraw(committables, self._promised[uid])
                listener.output_withdrawn(uid, withdrawn)
        if not self._has_history:
            self._published.stop()
        elif self._committers:
            self._published.go_back_to(base_of(restored))
        self.publish_again(restored, listener)

    def publish_again(self, restored: Restored | None, listener: JobListener) -> None:
        """Publish the output that a checkpoint covers, and drop later output that no savepoint refers to."""
        self.check_term()
        base = base_of(restored)
        covered = {uid: restored.committables(uid) if restored else () for uid in self._committers}
        if restored is not None and restored.claim:
            self._published.add(base, covered, None)
        for uid, committer in self._committers.items():
            missing = committer.commit(covered[uid])
            if missing and restored is not None and not self._is_published(restored, uid):
                if not restored.claim:  # the job that took the savepoint may have gone back behind it since
                    missing = committer.bring_back(covered[uid])
                if missing:
                    listener.output_missing(restored.path, missing)
            self._promised[uid].difference_update(covered[uid])
            committer.abandon_all_but([*covered[uid], *self._promised[uid]], self.check_term)
        self._published.note_renamed(base)
        self._published_last = {uid: frozenset(committables) for uid, committables in covered.items()}

    def _is_published(self, restored: Restored, uid: OperatorUid) -> bool:
        """Return whether a sink's output is known to have been visible: what is gone was then removed by a reader."""
        if restored.claim and self._published.is_renamed(restored.checkpoint.checkpoint_id):
            return True
        return self._published_last.get(uid, frozenset()).issuperset(restored.committables(uid))

    def forget(self, job_id: JobId) -> None:
        """Drop the output staged by another job, which died before its first checkpoint."""
        for committer in self._committers.values():
            committer.forget(job_id)

    def keep_history(self, *, is_resumable: bool) -> None:
        """Keep the record of published output while the ended job can be resumed, and delete it otherwise."""
        if is_resumable:
            self._published.save()
        else:
            self._published.delete()

    def close(self, *, is_exhausted: bool) -> None:
        """Drop the remaining output of an ended job, except what only a job restored from a savepoint can publish.

        A job whose input is exhausted has published every record. One that was stopped or cancelled may have gone back
        behind a savepoint and not have reached its position again.
        """
        has_kept = False
        for uid, committer in self._committers.items():
            has_kept |= committer.close(() if is_exhausted else self._promised[uid], self.check_term)
        if self._files is not None and not has_kept:
            names = self._promise_files()
            self.check_term()
            for name in names:
                self._files.delete(name)


def base_of(restored: Restored | None) -> CheckpointId:
    """Return the job's own checkpoint that it resumes from; 0 if it starts from the beginning or from another job's."""
    return restored.checkpoint.checkpoint_id if restored is not None and restored.claim else CheckpointId(0)


def _check_none_lost(missing: Sequence[str]) -> None:
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise OutputLostError(
            f'output that was not yet published is gone: "{missing[0]}"{more}',
            hint="Leave the directory of a sink alone while its job runs.",
        )
