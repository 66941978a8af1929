"""What the coordinator decides, done: slots are sealed, metadata is written, sinks commit, files are deleted.

One committer thread writes, publishes and deletes, in order; each slot's snapshot is awaited by a thread of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from checkdam.checkpoint.coordinator import (
    AbortCheckpoint,
    AcknowledgedCheckpoint,
    Action,
    CheckpointCoordinator,
    DeleteFiles,
    DiscardCheckpoints,
    FailJob,
    NotifyCompleted,
    TriggerCheckpoint,
    WriteMetadata,
)
from checkdam.checkpoint.store import CheckpointStore
from checkdam.clock import Clock
from checkdam.errors import JobFailedError, SlotLostError, StorageError
from checkdam.ids import CheckpointId, Epoch, SubtaskIndex
from checkdam.runtime.completion import checkpoint_stats, completed_checkpoint
from checkdam.runtime.engine import Engine, Slot
from checkdam.runtime.events import JobListener
from checkdam.runtime.job import Job
from checkdam.runtime.outputs import Outputs
from checkdam.runtime.slot_group import SlotGroup
from checkdam.state.snapshots import StateFile

A = TypeVar("A", bound=Action)


@dataclass(frozen=True)
class Surroundings:
    """What an attempt works with and does not own."""

    engine: Engine
    store: CheckpointStore | None
    coordinator: CheckpointCoordinator
    outputs: Outputs
    listener: JobListener
    clock: Clock


@dataclass(frozen=True)
class _Cut:
    """What the driver knows as of a checkpoint's epoch."""

    position: bytes
    event_time: Mapping[int, int]
    watermarks: Mapping[int, int]


