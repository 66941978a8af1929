"""One execution of a job between two failovers: epochs run, checkpoints are cut and made durable, sinks commit.

The coordinator decides; this module performs. Three kinds of threads meet here: the engine's, which runs epochs; the
ticker, which cuts checkpoints between epochs; and one committer, which writes, publishes and deletes in order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
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
from checkdam.checkpoint.settings import CheckpointingMode
from checkdam.checkpoint.store import CheckpointStore
from checkdam.clock import Clock
from checkdam.errors import CheckdamError, JobFailedError, SlotLostError, StorageError
from checkdam.ids import Attempt as AttemptId
from checkdam.ids import CheckpointId, Epoch, SubtaskIndex
from checkdam.runtime.completion import checkpoint_stats, completed_checkpoint
from checkdam.runtime.engine import Engine, Slot
from checkdam.runtime.events import EpochStats, JobListener
from checkdam.runtime.job import Job
from checkdam.runtime.outputs import Outputs
from checkdam.runtime.restore import Restored
from checkdam.runtime.slot.messages import EpochReport, SlotSetup
from checkdam.state.snapshots import StateFile

T = TypeVar("T")
A = TypeVar("A", bound=Action)

_TICK_SECONDS = 0.05

_CLOSING_SECONDS = 5.0
"""How long the functions of a failed or cancelled attempt may take to close before their slots are killed."""


@dataclass(frozen=True)
class Surroundings:
    """What an attempt works with and does not own."""

    engine: Engine
    store: CheckpointStore | None
    coordinator: CheckpointCoordinator
    outputs: Outputs
    listener: JobListener
    clock: Clock


class AttemptRun:
    """Runs a job once. `run` returns when the input is used up, or raises what went wrong."""

    def __init__(self, job: Job, attempt: AttemptId, restored: Restored | None, around: Surroundings) -> None:
        self._job = job
        self._attempt = attempt
        self._restored = restored
        self._around = around
        self._coordinator = around.coordinator
        self._slots: Sequence[Slot] = ()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)  # the coordinator's state has changed
        self._between_epochs = threading.Lock()
        self._committer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="committer")
        self._pool = ThreadPoolExecutor(max_workers=3 * job.plan.slots + 2, thread_name_prefix="slots")
        self._failure: BaseException | None = None
        self._ended = False
        self._closed = False
        self._disposed = False
        self._epoch = around.engine.first_epoch() - 1 if restored is None else restored.checkpoint.epoch
        self._has_advanced = False  # until then there is nothing that the restored checkpoint does not cover
        self._positions: dict[CheckpointId, bytes] = {}
        self._ticker: threading.Thread | None = None
        self.has_begun = False  # the slots have their state
        self.is_done = False  # the input is used up, and all output published

    def run(self) -> None:
        self._slots = self._around.engine.start_slots(self._attempt, self._job.plan.slots)
        self._raise_failure()  # told before there was anything to stop
        self._around.listener.slots_started([slot.pid for slot in self._slots])
        self._on_all_slots(self._configure)
        self.has_begun = True
        for slot in self._slots:
            threading.Thread(target=self._watch, args=(slot,), daemon=True, name="slot-watch").start()
        self._ticker = threading.Thread(target=self._tick, daemon=True, name="checkpoint-ticker")
        self._ticker.start()
        try:
            position = self._restored.checkpoint.source_position if self._restored else b""
            self._around.engine.run(self._slots, Epoch(self._epoch), position, self._run_epoch)
            self._raise_failure()
            self._final_checkpoint()
        except BaseException as error:
            self._raise_failure()  # the first cause, rather than what it led to
            raise error
        self._end()
        self._closed = self.is_done = True
        self._on_all_slots(_close)

    def interrupt(self, failure: BaseException) -> None:
        """Stop, for this reason; the first reason counts."""
        with self._changed:
            if self._ended or self._failure is not None:
                return
            self._failure = failure
            self._changed.notify_all()
        self._around.engine.interrupt()

    def dispose(self) -> None:
        """End every slot and settle what is under way, so that the next attempt finds nothing moving."""
        self._end()
        if self._ticker is not None:
            self._ticker.join()
        if not self._closed:  # a slot that is gone, or busy for too long, is not waited for
            wait([self._pool.submit(slot.close) for slot in self._slots], timeout=_CLOSING_SECONDS)
        for slot in self._slots:
            slot.kill()
        with self._lock:
            self._perform(self._coordinator.abort_pending("the job fails over"))
            self._disposed = True
        self._pool.shutdown(wait=True)
        self._committer.shutdown(wait=True)
        for slot in self._slots:
            slot.disconnect()

    def _end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _configure(self, slot: Slot) -> None:
        job = self._job
        slot.configure(
            SlotSetup(
                job_id=job.job_id,
                attempt=self._attempt,
                subtask=slot.subtask,
                plan=job.plan.for_slots(),
                backend=job.backend,
                last_epoch=Epoch(self._epoch),
                storage=job.storage,
                restore=self._restored.point() if self._restored else None,
            )
        )

    def _watch(self, slot: Slot) -> None:
        """Learn of a slot's death at once, also while no epoch runs."""
        try:
            slot.hold()
        except CheckdamError as error:
            self.interrupt(error)

    # -- epochs -------------------------------------------------------------------------------------------------

    def _run_epoch(self, epoch: Epoch, execute: Callable[[], None]) -> None:
        with self._between_epochs:
            self._raise_failure()
            started = time.perf_counter()
            execute()
            commit = self._job.mode is CheckpointingMode.AT_LEAST_ONCE
            reports = self._on_all_slots(lambda slot: slot.end_epoch(epoch, commit=commit))
            self._epoch, self._has_advanced = epoch, True
            self._publish(reports)
            self._report(epoch, reports, time.perf_counter() - started)
            if self._around.store is not None:
                with self._lock:
                    actions = self._coordinator.epoch_ended(epoch)
                self._perform(actions)

    def _publish(self, reports: Sequence[EpochReport]) -> None:
        lines = [line for report in reports for line in report.printed]
        if lines:
            self._around.listener.printed(lines)
        for report in reports:
            for uid, committables in report.committables.items():
                self._around.outputs.commit(uid, committables)

    def _report(self, epoch: Epoch, reports: Sequence[EpochReport], seconds: float) -> None:
        heads = {edge.target for edge in self._job.plan.edges if edge.level == 1}
        records = sum(c.records_in for report in reports for op, c in report.operators.items() if op in heads)
        keys = sum(report.keys for report in reports)
        self._around.listener.epoch_ended(EpochStats(epoch, records, seconds, keys))

    # -- checkpoints --------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Between epochs: cut what is due while no records come, and give up on what takes too long."""
        try:
            while self._wait_for_event():
                with self._lock:
                    expired = self._coordinator.expire()
                self._perform(expired)
                if self._around.store is not None and self._between_epochs.acquire(blocking=False):
                    try:
                        with self._lock:
                            due = self._coordinator.tick(Epoch(self._epoch)) if self._has_advanced else []
                        self._perform(due)
                    finally:
                        self._between_epochs.release()
        except Exception as error:  # noqa: BLE001  nothing may vanish in a background thread
            self.interrupt(error)

    def _wait_for_event(self) -> bool:
        """Wait until the coordinator may have something to do; False when the attempt is over.

        What is due while an epoch runs is cut at the epoch's end, so being overdue is no reason to hurry.
        """
        with self._changed:
            if not self._is_over():
                seconds = self._coordinator.seconds_until_next_event()
                self._changed.wait(None if seconds is None else max(seconds, _TICK_SECONDS))
            return not self._is_over()

    def _is_over(self) -> bool:
        return self._ended or self._failure is not None

    def _perform(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, TriggerCheckpoint):
                self._cut(action)
            elif isinstance(action, FailJob):
                self.interrupt(JobFailedError(action.reason))
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
            self.interrupt(error)

    def _cut(self, trigger: TriggerCheckpoint) -> None:
        """Seal every slot, then wait in the background for what each has written."""
        checkpoint_id = trigger.checkpoint_id
        try:
            self._positions[checkpoint_id] = self._around.engine.position(trigger.epoch)
            self._on_all_slots(lambda slot: slot.seal(checkpoint_id, trigger.epoch))
        except SlotLostError as error:
            self.interrupt(error)
            return
        except Exception as error:  # noqa: BLE001  whatever a slot met: the checkpoint is declined
            self._decline(checkpoint_id, SubtaskIndex(0), error)
            return
        for slot in self._slots:
            # A thread of its own: a slot whose storage hangs must not keep the others, or the next epoch, waiting.
            threading.Thread(
                target=self._await_snapshot, args=(slot, checkpoint_id), daemon=True, name="snapshot-wait"
            ).start()

    def _await_snapshot(self, slot: Slot, checkpoint_id: CheckpointId) -> None:
        try:
            snapshot = slot.snapshot(checkpoint_id)
        except SlotLostError as error:
            self.interrupt(error)
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
        position = self._positions.pop(acknowledged.checkpoint_id, b"")
        checkpoint = completed_checkpoint(self._job, acknowledged, position, at=self._around.clock.now())
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
        if not self._ended:  # before the coordinator goes on: the next cut must build on this one
            self._on_all_slots(lambda slot: slot.completed(acknowledged.checkpoint_id))
        with self._changed:
            self._perform(self._coordinator.metadata_written(acknowledged.checkpoint_id))
            self._changed.notify_all()

    def _abort(self, action: AbortCheckpoint) -> None:
        self._positions.pop(action.checkpoint_id, None)
        if not self._ended:
            self._on_all_slots(lambda slot: slot.aborted(action.checkpoint_id))
        if self._around.store is not None:
            self._around.store.discard(action.checkpoint_id)
            self._delete(action.new_files)

    def _delete(self, files: Sequence[StateFile]) -> None:
        assert self._around.store is not None
        self._around.store.delete_files(files)

    def _final_checkpoint(self) -> None:
        """The input is used up: what was not yet covered by a checkpoint must be, before the job may end."""
        if self._around.store is None:
            self._commit_without_checkpoint()
            return
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or not self._coordinator.in_progress)
            self._raise_failure()
            if self._coordinator.completed_epoch == self._epoch or self._is_as_restored():
                return
        with self._between_epochs, self._lock:
            actions = self._coordinator.trigger(Epoch(self._epoch))
        self._perform(actions)
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or not self._coordinator.in_progress)
            self._raise_failure()
            if self._coordinator.completed_epoch != self._epoch:
                raise JobFailedError("the final checkpoint failed, so the last output is not published")

    def _is_as_restored(self) -> bool:
        """Whether nothing has come since the job's own checkpoint that it was restored from."""
        return not self._has_advanced and self._restored is not None and self._restored.claim

    def _commit_without_checkpoint(self) -> None:
        """Checkpoints are off: the output of a bounded job becomes visible at its end."""
        once = CheckpointId(1)
        self._on_all_slots(lambda slot: slot.seal(once, Epoch(self._epoch)))
        for snapshot in self._on_all_slots(lambda slot: slot.snapshot(once)):
            for operator in snapshot.operators:
                self._around.outputs.commit(operator.uid, operator.committables)

    def _on_all_slots(self, call: Callable[[Slot], T]) -> list[T]:
        """Call every slot at the same time; all have answered when this returns, or the first error is raised."""
        futures = [self._pool.submit(call, slot) for slot in self._slots]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        return [future.result() for future in futures]


def _close(slot: Slot) -> None:
    """Let a slot of a finished job end; one that is lost by now takes nothing of the job with it."""
    with suppress(SlotLostError):
        slot.close()
