"""The job master: runs attempt after attempt until the job has ended, and cleans up however it ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.checkpoint.coordinator import CheckpointCoordinator
from checkdam.checkpoint.ownership import clear_abandoned, take
from checkdam.checkpoint.settings import JobEnd
from checkdam.checkpoint.terms import Term
from checkdam.clock import Clock, SystemClock
from checkdam.errors import (
    CheckdamError,
    CheckpointDamagedError,
    CheckpointNotFoundError,
    EngineLostError,
    FencedError,
    GivenUpError,
    JobControlError,
    JobFailedError,
    RestoreError,
    StateNotRestorableError,
    StorageError,
    UsageError,
    UserFunctionError,
)
from checkdam.graph.levels import JobPlan
from checkdam.ids import CheckpointId, new_attempt
from checkdam.runtime.answers import answered, give, refuse, refused
from checkdam.runtime.driver.attempt import AttemptRun, Machinery
from checkdam.runtime.driver.checkpointing import Surroundings
from checkdam.runtime.driver.cleanup import Remains
from checkdam.runtime.driver.end_watch import EndWatch
from checkdam.runtime.driver.job_requests import (
    CheckpointRequest,
    EndRequested,
    Request,
    Rescaled,
    RescaleRequest,
    SavepointRequest,
    StopRequest,
)
from checkdam.runtime.driver.outputs import Outputs, base_of
from checkdam.runtime.driver.publish_history import tells_of_checkpoints
from checkdam.runtime.driver.restore import Restored, give_up_savepoint, newest_first
from checkdam.runtime.driver.slot_group import LiveSlots
from checkdam.runtime.engine import Engine
from checkdam.runtime.job import Job
from checkdam.runtime.job_result import JobResult
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_events import JobListener
from checkdam.runtime.monitor.listeners import DeferredListener, TimedListener
from checkdam.runtime.stalls import Stall
from checkdam.state.snapshot_handles import SavepointFormat
from checkdam.storage.filesystem import open_storage

_STATUS_AFTER = {
    JobEnd.FINISHED: JobStatus.FINISHED,
    JobEnd.CANCELLED: JobStatus.CANCELED,
    JobEnd.FAILED: JobStatus.FAILED,
    JobEnd.SUSPENDED: JobStatus.SUSPENDED,
}


class JobMaster:
    """Runs one job to its end and serves requests meanwhile: a JobControl.

    `engines` makes the engine for a plan; a rescaled job gets another one. `resumes` is set if the job has a checkpoint
    of its own, `take_over` if the job may be taken from a driver that is known to run.
    """

    def __init__(
        self,
        job: Job,
        engines: Callable[[JobPlan], Engine],
        *,
        restored: Restored | None = None,
        listener: JobListener | None = None,
        clock: Clock | None = None,
        resumes: bool = False,
        take_over: bool = False,
        machinery: Machinery | None = None,
    ) -> None:
        self._machinery = machinery or Machinery()
        self._job = job
        self._engines = engines
        self._engine = engines(job.plan)
        self._given = restored
        self._timed_listener = TimedListener(listener or JobListener())
        self._listener = DeferredListener(self._timed_listener, self._report)
        self._clock = clock or SystemClock()
        self._storage = open_storage(job.storage) if job.storage else None
        self._store = CheckpointStore(self._storage, job.job_id) if self._storage else None
        self._outputs = Outputs.of(job.plan, job.job_id, self._storage, job.mode)
        self._remains = Remains(job.job_id, job.checkpoints, self._storage, self._outputs)
        self._takes_over = take_over
        self._has_checkpoint = resumes  # if set, starting from scratch would repeat published output
        self._has_run = False  # whether some attempt has restored its state
        self._term: Term | None = None
        self._asking = threading.Lock()
        self._entering = threading.RLock()  # statuses are reported in the order in which the job enters them
        self._unanswered: set[Future[Any]] = set()
        self._running: AttemptRun | None = None
        self._status = JobStatus.INITIALIZING
        self._rescaling: tuple[RescaleRequest, Job] | None = None  # in progress, with the job as it was before
        self._stopped_with: tuple[StopRequest, str] | None = None
        self._asked_end: JobEnd | None = None
        self._is_asked_to_end = threading.Event()
        self._next_id = CheckpointId(1)
        self._has_claimed_savepoint = restored is not None and restored.owned_savepoint is not None
        self._end_watch = EndWatch(job.cancellation_timeout)
        self._last_run: AttemptRun | None = None  # also while it is disposed of
        self._given_up: GivenUpError | None = None  # reported as the job's end, whatever its threads do afterwards
        self._is_done = False  # everything was done before something failed: running again would not help

    @property
    def job(self) -> Job:
        """The job as it runs now."""
        return self._job

    def live_slots(self) -> LiveSlots | None:
        """Return the slots whose state can be queried; None while there are none, as during a failover."""
        running = self._running
        return running.live_slots if running is not None else None

    # -- requests --------------------------------------------------------------------------------------------

    def trigger_checkpoint(self, *, full: bool = False) -> Future[CheckpointId]:
        if self._store is None:
            return refused(self._needs_storage("takes no checkpoints"))
        request = CheckpointRequest(full, self._clock.monotonic())
        self._ask(request)
        return request.answer

    def trigger_savepoint(self, target: str, format: SavepointFormat) -> Future[str]:
        request = SavepointRequest(target, format)
        self._ask(request)
        return request.answer

    def stop_with_savepoint(self, target: str, format: SavepointFormat, *, drain: bool) -> Future[str]:
        request = StopRequest(target, format, drain)
        self._ask(request)
        return request.answer

    def rescale(self, parallelism: int) -> Future[None]:
        if self._store is None:
            return refused(self._needs_storage("cannot be rescaled: it goes on from a checkpoint"))
        try:
            job = self._job.at_parallelism(parallelism)
        except UsageError as reason:
            return refused(reason)
        if parallelism == self._job.parallelism and self._rescaling is None and not self._status.has_ended:
            return answered(None)
        request = RescaleRequest(job)
        self._ask(request)
        return request.answer

    def cancel(self) -> None:
        """End the job in order; `run` then returns. Any thread may call this.

        A job that is being suspended no longer waits for its last checkpoint, and keeps what it has.
        """
        is_first = self._ask_for(JobEnd.CANCELLED)
        self._end_watch.begin()
        if is_first:
            self._enter(JobStatus.CANCELLING)
        running = self._running
        if running is not None and self._asked_end is not None:
            running.interrupt(EndRequested(self._asked_end))

    def suspend(self, grace: timedelta) -> None:
        """End the job with a last checkpoint if one completes within `grace`; `run` then returns. Any thread may call
        this.

        Everything that is kept stays, whatever the retention. A job that is already being cancelled, or is about to
        end, continues to do so.
        """
        if not self._ask_for(JobEnd.SUSPENDED):
            return
        running, suspended = self._running, EndRequested(JobEnd.SUSPENDED)
        if running is None:
            self._end_watch.begin()  # else when its attempt begins to end: the grace may be long
        if self._store is None:
            self._listener.last_checkpoint_missed("the job takes no checkpoints")
            if running is not None:
                running.interrupt(suspended)
        elif running is not None:
            running.suspend(grace)

    def _ask_for(self, end: JobEnd) -> bool:
        """Record how the job is to end. Return False if it has ended, or another end was requested before."""
        with self._asking:
            is_first = self._asked_end is None and not self._status.has_ended
            if is_first:
                self._asked_end = end
                self._is_asked_to_end.set()
        return is_first

    def _ask(self, request: Request) -> None:
        self._unanswered.add(request.answer)
        request.answer.add_done_callback(self._unanswered.discard)
        with self._asking:
            running = self._running
        if running is not None:
            running.ask(request)
        else:
            hint = None if self._status.has_ended else "Ask again when it runs."
            refuse(request.answer, JobControlError(f'job "{self._job.name}" is {self._status}', hint=hint))

    def _needs_storage(self, what: str) -> UsageError:
        return UsageError(f'job "{self._job.name}" {what}', hint="Set state.checkpoints.dir when you start it.")

    @property
    def status(self) -> JobStatus:
        """The current status. Listeners may receive it later: reports wait for their turn."""
        return self._status

    def _enter(self, status: JobStatus) -> None:
        """Change the status. A job that is being cancelled stays so until it has ended; an ended job never changes."""
        with self._entering:
            with self._asking:
                if self._status.has_ended or (self._status is JobStatus.CANCELLING and not status.has_ended):
                    return
                self._status = status
            self._listener.status_changed(status)

    def _report(self, event: Callable[[], None]) -> None:
        """Call the listener after all that the attempt has reported; at once if there is none."""
        attempt = self._last_run
        if attempt is None or not attempt.state.report(event):
            event()

    # -- from start to end --------------------------------------------------------------------------------------

    def run(self) -> JobResult:
        """Run the job until it has finished, was cancelled or suspended. Raise a failure that restarts did not cure."""
        try:
            return self._end_watch.run(self._run_as_owner, self._stall, self.cancel)
        except GivenUpError as failure:
            self._give_up(failure)
            raise

    def _give_up(self, failure: GivenUpError) -> None:
        """Report the end of the job to callers and listeners. The hanging thread does nothing more when it wakes."""
        with self._asking:
            self._given_up, self._status = failure, JobStatus.FAILED
        listener = self._timed_listener.silence()
        listener.failed(failure)
        if self._last_run is not None:
            self._last_run.requests.close(failure)
        for answer in self._unanswered.copy():  # also of requests that are being served
            refuse(answer, failure)
        listener.status_changed(JobStatus.FAILED)
        listener.job_ended(JobEnd.FAILED, None)

    def _check_given_up(self) -> None:
        if self._given_up is not None:
            raise self._given_up

    def _stall(self) -> Stall | None:
        return self._last_run.stall() if self._last_run is not None else None

    def _run_as_owner(self) -> JobResult:
        """Run the job and release its term, unless the job was given up: a hanging thread may still write."""
        try:
            return self._run()
        except FencedError as fenced:
            self._stand_down(fenced)
            raise
        finally:
            if self._term is not None:
                self._term.release()

    def _run(self) -> JobResult:
        self._enter(JobStatus.INITIALIZING)
        try:
            if self._storage is not None:
                self._storage.check_writable()
            self._outputs.check()
            self._take_over()
        except CheckdamError as failure:
            self._listener.failed(failure)
            self._enter(JobStatus.FAILED)
            raise
        self._listener.job_started(self._job.job_id, self._job.name, self._job.plan.slots)
        self._enter(JobStatus.CREATED)
        try:
            end = self._run_attempts()
        except (FencedError, GivenUpError):
            raise
        except Exception as failure:
            self._fail(failure)
            raise
        try:
            return JobResult(self._job.job_id, end, self._end(end))
        finally:
            if self._stopped_with is not None:
                request, path = self._stopped_with
                give(request.answer, path)

    def _fail(self, failure: Exception) -> None:
        try:
            if isinstance(failure, CheckdamError):
                self._listener.failed(failure)
            self._enter(JobStatus.FAILING)
            is_resumable = not self._has_run or isinstance(failure, EngineLostError)
            self._end(JobEnd.FAILED, keeps_all=is_resumable)
        finally:
            if self._stopped_with is not None:
                request, path = self._stopped_with
                reason = f"the savepoint {path} is complete and all output published; then: {failure}"
                refuse(request.answer, JobControlError(reason))

    def _stand_down(self, fenced: FencedError) -> None:
        """End without touching any file of the job: another driver owns it."""
        self._listener.failed(fenced)
        self._refuse_rescaling(JobEnd.SUSPENDED)
        self._enter(JobStatus.SUSPENDED)
        self._listener.job_ended(JobEnd.SUSPENDED, None)

    def _end(self, end: JobEnd, *, keeps_all: bool = False) -> str | None:
        self._refuse_rescaling(end)
        is_exhausted = end is JobEnd.FINISHED and self._stopped_with is None
        last = self._remains.clean_up(end, self._listener, is_exhausted=is_exhausted, keeps_all=keeps_all)
        if self._job.driver_memory is not None:
            last = None  # it was in this process's memory, and is gone
        self._enter(_STATUS_AFTER[end])
        self._listener.job_ended(end, last)
        return last

    def _refuse_rescaling(self, end: JobEnd) -> None:
        if self._rescaling is not None:
            request, _ = self._rescaling
            self._rescaling = None
            reason = JobControlError(f"the job was {end.value} before it ran at its new parallelism")
            refuse(request.answer, reason)
            self._listener.rescaled(request.job.parallelism, reason)

    def _take_over(self) -> None:
        """Become the job's only driver, and remove jobs that died before their first checkpoint."""
        if self._storage is None:
            return
        job = self._job
        term = self._term = take(self._storage, job.job_id, take_over=self._takes_over)
        if term.replaced is not None:
            deletes = (
                " (it has ended the job, and may be deleting its checkpoints)" if term.is_deletion_possible else ""
            )
            self._listener.taken_over(f"{term.replaced}{deletes}")
        self._store = CheckpointStore(self._storage, job.job_id, term, dropped=self._listener.checkpoint_dropped)
        self._store.make_directories()
        self._remains = Remains(job.job_id, job.checkpoints, self._storage, self._outputs, self._store, term)
        self._outputs.recall(term)
        for dead in clear_abandoned(self._storage, partial(tells_of_checkpoints, self._storage)):
            self._outputs.forget(dead)

    def _check_term(self) -> None:
        """Raise FencedError if another driver has taken the job."""
        if self._term is not None:
            with suppress(StorageError):  # unknown; checked again before any file is touched
                self._term.check()

    def _run_attempts(self) -> JobEnd:
        policy = self._job.restart.begin(self._clock)
        last_failure: CheckdamError | None = None
        while not self._is_asked_to_end.is_set():
            try:
                self._run_attempt()
                return JobEnd.FINISHED
            except EndRequested as asked:
                return asked.end
            except Rescaled as rescaled:
                self._begin_rescaling(rescaled.request)
            except (FencedError, GivenUpError):
                raise
            except CheckdamError as failure:
                self._check_term()
                was_rescaling = self._give_up_rescaling(failure)
                if isinstance(failure, UsageError | RestoreError) and not was_rescaling:
                    raise
                if self._asked_end is JobEnd.SUSPENDED and not self._is_done:
                    self._listener.last_checkpoint_missed(str(failure))
                    return JobEnd.SUSPENDED
                hopeless = self._is_done or isinstance(failure, EngineLostError)
                if self._job.fail_on_repeated_rejection:
                    hopeless = hopeless or _is_rejected_again(failure, last_failure)
                restart = None if hopeless else policy.on_failure()
                if restart is None:
                    raise
                last_failure = failure
                self._listener.restarting(failure, restart)
                self._enter(JobStatus.RESTARTING)
                self._may_wait()
                self._is_asked_to_end.wait(restart.delay.total_seconds())
        assert self._asked_end is not None
        return self._asked_end

    def _may_wait(self) -> None:
        """Allow the next attempt to wait for its restart and for records, unless the job is to end."""
        self._end_watch.end()
        if self._is_asked_to_end.is_set():
            self._end_watch.begin()

    # -- at another parallelism ---------------------------------------------------------------------------------

    def _begin_rescaling(self, request: RescaleRequest) -> None:
        """Switch to the new parallelism after the last attempt's checkpoint; later failures are the job's own."""
        self._rescaling = request, self._job
        self._enter(JobStatus.RESTARTING)
        self._listener.progressed(f"rescaling to parallelism {request.job.parallelism}")
        self._change_to(request.job)

    def _change_to(self, job: Job) -> None:
        self._job = job
        self._engine = self._engines(job.plan)
        self._listener.replanned(job.plan)

    def _has_begun(self, restored: Restored | None, newer: Sequence[CheckpointId]) -> None:
        """Match the published output to the restored state, before the attempt produces any output.

        Newer checkpoints that could not be restored are deleted first: their output is withdrawn, so no job may resume
        from them.
        """
        if self._store is not None and newer:
            self._store.check()
            for checkpoint_id in reversed(newer):
                self._store.discard(checkpoint_id)
            self._listener.checkpoints_discarded(newer)
        self._outputs.resume(restored, self._listener)
        self._has_run = True
        self._enter(JobStatus.RUNNING)
        if self._rescaling is not None:
            request, _ = self._rescaling
            self._rescaling = None
            self._listener.progressed(None)
            self._listener.rescaled(request.job.parallelism, None)
            self._report(partial(give, request.answer, None))

    def _give_up_rescaling(self, failure: CheckdamError) -> bool:
        """Return to the old parallelism if the job could not start at the new one."""
        if self._rescaling is None:
            return False
        request, before = self._rescaling
        self._rescaling = None
        reason = JobControlError(f"the job did not start at parallelism {request.job.parallelism}: {failure}")
        try:
            self._listener.progressed(None)
            self._listener.rescaled(request.job.parallelism, reason)
            self._change_to(before)
        finally:
            refuse(request.answer, reason)
        return True

    # -- one attempt --------------------------------------------------------------------------------------------

    def _run_attempt(self) -> None:
        """Run one attempt from the newest usable checkpoint; skip damaged ones."""
        self._check_term()
        for restored in self._restorable():
            try:
                self._run_from(restored)
                return
            except (CheckpointDamagedError, CheckpointNotFoundError) as reason:
                if restored is None or not restored.claim:
                    raise
                self._listener.checkpoint_skipped(restored.path, reason)
        raise CheckpointDamagedError(
            f'no checkpoint of job "{self._job.name}" can be restored',
            hint="The warnings above say why; start without --resume to begin anew.",
        )

    def _restorable(self) -> Iterator[Restored | None]:
        """Yield the checkpoints to start from, best first; None means from the beginning."""
        has_own = False
        if self._store is not None and self._storage is not None:
            for restored in newest_first(self._store, self._storage, self._job.job_id, self._listener):
                has_own = True
                yield restored
        is_empty = not has_own and (self._store is None or not self._store.completed())
        if is_empty and self._has_checkpoint and self._store is not None:
            raise StorageError(
                f'"{self._store.uri}" holds no checkpoint any more, and to begin anew would repeat output',
                hint="Bring the directory back, or start a new job without --resume.",
            )
        if self._given is not None and not self._given.claim:
            yield self._given
        elif is_empty:
            yield None

    def _run_from(self, restored: Restored | None) -> None:
        if restored is not None:
            restored = restored.with_sources(self._job.plan, self._job.source_choices)
        self._outputs.check_covered(restored)
        newer = self._newer_than(restored)
        if not self._job.may_repeat_output:
            self._outputs.check_going_back(restored, newer)
        if self._term is not None:
            self._term.begin()
        kept = self._remains.sweep()
        first_id = max(self._next_id, self._store.next_checkpoint_id() if self._store else 1)
        if restored is not None:
            first_id = max(first_id, restored.checkpoint.checkpoint_id + 1)
            self._listener.restored(restored.path, restored.checkpoint.epoch)
        coordinator = CheckpointCoordinator(
            self._job.checkpoints,
            self._job.plan.slots,
            self._clock,
            first_id=CheckpointId(first_id),
            retained=[each.checkpoint for each in kept if each.checkpoint.checkpoint_id not in newer],
            foreign_files=() if restored is None or restored.claim else restored.checkpoint.files(),
        )
        around = Surroundings(
            self._engine,
            self._store,
            coordinator,
            self._outputs,
            self._timed_listener,
            self._clock,
            self._term.number if self._term is not None else 0,
            begun=lambda: self._has_begun(restored, newer),
            completed=self._own_checkpoint_completed,
            interrupted=self._end_watch.begin,
        )
        run = self._last_run = AttemptRun(self._job, new_attempt(), restored, around, self._machinery)
        with self._asking:
            self._running = run
        try:
            self._check_given_up()
            self._may_wait()
            if self._asked_end is not None:
                raise EndRequested(self._asked_end)
            run.run()
        except RestoreError as error:
            if run.state.has_begun and not isinstance(error, StateNotRestorableError):
                # The checkpoint is not at fault here: an older one would not help.
                raise JobFailedError(str(error)) from error
            raise
        except (CheckdamError, EndRequested, Rescaled):
            raise
        except Exception as unforeseen:
            raise JobFailedError(f"{type(unforeseen).__name__}: {unforeseen}") from unforeseen
        finally:
            with self._asking:
                self._running = None
            self._is_done = run.state.is_done
            if run.state.is_done:  # otherwise the attempt has refused the stop
                self._stopped_with = run.state.stopped_with
            run.dispose()
            self._next_id = coordinator.next_id
            self._check_given_up()

    def _newer_than(self, restored: Restored | None) -> list[CheckpointId]:
        """Return the job's checkpoints later than this one, which cannot be restored."""
        base = base_of(restored)
        return [each for each in self._store.completed() if each > base] if self._store is not None else []

    def _own_checkpoint_completed(self) -> None:
        """Give up a claimed savepoint: the job's first own checkpoint replaces it."""
        self._has_checkpoint = True
        if self._has_claimed_savepoint and self._given is not None:
            self._has_claimed_savepoint = False
            try:
                give_up_savepoint(self._given)
            except CheckdamError as reason:
                self._listener.left_behind(reason)


def _is_rejected_again(failure: CheckdamError, before: CheckdamError | None) -> bool:
    """Return whether the same function raised the same error on the same record in two consecutive attempts."""
    return isinstance(failure, UserFunctionError) and failure.where is None and str(failure) == str(before)
