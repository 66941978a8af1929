"""Decides when a checkpoint starts, when it is complete, and what becomes of its files.

The coordinator takes events and returns actions; the runtime performs them in order and reports back. There is no
thread, file or sleep here, and one thread at a time may call it. One coordinator serves one attempt of a job: after a
failover the next one gets `next_id` and `retained` from it, once its last metadata write is settled.

A checkpoint goes through three states, each a type or a place of its own::

    PendingCheckpoint ──last acknowledgement──▶ AcknowledgedCheckpoint ──metadata written──▶ retained
        └─ declined, expired, subsumed ─▶ aborted ◀─ metadata failed, subsumed ─┘
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from checkdam.checkpoint.retention import RetainedCheckpoint, SharedFiles, checkpoints_to_drop
from checkdam.checkpoint.settings import CheckpointConfig
from checkdam.clock import Clock
from checkdam.ids import CheckpointId, Epoch, OperatorUid, SubtaskIndex
from checkdam.state.snapshots import SlotSnapshot, StateFile

FIRST_ID = CheckpointId(1)


def files_of(snapshot: SlotSnapshot) -> frozenset[StateFile]:
    """Every state file a slot's snapshot refers to, old and new."""
    return frozenset(snapshot.new_files).union(*(operator.files() for operator in snapshot.operators))


def partly_finished_union(snapshots: Mapping[SubtaskIndex, SlotSnapshot]) -> str | None:
    """Why these snapshots do not make a checkpoint, if an operator with union state has finished in part.

    A restore gives every subtask all elements of a union state; without those of the finished subtasks it would take
    their work for undone, as Flink explains where it declines such a checkpoint too.
    """
    finished: dict[OperatorUid, set[bool]] = {}
    with_union: dict[OperatorUid, str] = {}
    for snapshot in snapshots.values():
        for operator in snapshot.operators:
            finished.setdefault(operator.uid, set()).add(operator.is_finished)
            if operator.operator_state is not None and operator.operator_state.has_union:
                with_union[operator.uid] = operator.name
    for uid, name in with_union.items():
        if len(finished[uid]) > 1:
            return f'operator "{name}" has union list state, and some but not all of its subtasks have finished'
    return None


@dataclass(frozen=True)
class PendingCheckpoint:
    """Triggered; some subtasks have not reported yet."""

    checkpoint_id: CheckpointId
    epoch: Epoch
    triggered_at: datetime
    expires: float  # on the monotonic clock
    missing: frozenset[SubtaskIndex]
    snapshots: Mapping[SubtaskIndex, SlotSnapshot]

    def with_snapshot(self, snapshot: SlotSnapshot) -> PendingCheckpoint:
        return replace(
            self,
            missing=self.missing - {snapshot.subtask},
            snapshots={**self.snapshots, snapshot.subtask: snapshot},
        )


@dataclass(frozen=True)
class AcknowledgedCheckpoint:
    """Every subtask has reported; durable once its metadata is."""

    checkpoint_id: CheckpointId
    epoch: Epoch
    triggered_at: datetime
    snapshots: Mapping[SubtaskIndex, SlotSnapshot]

    def files(self) -> frozenset[StateFile]:
        return frozenset(file for snapshot in self.snapshots.values() for file in files_of(snapshot))


@dataclass(frozen=True)
class TriggerCheckpoint:
    """Send barrier `checkpoint_id` to every slot, after the last record of `epoch`."""

    checkpoint_id: CheckpointId
    epoch: Epoch


@dataclass(frozen=True)
class WriteMetadata:
    """Write `_metadata`, then call `metadata_written` or `metadata_failed`. Never two of these at once."""

    acknowledged: AcknowledgedCheckpoint


