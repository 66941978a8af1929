"""The checkpoint coordinator: decides when a checkpoint starts, when it is complete, and when its files are deleted.

The coordinator takes events and returns actions; the runtime performs them in order and reports back. It has no
threads, files or sleeps; only one thread at a time may call it. One coordinator serves one attempt of a job: after a
failover the next one gets `next_id` and `retained` from it, once its last metadata write has ended.

A checkpoint goes through three states, each with its own type or place::

    PendingCheckpoint ──last acknowledgement──▶ AcknowledgedCheckpoint ──────────────────────▶ retained
        └─ declined, expired, subsumed ─▶ aborted ◀─ metadata failed, expired, subsumed ─┘

The last steps run one by one, each after the previous one was reported: metadata written, output committed, slots
notified, older checkpoints discarded. A crash between two of them loses nothing: committed output has metadata.

A periodic checkpoint is triggered when it is due, also in the middle of an epoch. Its barrier follows when the epoch
has ended; until then only its trigger time exists, but its timeout is already running.

A savepoint goes through the same states in parallel, one at a time. It shares only the id counter with checkpoints: it
is never retained, subsumed or discarded, it shares no files, and its failure is not a failed checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from checkdam.checkpoint.decisions import (
    AbortCheckpoint,
    AcknowledgedCheckpoint,
    Action,
    CommitOutput,
    DeleteFiles,
    DiscardCheckpoints,
    FailJob,
    NotifyCompleted,
    PendingCheckpoint,
    RemoveMetadata,
    TriggerCheckpoint,
    WriteMetadata,
    files_of,
    partly_finished_union,
)
from checkdam.checkpoint.retention import RetainedCheckpoint, SharedFiles, checkpoints_to_drop
from checkdam.checkpoint.settings import CheckpointConfig
from checkdam.clock import Clock
from checkdam.ids import CheckpointId, Epoch, SubtaskIndex
from checkdam.state.snapshot_handles import SlotSnapshot, StateFile

FIRST_ID = CheckpointId(1)


class CheckpointCoordinator:
    """The decisions of one attempt of a job.

    `retained` are the job's own completed checkpoints, which are dropped as newer ones complete; `foreign_files`
    belong to another owner's checkpoint from which the job was restored, and are never deleted.
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
        self._writing: AcknowledgedCheckpoint | None = None  # from its metadata to the notified slots
        self._withdrawn: str | None = None  # why the metadata of `_writing` is being removed again
        self._is_notifying = False  # some slots may know that `_writing` is complete, and build on it
        self._retained = {checkpoint.checkpoint_id: checkpoint for checkpoint in retained}
        self._files = SharedFiles(foreign_files)
        for checkpoint in self._retained.values():
            self._files.register(checkpoint)
        self._bases: dict[CheckpointId, frozenset[StateFile]] = {}
        self._deleted: set[str] = set()
        self._savepoint: PendingCheckpoint | AcknowledgedCheckpoint | None = None
        self._savepoint_ids: set[CheckpointId] = set()
        self._full_ids: set[CheckpointId] = set()  # in progress, and independent of files of other checkpoints
        self._must_be_full = False  # files that an incremental checkpoint would refer to are gone
        self._completed_epoch: Epoch | None = None
        self._failures = 0
        self._due = clock.monotonic() + _seconds(config.interval)
        self._triggered: float | None = None  # since when a periodic checkpoint waits for its barrier
        self._pause_over = clock.monotonic()

    @property
    def next_id(self) -> CheckpointId:
        """The first unused checkpoint id."""
        return self._next_id

    @property
    def retained(self) -> list[RetainedCheckpoint]:
        """The completed checkpoints that are kept, oldest first."""
        return [self._retained[checkpoint_id] for checkpoint_id in sorted(self._retained)]

    @property
    def in_progress(self) -> list[CheckpointId]:
        """The checkpoints that are triggered and neither complete nor aborted, oldest first."""
        writing = [self._writing.checkpoint_id] if self._writing else []
        return sorted([*self._pending, *self._ready, *writing])

    @property
    def can_trigger(self) -> bool:
        """Whether another checkpoint may start now."""
        return len(self.in_progress) < self._config.max_concurrent

    def is_pending(self, checkpoint_id: CheckpointId) -> bool:
        """Return whether a checkpoint or savepoint waits for its subtasks."""
        return checkpoint_id in self._pending or self._pending_savepoint(checkpoint_id) is not None

    @property
    def being_written(self) -> AcknowledgedCheckpoint | None:
        """The checkpoint whose last steps are running, from its metadata to the notified slots."""
        return self._writing

    @property
    def savepoint_in_progress(self) -> CheckpointId | None:
        return self._savepoint.checkpoint_id if self._savepoint is not None else None

    @property
    def savepoint_acknowledged(self) -> int:
        """How many subtasks have acknowledged the savepoint in progress."""
        return len(self._savepoint.snapshots) if self._savepoint is not None else 0

    @property
    def must_be_full(self) -> bool:
        """Whether the next checkpoint must be full because files of earlier ones are gone."""
        return self._must_be_full

    @property
    def completed_epoch(self) -> Epoch | None:
        """The epoch of the newest checkpoint completed in this attempt."""
        return self._completed_epoch

    def epoch_ended(self, epoch: Epoch) -> list[Action]:
        """Send a barrier if a checkpoint is due, or if every epoch gets one."""
        return self._send_if_due(epoch) if self._config.interval is not None else []

    def tick(self, epoch: Epoch) -> list[Action]:
        """Send a barrier if a checkpoint is due between epochs; `epoch` is the last that ended.

        An earlier checkpoint of the same epoch does not matter: a job without records takes its checkpoints too.
        """
        return self._send_if_due(epoch) if self._config.interval else []

    def note_due(self) -> None:
        """Start the timeout of a checkpoint that is due, although its barrier cannot be sent yet."""
        if self._config.interval:  # zero: one is due at the end of each epoch, not before
            self._trigger_if_due()

    def begin_wait_anew(self) -> None:
        """Restart the timeouts of a waiting barrier and of unwritten metadata that were held up from outside."""
        now = self._clock.monotonic()
        if self._triggered is not None:
            self._triggered = now
        for ready in list(self._ready.values()):
            self._ready[ready.checkpoint_id] = replace(ready, expires=now + _seconds(self._config.timeout))

    def trigger(self, epoch: Epoch, *, full: bool = False, since: float | None = None) -> list[Action]:
        """Start a checkpoint on request; return [] if the allowed number is in progress.

        A periodic one that waits for its barrier becomes this one. `since` is the request time on the monotonic clock.
        """
        if not self.can_trigger:
            return []
        waiting, self._triggered = self._triggered, None
        if waiting is not None:
            self._due = waiting + _seconds(self._config.interval)
        asked = [moment for moment in (waiting, since) if moment is not None]
        pending = self._begin(epoch, min(asked, default=None))
        self._pending[pending.checkpoint_id] = pending
        full = full or self._must_be_full or not self._config.incremental
        if full:
            self._full_ids.add(pending.checkpoint_id)
        return [TriggerCheckpoint(pending.checkpoint_id, epoch, full, pending.triggered_at)]

    def trigger_savepoint(self, epoch: Epoch) -> list[Action]:
        """Start a savepoint, regardless of checkpoints in progress; return [] if another savepoint is in progress."""
        if self._savepoint is not None:
            return []
        pending = self._savepoint = replace(self._begin(epoch), is_savepoint=True)
        self._savepoint_ids.add(pending.checkpoint_id)
        full = self._must_be_full
        return [TriggerCheckpoint(pending.checkpoint_id, epoch, full, pending.triggered_at, is_savepoint=True)]

    def take_id(self) -> CheckpointId:
        """Return an id for a barrier of neither a checkpoint nor a savepoint."""
        checkpoint_id = self._next_id
        self._next_id = CheckpointId(checkpoint_id + 1)
        return checkpoint_id

    def _begin(self, epoch: Epoch, since: float | None = None) -> PendingCheckpoint:
        now = self._clock.monotonic()
        waited = max(0.0, now - since) if since is not None else 0.0
        checkpoint_id = self.take_id()
        # Its snapshots build on what is complete now, so those files stay until it is complete or aborted.
        complete = [*self._retained.values(), *([self._writing] if self._writing and self._is_notifying else [])]
        self._bases[checkpoint_id] = frozenset(file for kept in complete for file in kept.files())
        self._files.acquire(self._bases[checkpoint_id])
        return PendingCheckpoint(
            checkpoint_id=checkpoint_id,
            epoch=epoch,
            triggered_at=self._clock.now() - timedelta(seconds=waited),
            expires=now - waited + _seconds(self._config.timeout),
            missing=self._subtasks,
            snapshots={},
        )

    def acknowledge(self, snapshot: SlotSnapshot) -> list[Action]:
        """Record one subtask's snapshot; the last one lets the metadata be written.

        A repeated or late report has no effect, except that its files are deleted.
        """
        if snapshot.checkpoint_id in self._savepoint_ids:
            return self._acknowledge_savepoint(snapshot)
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
        if gone:  # the slot built on a checkpoint before it was notified of its abort
            return self._fail(pending, f"subtask {snapshot.subtask} refers to {gone[0]}, which has been deleted")
        if pending.missing:
            return []
        if self._clock.monotonic() >= pending.expires:
            return self._fail(pending, self._timed_out("its last subtask reported too late"))

        half_finished = partly_finished_union(pending.snapshots)
        if half_finished is not None:
            # Not a failure, and over once the other subtasks have finished: the job continues as if none had been due.
            return [self._abort(pending.checkpoint_id, half_finished)]

        del self._pending[pending.checkpoint_id]
        self._ready[pending.checkpoint_id] = pending.acknowledged()
        return self._write_next()

    def decline(self, checkpoint_id: CheckpointId, subtask: SubtaskIndex, reason: str) -> list[Action]:
        """Abort a checkpoint if a subtask from which it needs a snapshot could not take it."""
        pending = self._pending.get(checkpoint_id) or self._pending_savepoint(checkpoint_id)
        if pending is None or subtask not in pending.missing:
            return []
        why = f"subtask {subtask} declined: {reason}"
        return self._abort_savepoint(why) if checkpoint_id in self._savepoint_ids else self._fail(pending, why)

    def files_missing(self, checkpoint_id: CheckpointId, reason: str) -> list[Action]:
        """Abort a checkpoint or savepoint that refers to missing files, and make the next one full, and soon.

        This does not count as a failed checkpoint yet: the slots still have all state, while a failover might find
        none to restore. Only missing files of a full checkpoint count.
        """
        self._must_be_full = True
        self._due = self._clock.monotonic()
        if checkpoint_id in self._savepoint_ids:
            return self._abort_savepoint(reason) if self.savepoint_in_progress == checkpoint_id else []
        writing = self._writing
        if writing is not None and writing.checkpoint_id == checkpoint_id:
            self._ready[checkpoint_id] = self._take_writing(checkpoint_id)  # may be aborted again
        aborted = self._pending.get(checkpoint_id) or self._ready.get(checkpoint_id)
        if aborted is None:
            return []
        if checkpoint_id in self._full_ids:
            return self._fail(aborted, reason) + self._write_next()
        return [self._abort(checkpoint_id, f"{reason}; the next one will be full"), *self._write_next()]

    def expire(self) -> list[Action]:
        """Abort what exceeds the timeout. A metadata write is checked when it ends: see `metadata_written`."""
        now = self._clock.monotonic()
        actions: list[Action] = []
        for pending in [each for each in self._all_pending() if now >= each.expires]:
            missing = ", ".join(str(subtask) for subtask in sorted(pending.missing))
            why = self._timed_out(f"missing subtasks: {missing}")
            actions += self._abort_savepoint(why) if pending is self._savepoint else self._fail(pending, why)
        for ready in [each for each in self._ready.values() if now >= each.expires]:
            actions += self._fail(ready, self._timed_out("the metadata of an earlier one was still being written"))
        return actions

    def expire_waiting(self, epoch: Epoch) -> list[Action]:
        """Abort a checkpoint whose barrier has waited for the end of `epoch` for longer than the timeout."""
        waiting = self._triggered
        if waiting is None or self._clock.monotonic() < waiting + _seconds(self._config.timeout):
            return []
        self._triggered = None
        self._due = waiting + _seconds(self._config.interval)
        pending = self._begin(epoch, waiting)
        self._pending[pending.checkpoint_id] = pending
        return self._fail(pending, self._timed_out(f"epoch {epoch} has not ended, and the barrier is behind it"))

    def _timed_out(self, what: str) -> str:
        return f"timed out after {self._config.timeout}; {what}"

    def metadata_written(self, checkpoint_id: CheckpointId) -> list[Action]:
        """Commit output after the metadata became durable; for a savepoint, notify the slots.

        Withdraws a checkpoint that exceeded the timeout: none of its output is visible yet.
        """
        if checkpoint_id in self._savepoint_ids:
            self._savepoint_being_written(checkpoint_id)
            return [NotifyCompleted(checkpoint_id, is_savepoint=True), *self._forget_savepoint()]
        writing = self._being_written(checkpoint_id)
        if self._clock.monotonic() >= writing.expires:
            return self._take_back(writing, self._timed_out("its metadata was not written in time"))
        return [CommitOutput(writing)]

    def output_committed(self, checkpoint_id: CheckpointId) -> list[Action]:
        """Notify the slots after all output that the checkpoint covers was committed."""
        self._being_written(checkpoint_id)
        self._is_notifying = True
        return [NotifyCompleted(checkpoint_id)]

    def output_lost(self, checkpoint_id: CheckpointId, reason: str) -> list[Action]:
        """Withdraw a checkpoint whose output cannot be committed, and fail over.

        No later checkpoint could cover that output, so this is never tolerated.
        """
        return [*self._take_back(self._being_written(checkpoint_id), reason), FailJob(reason)]

    def _take_back(self, writing: AcknowledgedCheckpoint, reason: str) -> list[Action]:
        self._withdrawn = reason
        return [RemoveMetadata(writing.checkpoint_id)]

    def metadata_removed(self, checkpoint_id: CheckpointId) -> list[Action]:
        """Abort a withdrawn checkpoint after its metadata was removed."""
        assert self._withdrawn is not None
        return self._fail_writing(checkpoint_id, self._withdrawn)

    def slots_notified(self, checkpoint_id: CheckpointId) -> list[Action]:
        """Complete the checkpoint: abort older ones in progress, discard superfluous ones.

        Slots build their next snapshots on it from now on, so only now may files of earlier ones be deleted.
        """
        if checkpoint_id in self._savepoint_ids:
            return []
        completed = self._take_writing(checkpoint_id)
        self._failures = 0
        if checkpoint_id in self._full_ids:
            self._full_ids.discard(checkpoint_id)
            self._must_be_full = False
        self._completed_epoch = completed.epoch
        self._retained[checkpoint_id] = completed
        self._files.acquire(completed.files())  # as one reference, in place of the snapshots' own
        for snapshot in completed.snapshots.values():
            self._files.let_go(files_of(snapshot))
        freed = set(self._files.let_go(self._bases.pop(checkpoint_id)))
        actions: list[Action] = []
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
        """Abort a checkpoint whose metadata could not be written."""
        why = f"metadata could not be written: {reason}"
        if checkpoint_id in self._savepoint_ids:
            self._savepoint_being_written(checkpoint_id)
            return self._abort_savepoint(why)
        return self._fail_writing(checkpoint_id, why)

    def _fail_writing(self, checkpoint_id: CheckpointId, reason: str) -> list[Action]:
        failed = self._take_writing(checkpoint_id)
        self._ready[checkpoint_id] = failed  # may be aborted again
        return self._fail(failed, reason) + self._write_next()

    def abort_pending(self, reason: str) -> list[Action]:
        """Abort everything in progress, as at a failover or the end of the job; this counts as no failure.

        A metadata write in progress is not cancelled: its last steps must still be reported.
        """
        aborted: list[Action] = [self._abort(each, reason) for each in sorted([*self._pending, *self._ready])]
        return aborted + (self._abort_savepoint(reason) if isinstance(self._savepoint, PendingCheckpoint) else [])

    def seconds_until_due(self) -> float | None:
        """Return the seconds until `tick` may have something to do; None if that depends on other events only."""
        if not self._config.interval or not self.can_trigger:
            return None
        return max(0.0, max(self._due, self._pause_over) - self._clock.monotonic())

    def seconds_until_timeout(self) -> float | None:
        """Return the seconds until `expire` or `expire_waiting` may have something to do; None if nothing waits."""
        moments = [pending.expires for pending in self._all_pending()]
        moments += [ready.expires for ready in self._ready.values()]
        if self._triggered is not None:
            moments.append(self._triggered + _seconds(self._config.timeout))
        return max(0.0, min(moments) - self._clock.monotonic()) if moments else None

    def _send_if_due(self, epoch: Epoch) -> list[Action]:
        self._trigger_if_due()
        return self.trigger(epoch) if self._triggered is not None else []

    def _trigger_if_due(self) -> None:
        now = self._clock.monotonic()
        if self._triggered is None and now >= self._due and now >= self._pause_over and self.can_trigger:
            self._triggered = now

    def _write_next(self) -> list[Action]:
        # One write at a time: checkpoints complete in the order of their ids, so a sink never sees 1 after 2.
        if self._writing or not self._ready:
            return []
        self._writing = self._ready.pop(min(self._ready))
        return [WriteMetadata(self._writing)]

    def _being_written(self, checkpoint_id: CheckpointId) -> AcknowledgedCheckpoint:
        if self._writing is None or self._writing.checkpoint_id != checkpoint_id:
            raise ValueError(f"the metadata of checkpoint {checkpoint_id} is not being written")
        return self._writing

    def _take_writing(self, checkpoint_id: CheckpointId) -> AcknowledgedCheckpoint:
        writing = self._being_written(checkpoint_id)
        self._writing = self._withdrawn = None
        self._is_notifying = False
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
        self._full_ids.discard(checkpoint_id)
        self._pause_over = self._clock.monotonic() + _seconds(self._config.min_pause)
        files: set[StateFile] = set(self._files.let_go(self._bases.pop(checkpoint_id)))
        for snapshot in aborted.snapshots.values():
            files |= self._files.let_go(files_of(snapshot))
        return AbortCheckpoint(checkpoint_id, reason, self._mark_deleted(files))

    def _acknowledge_savepoint(self, snapshot: SlotSnapshot) -> list[Action]:
        """Record one subtask's part of a savepoint. Its files belong to the savepoint, so they are not counted."""
        pending = self._pending_savepoint(snapshot.checkpoint_id)
        if pending is None or snapshot.subtask not in pending.missing:
            return []
        pending = self._savepoint = pending.with_snapshot(snapshot)
        if pending.missing:
            return []
        if self._clock.monotonic() >= pending.expires:
            return self._abort_savepoint(self._timed_out("its last subtask reported too late"))
        half_finished = partly_finished_union(pending.snapshots)
        if half_finished is not None:
            return self._abort_savepoint(half_finished)
        self._savepoint = pending.acknowledged()
        return [WriteMetadata(self._savepoint)]

    def _pending_savepoint(self, checkpoint_id: CheckpointId) -> PendingCheckpoint | None:
        found = self._savepoint
        return found if isinstance(found, PendingCheckpoint) and found.checkpoint_id == checkpoint_id else None

    def _all_pending(self) -> list[PendingCheckpoint]:
        savepoint = [self._savepoint] if isinstance(self._savepoint, PendingCheckpoint) else []
        return [*self._pending.values(), *savepoint]

    def _savepoint_being_written(self, checkpoint_id: CheckpointId) -> None:
        if not isinstance(self._savepoint, AcknowledgedCheckpoint) or self._savepoint.checkpoint_id != checkpoint_id:
            raise ValueError(f"the metadata of savepoint {checkpoint_id} is not being written")

    def _abort_savepoint(self, reason: str) -> list[Action]:
        assert self._savepoint is not None
        aborted = AbortCheckpoint(self._savepoint.checkpoint_id, reason, is_savepoint=True)
        return [aborted, *self._forget_savepoint()]

    def _forget_savepoint(self) -> list[Action]:
        assert self._savepoint is not None
        freed = self._files.let_go(self._bases.pop(self._savepoint.checkpoint_id))
        self._savepoint = None
        return [DeleteFiles(self._mark_deleted(freed))] if freed else []

    def _mark_deleted(self, files: Iterable[StateFile]) -> tuple[StateFile, ...]:
        self._deleted.update(file.path for file in files)
        return tuple(sorted(files, key=lambda file: file.path))


def _seconds(duration: timedelta | None) -> float:
    return duration.total_seconds() if duration else 0.0
