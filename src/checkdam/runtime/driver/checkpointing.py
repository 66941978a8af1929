"""Performs the coordinator's actions: sends barriers, writes metadata, commits sinks, deletes files.

Every action begins and ends in the loop of the attempt; slow work runs on lanes. The committer lane does one thing at a
time. Savepoints have their own lane: their directory belongs to the user, and trouble there must not delay checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.checkpoint.coordinator import CheckpointCoordinator
from checkdam.checkpoint.decisions import (
    AbortCheckpoint,
    AcknowledgedCheckpoint,
    Action,
    CommitOutput,
    DeleteFiles,
    DiscardCheckpoints,
    FailJob,
    NotifyCompleted,
    RemoveMetadata,
    TriggerCheckpoint,
    WriteMetadata,
)
from checkdam.checkpoint.savepoints import SavepointDirectory
from checkdam.clock import Clock
from checkdam.errors import (
    CheckdamError,
    FencedError,
    JobControlError,
    JobFailedError,
    OutputLostError,
    SlotLostError,
    StorageUncertainError,
)
from checkdam.ids import CheckpointId, Epoch, SubtaskIndex
from checkdam.runtime.answers import give, refuse
from checkdam.runtime.driver.attempt_state import AttemptState
from checkdam.runtime.driver.checkpoint_assembly import checkpoint_stats, completed_checkpoint
from checkdam.runtime.driver.checkpoint_writer import CheckpointWriter, IncompleteCheckpoint, WrittenCheckpoint
from checkdam.runtime.driver.event_loop import EventLoop, Lane
from checkdam.runtime.driver.outputs import Outputs
from checkdam.runtime.driver.slot_group import SlotGroup
from checkdam.runtime.engine import Engine, Slot
from checkdam.runtime.job import Job
from checkdam.runtime.monitor.job_events import CheckpointTriggered
from checkdam.runtime.monitor.job_records import SnapshotKind
from checkdam.runtime.monitor.listeners import TimedListener
from checkdam.state.snapshot_handles import SavepointFormat, SlotSnapshot, StateFile

T = TypeVar("T")

COMMITTER = Lane("writing, publishing or removing checkpoints")
SAVEPOINT = Lane("writing a savepoint")
SLOTS = Lane("calling the slots")
SNAPSHOTS = Lane("waiting for a snapshot", threads=1000)
LOOKS = Lane("looking at the storage", threads=1000)


@dataclass(frozen=True)
class Surroundings:
    """The collaborators of an attempt that it does not own."""

    engine: Engine
    store: CheckpointStore | None
    coordinator: CheckpointCoordinator
    outputs: Outputs
    listener: TimedListener
    clock: Clock
    term: int = 0  # of the driver; 0 if the job keeps no checkpoints
    begun: Callable[[], None] = lambda: None  # called when the slots have their state
    completed: Callable[[], None] = lambda: None  # called after each completed checkpoint
    interrupted: Callable[[], None] = lambda: None  # called when the attempt begins to end


@dataclass(frozen=True)
class SavepointOrder:
    """A savepoint to take: directory, format, kind, and the future that gets its path."""

    directory: SavepointDirectory
    format: SavepointFormat
    kind: SnapshotKind
    answer: Future[str]


@dataclass(frozen=True)
class _DriverState:
    """The driver's part of a checkpoint: the source position, and the progress of event time."""

    position: bytes
    event_time: Mapping[int, int]
    watermarks: Mapping[int, int]


