"""What is asked of a running job, done between two of its epochs by a thread of its own.

A checkpoint or savepoint needs the turn for its cut only. A stop, a rescale or a suspension keeps it until the cut is
durable: no epoch may come behind what the job ends with, or goes on from.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING

from checkdam.checkpoint.savepoints import SavepointDirectory
from checkdam.checkpoint.settings import JobEnd
from checkdam.errors import CheckdamError, JobControlError, JobFailedError, SavepointError
from checkdam.runtime.answers import new_answer
from checkdam.runtime.driver.checkpointing import SavepointOrder
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
from checkdam.runtime.monitor.job_records import SnapshotKind
from checkdam.runtime.workers import within

if TYPE_CHECKING:
    from checkdam.runtime.driver.attempt import AttemptRun

_PATIENCE_SECONDS = 5.0


class Fulfilment:
    """Serves the requests to one attempt, first come, first served where one does not have to wait for another."""

    def __init__(self, attempt: AttemptRun, requests: Requests, changed: threading.Condition) -> None:
        self._attempt = attempt
        self._requests = requests
        self._changed = changed
        self._is_at_work = False
        self._orders: dict[SavepointRequest | StopRequest, SavepointOrder | None] = {}  # None: its place is looked for
        here = contextvars.copy_context()  # what holds for the job holds for what is asked of it
        self._thread = threading.Thread(target=here.run, args=[self._work], daemon=True, name="control")

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout: float | None = None) -> None:
        """Wait until nothing is done with the slots any more; when the attempt is over, nothing begins.

        What only looks for a place for a savepoint is not waited for: that is somebody else's storage.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._is_at_work, timeout)

    @contextmanager
    def _turn(self) -> Iterator[bool]:
        """The next turn, whoever else waits for it; gives False if the attempt is over by then."""
        with self._attempt.turns.go_first():
            with self._changed:
                is_at_work = self._is_at_work = not self._attempt.is_over
            try:
                yield is_at_work
            finally:
                with self._changed:
                    self._is_at_work = False
                    self._changed.notify_all()

    def _work(self) -> None:
        try:
            while (request := self._next()) is not None:
                self._serve(request)
        except BaseException as error:  # noqa: BLE001  nothing may vanish in a background thread
            self._attempt.interrupt(error)
        for order in [each for each in self._orders.values() if each is not None]:
            self._give_up(order)

    def _next(self) -> Request | None:
        """Wait for something that can begin; None when the attempt is over."""
        with self._changed:
            while not self._attempt.is_over:
                self._look_for_places()
                request = self._requests.first(self._can_begin)
                if request is not None:
                    return request
                self._changed.wait()
        return None

    def _can_begin(self, request: Request) -> bool:
        """Nothing can be cut before epoch 0, which belongs to what is there from the start."""
        if self._attempt.epochs.last < 0:
            return False
        coordinator = self._attempt.coordinator
        if isinstance(request, SuspendRequest):
            return True  # a savepoint under way is not waited for: it ends with the attempt
        if isinstance(request, CheckpointRequest):
            return coordinator.can_trigger
        if isinstance(request, SavepointRequest | StopRequest) and self._orders.get(request) is None:
            return False
        return coordinator.savepoint_in_progress is None

    def _serve(self, request: Request) -> None:
        if isinstance(request, CheckpointRequest):
            self._checkpoint(request)
        elif isinstance(request, SavepointRequest):
            self._savepoint(request)
        elif isinstance(request, StopRequest):
            self._stop(request)
        elif isinstance(request, RescaleRequest):
            self._rescale(request)
        else:
            self._suspend(request)

    def _checkpoint(self, request: CheckpointRequest) -> None:
        attempt = self._attempt
        with self._turn() as is_ours:
            if not is_ours:
                return  # its requests are answered with the reason
            if attempt.checkpoints.trigger(
                attempt.epochs.last, full=request.full, since=request.asked, answer=request.answer
            ):
                self._requests.take(request)  # else a periodic one was faster: after that

    def _look_for_places(self) -> None:
        """Look for the places of savepoints, each in a thread of its own: one that hangs must not hold up the rest."""
        for request in self._requests.waiting():
            if isinstance(request, SavepointRequest | StopRequest) and request not in self._orders:
                self._orders[request] = None
                threading.Thread(
                    target=contextvars.copy_context().run, args=[self._prepare, request], daemon=True, name="place"
                ).start()

    def _prepare(self, request: SavepointRequest | StopRequest) -> None:
        order = self._prepared(request)
        with self._changed:
            del self._orders[request]
            if order is not None and not self._attempt.is_over:
                self._orders[request], order = order, None
            self._changed.notify_all()
        if order is not None:
            self._give_up(order)

    def _savepoint(self, request: SavepointRequest) -> None:
        attempt, order = self._attempt, self._take_order(request)
        with self._turn() as is_ours:
            if is_ours:
                self._requests.take(request)
                attempt.checkpoints.savepoint(attempt.epochs.last, order)
        if not is_ours:
            self._give_up(order)

    def _take_order(self, request: SavepointRequest | StopRequest) -> SavepointOrder:
        with self._changed:
            order = self._orders.pop(request)
        assert order is not None
        return order

    def _prepared(self, request: SavepointRequest | StopRequest) -> SavepointOrder | None:
        """Find the place before an epoch has to wait for it."""
        try:
            target, job = request.target, self._attempt.job
            directory = within(
                job.checkpoints.timeout.total_seconds(),
                f'looking at "{target}"',
                lambda: SavepointDirectory.prepare(target, job.job_id),
            )
        except CheckdamError as reason:
            self._requests.failed(request, reason)
            return None
        except Exception as error:  # noqa: BLE001  whoever asked is told, whatever it was; the job goes on
            self._requests.failed(request, _as_control_error("no savepoint was taken", error))
            return None
        if isinstance(request, StopRequest):
            return SavepointOrder(directory, request.format, SnapshotKind.SYNC_SAVEPOINT, new_answer())
        return SavepointOrder(directory, request.format, SnapshotKind.SAVEPOINT, request.answer)

    def _give_up(self, order: SavepointOrder) -> None:
        """Nothing was written; but looking for a place may have made the directory."""
        try:
            within(_PATIENCE_SECONDS, f"removing {order.directory.uri}", order.directory.abandon)
        except CheckdamError as reason:
            self._attempt.listener.left_behind(reason)
        except TimeoutError as reason:
            self._attempt.listener.left_behind(SavepointError(str(reason)))

    def _stop(self, request: StopRequest) -> None:
        order = self._take_order(request)
        with self._turn() as is_ours:
            if is_ours:
                self._requests.take(request)
                self._stop_with(request, order)
        if not is_ours:
            self._give_up(order)

    def _stop_with(self, request: StopRequest, order: SavepointOrder) -> None:
        attempt, saved = self._attempt, order.answer
        has_drained = has_begun = False
        try:
            self._refuse_if_ending()
            if request.drain:
                has_drained = True
                attempt.epochs.may_cut = False  # should the savepoint fail, the job must not resume behind this
                attempt.drain()
            has_begun = True  # and gives up by itself, if it has to
            attempt.checkpoints.savepoint(attempt.epochs.last, order)
            path = attempt.wait_for(saved)
        except Exception as error:  # noqa: BLE001  whoever asked is told, whatever it was
            reason = _as_control_error("the job was not stopped", error)
            if has_drained:
                # Event time has ended for every operator: there is no way on but from the last checkpoint.
                attempt.interrupt(JobFailedError(f"stop with savepoint failed after event time had ended: {error}"))
            if has_begun:  # it may be complete by the time the attempt is over: then whoever asked wants its path
                saved.add_done_callback(lambda _: self._requests.failed(request, _naming(saved, reason)))
            else:
                self._give_up(order)
                self._requests.failed(request, reason)
        else:
            attempt.end_with(request, path)

    def _rescale(self, request: RescaleRequest) -> None:
        attempt = self._attempt
        with self._turn() as is_ours:
            if not is_ours:
                return
            self._requests.take(request)
            try:
                attempt.listener.rescaling(request.job.parallelism)
                self._refuse_if_ending()
                self._cut_if_needed()
                if not attempt.interrupt(Rescaled(request)):  # something else has ended the attempt in this moment
                    attempt.refuse_if_over()
            except Exception as error:  # noqa: BLE001  whoever asked is told, whatever it was
                reason = _as_control_error("the job was not rescaled", error)
                try:
                    attempt.listener.rescaled(request.job.parallelism, reason)
                finally:
                    self._requests.failed(request, reason)

    def _suspend(self, request: SuspendRequest) -> None:
        """Take a last checkpoint in this turn, and end the attempt with it, or without if it fails.

        A job that is about to end is let end: its final checkpoint is under way, or its savepoint complete.
        """
        attempt = self._attempt
        with self._turn() as is_ours:
            if not is_ours:
                return
            self._requests.take(request)
            if attempt.is_ending or attempt.stopped_with is not None:
                return
            try:
                self._cut_if_needed()
            except Exception as error:  # noqa: BLE001  the job ends, whatever it was
                if attempt.interrupt(EndRequested(JobEnd.SUSPENDED)):
                    attempt.listener.last_checkpoint_missed(str(error))
            else:
                attempt.interrupt(EndRequested(JobEnd.SUSPENDED))

    def _refuse_if_ending(self) -> None:
        if self._attempt.is_ending:
            raise JobControlError("the job has used up its input and ends by itself")

    def _cut_if_needed(self) -> None:
        self._attempt.cover()


def _naming(saved: Future[str], reason: CheckdamError) -> CheckdamError:
    """The reason, and the path of the savepoint if it was completed all the same."""
    if saved.exception() is not None:
        return reason
    return JobControlError(f"{reason.message}; its savepoint {saved.result()} is complete", hint=reason.hint)


def _as_control_error(what: str, cause: Exception) -> CheckdamError:
    hint = cause.hint if isinstance(cause, CheckdamError) else None
    message = cause.message if isinstance(cause, CheckdamError) else str(cause) or type(cause).__name__
    return JobControlError(f"{what}: {message}", hint=hint)
