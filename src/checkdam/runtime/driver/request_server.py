"""Serves requests to a running attempt: checkpoints, savepoints, stops, rescales, suspensions.

Everything happens in the loop of the attempt. A checkpoint or savepoint holds the slots for its barrier only. A stop, a
rescale or a suspension holds them until its checkpoint is durable: no epoch may follow the state the job ends with.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from functools import partial

from checkdam.checkpoint.savepoints import SavepointDirectory
from checkdam.checkpoint.settings import JobEnd
from checkdam.config import SUSPEND_GRACE_PERIOD
from checkdam.errors import CheckdamError, JobControlError, JobFailedError, SavepointError
from checkdam.runtime.answers import new_answer
from checkdam.runtime.driver.attempt_state import AttemptState
from checkdam.runtime.driver.checkpointing import Checkpointing, SavepointOrder, Surroundings
from checkdam.runtime.driver.epoch_runner import EpochRunner
from checkdam.runtime.driver.event_loop import EventLoop, Lane
from checkdam.runtime.driver.final_checkpoint import FinalCheckpoint
from checkdam.runtime.driver.job_requests import (
    CheckpointRequest,
    EndRequested,
    Request,
    Requests,
    Rescaled,
    RescaleRequest,
    SavepointRequest,
    StopRequest,
    SuspendRequest,
)
from checkdam.runtime.job import Job
from checkdam.runtime.monitor.job_records import SnapshotKind

_log = logging.getLogger(__name__)

PLACES = Lane("looking for the place of a savepoint", threads=1000)
ABANDONED = Lane("removing the place of a savepoint", threads=1000)

_ABANDONING_SECONDS = 5.0


class RequestServer:
    """Serves requests in order of arrival, but a request does not wait for a blocked one it is independent of."""

    def __init__(
        self,
        job: Job,
        around: Surroundings,
        state: AttemptState,
        requests: Requests,
        epochs: EpochRunner,
        checkpoints: Checkpointing,
        final_checkpoint: FinalCheckpoint,
        loop: EventLoop,
        kill: Callable[[], None],
    ) -> None:
        self._job = job
        self._coordinator = around.coordinator
        self._engine = around.engine
        self._state = state
        self._reports = state.reports
        self._requests = requests
        self._epochs = epochs
        self._checkpoints = checkpoints
        self._final_checkpoint = final_checkpoint
        self._loop = loop
        self._kill = kill
        self._orders: dict[SavepointRequest | StopRequest, SavepointOrder | None] = {}  # None: directory in the making
        self._give_up_served: Callable[[BaseException], None] | None = None  # refuses the request being served

    def serve_next(self) -> bool:
        """Begin the next request that can be served now. Return False if there is none."""
        request = self._requests.first(self._can_begin)
        if request is not None:
            self._serve(request)
        return request is not None

    def attempt_fails(self, failure: BaseException) -> None:
        """Refuse the request that is being served."""
        if self._give_up_served is not None:
            give_up, self._give_up_served = self._give_up_served, None
            give_up(failure)

    def abandon_places(self) -> None:
        """Remove the directories that were made for savepoints and are no longer needed."""
        for order in [each for each in self._orders.values() if each is not None]:
            self._abandon(order)

    def _can_begin(self, request: Request) -> bool:
        """Return whether a request can be served now. None can before epoch 0, which belongs to static sources."""
        if self._epochs.last_epoch < 0:
            return False
        if isinstance(request, SuspendRequest):
            return True  # does not wait for a savepoint in progress, which ends with the attempt
        if isinstance(request, CheckpointRequest):
            return self._coordinator.can_trigger
        if isinstance(request, SavepointRequest | StopRequest) and self._orders.get(request) is None:
            return False
        return self._coordinator.savepoint_in_progress is None

    def _serve(self, request: Request) -> None:
        self._requests.take(request)
        match request:
            case CheckpointRequest():
                self._state.hold("a barrier")
                self._checkpoints.trigger(
                    self._epochs.last_epoch,
                    self._state.release,
                    full=request.full,
                    since=request.asked,
                    answer=request.answer,
                )
            case SavepointRequest():
                self._state.hold("the barrier of a savepoint")
                self._checkpoints.savepoint(self._epochs.last_epoch, self._take_order(request), self._state.release)
            case StopRequest():
                self._stop(request, self._take_order(request))
            case RescaleRequest():
                self._rescale(request)
            case SuspendRequest():
                self._suspend()

    def look_for_places(self) -> None:
        """Make the directories of savepoints before an epoch has to wait for them. One that hangs delays no other."""
        for request in self._requests.waiting():
            if isinstance(request, SavepointRequest | StopRequest) and request not in self._orders:
                self._orders[request] = None
                prepare, prepared = partial(self._prepare, request), partial(self._prepared, request)
                self._loop.start(PLACES, prepare, prepared, if_closed=_abandon_late)

    def _prepare(self, request: SavepointRequest | StopRequest) -> SavepointDirectory:
        return self._loop.within(
            self._job.checkpoints.timeout.total_seconds(),
            f'looking at "{request.target}"',
            lambda: SavepointDirectory.prepare(request.target, self._job.job_id),
            if_late=_abandon_late,
        )

    def _prepared(self, request: SavepointRequest | StopRequest, done: Future[SavepointDirectory]) -> None:
        del self._orders[request]
        failure = done.exception()
        if isinstance(failure, CheckdamError):
            self._requests.failed(request, failure)
        elif failure is not None:  # the requester gets the error; the job continues
            self._requests.failed(request, _as_control_error("no savepoint was taken", failure))
        else:
            is_stop = isinstance(request, StopRequest)
            kind = SnapshotKind.SYNC_SAVEPOINT if is_stop else SnapshotKind.SAVEPOINT
            answer = new_answer() if is_stop else request.answer
            order = SavepointOrder(done.result(), request.format, kind, answer)
            if self._state.is_over:
                self._abandon(order)
            else:
                self._orders[request] = order

    def _take_order(self, request: SavepointRequest | StopRequest) -> SavepointOrder:
        order = self._orders.pop(request)
        assert order is not None
        return order

    def _abandon(self, order: SavepointOrder) -> None:
        """Remove the directory of a savepoint that was not begun."""

        def abandon() -> None:
            self._loop.within(_ABANDONING_SECONDS, f"removing {order.directory.uri}", order.directory.abandon)

        def abandoned(done: Future[None]) -> None:
            reason = done.exception()
            if reason is not None:
                self._reports.left_behind(reason if isinstance(reason, CheckdamError) else SavepointError(str(reason)))

        self._loop.start(ABANDONED, abandon, abandoned)

    def _stop(self, request: StopRequest, order: SavepointOrder) -> None:
        """Drain if requested, take a savepoint, and end the job after it. No epoch runs meanwhile."""
        saved = order.answer
        if self._state.is_ending:
            self._abandon(order)
            self._requests.failed(request, _as_control_error("the job was not stopped", _used_up()))
            return
        self._state.hold("a stop")

        def take_savepoint() -> None:
            self._give_up_served = give_up_savepoint
            self._checkpoints.savepoint(self._epochs.last_epoch, order, lambda: None)
            saved.add_done_callback(lambda _: self._loop.post(self._state.unless_over(is_saved)))

        def is_saved() -> None:
            failure = saved.exception()
            self._give_up_served = None
            if failure is None:
                self._end_with(request, saved.result())
                return
            if request.drain:
                # Event time has ended for every operator: the job can only resume from the last checkpoint.
                self._state.fail(JobFailedError(f"stop with savepoint failed after event time had ended: {failure}"))
            self._requests.failed(request, _as_control_error("the job was not stopped", failure))
            self._state.release()

        def give_up_before(failure: BaseException) -> None:
            self._abandon(order)
            self._requests.failed(request, _as_control_error("the job was not stopped", failure))

        def give_up_savepoint(failure: BaseException) -> None:
            # The savepoint may complete before the attempt is over: the requester then needs its path.
            reason = _as_control_error("the job was not stopped", failure)
            saved.add_done_callback(lambda _: self._requests.failed(request, _naming(saved, reason)))

        if request.drain:
            self._give_up_served = give_up_before
            self._epochs.may_trigger = False  # if the savepoint fails, the job must not resume from a later checkpoint
            self._epochs.drain(take_savepoint)
        else:
            take_savepoint()

    def _end_with(self, request: StopRequest, path: str) -> None:
        """Run no more epochs: the savepoint at this path is the job's last."""
        self._state.stopped_with = request, path
        if request.drain:
            self._reports.drained(path)
        self._state.release()
        self._engine.interrupt()

    def _rescale(self, request: RescaleRequest) -> None:
        """Take a checkpoint if one is needed, and end the attempt after it."""
        self._reports.rescaling(request.job.parallelism)

        def failed(failure: BaseException) -> None:
            reason = _as_control_error("the job was not rescaled", failure)
            self._reports.rescaled(request.job.parallelism, reason)
            self._state.report(partial(self._requests.failed, request, reason))

        def covered(failure: BaseException | None) -> None:
            self._give_up_served = None
            if failure is None:
                self._state.fail(Rescaled(request))
            else:
                failed(failure)
                self._state.release()

        if self._state.is_ending:
            failed(_used_up())
            return
        self._state.hold("a rescale")
        self._give_up_served = failed
        self._final_checkpoint.cover(covered)

    def begin_suspension(self, grace: timedelta) -> None:
        suspended = EndRequested(JobEnd.SUSPENDED)
        if self._state.is_over:
            return
        if not self._state.has_begun:  # nothing has happened since the checkpoint it starts from
            self._state.fail(suspended)
            self._kill()
            return
        what = f"suspending: a last checkpoint, within {grace.total_seconds():g} s"
        self._reports.progressed(what)
        self._loop.after(grace.total_seconds(), partial(self._grace_ended, grace))
        self._requests.add(SuspendRequest())

    def _grace_ended(self, grace: timedelta) -> None:
        if self._state.fail(EndRequested(JobEnd.SUSPENDED)):
            self._kill()
            allowed = f"{grace.total_seconds():g} s ({SUSPEND_GRACE_PERIOD.key})"
            self._reports.last_checkpoint_missed(f"it was not complete within {allowed}")

    def _suspend(self) -> None:
        """Take a last checkpoint and end the attempt, even if the checkpoint fails.

        A job that is about to end continues to do so: its final checkpoint is in progress, or its savepoint complete.
        """
        if self._state.is_ending or self._state.stopped_with is not None:
            return
        self._state.hold("a suspension")

        def covered(failure: BaseException | None) -> None:
            if self._state.fail(EndRequested(JobEnd.SUSPENDED)) and failure is not None:
                self._reports.last_checkpoint_missed(str(failure))

        self._final_checkpoint.cover(covered)


def _abandon_late(prepared: Future[SavepointDirectory]) -> None:
    """Remove a directory that was made too late for its request, which is refused already."""
    if prepared.exception() is None:
        try:
            prepared.result().abandon()
        except CheckdamError as reason:
            _log.warning("the directory of a refused savepoint is left: %s", reason)


def _used_up() -> JobControlError:
    return JobControlError("the job has used up its input and ends by itself")


def _naming(saved: Future[str], reason: CheckdamError) -> CheckdamError:
    """Return the reason, with the path of the savepoint if that completed nevertheless."""
    if saved.exception() is not None:
        return reason
    return JobControlError(f"{reason.message}; its savepoint {saved.result()} is complete", hint=reason.hint)


def _as_control_error(what: str, cause: BaseException) -> CheckdamError:
    hint = cause.hint if isinstance(cause, CheckdamError) else None
    message = cause.message if isinstance(cause, CheckdamError) else str(cause) or type(cause).__name__
    return JobControlError(f"{what}: {message}", hint=hint)