class Checkpointing:
    """The checkpoints and savepoints of one attempt."""

    def __init__(
        self,
        job: Job,
        around: Surroundings,
        state: AttemptState,
        group: SlotGroup,
        loop: EventLoop,
    ) -> None:
        self._job = job
        self._around = around
        self._coordinator = around.coordinator
        self._group = group
        self._loop = loop
        self._state = state
        self._reports = state.reports
        self._fail = state.fail
        self._writer = CheckpointWriter(around.store, around.outputs, job.checkpoints.timeout, loop)
        self._states: dict[CheckpointId, _DriverState] = {}
        self._acknowledged_at: dict[CheckpointId, datetime] = {}  # by the last slot so far
        self._written: dict[CheckpointId, WrittenCheckpoint] = {}
        self._answers: dict[CheckpointId, Future[Any]] = {}
        self._orders: dict[CheckpointId, SavepointOrder] = {}
        self._maybe_complete: dict[CheckpointId, Sequence[StateFile]] = {}  # aborted; files not deleted
        self._never_sent: set[CheckpointId] = set()  # timed out before the epoch ended: unknown to the slots
        self._slots_ended = False
        self._takes_reports = True
        self.event_time: Mapping[int, int] = {}  # per assigner, as of the last epoch
        self.watermarks: Mapping[int, int] = {}  # per operator, likewise

    # -- barriers -----------------------------------------------------------------------------------------------

    def epoch_ended(self, epoch: Epoch, then: Callable[[], None]) -> None:
        """Send the barrier that is due after this epoch, if any; call `then` when the slots have it."""
        due = self._coordinator.epoch_ended(epoch) if self._around.store is not None else []
        self._send(due, then)

    def tick(self, epoch: Epoch, then: Callable[[], None]) -> None:
        """Send the barrier that is due while no epoch runs, if any."""
        self._send(self._coordinator.tick(epoch) if self._around.store is not None else [], then)

    def trigger(
        self,
        epoch: Epoch,
        then: Callable[[], None],
        *,
        full: bool = False,
        since: float | None = None,
        answer: Future[CheckpointId] | None = None,
    ) -> None:
        """Send a barrier now. The limit of concurrent checkpoints must not be reached.

        `answer` is set when the checkpoint has completed or failed. `since` is the time of the request on the monotonic
        clock: the timeout counts from there.
        """
        (trigger,) = self._coordinator.trigger(epoch, full=full, since=since)
        if isinstance(trigger, TriggerCheckpoint) and answer is not None:
            self._answers[trigger.checkpoint_id] = answer
        self._send([trigger], then)

    def savepoint(self, epoch: Epoch, order: SavepointOrder, then: Callable[[], None]) -> None:
        """Send the barrier of a savepoint now; no other savepoint may be in progress."""
        (trigger,) = self._coordinator.trigger_savepoint(epoch)
        if isinstance(trigger, TriggerCheckpoint):
            self._answers[trigger.checkpoint_id] = order.answer
            self._orders[trigger.checkpoint_id] = order
        self._send([trigger], then)

    def time_passes(self, epoch: Epoch | None) -> None:
        """Trigger checkpoints that are due, and abort those that take too long.

        A barrier may wait for the end of `epoch` while its timeout runs. With None the attempt holds it back, and the
        timeout starts over. The same applies while the driver waits for its listener, since no epoch can end meanwhile.
        """
        waited: list[Action] = []
        is_late = self._coordinator.seconds_until_timeout() == 0.0
        if epoch is None or (is_late and self._around.listener.is_waiting):
            self._coordinator.begin_wait_anew()
        elif self._around.store is not None:
            self._coordinator.note_due()
            waited = self._coordinator.expire_waiting(epoch)
        expired = self._coordinator.expire()
        for action in waited:
            if isinstance(action, AbortCheckpoint) and epoch is not None:
                self._never_sent.add(action.checkpoint_id)
                since = self._around.clock.now() - self._job.checkpoints.timeout
                trigger = CheckpointTriggered(action.checkpoint_id, epoch, SnapshotKind.CHECKPOINT, at=since)
                self._reports.checkpoint_triggered(trigger)
        self._perform([*expired, *waited])

    def _send(self, actions: Sequence[Action], then: Callable[[], None]) -> None:
        """Send the barrier among these actions to every slot, then wait in the background for each snapshot."""
        triggers = [action for action in actions if isinstance(action, TriggerCheckpoint)]
        if not triggers:
            then()
            return
        (trigger,) = triggers
        checkpoint_id, order = trigger.checkpoint_id, self._orders.get(trigger.checkpoint_id)
        if order is not None:
            self._around.outputs.savepoint_begins(checkpoint_id)
        triggered = CheckpointTriggered(
            checkpoint_id,
            trigger.epoch,
            order.kind if order else SnapshotKind.CHECKPOINT,
            order.format.value if order else None,
            is_full=order is not None or trigger.full,
            at=trigger.triggered_at,
        )
        self._reports.checkpoint_triggered(triggered)

        def send() -> bytes:
            position = self._around.engine.position()
            self._group.call(lambda slot: self._begin_snapshot(slot, trigger, order))
            return position

        def sent(done: Future[bytes]) -> None:
            failure = done.exception()
            if isinstance(failure, SlotLostError) or not isinstance(failure, Exception | None):
                self._fail(failure)
            elif failure is not None:  # any error of a slot declines the checkpoint
                self._decline(checkpoint_id, SubtaskIndex(0), failure)
            elif self._coordinator.is_pending(checkpoint_id):
                self._states[checkpoint_id] = _DriverState(done.result(), dict(self.event_time), dict(self.watermarks))
                self._await_snapshots(checkpoint_id, order)
            else:  # it timed out meanwhile, and a slot may have seen the abort before the barrier
                self._on(COMMITTER, lambda: self._notify(lambda slot: slot.aborted(checkpoint_id)))
            then()

        self._loop.start(SLOTS, send, sent)

    def _begin_snapshot(self, slot: Slot, trigger: TriggerCheckpoint, order: SavepointOrder | None) -> None:
        target = None if order is None else order.directory.target(order.format)
        slot.begin_snapshot(trigger.checkpoint_id, trigger.epoch, savepoint=target, full=trigger.full)

    # -- from snapshots to a complete checkpoint ----------------------------------------------------------------

    def _await_snapshots(self, checkpoint_id: CheckpointId, order: SavepointOrder | None) -> None:
        if order is not None:
            self._report_progress(checkpoint_id, 0)
        for slot in self._group.slots:  # one thread per slot: a slot whose storage hangs does not delay the others
            self._loop.start(
                SNAPSHOTS, partial(slot.snapshot, checkpoint_id), partial(self._snapshot_taken, slot, checkpoint_id)
            )

    def _snapshot_taken(self, slot: Slot, checkpoint_id: CheckpointId, done: Future[SlotSnapshot]) -> None:
        failure = done.exception()
        if isinstance(failure, SlotLostError) or not isinstance(failure, Exception | None):
            self._fail(failure)
        elif failure is not None:  # any error of the slot's writer declines the checkpoint
            self._decline(checkpoint_id, slot.subtask, failure)
        elif self._takes_reports:
            snapshot, now = done.result(), self._around.clock.now()
            if self._coordinator.is_pending(checkpoint_id):
                self._acknowledged_at[checkpoint_id] = now
            actions = self._coordinator.acknowledge(snapshot)
            self._reports.checkpoint_acknowledged(snapshot, now)
            if checkpoint_id in self._orders:
                self._report_progress(checkpoint_id, self._coordinator.savepoint_acknowledged)
            self._perform(actions)

    def _report_progress(self, checkpoint_id: CheckpointId, slots: int) -> None:
        what = f"savepoint {checkpoint_id}: {slots} of {len(self._group.slots)} slots"
        self._reports.progressed(what)

    def _decline(self, checkpoint_id: CheckpointId, subtask: SubtaskIndex, reason: Exception) -> None:
        """Abort a checkpoint that a subtask cannot take. If files it builds on are gone, the next one is full."""

        def looked(done: Future[str | None]) -> None:
            if not self._takes_reports:
                return
            gone = done.result()
            if gone is not None:
                self._perform(self._coordinator.files_missing(checkpoint_id, f"{reason}; {gone}"))
            else:
                self._perform(self._coordinator.decline(checkpoint_id, subtask, str(reason)))

        files = frozenset(file for newest in self._coordinator.retained[-1:] for file in newest.files())
        self._loop.start(LOOKS, partial(self._writer.missing, files), looked)

    def _perform(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case WriteMetadata(acknowledged):
                    self._write(acknowledged)
                case CommitOutput(acknowledged):
                    self._commit(acknowledged.checkpoint_id)
                case NotifyCompleted(checkpoint_id):
                    self._notify_completed(checkpoint_id, is_savepoint=action.is_savepoint)
                case DiscardCheckpoints(checkpoint_ids, files):
                    self._discard(checkpoint_ids, files)
                case RemoveMetadata(checkpoint_id):
                    self._remove_metadata(checkpoint_id)
                case AbortCheckpoint():
                    self._abort(action)
                case DeleteFiles(files):
                    self._on(COMMITTER, partial(self._writer.delete, files))
                case FailJob(reason):
                    self._fail(JobFailedError(reason))
                case _:
                    raise AssertionError(f"{action} is sent between epochs, by _send")

    def _write(self, acknowledged: AcknowledgedCheckpoint) -> None:
        """Write the metadata. From then on the checkpoint exists."""
        checkpoint_id, order = acknowledged.checkpoint_id, self._orders.get(acknowledged.checkpoint_id)
        state, at = self._states.pop(checkpoint_id), self._acknowledged_at.pop(checkpoint_id)
        checkpoint = completed_checkpoint(
            self._job, acknowledged, state.position, at, state.event_time, state.watermarks, self._around.term
        )

        def written(done: Future[WrittenCheckpoint | IncompleteCheckpoint | CheckdamError]) -> None:
            failure = done.exception()
            if failure is not None:
                self._fail(failure)
                return
            outcome = done.result()
            if isinstance(outcome, IncompleteCheckpoint):
                self._perform(self._coordinator.files_missing(checkpoint_id, outcome.reason))
            elif isinstance(outcome, CheckdamError):
                self._metadata_failed(checkpoint_id, outcome, is_savepoint=order is not None)
            else:
                self._written[checkpoint_id] = outcome
                if order is not None:
                    self._savepoint_written(acknowledged, outcome, order)
                self._perform(self._coordinator.metadata_written(checkpoint_id))

        if order is None:
            self._loop.start(COMMITTER, partial(self._writer.write, checkpoint), written)
        else:
            checkpoint = replace(checkpoint, savepoint_format=order.format)
            self._loop.start(SAVEPOINT, partial(self._writer.write_savepoint, checkpoint, order.directory), written)

    def _savepoint_written(
        self, acknowledged: AcknowledgedCheckpoint, written: WrittenCheckpoint, order: SavepointOrder
    ) -> None:
        checkpoint_id = acknowledged.checkpoint_id
        del self._written[checkpoint_id], self._orders[checkpoint_id]
        self._reports.progressed(None)
        self._report_completed(acknowledged, written, order.kind)
        self._answer(checkpoint_id, written.path)

    def _metadata_failed(self, checkpoint_id: CheckpointId, error: CheckdamError, *, is_savepoint: bool) -> None:
        if isinstance(error, StorageUncertainError) and not is_savepoint:
            self._maybe_complete[checkpoint_id] = ()
        # No later checkpoint can cover lost output: fail over, whatever number of failures is tolerated. A driver that
        # was replaced by another must stop.
        if isinstance(error, OutputLostError if not is_savepoint else FencedError):
            self._fail(error)
        self._perform(self._coordinator.metadata_failed(checkpoint_id, str(error)))

    def _commit(self, checkpoint_id: CheckpointId) -> None:
        """Publish the output that the checkpoint covers."""
        oldest = next((each.checkpoint_id for each in self._coordinator.retained), None)
        checkpoint = self._written[checkpoint_id].checkpoint

        def committed(done: Future[None]) -> None:
            failure = done.exception()
            if isinstance(failure, OutputLostError):
                self._fail(failure)
                self._perform(self._coordinator.output_lost(checkpoint_id, str(failure)))
            elif failure is not None:
                self._fail(failure)
            else:
                self._perform(self._coordinator.output_committed(checkpoint_id))

        self._loop.start(COMMITTER, partial(self._writer.publish, checkpoint, oldest), committed)

    def _notify_completed(self, checkpoint_id: CheckpointId, *, is_savepoint: bool) -> None:
        """Notify the slots: at the next barrier they must build on this checkpoint."""

        def notified() -> None:
            if not is_savepoint:
                self._discard_superseded(checkpoint_id)
            self._perform(self._coordinator.slots_notified(checkpoint_id))
            if not is_savepoint:
                self._answer(checkpoint_id, checkpoint_id)
                self._on(COMMITTER, self._around.completed)

        if is_savepoint:
            self._on(SAVEPOINT, lambda: self._notify(lambda slot: slot.released(checkpoint_id)), notified)
            return
        written = self._written.pop(checkpoint_id)
        acknowledged = self._coordinator.being_written
        assert acknowledged is not None
        self._report_completed(acknowledged, written, SnapshotKind.CHECKPOINT)
        self._on(COMMITTER, lambda: self._notify(lambda slot: slot.completed(checkpoint_id)), notified)

    def _report_completed(
        self, acknowledged: AcknowledgedCheckpoint, written: WrittenCheckpoint, kind: SnapshotKind
    ) -> None:
        stats = checkpoint_stats(acknowledged, written.checkpoint, written.path)
        stats = replace(stats, kind=kind, metadata_bytes=written.metadata_bytes)
        self._reports.checkpoint_completed(stats)

    def _discard(self, checkpoint_ids: Sequence[CheckpointId], files: Sequence[StateFile]) -> None:
        self._on(
            COMMITTER,
            partial(self._writer.discard, checkpoint_ids, files),
            lambda: self._reports.checkpoints_discarded(checkpoint_ids),
        )

    def _discard_superseded(self, completed: CheckpointId) -> None:
        """Remove older checkpoints whose metadata may exist, before files are deleted that they share with others."""
        for checkpoint_id in [each for each in self._maybe_complete if each < completed]:
            files = self._maybe_complete.pop(checkpoint_id)
            self._on(COMMITTER, partial(self._writer.discard, (checkpoint_id,), files))

    def _remove_metadata(self, checkpoint_id: CheckpointId) -> None:
        self._written.pop(checkpoint_id)
        self._on(
            COMMITTER,
            partial(self._writer.remove, checkpoint_id),
            lambda: self._perform(self._coordinator.metadata_removed(checkpoint_id)),
        )

    # -- aborts -------------------------------------------------------------------------------------------------

    def _abort(self, action: AbortCheckpoint) -> None:
        checkpoint_id = action.checkpoint_id
        self._states.pop(checkpoint_id, None)
        self._acknowledged_at.pop(checkpoint_id, None)
        if checkpoint_id in self._maybe_complete:
            self._maybe_complete[checkpoint_id] = action.new_files
            action = replace(action, new_files=())
        order = self._orders.get(checkpoint_id)
        if order is not None:
            self._reports.progressed(None)
        self._reports.checkpoint_failed(checkpoint_id, action.reason)
        kind = "checkpoint" if order is None else "savepoint"

        def aborted(done: Future[str | None]) -> None:
            self._orders.pop(checkpoint_id, None)
            failure = done.exception()
            if failure is not None:
                self._fail(failure)
            rest = "" if failure is not None or done.result() is None else f"; {done.result()}"
            self._refuse(checkpoint_id, f"{kind} {checkpoint_id} failed: {action.reason}{rest}")

        if order is None:
            self._loop.start(COMMITTER, partial(self._abort_checkpoint, action), aborted)
        else:
            self._around.outputs.savepoint_ended(checkpoint_id)
            self._loop.start(SAVEPOINT, partial(self._abort_savepoint, checkpoint_id, order), aborted)

    def _abort_checkpoint(self, action: AbortCheckpoint) -> None:
        if action.checkpoint_id not in self._never_sent:
            self._notify(lambda slot: slot.aborted(action.checkpoint_id))
        if action.new_files:
            self._writer.delete(action.new_files)

    def _abort_savepoint(self, checkpoint_id: CheckpointId, order: SavepointOrder) -> str | None:
        """Remove what was written. Return the path of what could not be removed, if any."""
        try:
            self._notify(lambda slot: slot.aborted(checkpoint_id))
        finally:
            left = self._writer.abandon_savepoint(order.directory)
        return left

    # -- the end ------------------------------------------------------------------------------------------------

    def look_for_newest(self, then: Callable[[bool], None]) -> None:
        """Find out whether files of the newest completed checkpoint are gone; False if storage does not answer."""
        newest = self._coordinator.retained[-1:]
        if self._around.store is None or not newest:
            self._loop.post(partial(then, False))  # noqa: FBT003  nothing is gone
            return
        look = partial(self._writer.is_gone, newest[0].checkpoint_id, newest[0].files())
        self._loop.start(LOOKS, look, lambda done: then(done.result()))

    def publish_without_checkpoint(self, epoch: Epoch, once: CheckpointId) -> None:
        """Publish the output of a bounded job at its end, if checkpoints are off. Runs on a lane."""
        self._group.call(lambda slot: slot.begin_snapshot(once, epoch))
        self._writer.publish_without_checkpoint(self._group.call(lambda slot: slot.snapshot(once)))

    def slots_ended(self) -> None:
        """Stop notifying the slots of checkpoints."""
        self._slots_ended = True

    def take_no_more_reports(self) -> None:
        """Let no more checkpoints complete. The next attempt sweeps what slots still write."""
        self._takes_reports = False

    def abort(self, reason: str) -> None:
        """Abort the checkpoints in progress. The slots must have ended."""
        self.take_no_more_reports()
        self._perform(self._coordinator.abort_pending(reason))

    def refuse_rest(self) -> None:
        """Refuse the remaining requests for a checkpoint or savepoint once all lanes are idle."""
        for checkpoint_id in list(self._answers):
            self._refuse(checkpoint_id, f"barrier {checkpoint_id} was not settled before the attempt ended")

    @property
    def places(self) -> list[str]:
        """The directories that savepoints are being written to."""
        return [order.directory.uri for order in self._orders.values()]

    # -- helpers ------------------------------------------------------------------------------------------------

    def _on(self, lane: Lane, work: Callable[[], object], then: Callable[[], None] = lambda: None) -> None:
        """Do work that must succeed: a failure ends the attempt, and the next one cleans up."""

        def done(outcome: Future[object]) -> None:
            failure = outcome.exception()
            if failure is not None:
                self._fail(failure)
            else:
                then()

        self._loop.start(lane, work, done)

    def _notify(self, call: Callable[[Slot], None]) -> None:
        if not self._slots_ended:
            self._group.call(call)

    def _answer(self, checkpoint_id: CheckpointId, value: object) -> None:
        answer = self._answers.pop(checkpoint_id, None)
        if answer is not None:
            self._state.report(partial(give, answer, value))  # after all earlier notifications

    def _refuse(self, checkpoint_id: CheckpointId, reason: str) -> None:
        answer = self._answers.pop(checkpoint_id, None)
        if answer is not None:
            self._state.report(partial(refuse, answer, JobControlError(reason)))
