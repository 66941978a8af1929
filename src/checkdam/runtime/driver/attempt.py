"""One execution of a job between two failovers.

One event loop owns the attempt. After each event it decides what comes next: an epoch, a barrier, a request, a timeout
or the end. Engine, slots and storage work on the lanes of the loop and report back as events.

At most one activity at a time may use all slots: an epoch, a barrier, or a request that ends the attempt. The attempt
records it as its *holder*; nothing else begins until the holder releases the slots.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from checkdam.checkpoint.settings import CheckpointingMode, JobEnd, keeps_checkpoints
from checkdam.clock import to_milliseconds
from checkdam.errors import CheckdamError, JobControlError, JobFailedError, SavepointError, SlotLostError
from checkdam.ids import Attempt as AttemptId
from checkdam.ids import CheckpointId, Epoch
from checkdam.runtime.answers import new_answer, refuse
from checkdam.runtime.driver.checkpointing import (
    COMMITTER,
    LISTENER,
    SAVEPOINT,
    SLOTS,
    Checkpointing,
    Surroundings,
)
from checkdam.runtime.driver.epoch_input import EXTRA, INPUT, EngineInput, EpochInput, EpochListener, OfferedEpoch
from checkdam.runtime.driver.epochs import PendingEpoch, epoch_stats, furthest
from checkdam.runtime.driver.event_loop import EventLoop, Lane
from checkdam.runtime.driver.hang_watch import HangWatch
from checkdam.runtime.driver.job_requests import (
    Request,
    Requests,
    StopRequest,
)
from checkdam.runtime.driver.request_server import ABANDONED, RequestServer
from checkdam.runtime.driver.restore import Restored
from checkdam.runtime.driver.slot_group import LiveSlots, SlotGroup
from checkdam.runtime.engine import Engine, Slot
from checkdam.runtime.job import Job
from checkdam.runtime.monitor.job_records import SlotRecord
from checkdam.runtime.slot.messages import EpochReport, OperatorCounts, SlotSetup
from checkdam.runtime.slot.slot_watch import Beat
from checkdam.runtime.source_position import decode_position, job_sources
from checkdam.runtime.stalls import Stall

_log = logging.getLogger(__name__)

STARTING = Lane("starting the slots")
WATCHES = Lane("watching the slots", threads=1000)
KILLS = Lane("killing slots", threads=1000)

_ENDING_SECONDS = 2.0
"""How long a running epoch may take once the attempt ends, before its slots are killed."""
_SAVEPOINT_SECONDS = 5.0
"""How long the end of the attempt waits for the directory of a savepoint."""
_LONGEST_START = timedelta(minutes=5)
"""Flink waits this long for slots; restoring state and opening functions may take as long without progress."""
_BREAK_OFF_SECONDS = 20.0
"""How long an interrupted attempt may continue before its slots are killed; longer than engines take to stop."""

Then = Callable[[BaseException | None], None]
"""Called with the failure, or None on success."""


@dataclass(frozen=True)
class Machinery:
    """The means an attempt runs with: threads, or single steps in a simulation."""

    loop: Callable[[], EventLoop] = EventLoop
    group: Callable[[int], SlotGroup] = SlotGroup
    input: Callable[[Engine, EventLoop, HangWatch, EpochListener], EpochInput] = EngineInput


class AttemptRun:
    """Runs a job once. `run` returns when the input is exhausted or the job was stopped, and raises the failure
    otherwise.

    Any thread may call `ask`, `interrupt`, `suspend`, `look_again`, `settle`, `stall` and `live_slots`.
    """

    def __init__(
        self,
        job: Job,
        attempt: AttemptId,
        restored: Restored | None,
        around: Surroundings,
        machinery: Machinery | None = None,
    ) -> None:
        machinery = machinery or Machinery()
        self.job = job
        self.coordinator = around.coordinator
        self._attempt = attempt
        self._restored = restored
        self._around = around
        self._engine = around.engine
        self._listener = around.listener
        self._loop = machinery.loop()
        self._loop.advance, self._loop.failed = self._advance, self._handler_failed
        self._group = machinery.group(job.plan.slots)
        self.checkpoints = Checkpointing(job, around, self._group, self._loop, self.fail)
        self._tell = self.checkpoints.tell
        if restored is not None:
            self.checkpoints.event_time = restored.event_time(job.plan)
            self.checkpoints.watermarks = restored.watermarks(job.plan)
        self._hangs = HangWatch(
            job.checkpoints.timeout,
            job.heartbeat.interval,
            around.clock,
            around.engine.progress,
            lambda: self._loop.stall(COMMITTER),
            lambda: around.listener.is_waiting,
            _LONGEST_START,
        )
        self._input = machinery.input(around.engine, self._loop, self._hangs, self)
        self.requests = Requests()
        self._server = RequestServer(
            self, job, self.requests, self.checkpoints, around.coordinator, around.listener, self._loop
        )
        self.last_epoch = Epoch(around.engine.first_epoch() - 1) if restored is None else restored.checkpoint.epoch
        self.pending = PendingEpoch(job.plan, around.clock, restored=restored is not None)
        self._has_advanced = False  # until then the restored checkpoint covers everything
        self.may_trigger = True  # whether the next epochs may end with a barrier
        self._offered: deque[OfferedEpoch] = deque()
        self._current: OfferedEpoch | None = None  # the epoch that runs
        self._holder: str | None = None
        self._waiting: list[tuple[Callable[[], bool], Callable[[], None]]] = []
        self._settlers: list[Future[None]] = []
        self._failure: BaseException | None = None
        self._ended = False  # the slots are no longer used
        self._closed: Future[object] | None = None  # done when the slots have closed in order
        self._is_open = False  # the output matches the restored state: epochs and requests may begin
        self._is_static_over = False
        self._is_input_over = False
        self._has_drained = False
        self.is_ending = False  # no more epochs, only the last checkpoint
        self.stopped_with: tuple[StopRequest, str] | None = None  # the request that ends the job, and its savepoint
        self.has_begun = False  # the slots have their state
        self.is_done = False  # the input is exhausted and all output published

    # -- from any thread ----------------------------------------------------------------------------------------

    def ask(self, request: Request) -> None:
        """Serve a request as soon as possible; it is always answered."""
        self.requests.add(request)
        self.look_again()

    def interrupt(self, failure: BaseException) -> None:
        """Stop the attempt for this reason, unless it is already stopping."""
        self._loop.post(partial(self.fail, failure))

    def suspend(self, grace: timedelta) -> None:
        """Take a last checkpoint within `grace`, and end the attempt with or without it."""
        self._loop.post(partial(self._server.begin_suspension, grace))

    def look_again(self) -> None:
        """Re-check what is due after the clock moved or a request arrived."""
        self._loop.post(lambda: None)

    def settle(self) -> None:
        """Wait until the checkpoints in progress are written, published and cleaned up."""
        settled: Future[None] = Future()
        if self._loop.post(lambda: self._settlers.append(settled)):
            settled.result()

    def stall(self) -> Stall | None:
        """Describe the work that the end of the attempt waits for, if some stands still."""
        return self._loop.stall(COMMITTER, SAVEPOINT, SLOTS, STARTING, INPUT, EXTRA, LISTENER, KILLS)

    @property
    def live_slots(self) -> LiveSlots | None:
        """The slots whose state can be queried; None before they have state and after the attempt is over."""
        if not self.has_begun or self.is_over:
            return None
        return LiveSlots(self._attempt, self.job.plan, self._group.slots)

    # -- start and end ------------------------------------------------------------------------------------------

    def run(self) -> None:
        self._look_for_hangs_later()
        self._loop.start(STARTING, self._start_slots, self._slots_started)
        try:
            self._loop.run(lambda: self._failure is not None or self._closed is not None)
        except BaseException as interruption:  # Ctrl-C, if the job runs in the thread of the program
            self.fail(interruption)
            raise
        if self._failure is not None:
            raise self._failure
        assert self._closed is not None
        self._closed.result()

    def _start_slots(self) -> Sequence[Slot]:
        with self._hangs.expecting_progress(STARTING.name, at_least=_LONGEST_START):
            return self._engine.start_slots(self._attempt, self.job.plan.slots)

    def _slots_started(self, done: Future[Sequence[Slot]]) -> None:
        failure = done.exception()
        if failure is not None:
            self.fail(failure)
            return
        group = self._group
        group.slots = done.result()
        for slot in group.slots:  # from now on, since a slot that gets no calls ends
            self._loop.start(WATCHES, partial(self._watch, slot), partial(self._watch_ended, slot))
        if self.is_over:  # stopped before there was anything to stop
            return
        self._tell(partial(self._listener.slots_started, [self._record_of(slot) for slot in group.slots]))
        setups = {slot.subtask: self._setup(slot) for slot in group.slots}
        self._tell_restoring("restoring")
        self._do(STARTING, lambda: group.call(lambda slot: slot.configure(setups[slot.subtask])), self._configured)

    def _tell_restoring(self, what: str | None) -> None:
        if self._restored is not None:
            self._tell(partial(self._listener.progressed, what))

    def _configured(self) -> None:
        self._tell_restoring(None)
        self._hangs.begun()
        self.has_begun = True
        self._do(STARTING, self._resume, self._begin)

    def _resume(self) -> None:
        position = self._restored.checkpoint.source_position if self._restored else b""
        self._engine.resume(Epoch(self.last_epoch), position)
        self._around.begun()

    def _begin(self) -> None:
        self._is_open = True
        self._input.run_static(self._group.slots, partial(self._ended_input, self._static_over))

    def _static_over(self) -> None:
        self._is_static_over = True
        self._input.run(self._group.slots, partial(self._ended_input, self._input_over))

    def _input_over(self) -> None:
        self._is_input_over = True

    def _ended_input(self, then: Callable[[], None], done: Future[None]) -> None:
        failure = done.exception()
        if failure is not None:
            self.fail(failure)
        elif not self.is_over:
            then()

    def fail(self, failure: BaseException) -> bool:
        """Stop the attempt. Return False if it was already stopping for another reason."""
        if self._ended or self._failure is not None:
            return False
        self._failure = failure
        self.checkpoints.take_no_more_reports()
        self._around.interrupted()
        for offered in [*self._offered, *([self._current] if self._current is not None else [])]:
            offered.refuse(failure)
        self._offered.clear()
        self._loop.after(_BREAK_OFF_SECONDS, self._kill_if_running)
        self._server.attempt_fails(failure)
        self._engine.interrupt()
        return True

    def _handler_failed(self, failure: BaseException) -> None:
        """Fail over because the driver itself has a fault; one that comes later is only logged."""
        if not self.fail(failure):
            _log.warning("the driver has failed while an attempt ended", exc_info=failure)

    def _kill_if_running(self) -> None:
        """Kill the slots if the attempt still uses them, so that every call to them returns."""
        if not self._ended:
            self.kill()

    def kill(self) -> None:
        self._loop.start(KILLS, self._group.kill, lambda done: None)

    def dispose(self) -> None:
        """End every slot and settle the work in progress, so that the next attempt starts with nothing running."""
        loop = self._loop
        self._around.interrupted()
        if self._closed is None:
            self.fail(JobFailedError("the attempt was broken off"))
            self._engine.interrupt()
            loop.run(lambda: loop.is_idle(INPUT, STARTING))
            loop.run(lambda: loop.is_idle(EXTRA, SLOTS), _ENDING_SECONDS)
            self._end()
            self._do(KILLS, self._group.close_soon, lambda: None)
            loop.run(lambda: loop.is_idle(KILLS))
        self._end()
        self.kill()
        loop.run(lambda: loop.is_idle(INPUT, STARTING, EXTRA, SLOTS, KILLS))
        self.checkpoints.abort(self._why_over())
        self._group.dispose()
        if not loop.run(lambda: loop.is_idle(SAVEPOINT), _SAVEPOINT_SECONDS):
            places = ", ".join(self.checkpoints.places)
            reason = f"the place of a savepoint does not answer, and something may be left there: {places}"
            self._tell(partial(self._listener.left_behind, SavepointError(reason)))
        loop.run(lambda: loop.is_idle(COMMITTER))
        self.checkpoints.refuse_rest()
        self._group.disconnect()
        self._refuse_requests()
        loop.run(lambda: loop.is_idle(LISTENER, ABANDONED))
        loop.close()
        self._answer_settlers()

    def _refuse_requests(self) -> None:
        self._server.abandon_places()
        self.requests.close(JobControlError(self._why_over()))
        if self.stopped_with is not None and not self.is_done:
            request, path = self.stopped_with
            published = f"the savepoint {path} is complete, but the job's last output was not published"
            refuse(request.answer, JobControlError(f"{published}: {self._why_over()}"))

    def _why_over(self) -> str:
        if self._failure is None:
            return "the job has ended"
        return (
            f"the job fails over: {self._failure}" if isinstance(self._failure, CheckdamError) else str(self._failure)
        )

    def _end(self) -> None:
        self._ended = True
        self.checkpoints.slots_ended()

    @property
    def is_over(self) -> bool:
        return self._ended or self._failure is not None

    def _setup(self, slot: Slot) -> SlotSetup:
        job = self.job
        return SlotSetup(
            job_id=job.job_id,
            attempt=self._attempt,
            subtask=slot.subtask,
            plan=job.plan.for_slots(),
            backend=job.backend,
            last_epoch=Epoch(self.last_epoch),
            unread_assigners=self._unread_assigners(),
            storage=job.storage,
            restore=self._restored.point() if self._restored else None,
            event_time=dict(self.checkpoints.event_time),
            watermarks=dict(self.checkpoints.watermarks),
            driver_memory=job.driver_memory,
            local_directory=job.local_directory,
            next_checkpoint=self.coordinator.next_id,
        )

    def _unread_assigners(self) -> frozenset[int]:
        """Return the timestamp assigners behind static sources whose records come with the next epoch."""
        position = self._restored.checkpoint.source_position if self._restored else b""
        read = {each.uid for each in decode_position(position).held}
        unread = {source.id for source in job_sources(self.job.plan) if source.is_static and source.uid not in read}
        for operator in self.job.plan.operators:
            if unread.intersection(operator.all_inputs):
                unread.add(operator.id)
        plan = self.job.plan
        return frozenset((plan.static_assigners | plan.ending_assigners.keys()) & unread)

    def _record_of(self, slot: Slot) -> SlotRecord:
        now = to_milliseconds(self._around.clock.now())
        return SlotRecord(slot.subtask, slot.host, slot.location, slot.pid, now)

    # -- what comes next ----------------------------------------------------------------------------------------

    def _advance(self) -> float | None:
        """Begin all that can begin. Return how long until more may be due; None if only an event can bring it."""
        if self._loop.is_idle(COMMITTER, SAVEPOINT, LISTENER):
            self._answer_settlers()
        if self.is_over or not self._is_open:
            return None
        waits = self._waits()
        may_trigger = self._is_static_over and not self._is_about_to_end
        self.checkpoints.time_passes(Epoch(self.last_epoch + 1) if may_trigger else None)
        while self._begin_next():
            pass
        # What was due at the look above waits for an event; what has become due since then is looked at once more.
        return min((each for each in [*waits, *self._waits()] if each), default=None)

    def _waits(self) -> list[float | None]:
        return [self.coordinator.seconds_until_due(), self.coordinator.seconds_until_timeout(), self._until_extra()]

    def _answer_settlers(self) -> None:
        for settler in self._settlers:
            settler.set_result(None)
        self._settlers.clear()

    def _begin_next(self) -> bool:
        """Begin the next thing that can begin. Return False if nothing can begin now."""
        if self.is_over:
            return False
        for waiting in self._waiting:
            if waiting[0]():
                self._waiting.remove(waiting)
                waiting[1]()
                return True
        self._server.look_for_places()
        if self._holder is not None:
            return False
        if self._server.serve_next():
            return True
        if self._offered:
            self._begin_epoch(self._offered.popleft())
        elif self._is_barrier_due:
            self.hold("a barrier")
            self.checkpoints.tick(Epoch(self.last_epoch), self.release)
        elif self._until_extra() == 0.0:
            self._run_extra(self.release)
        elif self._is_input_over and not self.is_ending and not self._goes_on_without_input:
            self._end_input()
        else:
            return False
        return True

    def hold(self, holder: str) -> None:
        assert self._holder is None, f"{holder} begins while {self._holder} uses the slots"
        self._holder = holder

    def release(self) -> None:
        self._holder = None

    def interrupt_engine(self) -> None:
        """Stop the engine from offering more epochs."""
        self._engine.interrupt()

    def _when(self, condition: Callable[[], bool], then: Callable[[], None]) -> None:
        """Call `then` as soon as `condition` holds, unless the attempt ends first."""
        self._waiting.append((condition, then))

    def _do(self, lane: Lane, work: Callable[[], object], then: Callable[[], None]) -> None:
        """Do work that the attempt depends on: a failure ends the attempt."""

        def done(outcome: Future[object]) -> None:
            failure = outcome.exception()
            if failure is not None:
                self.fail(failure)
            elif not self.is_over:
                then()

        self._loop.start(lane, work, done)

    @property
    def _is_about_to_end(self) -> bool:
        """Whether the event that ends the attempt also triggers its last checkpoint or savepoint."""
        return self.is_ending or self.requests.is_asked_to_end

    @property
    def _is_barrier_due(self) -> bool:
        is_possible = self._is_static_over and self.last_epoch >= 0 and not self._is_about_to_end
        return is_possible and self.coordinator.seconds_until_due() == 0.0 and self._around.store is not None

    @property
    def _goes_on_without_input(self) -> bool:
        """Whether source functions still produce records."""
        return self.stopped_with is None and self.pending.has_unfinished_sources

    def _until_extra(self) -> float | None:
        """Return the seconds until an epoch without records is due. None before epoch 0, the static sources'."""
        if self.last_epoch < 0 or not self._is_static_over or self.stopped_with is not None or self.is_ending:
            return None
        if self._is_input_over and not self.pending.has_unfinished_sources:
            return None
        return self.pending.seconds_until_due()

    # -- epochs -------------------------------------------------------------------------------------------------

    def epoch_offered(self, epoch: OfferedEpoch) -> None:
        """Accept an epoch whose records are ready. One without records was requested, and begins at once."""
        if self._failure is not None:
            epoch.refuse(self._failure)
        elif self._ended:
            epoch.skip()
        elif epoch.is_extra:
            self._current = epoch
            self._epoch_began = time.perf_counter()
            epoch.begin(Epoch(self.last_epoch + 1))
        else:
            self._offered.append(epoch)

    def _begin_epoch(self, epoch: OfferedEpoch) -> None:
        if self.stopped_with is not None:
            epoch.skip()
            return
        self.hold("an epoch")
        self._current = epoch
        self._epoch_began = time.perf_counter()
        epoch.begin(Epoch(self.last_epoch + 1))

    def epoch_executed(self, epoch: OfferedEpoch, failure: BaseException | None) -> None:
        """End an epoch on the slots once they have all its records, or fail over."""
        if failure is not None:
            self.fail(failure)
        if self.is_over:
            epoch.refuse(self._failure or JobControlError("the job has ended"))
            return
        number = Epoch(self.last_epoch + 1)
        commit = self.job.mode is CheckpointingMode.AT_LEAST_ONCE
        reports: list[EpochReport] = []
        counts: dict[int, OperatorCounts] = {}

        def end_epoch() -> None:
            reports.extend(self._group.call(lambda slot: slot.end_epoch(number, commit=commit)))
            counts.update(self._engine.source_counts())

        self._do(SLOTS, end_epoch, lambda: self._epoch_reported(epoch, number, reports, counts))

    def _epoch_reported(
        self, epoch: OfferedEpoch, number: Epoch, reports: Sequence[EpochReport], counts: Mapping[int, OperatorCounts]
    ) -> None:
        self.last_epoch, self._has_advanced = number, True
        known = self.checkpoints
        known.event_time = furthest(known.event_time, *(report.event_time for report in reports))
        known.watermarks = furthest(known.watermarks, *(report.watermarks for report in reports))
        self.pending.epoch_ended(reports)
        lines = [line for report in reports for line in report.printed]
        if lines:
            self._tell(partial(self._listener.printed, lines))

        def report() -> None:
            stats = epoch_stats(self.job.plan, number, reports, counts, time.perf_counter() - self._epoch_began)
            self._tell(partial(self._listener.epoch_ended, stats), self.unless_over(trigger))

        def trigger() -> None:
            if self.may_trigger:
                self.checkpoints.epoch_ended(number, lambda: self._epoch_over(epoch))
            else:
                self._epoch_over(epoch)

        if any(committables for report in reports for committables in report.committables.values()):
            self._do(SLOTS, partial(self._commit_at_once, reports), report)
        else:
            report()

    def _commit_at_once(self, reports: Sequence[EpochReport]) -> None:
        """Publish the output of an epoch that no checkpoint has to cover."""
        self._around.outputs.check_term()
        for report in reports:
            for uid, committables in report.committables.items():
                self._around.outputs.commit(uid, committables)

    def _epoch_over(self, epoch: OfferedEpoch) -> None:
        self._current = None
        if self._failure is not None:
            epoch.refuse(self._failure)
            return
        epoch.end()
        if not epoch.is_extra:  # an extra epoch leaves the slots to its requester
            self.release()

    def _run_extra(self, then: Callable[[], None], holder: str | None = "an epoch without records") -> None:
        """Run one epoch without records. With `holder` None the slots are held already."""
        if holder is not None:
            self.hold(holder)
        self._input.run_extra(self._group.slots, partial(self._ended_input, then))

    def drain(self, then: Callable[[], None]) -> None:
        """End event time, which fires every timer; the caller holds the slots."""
        self._do(
            SLOTS,
            lambda: self._group.call(lambda slot: slot.end_of_input()),
            lambda: self._run_extra(then, holder=None),
        )

    def unless_over(self, then: Callable[[], None]) -> Callable[[], None]:
        return lambda: None if self.is_over else then()

    # -- the last checkpoint ------------------------------------------------------------------------------------

    @property
    def is_covered(self) -> bool:
        """Whether a checkpoint of the job covers everything up to now."""
        is_as_restored = not self._has_advanced and self._restored is not None and self._restored.claim
        return self.coordinator.completed_epoch == self.last_epoch or is_as_restored

    def cover(self, then: Then, *, is_held: bool = True) -> None:
        """Take a checkpoint of everything up to now, unless there is one already.

        The checkpoint is full if files that an incremental one would refer to are gone. If the slots are not held,
        other requests may be served in between, but no epoch may run any more.
        """

        def looked(is_gone: bool) -> None:  # noqa: FBT001  the result of a check
            if self.is_over:
                return
            if self.is_covered and not is_gone:
                then(None)
            else:
                self._take_checkpoint(partial(taken, is_gone), full=is_gone, is_held=is_held)

        def taken(is_gone: bool, failure: BaseException | None) -> None:  # noqa: FBT001
            if failure is not None and self.coordinator.must_be_full:  # the files disappeared after the check
                self._take_checkpoint(then, full=True, is_held=is_held)
            elif failure is not None and (is_gone or not self.is_covered):
                then(failure)
            else:  # it is complete, or another one of the same epoch completed first
                then(None)

        self._when(lambda: self.coordinator.can_trigger, lambda: self.checkpoints.look_for_newest(looked))

    def _take_checkpoint(self, then: Then, *, full: bool, is_held: bool) -> None:
        answer: Future[CheckpointId] = new_answer()
        answer.add_done_callback(
            lambda done: self._loop.post(self.unless_over(lambda: then(done.exception()))) and None
        )

        def can_begin() -> bool:
            return self.coordinator.can_trigger and (is_held or self._holder is None)

        def begin() -> None:
            if not is_held:
                self.hold("a barrier")
            self.checkpoints.trigger(
                Epoch(self.last_epoch), (lambda: None) if is_held else self.release, full=full, answer=answer
            )

        self._when(can_begin, begin)

    def _end_input(self) -> None:
        """End event time after the last record, then take the last checkpoint."""
        if self.job.plan.has_event_time and self.stopped_with is None and not self._has_drained:
            self._has_drained = True
            self.hold("the end of event time")
            self.drain(self.release)
            return
        self.is_ending = True
        coordinator = self.coordinator
        if self._around.store is None:
            is_free = lambda: self._holder is None and coordinator.savepoint_in_progress is None  # noqa: E731
            self._when(is_free, self._publish_without_checkpoint)
        else:  # a savepoint in progress may complete as well
            self._when(
                lambda: coordinator.savepoint_in_progress is None and not coordinator.in_progress,
                self._final_checkpoint,
            )

    def _publish_without_checkpoint(self) -> None:
        self.hold("publishing the last output")

        def publish() -> None:
            with self._hangs.expecting_progress("publishing the last output"):
                self.checkpoints.commit_without_checkpoint(Epoch(self.last_epoch))

        self._do(SLOTS, publish, self._finish)

    def _final_checkpoint(self) -> None:
        """Take a checkpoint of what none covers yet, before the job may end."""
        if self.is_covered and not keeps_checkpoints(self.job.checkpoints.retention, JobEnd.FINISHED):
            self._finish()  # everything is published, and the checkpoint is deleted with the job
            return

        def covered(failure: BaseException | None) -> None:
            if failure is None:
                self._finish()
                return
            failed = JobFailedError(f"the final checkpoint failed, so the last output is not published: {failure}")
            failed.__cause__ = failure
            self.fail(failed)

        self.cover(covered, is_held=False)

    def _finish(self) -> None:
        self._end()
        self.is_done = True

        def closed(done: Future[object]) -> None:
            self._closed = done

        self._loop.start(SLOTS, lambda: self._group.call(_close), closed)

    # -- lost slots and hangs -----------------------------------------------------------------------------------

    def _watch(self, slot: Slot) -> None:
        """Keep a call to a slot open, to notice its death and receive its heartbeats also while no epoch runs."""

        def on_beat(beat: Beat) -> None:
            self._loop.post(partial(self._beat, slot, beat))

        slot.hold(on_beat)

    def _watch_ended(self, slot: Slot, done: Future[None]) -> None:
        failure = done.exception()
        if isinstance(failure, CheckdamError):
            self._lose(slot, failure)
        elif failure is not None:
            self.fail(failure)

    def _beat(self, slot: Slot, beat: Beat) -> None:
        self.pending.signalled(slot.subtask, beat.signals)
        reason = self._hangs.beat(slot.subtask, beat)
        if isinstance(reason, SlotLostError):
            self._lose(slot, reason)
        elif reason is not None:
            self.fail(reason)

    def _lose(self, slot: Slot, reason: CheckdamError) -> None:
        """Fail over. A slot that hangs is killed at once, so that every call that waits for it returns."""
        self.fail(reason)
        if not self._ended:
            self._loop.start(KILLS, slot.kill, lambda done: None)

    def _look_for_hangs_later(self) -> None:
        self._loop.after(self.job.heartbeat.interval_seconds, self._look_for_hangs)

    def _look_for_hangs(self) -> None:
        """Check regularly whether the attempt makes progress."""
        if self.is_over:
            return
        try:
            reason = self._hangs.look()
        except Exception:  # noqa: BLE001  a fault of the watch must not fail the job
            _log.warning("the attempt cannot be watched for hangs", exc_info=True)
            reason = None
        if reason is not None:
            self.fail(reason)
        self._look_for_hangs_later()


def _close(slot: Slot) -> None:
    """Close a slot of a finished job. A slot that is lost by now does no harm."""
    with suppress(SlotLostError):
        slot.close()