class Checkpointing:
    """The checkpoints of one attempt. `changed` guards the coordinator, and tells when its state has changed."""

    def __init__(
        self,
        job: Job,
        around: Surroundings,
        group: SlotGroup,
        changed: threading.Condition,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._job = job
        self._around = around
        self._coordinator = around.coordinator
        self._group = group
        self._changed = changed
        self._fail = fail
        self._committer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="committer")
        self._cuts: dict[CheckpointId, _Cut] = {}
        self._slots_ended = False
        self._disposed = False
        self.event_time: Mapping[int, int] = {}  # per assigner, as of the last epoch
        self.watermarks: Mapping[int, int] = {}  # per operator, likewise

    def epoch_ended(self, epoch: Epoch) -> None:
        """Cut what rides on this epoch."""
        if self._around.store is not None:
            with self._changed:
                actions = self._coordinator.epoch_ended(epoch)
            self._perform(actions)

    def expire(self) -> None:
        """Give up on what takes too long."""
        with self._changed:
            expired = self._coordinator.expire()
        self._perform(expired)

    def tick(self, epoch: Epoch) -> None:
        """Cut what is due while no epoch runs."""
        if self._around.store is not None:
            with self._changed:
                due = self._coordinator.tick(epoch)
            self._perform(due)

    def trigger(self, epoch: Epoch) -> None:
        with self._changed:
            actions = self._coordinator.trigger(epoch)
        self._perform(actions)

    def slots_ended(self) -> None:
        """The slots need not hear of checkpoints any more."""
        self._slots_ended = True

    def settle(self) -> None:
        """Wait until all that was handed to the committer so far is done."""
        self._committer.submit(lambda: None).result()

    def abort(self, reason: str) -> None:
        """End what is in progress; what a slot reports from now on is left for the next attempt to sweep."""
        with self._changed:
            self._perform(self._coordinator.abort_pending(reason))
            self._disposed = True

    def dispose(self) -> None:
        self._committer.shutdown(wait=True)

    def commit_without_checkpoint(self, epoch: Epoch) -> None:
        """Checkpoints are off: the output of a bounded job becomes visible at its end."""
        once = CheckpointId(1)
        self._group.call(lambda slot: slot.seal(once, epoch))
        for snapshot in self._group.call(lambda slot: slot.snapshot(once)):
            for operator in snapshot.operators:
                self._around.outputs.commit(operator.uid, operator.committables)

    def _perform(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, TriggerCheckpoint):
                self._cut(action)
            elif isinstance(action, FailJob):
                self._fail(JobFailedError(action.reason))
            elif isinstance(action, AbortCheckpoint):
                self._around.listener.checkpoint_failed(action.checkpoint_id, action.reason)
                self._committer.submit(self._guarded, self._abort, action)
            elif not isinstance(action, NotifyCompleted):  # done already, with the metadata
                self._committer.submit(self._guarded, self._settle, action)

    def _guarded(self, work: Callable[[A], None], action: A) -> None:
        """Do the committer's work; what it cannot do fails the attempt, and the next one cleans up."""
        try:
            work(action)
        except Exception as error:  # noqa: BLE001  nothing may vanish in a background thread
            self._fail(error)

    def _cut(self, trigger: TriggerCheckpoint) -> None:
        """Seal every slot, then wait in the background for what each has written."""
        checkpoint_id = trigger.checkpoint_id
        try:
            self._cuts[checkpoint_id] = _Cut(
                self._around.engine.position(), dict(self.event_time), dict(self.watermarks)
            )
            self._group.call(lambda slot: slot.seal(checkpoint_id, trigger.epoch))
        except SlotLostError as error:
            self._fail(error)
            return
        except Exception as error:  # noqa: BLE001  whatever a slot met: the checkpoint is declined
            self._decline(checkpoint_id, SubtaskIndex(0), error)
            return
        for slot in self._group.slots:
            # A thread of its own: a slot whose storage hangs must not keep the others, or the next epoch, waiting.
            threading.Thread(
                target=self._await_snapshot, args=(slot, checkpoint_id), daemon=True, name="snapshot-wait"
            ).start()

    def _await_snapshot(self, slot: Slot, checkpoint_id: CheckpointId) -> None:
        try:
            snapshot = slot.snapshot(checkpoint_id)
        except SlotLostError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001  whatever the slot's writer met: the checkpoint is declined
            self._decline(checkpoint_id, slot.subtask, error)
        else:
            with self._changed:
                if not self._disposed:  # else what it wrote is swept by the next attempt
                    self._perform(self._coordinator.acknowledge(snapshot))
                self._changed.notify_all()

    def _decline(self, checkpoint_id: CheckpointId, subtask: SubtaskIndex, reason: BaseException) -> None:
        with self._changed:
            if self._disposed:
                return
            self._perform(self._coordinator.decline(checkpoint_id, subtask, str(reason)))
            self._changed.notify_all()

    def _settle(self, action: Action) -> None:
        if isinstance(action, WriteMetadata):
            self._write_metadata(action.acknowledged)
        elif isinstance(action, DiscardCheckpoints):
            assert self._around.store is not None
            for checkpoint_id in action.checkpoint_ids:
                self._around.store.discard(checkpoint_id)
            self._delete(action.files)
        elif isinstance(action, DeleteFiles):
            self._delete(action.files)

    def _write_metadata(self, acknowledged: AcknowledgedCheckpoint) -> None:
        """Make a checkpoint complete, publish what it covers, and only then let the job know."""
        assert self._around.store is not None
        cut = self._cuts.pop(acknowledged.checkpoint_id)
        now = self._around.clock.now()
        checkpoint = completed_checkpoint(self._job, acknowledged, cut.position, now, cut.event_time, cut.watermarks)
        try:
            path = self._around.store.write(checkpoint)
        except StorageError as error:
            with self._changed:
                self._perform(self._coordinator.metadata_failed(acknowledged.checkpoint_id, str(error)))
                self._changed.notify_all()
            return
        for entry in checkpoint.operators:
            self._around.outputs.commit(entry.uid, entry.committables)
        self._around.listener.checkpoint_completed(checkpoint_stats(acknowledged, checkpoint, path))
        if not self._slots_ended:  # before the coordinator goes on: the next cut must build on this one
            self._group.call(lambda slot: slot.completed(acknowledged.checkpoint_id))
        with self._changed:
            self._perform(self._coordinator.metadata_written(acknowledged.checkpoint_id))
            self._changed.notify_all()

    def _abort(self, action: AbortCheckpoint) -> None:
        self._cuts.pop(action.checkpoint_id, None)
        if not self._slots_ended:
            self._group.call(lambda slot: slot.aborted(action.checkpoint_id))
        if self._around.store is not None:
            self._around.store.discard(action.checkpoint_id)
            self._delete(action.new_files)

    def _delete(self, files: Sequence[StateFile]) -> None:
        assert self._around.store is not None
        self._around.store.delete_files(files)
