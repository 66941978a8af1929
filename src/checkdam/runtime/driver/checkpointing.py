"""What the coordinator decides, done: slots are sealed, metadata is written, sinks commit, files are deleted.

One committer thread writes, publishes and deletes, in order; each slot's snapshot is awaited by a thread of its own.
Savepoints have another thread: they go where the job keeps nothing, and trouble there must not hold up its checkpoints.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.checkpoint.coordinator import CheckpointCoordinator
from checkdam.checkpoint.decisions import (
    AbortCheckpoint,
    AbortSavepoint,
    AcknowledgedCheckpoint,
    Action,
    DeleteFiles,
    DiscardCheckpoints,
    FailJob,
    NotifyCompleted,
    TriggerCheckpoint,
    TriggerSavepoint,
    WriteMetadata,
    WriteSavepoint,
)
from checkdam.checkpoint.savepoints import SavepointDirectory
from checkdam.clock import Clock
from checkdam.errors import (
    CheckdamError,
    FencedError,
    JobControlError,
    JobFailedError,
    OutputLostError,
    SavepointError,
    SlotLostError,
    StorageError,
    StorageUncertainError,
)
from checkdam.ids import CheckpointId, Epoch, SubtaskIndex
from checkdam.runtime.driver.checkpoint_assembly import checkpoint_stats, completed_checkpoint
from checkdam.runtime.driver.outputs import Outputs
from checkdam.runtime.driver.slot_group import SlotGroup
from checkdam.runtime.engine import Engine, Slot
from checkdam.runtime.job import Job
from checkdam.runtime.monitor.job_events import CheckpointTriggered
from checkdam.runtime.monitor.job_records import SnapshotKind
from checkdam.runtime.monitor.listeners import TimedListener
from checkdam.runtime.stalls import Stall
from checkdam.runtime.workers import Workers, within
from checkdam.state.snapshot_handles import SavepointFormat, SlotSnapshot, StateFile

A = TypeVar("A", bound=Action)
T = TypeVar("T")

_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True)
class Surroundings:
    """What an attempt works with and does not own."""

    engine: Engine
    store: CheckpointStore | None
    coordinator: CheckpointCoordinator
    outputs: Outputs
    listener: TimedListener
    clock: Clock
    term: int = 0  # of the driver; 0: the job keeps no checkpoints
    begun: Callable[[], None] = lambda: None  # called when the slots have their state
    completed: Callable[[], None] = lambda: None  # called behind each completed checkpoint
    interrupted: Callable[[], None] = lambda: None  # called when the attempt begins to end


@dataclass(frozen=True)
class SavepointOrder:
    """A savepoint to take: where, in which form, why, and who waits for its path."""

    directory: SavepointDirectory
    format: SavepointFormat
    kind: SnapshotKind
    answer: Future[str]


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
        fail: Callable[[BaseException], object],
    ) -> None:
        self._job = job
        self._around = around
        self._coordinator = around.coordinator
        self._group = group
        self._changed = changed
        self._fail = fail
        self._committer = Workers("committer")
        self._savepoint_writer = Workers("savepoint")
        self._cuts: dict[CheckpointId, _Cut] = {}
        self._answers: dict[CheckpointId, Future[Any]] = {}
        self._savepoints: dict[CheckpointId, SavepointOrder] = {}
        self._maybe_complete: set[CheckpointId] = set()  # aborted, but their files must stay until the next attempt
        self._never_cut: set[CheckpointId] = set()  # timed out before the epoch had ended: slots know nothing of them
        self._slots_ended = False
        self._disposed = False
        self.event_time: Mapping[int, int] = {}  # per assigner, as of the last epoch
        self.watermarks: Mapping[int, int] = {}  # per operator, likewise

    def epoch_ended(self, epoch: Epoch) -> None:
        """Cut what rides on this epoch."""
        if self._around.store is not None:
            with self._changed:
                actions = self._coordinator.epoch_ended(epoch)
                self._changed.notify_all()  # there is something that may take too long
            self._perform(actions)

    def time_passes(self, epoch: Epoch | None) -> None:
        """Trigger what is due, and give up on what takes too long.

        A barrier may wait for the end of `epoch`, and its timeout runs. None: somebody keeps it from being sent, and
        its timeout begins anew. So it does while the driver waits for its listener, since no epoch can end meanwhile.
        """
        waited: list[Action] = []
        with self._changed:
            if epoch is None or self._around.listener.is_waiting:
                self._coordinator.begin_wait_anew()
            elif self._around.store is not None:
                self._coordinator.note_due()
                waited = self._coordinator.expire_waiting(epoch)
            expired = self._coordinator.expire()
            if expired or waited:
                self._changed.notify_all()  # somebody may wait for it to be over
        for action in waited:
            if isinstance(action, AbortCheckpoint) and epoch is not None:
                self._never_cut.add(action.checkpoint_id)
                since = self._around.clock.now() - self._job.checkpoints.timeout
                trigger = CheckpointTriggered(action.checkpoint_id, epoch, SnapshotKind.CHECKPOINT, at=since)
                self._around.listener.checkpoint_triggered(trigger)
        self._perform([*expired, *waited])

    def tick(self, epoch: Epoch) -> None:
        """Cut what is due while no epoch runs."""
        if self._around.store is not None:
            with self._changed:
                due = self._coordinator.tick(epoch)
                self._changed.notify_all()  # there is something that may take too long
            self._perform(due)

    def trigger(
        self,
        epoch: Epoch,
        *,
        full: bool = False,
        since: float | None = None,
        answer: Future[CheckpointId] | None = None,
    ) -> bool:
        """Cut now, unless as many as allowed are in progress; the answer comes when the checkpoint is settled.

        `since` says when it was asked for, on the monotonic clock: from then on its timeout runs.
        """
        with self._changed:
            actions = self._coordinator.trigger(epoch, full=full, since=since)
            for action in actions:
                if isinstance(action, TriggerCheckpoint) and answer is not None:
                    self._answers[action.checkpoint_id] = answer
            self._changed.notify_all()  # there is something that may take too long
        self._perform(actions)
        return bool(actions)

    def is_newest_gone(self) -> bool:
        """Look whether files of the newest completed checkpoint are gone; False if that cannot be seen in time."""
        with self._changed:
            newest = self._coordinator.retained[-1:]
        store = self._around.store
        if store is None or not newest:
            return False
        checkpoint_id, files = newest[0].checkpoint_id, newest[0].files()
        try:
            return within(
                self._job.checkpoints.timeout.total_seconds(),
                f"looking at checkpoint {checkpoint_id}",
                lambda: not store.has(checkpoint_id) or store.missing(files) is not None,
            )
        except (StorageError, TimeoutError):
            return False

    def savepoint(self, epoch: Epoch, order: SavepointOrder) -> None:
        """Cut now; no other savepoint may be in progress."""
        with self._changed:
            actions = self._coordinator.trigger_savepoint(epoch)
            for action in actions:
                if isinstance(action, TriggerSavepoint):
                    self._answers[action.checkpoint_id] = order.answer
                    self._savepoints[action.checkpoint_id] = order
            self._changed.notify_all()  # there is something that may take too long
        self._perform(actions)

    def slots_ended(self) -> None:
        """The slots need not hear of checkpoints any more."""
        self._slots_ended = True

    def settle(self) -> None:
        """Wait until all that was handed to the committer so far is done."""
        for worker in (self._savepoint_writer, self._committer):  # the former gives work to the latter
            worker.submit(lambda: None).result()

    def abort(self, reason: str) -> None:
        """End what is in progress; what a slot reports from now on is left for the next attempt to sweep."""
        with self._changed:
            self._perform(self._coordinator.abort_pending(reason))
            self._disposed = True

    def dispose(self) -> None:
        """Wait for what is being written. The place of a savepoint may hang, and is not waited for without end."""
        if not self._savepoint_writer.join(_PATIENCE_SECONDS):
            places = ", ".join(order.directory.uri for order in self._savepoints.values())
            self._around.listener.left_behind(
                SavepointError(f"the place of a savepoint does not answer, and something may be left there: {places}")
            )
        self._committer.join()
        for checkpoint_id in list(self._answers):
            self._refuse(checkpoint_id, f"barrier {checkpoint_id} was not settled before the attempt ended")

    def stall(self) -> Stall | None:
        """Tell where the committer stands still."""
        return self._committer.stall("writing, publishing or removing checkpoints")

    def commit_without_checkpoint(self, epoch: Epoch) -> None:
        """Checkpoints are off: the output of a bounded job becomes visible at its end."""
        once = self._coordinator.take_id()
        self._group.call(lambda slot: slot.seal(once, epoch))
        snapshots = self._group.call(lambda slot: slot.snapshot(once))
        found = [(operator.uid, operator.committables) for each in snapshots for operator in each.operators]
        self._around.outputs.verify(found)
        for uid, committables in found:
            self._around.outputs.commit(uid, committables)

    def _perform(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, TriggerCheckpoint | TriggerSavepoint):
                self._cut(action)
            elif isinstance(action, FailJob):
                self._fail(JobFailedError(action.reason))
            elif isinstance(action, AbortCheckpoint):
                self._around.listener.checkpoint_failed(action.checkpoint_id, action.reason)
                self._committer.submit(self._guarded, self._abort, action)
            elif isinstance(action, AbortSavepoint):
                self._around.listener.progressed(None)
                self._around.listener.checkpoint_failed(action.checkpoint_id, action.reason)
                self._savepoint_writer.submit(self._guarded, self._abort_savepoint, action)
            elif isinstance(action, WriteSavepoint):
                self._savepoint_writer.submit(self._guarded, self._write_savepoint, action)
            elif not isinstance(action, NotifyCompleted):  # done already, with the metadata
                self._committer.submit(self._guarded, self._settle, action)

    def _guarded(self, work: Callable[[A], None], action: A) -> None:
        """Do the committer's work; what it cannot do fails the attempt, and the next one cleans up."""
        try:
            work(action)
        except Exception as error:  # noqa: BLE001  nothing may vanish in a background thread
            self._fail(error)

    def _cut(self, trigger: TriggerCheckpoint | TriggerSavepoint) -> None:
        """Seal every slot, then wait in the background for what each has written."""
        checkpoint_id, order = trigger.checkpoint_id, self._savepoints.get(trigger.checkpoint_id)
        if order is not None:
            self._around.outputs.savepoint_begins(checkpoint_id)
        self._around.listener.checkpoint_triggered(
            CheckpointTriggered(
                checkpoint_id,
                trigger.epoch,
                order.kind if order else SnapshotKind.CHECKPOINT,
                order.format.value if order else None,
                is_full=order is not None or (isinstance(trigger, TriggerCheckpoint) and trigger.full),
                at=trigger.triggered_at if isinstance(trigger, TriggerCheckpoint) else None,
            )
        )
        try:
            self._cuts[checkpoint_id] = _Cut(
                self._around.engine.position(), dict(self.event_time), dict(self.watermarks)
            )
            self._group.call(lambda slot: self._seal(slot, trigger))
        except SlotLostError as error:
            self._fail(error)
            return
        except Exception as error:  # noqa: BLE001  whatever a slot met: the checkpoint is declined
            self._decline(checkpoint_id, SubtaskIndex(0), error)
            return
        with self._changed:
            is_wanted = self._coordinator.is_pending(checkpoint_id)
        if not is_wanted:  # it has timed out meanwhile, and a slot may have heard of that before it was sealed
            self._committer.submit(self._guarded, self._tell_aborted, trigger)
            return
        if order is not None:
            self._tell_progress(checkpoint_id, 0)
        for slot in self._group.slots:
            # A thread of its own: a slot whose storage hangs must not keep the others, or the next epoch, waiting.
            threading.Thread(
                target=self._await_snapshot, args=(slot, checkpoint_id), daemon=True, name="snapshot-wait"
            ).start()

    def _tell_aborted(self, trigger: TriggerCheckpoint | TriggerSavepoint) -> None:
        if not self._slots_ended:
            self._group.call(lambda slot: slot.aborted(trigger.checkpoint_id))

    def _seal(self, slot: Slot, trigger: TriggerCheckpoint | TriggerSavepoint) -> None:
        if isinstance(trigger, TriggerCheckpoint):
            slot.seal(trigger.checkpoint_id, trigger.epoch, full=trigger.full)
        else:
            order = self._savepoints[trigger.checkpoint_id]
            target = order.directory.target(order.format)
            slot.seal(trigger.checkpoint_id, trigger.epoch, savepoint=target, full=trigger.full)

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
                    self._acknowledge(snapshot)
                self._changed.notify_all()

    def _acknowledge(self, snapshot: SlotSnapshot) -> None:
        actions = self._coordinator.acknowledge(snapshot)
        self._around.listener.checkpoint_acknowledged(snapshot)
        if snapshot.checkpoint_id in self._savepoints:
            self._tell_progress(snapshot.checkpoint_id, self._coordinator.savepoint_acknowledged)
        self._perform(actions)

    def _tell_progress(self, checkpoint_id: CheckpointId, slots: int) -> None:
        self._around.listener.progressed(f"savepoint {checkpoint_id}: {slots} of {len(self._group.slots)} slots")

    def _decline(self, checkpoint_id: CheckpointId, subtask: SubtaskIndex, reason: BaseException) -> None:
        gone = self._missing_base()
        with self._changed:
            if self._disposed:
                return
            if gone is not None:
                self._perform(self._coordinator.files_missing(checkpoint_id, f"{reason}; {gone}"))
            else:
                self._perform(self._coordinator.decline(checkpoint_id, subtask, str(reason)))
            self._changed.notify_all()

    def _missing_base(self) -> str | None:
        """What is wrong with the files that the next incremental checkpoint would build on, if anything is."""
        with self._changed:
            newest = self._coordinator.retained[-1:]
        if self._around.store is None or not newest:
            return None
        try:
            return self._around.store.missing(newest[0].files())
        except StorageError:
            return None  # then nothing can be written either: that is the failure to tell

    def _files_missing(self, checkpoint_id: CheckpointId, reason: str) -> None:
        with self._changed:
            self._perform(self._coordinator.files_missing(checkpoint_id, reason))
            self._changed.notify_all()

    def _settle(self, action: Action) -> None:
        if isinstance(action, WriteMetadata):
            self._write_metadata(action.acknowledged)
        elif isinstance(action, DiscardCheckpoints):
            assert self._around.store is not None
            self._around.store.check()
            for checkpoint_id in action.checkpoint_ids:
                self._around.store.discard(checkpoint_id)
            self._around.store.delete_files(action.files)
            self._around.listener.checkpoints_discarded(action.checkpoint_ids)
        elif isinstance(action, DeleteFiles):
            self._delete(action.files)

    def _write_metadata(self, acknowledged: AcknowledgedCheckpoint) -> None:
        """Make a checkpoint complete, publish what it covers, and only then let the job know."""
        assert self._around.store is not None
        cut = self._cuts.pop(acknowledged.checkpoint_id)
        now = self._around.clock.now()
        checkpoint = completed_checkpoint(
            self._job, acknowledged, cut.position, now, cut.event_time, cut.watermarks, self._around.term
        )
        outputs = self._around.outputs
        try:
            missing = self._around.store.missing(checkpoint.files())
            if missing is not None:
                self._files_missing(acknowledged.checkpoint_id, f"its {missing}")
                return
            outputs.verify((entry.uid, entry.committables) for entry in checkpoint.operators)
            path = self._around.store.write(checkpoint)
        except (OutputLostError, StorageError) as error:
            self._metadata_failed(acknowledged, error)
            return
        self._around.store.check()  # before it is published: a driver that takes over from now on has seen it
        if self._is_late(acknowledged.checkpoint_id):
            self._around.store.discard(checkpoint.checkpoint_id)  # nothing of it is published yet
            with self._changed:
                self._perform(self._coordinator.metadata_late(acknowledged.checkpoint_id))
                self._changed.notify_all()
            return
        with self._changed:
            oldest = next((each.checkpoint_id for each in self._coordinator.retained), None)
        try:
            outputs.publish(checkpoint, oldest)
        except OutputLostError as error:
            self._around.store.check()
            self._around.store.discard(checkpoint.checkpoint_id)  # before anything else: nobody may go on from it
            self._metadata_failed(acknowledged, error)
            return
        stats = checkpoint_stats(acknowledged, checkpoint, path)
        self._around.listener.checkpoint_completed(replace(stats, metadata_bytes=self._around.store.metadata_bytes))
        if not self._slots_ended:  # before the coordinator goes on: the next cut must build on this one
            self._group.call(lambda slot: slot.completed(acknowledged.checkpoint_id))
        with self._changed:
            self._perform(self._coordinator.metadata_written(acknowledged.checkpoint_id))
            self._changed.notify_all()
        self._answer(acknowledged.checkpoint_id, acknowledged.checkpoint_id)
        self._around.completed()

    def _is_late(self, checkpoint_id: CheckpointId) -> bool:
        with self._changed:
            return self._coordinator.is_late(checkpoint_id)

    def _metadata_failed(self, acknowledged: AcknowledgedCheckpoint, error: CheckdamError) -> None:
        if isinstance(error, StorageUncertainError):
            self._maybe_complete.add(acknowledged.checkpoint_id)
        if isinstance(error, OutputLostError):  # no later checkpoint could cover it: fail over, whatever is tolerated
            self._fail(error)
        with self._changed:
            self._perform(self._coordinator.metadata_failed(acknowledged.checkpoint_id, str(error)))
            self._changed.notify_all()

    def _write_savepoint(self, action: WriteSavepoint) -> None:
        """Make a savepoint complete. Its output is not published: that is left to the job's own checkpoints."""
        acknowledged = action.acknowledged
        checkpoint_id, order = acknowledged.checkpoint_id, self._savepoints[acknowledged.checkpoint_id]
        cut = self._cuts.pop(checkpoint_id)
        now = self._around.clock.now()
        checkpoint = replace(
            completed_checkpoint(
                self._job, acknowledged, cut.position, now, cut.event_time, cut.watermarks, self._around.term
            ),
            savepoint_format=order.format,
        )
        try:
            outputs = self._around.outputs
            self._at_storage(lambda: outputs.note(checkpoint))
            self._at_storage(lambda: outputs.verify_savepoint(checkpoint))
            path, metadata_bytes = self._at_place(order, lambda: order.directory.complete(checkpoint))
            self._at_storage(lambda: outputs.verify_savepoint(checkpoint))  # the place may have taken its time
            self._at_storage(outputs.check_term)  # else a driver that has taken over may not keep its output
        except CheckdamError as error:
            if isinstance(error, FencedError):
                self._fail(error)
            with self._changed:
                self._perform(self._coordinator.savepoint_failed(checkpoint_id, str(error)))
                self._changed.notify_all()
            return
        finally:
            self._around.outputs.savepoint_ended(checkpoint_id)
        self._around.outputs.promise(checkpoint)
        with self._changed:
            self._perform(self._coordinator.savepoint_written(checkpoint_id))
            self._changed.notify_all()
        stats = checkpoint_stats(acknowledged, checkpoint, path)
        self._around.listener.progressed(None)
        self._around.listener.checkpoint_completed(replace(stats, kind=order.kind, metadata_bytes=metadata_bytes))
        del self._savepoints[checkpoint_id]
        self._answer(checkpoint_id, path)
        if not self._slots_ended:
            self._group.call(lambda slot: slot.released(checkpoint_id))

    def _abort(self, action: AbortCheckpoint) -> None:
        self._cuts.pop(action.checkpoint_id, None)
        try:
            if not self._slots_ended and action.checkpoint_id not in self._never_cut:
                self._group.call(lambda slot: slot.aborted(action.checkpoint_id))
            if action.new_files and action.checkpoint_id not in self._maybe_complete:
                self._delete(action.new_files)
        finally:
            self._refuse(action.checkpoint_id, f"checkpoint {action.checkpoint_id} failed: {action.reason}")

    def _abort_savepoint(self, action: AbortSavepoint) -> None:
        self._cuts.pop(action.checkpoint_id, None)
        order, reason = self._savepoints.pop(action.checkpoint_id), action.reason
        self._around.outputs.savepoint_ended(action.checkpoint_id)
        try:
            if not self._slots_ended:
                self._group.call(lambda slot: slot.aborted(action.checkpoint_id))
        finally:
            try:
                self._at_place(order, order.directory.abandon)
            except CheckdamError as error:  # the place is the user's: trouble there must not touch the job
                reason = f"{reason}; and something of it is still at {order.directory.uri}: {error}"
            self._refuse(action.checkpoint_id, f"savepoint {action.checkpoint_id} failed: {reason}")

    def _at_place(self, order: SavepointOrder, work: Callable[[], T]) -> T:
        """Do something where a savepoint goes, which must not take longer than a checkpoint may."""
        return self._in_time(order.directory.uri, work)

    def _at_storage(self, work: Callable[[], T]) -> T:
        """Do something for a savepoint where the job keeps its checkpoints, as `_at_place`."""
        return self._in_time(self._around.store.uri if self._around.store is not None else "the storage", work)

    def _in_time(self, uri: str, work: Callable[[], T]) -> T:
        """Do something that must not take longer than a checkpoint may.

        Raises:
            StorageUncertainError: the storage does not answer.
        """
        try:
            return within(self._job.checkpoints.timeout.total_seconds(), "writing a savepoint", work)
        except TimeoutError as error:
            raise StorageUncertainError(f"{uri} does not answer: {error}") from error

    def _answer(self, checkpoint_id: CheckpointId, value: object) -> None:
        answer = self._answers.pop(checkpoint_id, None)
        if answer is not None:
            answer.set_result(value)

    def _refuse(self, checkpoint_id: CheckpointId, reason: str) -> None:
        answer = self._answers.pop(checkpoint_id, None)
        if answer is not None:
            answer.set_exception(JobControlError(reason))

    def _delete(self, files: Sequence[StateFile]) -> None:
        assert self._around.store is not None
        self._around.store.check()
        self._around.store.delete_files(files)
