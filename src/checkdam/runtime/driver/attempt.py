"""One execution of a job between two failovers: epochs run, checkpoints are cut and made durable, sinks commit.

Six kinds of threads meet here: the engine's, which runs epochs; the ticker, which between them cuts checkpoints and
runs epochs without records; the one that watches the clock for checkpoints that are due or late; the one that does what
is asked of the job; those of the checkpoints under way; and those that watch whether all the others still move.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import timedelta
from typing import TypeVar

from checkdam.checkpoint.settings import JobEnd, keeps_checkpoints
from checkdam.clock import to_milliseconds
from checkdam.errors import CheckdamError, JobControlError, JobFailedError, SlotLostError
from checkdam.ids import Attempt as AttemptId
from checkdam.ids import CheckpointId, Epoch
from checkdam.runtime.answers import new_answer, refuse
from checkdam.runtime.driver.checkpointing import Checkpointing, Surroundings
from checkdam.runtime.driver.epoch_scheduler import Turns
from checkdam.runtime.driver.epochs import Epochs
from checkdam.runtime.driver.hang_watch import HangWatch
from checkdam.runtime.driver.job_requests import Requests, StopRequest
from checkdam.runtime.driver.request_execution import Fulfilment
from checkdam.runtime.driver.restore import Restored
from checkdam.runtime.driver.slot_group import LiveSlots, SlotGroup
from checkdam.runtime.engine import Slot
from checkdam.runtime.job import Job
from checkdam.runtime.monitor.job_events import JobListener
from checkdam.runtime.monitor.job_records import SlotRecord
from checkdam.runtime.slot.messages import SlotSetup
from checkdam.runtime.slot.slot_watch import Beat
from checkdam.runtime.source_position import decode_position, job_sources
from checkdam.runtime.stalls import Stall

T = TypeVar("T")

_log = logging.getLogger(__name__)

_TICK_SECONDS = 0.05
_PATIENCE_SECONDS = 2.0
_LONGEST_START = timedelta(minutes=5)
"""As long as Flink waits for slots; restoring state and opening functions may stand still for as long."""
_BREAK_OFF_SECONDS = 20.0
"""How long an attempt that was interrupted may go on before its slots are killed; longer than engines take to stop."""


class AttemptRun:
    """Runs a job once. `run` returns when the input is used up or the job was stopped, or raises what went wrong."""

    def __init__(self, job: Job, attempt: AttemptId, restored: Restored | None, around: Surroundings) -> None:
        self.job = job
        self.coordinator = around.coordinator
        self.listener: JobListener = around.listener
        self._attempt = attempt
        self._restored = restored
        self._around = around
        self._changed = threading.Condition(threading.RLock())  # the coordinator's state, or what is due, has changed
        self._group = SlotGroup(job.plan.slots)
        self.checkpoints = Checkpointing(job, around, self._group, self._changed, self.interrupt)
        if restored is not None:
            self.checkpoints.event_time = restored.event_time(job.plan)
            self.checkpoints.watermarks = restored.watermarks(job.plan)
        self.turns = Turns()
        self.epochs = Epochs(job, around, self._group, self.checkpoints, self._changed, restored)
        self.requests = Requests(self._changed)
        self._fulfilment = Fulfilment(self, self.requests, self._changed)
        self._hangs = HangWatch(
            job.checkpoints.timeout,
            job.heartbeat.interval,
            around.clock,
            around.engine.progress,
            self.checkpoints.stall,
            lambda: around.listener.is_waiting,
            _LONGEST_START,
        )
        self._failure: BaseException | None = None
        self._ended = False
        self._closed = False
        self._is_input_over = False  # the ticker leaves what is still to be done to the thread that ends the job
        self._ticker: threading.Thread | None = None
        self._clock_watch: threading.Thread | None = None
        self.is_ending = False  # no epoch will come any more, only the last checkpoint
        self.stopped_with: tuple[StopRequest, str] | None = None  # who asked for the end, and the savepoint
        self.has_begun = False  # the slots have their state
        self.is_done = False  # the input is used up, and all output published

    def run(self) -> None:
        threading.Thread(target=self._watch_all, daemon=True, name="hang-watch").start()
        try:
            self._run()
        except BaseException:
            self.check()  # the first cause, rather than what it led to
            raise
        self._end()
        self._closed = self.is_done = True
        self._group.call(_close)

    def _run(self) -> None:
        self._start_slots()
        position = self._restored.checkpoint.source_position if self._restored else b""
        engine = self._around.engine
        engine.resume(self.epochs.last, position)
        self._around.begun()
        self._clock_watch = threading.Thread(target=self._watch_clock, daemon=True, name="clock-watch")
        self._clock_watch.start()
        self._fulfilment.start()
        engine.run_static(self._group.slots, self._run_epoch)
        self._ticker = threading.Thread(target=self._tick, daemon=True, name="ticker")
        self._ticker.start()
        engine.run(self._group.slots, self._run_epoch)
        self.check()
        self._run_out()
        self._final_checkpoint()

    def _start_slots(self) -> None:
        group, engine = self._group, self._around.engine
        with self._hangs.expecting_progress("starting the slots", at_least=_LONGEST_START):
            group.slots = engine.start_slots(self._attempt, self.job.plan.slots)
        for slot in group.slots:  # from now on, since a slot that is not called ends
            threading.Thread(target=self._watch, args=(slot,), daemon=True, name="slot-watch").start()
        self.check()  # told before there was anything to stop
        self.listener.slots_started([self._record_of(slot) for slot in group.slots])
        if self._restored is not None:
            self.listener.progressed("restoring")
        group.call(self._configure)
        if self._restored is not None:
            self.listener.progressed(None)
        self._hangs.begun()
        self.has_begun = True

    @property
    def live_slots(self) -> LiveSlots | None:
        """Those that can be asked for their state; None before they have it and when the attempt is over."""
        if not self.has_begun or self.is_over:
            return None
        return LiveSlots(self._attempt, self.job.plan, self._group.slots)

    def _record_of(self, slot: Slot) -> SlotRecord:
        now = to_milliseconds(self._around.clock.now())
        return SlotRecord(slot.subtask, slot.host, slot.location, slot.pid, now)

    def interrupt(self, failure: BaseException) -> bool:
        """Stop the attempt. Return False if it was already stopping for another reason."""
        with self._changed:  # the engine, too: it is the next attempt's as soon as this one has ended
            is_first = self._note(failure)
            if is_first:
                self._around.engine.interrupt()
        return is_first

    def break_off(self, failure: BaseException) -> bool:
        """Stop at once: the epoch under way ends with its slots. Return False if the attempt was stopping already."""
        with self._changed:
            is_first = self._note(failure)
        if is_first:
            self._group.kill()  # not under the lock: a host that does not answer takes seconds
            with self._changed:
                if not self._ended:  # else the engine may be the next attempt's by now
                    self._around.engine.interrupt()
        return is_first

    def _note(self, failure: BaseException) -> bool:
        """Keep the first reason to stop, and see to it that the attempt ends."""
        if self._ended or self._failure is not None:
            return False
        self._failure = failure
        self._changed.notify_all()
        self._around.interrupted()
        timer = threading.Timer(_BREAK_OFF_SECONDS, self._kill_if_running)
        timer.daemon = True
        timer.start()
        return True

    def _kill_if_running(self) -> None:
        """Kill the slots if the attempt still uses them, so that every call of them ends."""
        if not self._ended:
            self._group.kill()

    def look_again(self) -> None:
        """Time may have passed that nobody could wait for: see what is due."""
        with self._changed:
            self._changed.notify_all()

    def settle(self) -> None:
        """Wait until the checkpoints handed over so far are written, published and tidied up."""
        self.checkpoints.settle()

    def drain(self) -> None:
        """Let event time end, and with it every timer fire; whoever calls has the turn."""
        self._group.call(lambda slot: slot.end_of_input())
        self._around.engine.run_extra(self._group.slots, self._next_epoch)

    def end_with(self, request: StopRequest, path: str) -> None:
        """Run no more epochs: the savepoint at this path is the job's last; whoever calls has the turn."""
        with self._changed:
            self.stopped_with = request, path
            self._changed.notify_all()
        self._around.engine.interrupt()

    def stall(self) -> Stall | None:
        """Tell where a thread stands still that the end of the attempt waits for."""
        return self.checkpoints.stall()

    def dispose(self) -> None:
        """End every slot and settle what is under way, so that the next attempt finds nothing moving."""
        self._around.interrupted()
        self._end()
        if not self._closed:
            self._around.engine.interrupt()
            for thread in self._helpers():
                thread.join(_PATIENCE_SECONDS)  # an epoch that takes longer is ended with its slots
            self._group.close_soon()
        self._group.kill()
        for thread in self._helpers():
            thread.join()
        self.checkpoints.abort(self._why_over())
        self._group.dispose()
        self.checkpoints.dispose()
        self._group.disconnect()
        self.requests.close(JobControlError(self._why_over()))
        if self.stopped_with is not None and not self.is_done:
            request, path = self.stopped_with
            published = f"the savepoint {path} is complete, but the job's last output was not published"
            refuse(request.answer, JobControlError(f"{published}: {self._why_over()}"))

    def _helpers(self) -> list[threading.Thread | Fulfilment]:
        return [self._fulfilment, *(each for each in (self._ticker, self._clock_watch) if each is not None)]

    def _why_over(self) -> str:
        if self._failure is None:
            return "the job has ended"
        return (
            f"the job fails over: {self._failure}" if isinstance(self._failure, CheckdamError) else str(self._failure)
        )

    def _end(self) -> None:
        with self._changed:
            self._ended = True
            self.checkpoints.slots_ended()
            self._changed.notify_all()

    def check(self) -> None:
        """Raise what ends the attempt, if something does."""
        if self._failure is not None:
            raise self._failure

    @property
    def is_over(self) -> bool:
        return self._ended or self._failure is not None

    @property
    def is_covered(self) -> bool:
        """Whether a checkpoint of the job holds all that has happened until now."""
        return self.coordinator.completed_epoch == self.epochs.last or self.epochs.is_as_restored

    def cover(self, turn: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        """Take a checkpoint of all that has happened until now, unless there is one.

        It is a full one if files that an incremental one would refer to are gone. `turn` takes the turn for a caller
        that does not have it; then no epoch may come any more.

        Raises:
            JobControlError: it failed, or the job has ended. What ends the attempt is raised at once.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.is_over or self.coordinator.can_trigger)
        self.refuse_if_over()
        is_gone = self.checkpoints.is_newest_gone()
        if self.is_covered and not is_gone:
            return
        try:
            self._take_checkpoint(turn, full=is_gone)
        except JobControlError:
            if self.is_over:
                raise
            if self.coordinator.must_be_full:  # the files went after they were looked at
                self._take_checkpoint(turn, full=True)
            elif is_gone or not self.is_covered:  # else another one, of the same epoch, was faster
                raise

    def _take_checkpoint(self, turn: Callable[[], AbstractContextManager[None]], *, full: bool) -> None:
        done: Future[CheckpointId] = new_answer()
        has_begun = False
        while not has_begun:
            with self._changed:
                self._changed.wait_for(lambda: self.is_over or self.coordinator.can_trigger)
            self.refuse_if_over()
            with turn():
                has_begun = self.checkpoints.trigger(self.epochs.last, full=full, answer=done)
        self.wait_for(done)

    def wait_for(self, answer: Future[T]) -> T:
        """Wait for what was asked for; raise at once what ends the attempt."""
        answer.add_done_callback(lambda _: self.look_again())
        with self._changed:
            self._changed.wait_for(lambda: answer.done() or self.is_over)
        self.refuse_if_over()
        return answer.result()

    def refuse_if_over(self) -> None:
        self.check()
        if self.is_over:
            raise JobControlError("the job has ended")

    def _configure(self, slot: Slot) -> None:
        job = self.job
        slot.configure(
            SlotSetup(
                job_id=job.job_id,
                attempt=self._attempt,
                subtask=slot.subtask,
                plan=job.plan.for_slots(),
                backend=job.backend,
                last_epoch=Epoch(self.epochs.last),
                unread_assigners=self._unread_assigners(),
                storage=job.storage,
                restore=self._restored.point() if self._restored else None,
                event_time=dict(self.checkpoints.event_time),
                watermarks=dict(self.checkpoints.watermarks),
                driver_memory=job.driver_memory,
                local_directory=job.local_directory,
                next_checkpoint=self.coordinator.next_id,
            )
        )

    def _unread_assigners(self) -> frozenset[int]:
        """The assigners of timestamps behind static sources whose records come with the next epoch."""
        position = self._restored.checkpoint.source_position if self._restored else b""
        read = {each.uid for each in decode_position(position).held}
        unread = {source.id for source in job_sources(self.job.plan) if source.is_static and source.uid not in read}
        for operator in self.job.plan.operators:
            if unread.intersection(operator.all_inputs):
                unread.add(operator.id)
        plan = self.job.plan
        return frozenset((plan.static_assigners | plan.ending_assigners.keys()) & unread)

    # -- what hangs ---------------------------------------------------------------------------------------------

    def _watch(self, slot: Slot) -> None:
        """Learn of a slot that is lost, is silent or stands still, also while no epoch runs."""
        try:
            slot.hold(lambda beat: self._beat(slot, beat))
        except CheckdamError as error:
            self._lose(slot, error)

    def _beat(self, slot: Slot, beat: Beat) -> None:
        with self._changed:
            if self.epochs.pending.signalled(slot.subtask, beat.signals):
                self._changed.notify_all()
        reason = self._hangs.beat(slot.subtask, beat)
        if isinstance(reason, SlotLostError):
            self._lose(slot, reason)
        elif reason is not None:
            self.interrupt(reason)

    def _lose(self, slot: Slot, reason: CheckdamError) -> None:
        """Fail over. A slot that hangs is killed at once, so that whatever waits for it ends."""
        self.interrupt(reason)
        if not self._ended:
            slot.kill()

    def _watch_all(self) -> None:
        """Look regularly whether the attempt moves."""
        while not self._is_over_within(self.job.heartbeat.interval_seconds):
            try:
                reason = self._hangs.look()
            except Exception:  # noqa: BLE001  a fault of the watch is none of the job
                _log.warning("the attempt cannot be watched for hangs", exc_info=True)
                continue
            if reason is not None:
                self.interrupt(reason)

    def _is_over_within(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.is_over, seconds)

    # -- epochs -------------------------------------------------------------------------------------------------

    def _run_epoch(self, execute: Callable[[Epoch], None]) -> None:
        with self.turns.wait():
            self._next_epoch(execute)

    def _next_epoch(self, execute: Callable[[Epoch], None]) -> None:
        """Run the epoch behind the last one, unless the job was stopped meanwhile; whoever calls has the turn.

        A failure is noted before the turn is given up: whoever takes it next would only meet what it led to.
        """
        self.check()
        if self.stopped_with is not None:
            return
        try:
            with self._hangs.expecting_progress(f"epoch {self.epochs.last + 1}"):
                self.epochs.run_next(execute)
        except BaseException as error:
            self.interrupt(error)
            raise

    # -- between epochs -----------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Between epochs: do what is due while no records come."""
        try:
            while self._wait_for_event():
                with self.turns.take_if_free() as is_free:
                    if not is_free or self.is_over:  # who had the turn before may have ended the attempt
                        continue
                    if self.epochs.last >= 0 and not self._is_about_to_end:
                        self.checkpoints.tick(self.epochs.last)
                    if self._is_extra_due():
                        self._around.engine.run_extra(self._group.slots, self._next_epoch)
        except BaseException as error:  # noqa: BLE001  nothing may vanish in a background thread
            self.interrupt(error)

    @property
    def _is_about_to_end(self) -> bool:
        """Whether the last checkpoint of the attempt, or its savepoint, is somebody else's to take."""
        return self.is_ending or self.requests.is_asked_to_end

    def _watch_clock(self) -> None:
        """Trigger checkpoints, and give up on those that take too long.

        The ticker cannot: it may be the one that waits for a slot, or runs an epoch.
        """
        try:
            while self._wait_for_clock():
                may_cut = self._ticker is not None and not self._is_about_to_end
                self.checkpoints.time_passes(Epoch(self.epochs.last + 1) if may_cut else None)
        except BaseException as error:  # noqa: BLE001  nothing may vanish in a background thread
            self.interrupt(error)

    def _wait_for_clock(self) -> bool:
        """Wait until a checkpoint may be due or late; False when the attempt is over.

        While one waits for its barrier, look again and again: its timeout may begin anew.
        """
        with self._changed:
            if not self.is_over:
                known = self.coordinator.seconds_until_due(), self.coordinator.seconds_until_timeout()
                waits = [max(each, _TICK_SECONDS) for each in known if each is not None]
                self._changed.wait(min(waits, default=None))
            return not self.is_over

    def _is_extra_due(self) -> bool:
        with self._changed:
            return self._seconds_until_extra() == 0.0

    def _seconds_until_extra(self) -> float | None:
        """Not before epoch 0, which belongs to what is there from the start."""
        if self.epochs.last < 0 or self._is_input_over or self.stopped_with is not None:
            return None
        return self.epochs.pending.seconds_until_due()

    def _wait_for_event(self) -> bool:
        """Wait until there may be something to do; False when the attempt is over.

        What is due while an epoch runs is done at the epoch's end, so being overdue is no reason to hurry; only source
        functions are asked again at once.
        """
        with self._changed:
            if not self.is_over:
                until_checkpoint, until_extra = (
                    self.coordinator.seconds_until_due(),
                    self._seconds_until_extra(),
                )
                waits = [max(each, _TICK_SECONDS) for each in (until_checkpoint, until_extra) if each is not None]
                if until_extra is None or not self.epochs.pending.has_ready_sources:
                    self._changed.wait(min(waits, default=None))
                elif self.turns.is_taken:
                    self._changed.wait(_TICK_SECONDS)
            return not self.is_over

    # -- the end ------------------------------------------------------------------------------------------------

    def _run_out(self) -> None:
        """No more records come from Spark: let source functions end, then event time."""
        self._is_input_over = True
        engine, slots = self._around.engine, self._group.slots
        with self.turns.wait():  # an epoch of the ticker may be under way; none begins any more
            self.check()
        while self._source_functions_go_on():
            with self.turns.wait():
                engine.run_extra(slots, self._next_epoch)
        if self.job.plan.has_event_time:
            with self.turns.wait():
                self.check()
                if self.stopped_with is None:
                    self.drain()
        self.check()

    def _source_functions_go_on(self) -> bool:
        """Wait until an epoch is due. Return False if none may come: all have ended, or the job does."""
        pending = self.epochs.pending
        with self._changed:
            while not self.is_over and self.stopped_with is None and pending.has_unfinished_sources:
                seconds = pending.seconds_until_due()
                if seconds == 0.0:
                    return True
                self._changed.wait(seconds)
        return False

    def _final_checkpoint(self) -> None:
        """No epoch comes any more: what was not yet covered by a checkpoint must be, before the job may end."""
        with self.turns.wait():
            self.is_ending = True
        coordinator, changed = self.coordinator, self._changed
        with changed:  # a savepoint under way is somebody's: it may end as well
            changed.wait_for(lambda: self.is_over or coordinator.savepoint_in_progress is None)
        if self._around.store is None:
            with self.turns.wait():
                self.check()
                with self._hangs.expecting_progress("publishing the last output"):
                    self.checkpoints.commit_without_checkpoint(self.epochs.last)
            return
        with changed:
            changed.wait_for(lambda: self.is_over or not coordinator.in_progress)
            self.check()
        if self.is_covered and not keeps_checkpoints(self.job.checkpoints.retention, JobEnd.FINISHED):
            return  # all is published, and the checkpoint goes with the job
        try:
            self.cover(self.turns.wait)
        except JobControlError as error:
            raise JobFailedError(
                f"the final checkpoint failed, so the last output is not published: {error}"
            ) from error


def _close(slot: Slot) -> None:
    """Let a slot of a finished job end; one that is lost by now takes nothing of the job with it."""
    with suppress(SlotLostError):
        slot.close()
