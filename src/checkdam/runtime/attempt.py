"""One execution of a job between two failovers: epochs run, checkpoints are cut and made durable, sinks commit.

Three kinds of threads meet here: the engine's, which runs epochs; the ticker, which between them cuts checkpoints and
runs epochs without records; and those of the checkpoints under way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from checkdam.checkpoint.settings import CheckpointingMode
from checkdam.errors import CheckdamError, JobFailedError, SlotLostError
from checkdam.graph.operators import SourceFunctionKind
from checkdam.ids import Attempt as AttemptId
from checkdam.ids import Epoch
from checkdam.runtime.checkpointing import Checkpointing, Surroundings
from checkdam.runtime.engine import Slot
from checkdam.runtime.events import EpochStats
from checkdam.runtime.job import Job
from checkdam.runtime.records import SlotRecord
from checkdam.runtime.restore import Restored
from checkdam.runtime.slot.messages import EpochReport, SlotSetup
from checkdam.runtime.slot_group import SlotGroup
from checkdam.runtime.ticking import Pending, Turns

_TICK_SECONDS = 0.05
_PATIENCE_SECONDS = 2.0


class AttemptRun:
    """Runs a job once. `run` returns when the input is used up, or raises what went wrong."""

    def __init__(self, job: Job, attempt: AttemptId, restored: Restored | None, around: Surroundings) -> None:
        self._job = job
        self._attempt = attempt
        self._restored = restored
        self._around = around
        self._coordinator = around.coordinator
        self._changed = threading.Condition(threading.RLock())  # the coordinator's state, or what is due, has changed
        self._group = SlotGroup(job.plan.slots)
        self._checkpoints = Checkpointing(job, around, self._group, self._changed, self.interrupt)
        if restored is not None:
            self._checkpoints.event_time = restored.event_time(job.plan)
            self._checkpoints.watermarks = restored.watermarks(job.plan)
        self._turns = Turns()
        self._pending = Pending(job.plan, around.clock, restored=restored is not None)
        self._failure: BaseException | None = None
        self._ended = False
        self._closed = False
        self._is_input_over = False  # the ticker leaves what is still to be done to the thread that ends the job
        self._epoch = Epoch(around.engine.first_epoch() - 1) if restored is None else restored.checkpoint.epoch
        self._has_advanced = False  # until then there is nothing that the restored checkpoint does not cover
        self._ticker: threading.Thread | None = None
        self.has_begun = False  # the slots have their state
        self.is_done = False  # the input is used up, and all output published

    def run(self) -> None:
        group, engine = self._group, self._around.engine
        group.slots = engine.start_slots(self._attempt, self._job.plan.slots)
        self._raise_failure()  # told before there was anything to stop
        self._around.listener.slots_started([self._record_of(slot) for slot in group.slots])
        group.call(self._configure)
        self.has_begun = True
        for slot in group.slots:
            threading.Thread(target=self._watch, args=(slot,), daemon=True, name="slot-watch").start()
        position = self._restored.checkpoint.source_position if self._restored else b""
        engine.resume(self._epoch, position)
        self._ticker = threading.Thread(target=self._tick, daemon=True, name="ticker")
        self._ticker.start()
        try:
            engine.run(group.slots, self._run_epoch)
            self._raise_failure()
            self._run_out()
            self._final_checkpoint()
        except BaseException as error:
            self._raise_failure()  # the first cause, rather than what it led to
            raise error
        self._end()
        self._closed = self.is_done = True
        group.call(_close)

    def _record_of(self, slot: Slot) -> SlotRecord:
        now = int(self._around.clock.now().timestamp() * 1000)
        return SlotRecord(slot.subtask, slot.host, slot.location, slot.pid, now)

    def interrupt(self, failure: BaseException) -> None:
        """Stop, for this reason; the first reason counts."""
        with self._changed:
            if self._ended or self._failure is not None:
                return
            self._failure = failure
            self._changed.notify_all()
        self._around.engine.interrupt()

    def look_again(self) -> None:
        """Time may have passed that nobody could wait for: see what is due."""
        with self._changed:
            self._changed.notify_all()

    def settle(self) -> None:
        """Wait until the checkpoints handed over so far are written, published and tidied up."""
        self._checkpoints.settle()

    def dispose(self) -> None:
        """End every slot and settle what is under way, so that the next attempt finds nothing moving."""
        self._end()
        if not self._closed:
            self._around.engine.interrupt()
            if self._ticker is not None:
                self._ticker.join(_PATIENCE_SECONDS)  # an epoch that takes longer is ended with its slots
            self._group.close_soon()
        self._group.kill()
        if self._ticker is not None:
            self._ticker.join()
        self._checkpoints.abort("the job fails over")
        self._group.dispose()
        self._checkpoints.dispose()
        self._group.disconnect()

    def _end(self) -> None:
        with self._changed:
            self._ended = True
            self._checkpoints.slots_ended()
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
                event_time=dict(self._checkpoints.event_time),
                watermarks=dict(self._checkpoints.watermarks),
                local_directory=job.local_directory,
            )
        )

    def _watch(self, slot: Slot) -> None:
        """Learn of a slot's death at once, also while no epoch runs."""
        try:
            slot.hold()
        except CheckdamError as error:
            self.interrupt(error)

    # -- epochs -------------------------------------------------------------------------------------------------

    def _run_epoch(self, execute: Callable[[Epoch], None]) -> None:
        with self._turns.wait():
            self._next_epoch(execute)

    def _next_epoch(self, execute: Callable[[Epoch], None]) -> None:
        """Run the epoch behind the last one; whoever calls has the turn.

        A failure is noted before the turn is given up: whoever takes it next would only meet what it led to.
        """
        self._raise_failure()
        try:
            self._run_whole(Epoch(self._epoch + 1), execute)
        except BaseException as error:
            self.interrupt(error)
            raise

    def _run_whole(self, epoch: Epoch, execute: Callable[[Epoch], None]) -> None:
        started = time.perf_counter()
        execute(epoch)
        commit = self._job.mode is CheckpointingMode.AT_LEAST_ONCE
        reports = self._group.call(lambda slot: slot.end_epoch(epoch, commit=commit))
        self._epoch, self._has_advanced = epoch, True
        self._take_in(reports)
        self._publish(reports)
        self._report(epoch, reports, time.perf_counter() - started)
        self._checkpoints.epoch_ended(epoch)

    def _take_in(self, reports: Sequence[EpochReport]) -> None:
        """What the slots say of time: how far event time has come, and what waits for the clock."""
        known = self._checkpoints
        known.event_time = _furthest(known.event_time, *(report.event_time for report in reports))
        known.watermarks = _furthest(known.watermarks, *(report.watermarks for report in reports))
        with self._changed:
            self._pending.epoch_ended(reports)
            self._changed.notify_all()

    def _publish(self, reports: Sequence[EpochReport]) -> None:
        lines = [line for report in reports for line in report.printed]
        if lines:
            self._around.listener.printed(lines)
        for report in reports:
            for uid, committables in report.committables.items():
                self._around.outputs.commit(uid, committables)

    def _report(self, epoch: Epoch, reports: Sequence[EpochReport], seconds: float) -> None:
        heads = {edge.target for edge in self._job.plan.edges if edge.level == 1}
        made = {op.id for op in self._job.plan.operators if isinstance(op.kind, SourceFunctionKind)}
        counts = [(op, each) for report in reports for op, each in report.operators.items()]
        records = sum(each.records_in for op, each in counts if op in heads)
        records += sum(each.records_out for op, each in counts if op in made)
        keys = sum(report.keys for report in reports)
        self._around.listener.epoch_ended(EpochStats(epoch, records, seconds, keys))

    # -- between epochs -----------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Between epochs: do what is due while no records come, and give up on checkpoints that take too long."""
        try:
            while self._wait_for_event():
                self._checkpoints.expire()
                with self._turns.take_if_free() as is_free:
                    if not is_free:
                        continue
                    if self._has_advanced:
                        self._checkpoints.tick(self._epoch)
                    if self._is_extra_due():
                        self._around.engine.run_extra(self._group.slots, self._next_epoch)
        except BaseException as error:  # noqa: BLE001  nothing may vanish in a background thread
            self.interrupt(error)

    def _is_extra_due(self) -> bool:
        with self._changed:
            return not self._is_input_over and self._seconds_until_extra() == 0.0

    def _seconds_until_extra(self) -> float | None:
        """Not before epoch 0, which belongs to what is there from the start."""
        return self._pending.seconds_until_due() if self._epoch >= 0 and not self._is_input_over else None

    def _wait_for_event(self) -> bool:
        """Wait until there may be something to do; False when the attempt is over.

        What is due while an epoch runs is done at the epoch's end, so being overdue is no reason to hurry; only source
        functions are asked again at once.
        """
        with self._changed:
            if not self._is_over():
                until_checkpoint, until_extra = (
                    self._coordinator.seconds_until_next_event(),
                    self._seconds_until_extra(),
                )
                waits = [max(each, _TICK_SECONDS) for each in (until_checkpoint, until_extra) if each is not None]
                if until_extra is None or not self._pending.has_unfinished_sources:
                    self._changed.wait(min(waits, default=None))
                elif self._turns.is_taken:
                    self._changed.wait(_TICK_SECONDS)
            return not self._is_over()

    def _is_over(self) -> bool:
        return self._ended or self._failure is not None

    # -- the end ------------------------------------------------------------------------------------------------

    def _run_out(self) -> None:
        """No more records come from Spark: let source functions end, then event time."""
        self._is_input_over = True
        engine, slots = self._around.engine, self._group.slots
        with self._turns.wait():  # an epoch of the ticker may be under way; none begins any more
            self._raise_failure()
        while self._pending.has_unfinished_sources:
            with self._turns.wait():
                engine.run_extra(slots, self._next_epoch)
        if self._job.plan.has_event_time:
            with self._turns.wait():
                self._raise_failure()
                self._group.call(lambda slot: slot.end_of_input())
                engine.run_extra(slots, self._next_epoch)
        self._raise_failure()

    def _final_checkpoint(self) -> None:
        """The input is used up: what was not yet covered by a checkpoint must be, before the job may end."""
        if self._around.store is None:
            with self._turns.wait():
                self._checkpoints.commit_without_checkpoint(self._epoch)
            return
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or not self._coordinator.in_progress)
            self._raise_failure()
            if self._coordinator.completed_epoch == self._epoch or self._is_as_restored():
                return
        with self._turns.wait():
            self._checkpoints.trigger(self._epoch)
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or not self._coordinator.in_progress)
            self._raise_failure()
            if self._coordinator.completed_epoch != self._epoch:
                raise JobFailedError("the final checkpoint failed, so the last output is not published")

    def _is_as_restored(self) -> bool:
        """Whether nothing has come since the job's own checkpoint that it was restored from."""
        return not self._has_advanced and self._restored is not None and self._restored.claim


def _close(slot: Slot) -> None:
    """Let a slot of a finished job end; one that is lost by now takes nothing of the job with it."""
    with suppress(SlotLostError):
        slot.close()


def _furthest(*told: Mapping[int, int]) -> dict[int, int]:
    """Of each the largest that anyone tells."""
    furthest: dict[int, int] = {}
    for each in told:
        for of, timestamp in each.items():
            furthest[of] = max(timestamp, furthest.get(of, timestamp))
    return furthest