@dataclass(frozen=True)
class NotifyCompleted:
    """Tell slots and sinks that the checkpoint is complete; the ids of these come in rising order."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True)
class AbortCheckpoint:
    """Tell the slots to forget the checkpoint, remove its `_metadata` if any, and only then delete `new_files`.

    `new_files` leaves out what other checkpoints refer to.
    """

    checkpoint_id: CheckpointId
    reason: str
    new_files: tuple[StateFile, ...]


@dataclass(frozen=True)
class DeleteFiles:
    """Delete files that a slot wrote for a checkpoint which no longer wants them."""

    files: tuple[StateFile, ...]


@dataclass(frozen=True)
class DiscardCheckpoints:
    """Remove the `_metadata` of these older checkpoints, and only then the files that nobody refers to now."""

    checkpoint_ids: tuple[CheckpointId, ...]
    files: tuple[StateFile, ...]


@dataclass(frozen=True)
class FailJob:
    """More checkpoints in a row have failed than are tolerated."""

    reason: str


Action = (
    TriggerCheckpoint | WriteMetadata | NotifyCompleted | AbortCheckpoint | DeleteFiles | DiscardCheckpoints | FailJob
)


class CheckpointCoordinator:
    """The decisions of one attempt of a job.

    `retained` are the job's own completed checkpoints, which are dropped as newer ones complete; `foreign_files` belong
    to a checkpoint of someone else that the job was restored from, and are never deleted.
    """

    def __init__(
        self,
        config: CheckpointConfig,
        subtasks: int,
        clock: Clock,
        *,
        first_id: CheckpointId = FIRST_ID,
        retained: Iterable[RetainedCheckpoint] = (),
        foreign_files: Iterable[StateFile] = (),
    ) -> None:
        self._config = config
        self._subtasks = frozenset(SubtaskIndex(index) for index in range(subtasks))
        self._clock = clock
        self._next_id = first_id
        self._pending: dict[CheckpointId, PendingCheckpoint] = {}
        self._ready: dict[CheckpointId, AcknowledgedCheckpoint] = {}
        self._writing: AcknowledgedCheckpoint | None = None
        self._retained = {checkpoint.checkpoint_id: checkpoint for checkpoint in retained}
        self._files = SharedFiles(foreign_files)
        for checkpoint in self._retained.values():
            self._files.register(checkpoint)
        self._bases: dict[CheckpointId, frozenset[StateFile]] = {}
        self._deleted: set[str] = set()
        self._completed_epoch: Epoch | None = None
        self._failures = 0
        self._due = clock.monotonic() + _seconds(config.interval)
        self._pause_over = clock.monotonic()

    @property
    def next_id(self) -> CheckpointId:
        """The id that no checkpoint has had yet."""
        return self._next_id

    @property
    def retained(self) -> list[RetainedCheckpoint]:
        """The completed checkpoints that are kept, oldest first."""
        return [self._retained[checkpoint_id] for checkpoint_id in sorted(self._retained)]

    @property
    def in_progress(self) -> list[CheckpointId]:
        """Triggered and neither complete nor aborted, oldest first."""
        writing = [self._writing.checkpoint_id] if self._writing else []
        return sorted([*self._pending, *self._ready, *writing])

    @property
    def completed_epoch(self) -> Epoch | None:
        """The epoch of the newest checkpoint completed in this attempt."""
        return self._completed_epoch

    def epoch_ended(self, epoch: Epoch) -> list[Action]:
        """Start a checkpoint if one is due, or if every epoch gets one."""
        return self._trigger_if_due(epoch) if self._config.interval is not None else []

    def tick(self, epoch: Epoch) -> list[Action]:
        """Start a checkpoint if one is due between epochs; `epoch` is the last that ended."""
        return self._trigger_if_due(epoch) if self._config.interval else []

    def trigger(self, epoch: Epoch) -> list[Action]:
        """Start a checkpoint because someone asks; [] if as many as allowed are in progress."""
        if len(self.in_progress) >= self._config.max_concurrent:
            return []
        checkpoint_id = self._next_id
        self._next_id = CheckpointId(checkpoint_id + 1)
        # Its snapshots will build on what is complete now, so those files stay until it is settled.
        self._bases[checkpoint_id] = frozenset(file for kept in self._retained.values() for file in kept.files())
        self._files.acquire(self._bases[checkpoint_id])
        self._pending[checkpoint_id] = PendingCheckpoint(
            checkpoint_id=checkpoint_id,
            epoch=epoch,
            triggered_at=self._clock.now(),
            expires=self._clock.monotonic() + _seconds(self._config.timeout),
            missing=self._subtasks,
            snapshots={},
        )
        return [TriggerCheckpoint(checkpoint_id, epoch)]

    def acknowledge(self, snapshot: SlotSnapshot) -> list[Action]:
        """Record one subtask's snapshot; the last one lets the metadata be written.

        An echo, or the report of a late writer, changes nothing but leaves no file behind.
        """
        self._files.own(snapshot.new_files)
        pending = self._pending.get(snapshot.checkpoint_id)
        if pending is None or snapshot.subtask not in pending.missing:
            orphans = self._mark_deleted(self._files.give_up_unreferenced(snapshot.new_files))
            return [DeleteFiles(orphans)] if orphans else []

        files = files_of(snapshot)
        self._files.acquire(files)
        pending = pending.with_snapshot(snapshot)
        self._pending[pending.checkpoint_id] = pending
        gone = sorted(file.path for file in files if file.path in self._deleted)
        if gone:  # the slot built on a checkpoint before it heard that it was aborted
            return self._fail(pending, f"subtask {snapshot.subtask} refers to {gone[0]}, which has been deleted")
        if pending.missing:
            return []

        half_finished = partly_finished_union(pending.snapshots)
        if half_finished is not None:
            # Nobody's fault, and over once the other subtasks have finished: the job goes on as if none had been due.
            return [self._abort(pending.checkpoint_id, half_finished)]

        del self._pending[pending.checkpoint_id]
        self._ready[pending.checkpoint_id] = AcknowledgedCheckpoint(
            pending.checkpoint_id, pending.epoch, pending.triggered_at, pending.snapshots
        )
        return self._write_next()

    def decline(self, checkpoint_id: CheckpointId, subtask: SubtaskIndex, reason: str) -> list[Action]:
        """A subtask could not take its snapshot: abort, if the checkpoint still waits for it."""
        pending = self._pending.get(checkpoint_id)
        if pending is None or subtask not in pending.missing:
            return []
        return self._fail(pending, f"subtask {subtask} declined: {reason}")

    def expire(self) -> list[Action]:
        """Abort what has waited for its subtasks longer than the timeout."""
        now = self._clock.monotonic()
        late = [pending for pending in self._pending.values() if now >= pending.expires]
        actions: list[Action] = []
        for pending in late:
            missing = ", ".join(str(subtask) for subtask in sorted(pending.missing))
            actions += self._fail(pending, f"timed out after {self._config.timeout}; missing subtasks: {missing}")
        return actions

    def metadata_written(self, checkpoint_id: CheckpointId) -> list[Action]:
        """The checkpoint is complete: older ones in progress are aborted, superfluous ones discarded."""
        completed = self._take_writing(checkpoint_id)
        self._failures = 0
        self._completed_epoch = completed.epoch
        self._retained[checkpoint_id] = completed
        self._files.acquire(completed.files())  # as one, in place of the snapshots' own references
        for snapshot in completed.snapshots.values():
            self._files.let_go(files_of(snapshot))
        freed = set(self._files.let_go(self._bases.pop(checkpoint_id)))
        actions: list[Action] = [NotifyCompleted(checkpoint_id)]
        for older in [other for other in self.in_progress if other < checkpoint_id]:
            actions.append(self._abort(older, f"subsumed by checkpoint {checkpoint_id}"))

        dropped = checkpoints_to_drop(self._retained.values(), self._config.num_retained)
        for checkpoint in dropped:
            del self._retained[checkpoint.checkpoint_id]
            freed |= self._files.release(checkpoint)
        if dropped:
            ids = tuple(checkpoint.checkpoint_id for checkpoint in dropped)
            actions.append(DiscardCheckpoints(ids, self._mark_deleted(freed)))
        elif freed:
            actions.append(DeleteFiles(self._mark_deleted(freed)))
        return actions + self._write_next()

    def metadata_failed(self, checkpoint_id: CheckpointId, reason: str) -> list[Action]:
        """The metadata could not be written: abort."""
        failed = self._take_writing(checkpoint_id)
        self._ready[checkpoint_id] = failed  # back among those that may be aborted
        return self._fail(failed, f"metadata could not be written: {reason}") + self._write_next()

    def abort_pending(self, reason: str) -> list[Action]:
        """Abort everything in progress, as at a failover or the end of the job; no failure is counted.

        A metadata write under way is not called back: its outcome must still be reported.
        """
        return [self._abort(checkpoint_id, reason) for checkpoint_id in sorted([*self._pending, *self._ready])]

    def seconds_until_next_event(self) -> float | None:
        """How long until `tick` or `expire` may have something to do; None if only other events can change that."""
        moments = [pending.expires for pending in self._pending.values()]
        if self._config.interval and len(self.in_progress) < self._config.max_concurrent:
            moments.append(max(self._due, self._pause_over))
        return max(0.0, min(moments) - self._clock.monotonic()) if moments else None

    def _trigger_if_due(self, epoch: Epoch) -> list[Action]:
        now = self._clock.monotonic()
        if now < self._due or now < self._pause_over or len(self.in_progress) >= self._config.max_concurrent:
            return []
        self._due = now + _seconds(self._config.interval)
        return [] if self._covers(epoch) else self.trigger(epoch)

    def _covers(self, epoch: Epoch) -> bool:
        """Whether a checkpoint of this very epoch is complete or on its way: nothing has changed since."""
        epochs = {checkpoint.epoch for checkpoint in self._pending.values()}
        epochs |= {checkpoint.epoch for checkpoint in self._ready.values()}
        return (
            epoch in epochs
            or epoch == self._completed_epoch
            or (self._writing is not None and epoch == self._writing.epoch)
        )

    def _write_next(self) -> list[Action]:
        # One write at a time: checkpoints complete in the order of their ids, so a sink never hears of 1 after 2.
        if self._writing or not self._ready:
            return []
        self._writing = self._ready.pop(min(self._ready))
        return [WriteMetadata(self._writing)]

    def _take_writing(self, checkpoint_id: CheckpointId) -> AcknowledgedCheckpoint:
        writing = self._writing
        if writing is None or writing.checkpoint_id != checkpoint_id:
            raise ValueError(f"the metadata of checkpoint {checkpoint_id} is not being written")
        self._writing = None
        self._pause_over = self._clock.monotonic() + _seconds(self._config.min_pause)
        return writing

    def _fail(self, checkpoint: PendingCheckpoint | AcknowledgedCheckpoint, reason: str) -> list[Action]:
        actions: list[Action] = [self._abort(checkpoint.checkpoint_id, reason)]
        self._failures += 1
        if self._failures > self._config.tolerable_failures:
            actions.append(
                FailJob(
                    f"checkpoint {checkpoint.checkpoint_id} failed ({reason}); failed in a row: {self._failures}, "
                    f"tolerated: {self._config.tolerable_failures}"
                )
            )
            self._failures = 0  # the failover starts a new count, as in Flink
        return actions

    def _abort(self, checkpoint_id: CheckpointId, reason: str) -> AbortCheckpoint:
        aborted = self._pending.pop(checkpoint_id, None) or self._ready.pop(checkpoint_id)
        self._pause_over = self._clock.monotonic() + _seconds(self._config.min_pause)
        files: set[StateFile] = set(self._files.let_go(self._bases.pop(checkpoint_id)))
        for snapshot in aborted.snapshots.values():
            files |= self._files.let_go(files_of(snapshot))
        return AbortCheckpoint(checkpoint_id, reason, self._mark_deleted(files))

    def _mark_deleted(self, files: Iterable[StateFile]) -> tuple[StateFile, ...]:
        self._deleted.update(file.path for file in files)
        return tuple(sorted(files, key=lambda file: file.path))


def _seconds(duration: timedelta | None) -> float:
    return duration.total_seconds() if duration else 0.0
