"""One execution of a job between two failovers.

One event loop owns the attempt. After each event it decides what comes next: an epoch, a barrier, a request, a timeout
or the end. Engine, slots and storage work on the lanes of the loop and report back as events.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from checkdam.clock import to_milliseconds
from checkdam.errors import CheckdamError, JobControlError, JobFailedError, SavepointError, SlotLostError
from checkdam.ids import Attempt as AttemptId
from checkdam.ids import Epoch
from checkdam.runtime.answers import refuse
from checkdam.runtime.driver.attempt_state import LISTENER, AttemptState
from checkdam.runtime.driver.checkpointing import COMMITTER, SAVEPOINT, SLOTS, Checkpointing, Surroundings
from checkdam.runtime.driver.epoch_input import EXTRA, INPUT, EngineInput, EpochInput, EpochListener
from checkdam.runtime.driver.epoch_runner import EpochRunner
from checkdam.runtime.driver.event_loop import EventLoop, Lane
from checkdam.runtime.driver.failure_detector import KILLS, FailureDetector
from checkdam.runtime.driver.final_checkpoint import FinalCheckpoint
from checkdam.runtime.driver.hang_watch import HangWatch
from checkdam.runtime.driver.job_requests import Request, Requests
from checkdam.runtime.driver.request_server import ABANDONED, RequestServer
from checkdam.runtime.driver.restore import Restored
from checkdam.runtime.driver.slot_group import LiveSlots, SlotGroup
from checkdam.runtime.driver.slot_setup import slot_setup
from checkdam.runtime.engine import Engine, Slot
from checkdam.runtime.job import Job
from checkdam.runtime.monitor.job_records import SlotRecord
from checkdam.runtime.stalls import Stall

_log = logging.getLogger(__name__)

STARTING = Lane("starting the slots")

_ENDING_SECONDS = 2.0
"""How long a running epoch may take once the attempt ends, before its slots are killed."""
_SAVEPOINT_SECONDS = 5.0
"""How long the end of the attempt waits for the directory of a savepoint."""
_LONGEST_START = timedelta(minutes=5)
"""Flink waits this long for slots; restoring state and opening functions may take as long without progress."""
_BREAK_OFF_SECONDS = 20.0
"""How long an interrupted attempt may continue before its slots are killed; longer than engines take to stop."""


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
        machinery: Machinery,
    ) -> None:
        self.job = job
        self.coordinator = around.coordinator
        self._attempt = attempt
        self._restored = restored
        self._around = around
        self._engine = around.engine
        self._loop = loop = machinery.loop()
        loop.advance, loop.failed = self._advance, self._handler_failed
        self._group = machinery.group(job.plan.slots)
        self.state = AttemptState(loop, around.listener, self._interrupt_all)
        self.checkpoints = Checkpointing(job, around, self.state, self._group, loop)
        if restored is not None:
            self.checkpoints.event_time = restored.event_time(job.plan)
            self.checkpoints.watermarks = restored.watermarks(job.plan)
        self._hangs = HangWatch(
            job.checkpoints.timeout,
            job.heartbeat.interval,
            around.clock,
            around.engine.progress,
            lambda: loop.stall(COMMITTER),
            lambda: around.listener.is_waiting,
            _LONGEST_START,
        )
        self.epochs = EpochRunner(
            job,
            around,
            self.state,
            self._group,
            self.checkpoints,
            partial(machinery.input, around.engine, loop, self._hangs),
            restored.checkpoint.epoch if restored is not None else None,
        )
        self._final_checkpoint = FinalCheckpoint(
            job,
            around,
            self.state,
            self.epochs,
            self.checkpoints,
            loop,
            self._hangs,
            is_covered_by_restored=restored is not None and restored.claim,
        )
        self._detector = FailureDetector(self.state, loop, self._hangs, self.epochs.pending, job.heartbeat.interval)
        self.requests = Requests()
        self._server = RequestServer(
            job,
            around,
            self.state,
            self.requests,
            self.epochs,
            self.checkpoints,
            self._final_checkpoint,
            loop,
            self.kill,
        )
        self._settlers: list[Future[None]] = []
        self._closed: Future[object] | None = None  # done when the slots have closed in order
        self._is_open = False  # the output matches the restored state: epochs and requests may begin

    # -- from any thread ----------------------------------------------------------------------------------------

    def ask(self, request: Request) -> None:
        """Serve a request as soon as possible; it is always answered."""
        self.requests.add(request)
        self.look_again()

    def interrupt(self, failure: BaseException) -> None:
        """Stop the attempt for this reason, unless it is already stopping."""
        self._loop.post(partial(self.state.fail, failure))

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
        if not self.state.has_begun or self.state.is_over:
            return None
        return LiveSlots(self._attempt, self.job.plan, self._group.slots)

    # -- start and end ------------------------------------------------------------------------------------------

    def run(self) -> None:
        self._detector.look_for_hangs_later()
        self._loop.start(STARTING, self._start_slots, self._slots_started)
        try:
            self._loop.run(lambda: self.state.failure is not None or self._closed is not None)
        except BaseException as interruption:  # Ctrl-C, if the job runs in the thread of the program
            self.state.fail(interruption)
            raise
        if self.state.failure is not None:
            raise self.state.failure
        assert self._closed is not None
        self._closed.result()

    def _start_slots(self) -> Sequence[Slot]:
        with self._hangs.expecting_progress(STARTING.name, at_least=_LONGEST_START):
            return self._engine.start_slots(self._attempt, self.job.plan.slots)

    def _slots_started(self, done: Future[Sequence[Slot]]) -> None:
        failure = done.exception()
        if failure is not None:
            self.state.fail(failure)
            return
        group = self._group
        group.slots = done.result()
        self._detector.watch(group.slots)  # from now on, since a slot that gets no calls ends
        if self.state.is_over:  # stopped before there was anything to stop
            return
        self.state.reports.slots_started([self._record_of(slot) for slot in group.slots])
        self._report_restoring("restoring")
        last_epoch, next_id = self.epochs.last_epoch, self.coordinator.next_id
        setups = {
            slot.subtask: slot_setup(self.job, self._attempt, slot.subtask, self._restored, last_epoch, next_id)
            for slot in group.slots
        }
        self.state.do(STARTING, lambda: group.call(lambda slot: slot.configure(setups[slot.subtask])), self._configured)

    def _report_restoring(self, what: str | None) -> None:
        if self._restored is not None:
            self.state.reports.progressed(what)

    def _configured(self) -> None:
        self._report_restoring(None)
        self._hangs.begun()
        self.state.has_begun = True
        self.state.do(STARTING, self._resume, self._begin)

    def _resume(self) -> None:
        position = self._restored.checkpoint.source_position if self._restored else b""
        self._engine.resume(self.epochs.last_epoch, position)
        self._engine.watch_sources(lambda pending: self._loop.post(partial(self._sources_seen, pending)))
        self._around.begun()

    def _sources_seen(self, pending: Mapping[int, int]) -> None:
        if not self.state.is_over:
            self.state.reports.sources_seen(pending)

    def _begin(self) -> None:
        self._is_open = True
        self.epochs.begin()

    def _interrupt_all(self, failure: BaseException) -> None:
        """Let everything in progress end: the attempt fails."""
        self.checkpoints.take_no_more_reports()
        self._around.interrupted()
        self.epochs.refuse(failure)
        self._loop.after(_BREAK_OFF_SECONDS, self._kill_if_running)
        self._server.attempt_fails(failure)
        self._engine.interrupt()

    def _handler_failed(self, failure: BaseException) -> None:
        """Fail over because the driver itself has a fault; one that comes later is only logged."""
        if not self.state.fail(failure):
            _log.warning("the driver has failed while an attempt ended", exc_info=failure)

    def _kill_if_running(self) -> None:
        """Kill the slots if the attempt still uses them, so that every call to them returns."""
        if not self.state.has_ended:
            self.kill()

    def kill(self) -> None:
        self._loop.start(KILLS, self._group.kill, lambda done: None)

    def dispose(self) -> None:
        """End every slot and settle the work in progress, so that the next attempt starts with nothing running."""
        loop = self._loop
        self._around.interrupted()
        if self._closed is None:
            self.state.fail(JobFailedError("the attempt was broken off"))
            self._engine.interrupt()
            loop.run_until_idle(INPUT, STARTING)
            loop.run_until_idle(EXTRA, SLOTS, seconds=_ENDING_SECONDS)
            self._end()
            self.state.do(KILLS, self._group.close_soon, lambda: None)
            loop.run_until_idle(KILLS)
        self._end()
        self.kill()
        loop.run_until_idle(INPUT, STARTING, EXTRA, SLOTS, KILLS)
        self.checkpoints.abort(self._why_over())
        self._group.dispose()
        if not loop.run_until_idle(SAVEPOINT, seconds=_SAVEPOINT_SECONDS):
            places = ", ".join(self.checkpoints.places)
            reason = f"the place of a savepoint does not answer, and something may be left there: {places}"
            self.state.reports.left_behind(SavepointError(reason))
        loop.run_until_idle(COMMITTER)
        self.checkpoints.refuse_rest()
        self._group.disconnect()
        self._refuse_requests()
        loop.close(LISTENER, ABANDONED)
        self._answer_settlers()

    def _refuse_requests(self) -> None:
        self._server.abandon_places()
        self.requests.close(JobControlError(self._why_over()))
        if self.state.stopped_with is not None and not self.state.is_done:
            request, path = self.state.stopped_with
            published = f"the savepoint {path} is complete, but the job's last output was not published"
            refuse(request.answer, JobControlError(f"{published}: {self._why_over()}"))

    def _why_over(self) -> str:
        failure = self.state.failure
        if failure is None:
            return "the job has ended"
        fails_over = "the job fails over: " if isinstance(failure, CheckdamError) else ""
        return f"{fails_over}{failure}"

    def _end(self) -> None:
        self.state.has_ended = True
        self.checkpoints.slots_ended()

    def _record_of(self, slot: Slot) -> SlotRecord:
        now = to_milliseconds(self._around.clock.now())
        return SlotRecord(slot.subtask, slot.host, slot.location, slot.pid, now)

    # -- what comes next ----------------------------------------------------------------------------------------

    def _advance(self) -> float | None:
        """Begin all that can begin. Return how long until more may be due; None if only an event can bring it."""
        if self._loop.is_idle(COMMITTER, SAVEPOINT, LISTENER):
            self._answer_settlers()
        if self.state.is_over or not self._is_open:
            return None
        waits = self._waits()
        may_trigger = self.epochs.is_static_over and not self._is_about_to_end
        self.checkpoints.time_passes(Epoch(self.epochs.last_epoch + 1) if may_trigger else None)
        while self._begin_next():
            pass
        # What was due at the look above waits for an event; what has become due since then is looked at once more.
        return min((each for each in [*waits, *self._waits()] if each), default=None)

    def _waits(self) -> list[float | None]:
        coordinator = self.coordinator
        return [
            coordinator.seconds_until_due(),
            coordinator.seconds_until_timeout(),
            self.epochs.seconds_until_extra(),
        ]

    def _answer_settlers(self) -> None:
        for settler in self._settlers:
            settler.set_result(None)
        self._settlers.clear()

    def _begin_next(self) -> bool:
        """Begin the next thing that can begin. Return False if nothing can begin now."""
        if self.state.is_over:
            return False
        if self.state.begin_waiting():
            return True
        self._server.look_for_places()
        if self.state.is_held:
            return False
        if self._server.serve_next() or self.epochs.begin_next():
            return True
        if self._is_barrier_due:
            self.state.hold("a barrier")
            self.checkpoints.tick(self.epochs.last_epoch, self.state.release)
        elif self.epochs.seconds_until_extra() == 0.0:
            self.epochs.run_extra()
        elif self.epochs.are_exhausted and not self.state.is_ending:
            self._final_checkpoint.end_input(self._finish)
        else:
            return False
        return True

    @property
    def _is_about_to_end(self) -> bool:
        """Whether the event that ends the attempt also triggers its last checkpoint or savepoint."""
        return self.state.is_ending or self.requests.is_asked_to_end

    @property
    def _is_barrier_due(self) -> bool:
        is_possible = self.epochs.is_static_over and self.epochs.last_epoch >= 0 and not self._is_about_to_end
        return is_possible and self.coordinator.seconds_until_due() == 0.0 and self._around.store is not None

    def _finish(self) -> None:
        """Close the slots in order: everything is published."""
        self._end()
        self.state.is_done = True

        def closed(done: Future[object]) -> None:
            self._closed = done

        self._loop.start(SLOTS, lambda: self._group.call(_close), closed)


def _close(slot: Slot) -> None:
    """Close a slot of a finished job. A slot that is lost by now does no harm."""
    with suppress(SlotLostError):
        slot.close()
