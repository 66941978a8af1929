"""The job master: attempt after attempt until the job has ended, and order left behind whatever the end was."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

from checkdam.checkpoint.coordinator import CheckpointCoordinator
from checkdam.checkpoint.ownership import clear_abandoned, let_go, take
from checkdam.checkpoint.settings import JobEnd, keeps_checkpoints
from checkdam.checkpoint.store import CheckpointStore
from checkdam.clock import Clock, SystemClock
from checkdam.errors import (
    CheckdamError,
    CheckpointDamagedError,
    CheckpointNotFoundError,
    JobFailedError,
    RestoreError,
    StorageError,
    UsageError,
    UserFunctionError,
)
from checkdam.ids import CheckpointId, JobId, new_attempt
from checkdam.runtime.attempt import AttemptRun
from checkdam.runtime.checkpointing import Surroundings
from checkdam.runtime.engine import Engine
from checkdam.runtime.events import JobListener
from checkdam.runtime.job import Job
from checkdam.runtime.outputs import Outputs
from checkdam.runtime.restore import Restored, newest_first
from checkdam.storage.contract import Storage
from checkdam.storage.filesystem import open_storage

_CLEAN_UP_TRIES = 3


class JobCancelled(Exception):  # noqa: N818  not an error: somebody asked for it
    """The job was cancelled."""


@dataclass(frozen=True)
class JobResult:
    """How a job ended, and the checkpoint it can be resumed from, if one was kept."""

    job_id: JobId
    end: JobEnd
    last_checkpoint: str | None


class JobMaster:
    """Runs one job to its end."""

    def __init__(
        self,
        job: Job,
        engine: Engine,
        *,
        restored: Restored | None = None,
        listener: JobListener | None = None,
        clock: Clock | None = None,
        storage: Storage | None = None,
    ) -> None:
        self._job = job
        self._engine = engine
        self._given = restored
        self._listener = listener or JobListener()
        self._clock = clock or SystemClock()
        self._storage = storage or (open_storage(job.storage) if job.storage else None)
        self._store = CheckpointStore(self._storage, job.job_id) if self._storage else None
        self._outputs = Outputs.of(job.plan, job.job_id)
        self._running: AttemptRun | None = None
        self._cancelled = threading.Event()
        self._next_id = CheckpointId(1)
        self._is_done = False  # all was done before something failed: to run it again would help nobody

    def run(self) -> JobResult:
        """Returns when the job has finished or was cancelled; raises what restarts did not cure."""
        if self._storage is not None:
            self._storage.check_writable()
        self._outputs.check()
        self._take_over()
        self._listener.job_started(self._job.job_id, self._job.name, self._job.plan.slots)
        try:
            end = self._run_attempts()
        except Exception:
            self._clean_up(JobEnd.FAILED)
            raise
        return JobResult(self._job.job_id, end, self._clean_up(end))

    def _take_over(self) -> None:
        """Become the job's one driver, and clear away jobs that died before anybody could resume them."""
        if self._storage is None:
            return
        take(self._storage, self._job.job_id)
        for dead in clear_abandoned(self._storage):
            self._outputs.forget(dead)

    def cancel(self) -> None:
        """End the job in order, from whatever thread; `run` then returns."""
        self._cancelled.set()
        running = self._running
        if running is not None:
            running.interrupt(JobCancelled())

    def _run_attempts(self) -> JobEnd:
        policy = self._job.restart.begin(self._clock)
        last_failure: CheckdamError | None = None
        while not self._cancelled.is_set():
            try:
                self._run_attempt()
                return JobEnd.FINISHED
            except JobCancelled:
                return JobEnd.CANCELLED
            except (UsageError, RestoreError):
                raise
            except CheckdamError as failure:
                hopeless = self._is_done or _is_hopeless(failure, last_failure)
                delay = None if hopeless else policy.on_failure()
                if delay is None:
                    raise
                last_failure = failure
                self._listener.restarting(failure, delay)
                self._cancelled.wait(delay.total_seconds())
        return JobEnd.CANCELLED

    def _run_attempt(self) -> None:
        """One attempt from the newest usable checkpoint; a damaged one gives way to the next older."""
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
        """What to start from, best first; None means from the beginning."""
        own: list[Restored] = []
        if self._store is not None and self._storage is not None:
            own = list(newest_first(self._store, self._storage, self._job.job_id, self._listener))
        yield from own
        if self._given is not None and not self._given.claim:
            yield self._given
        elif not own and (self._store is None or not self._store.completed()):
            yield None

    def _run_from(self, restored: Restored | None) -> None:
        kept = self._sweep()
        first_id = max(self._next_id, self._store.next_checkpoint_id() if self._store else 1)
        if restored is not None:
            first_id = max(first_id, restored.checkpoint.checkpoint_id + 1)
            self._listener.restored(restored.path, restored.checkpoint.epoch)
        self._outputs.resume(restored)
        coordinator = CheckpointCoordinator(
            self._job.checkpoints,
            self._job.plan.slots,
            self._clock,
            first_id=CheckpointId(first_id),
            retained=[each.checkpoint for each in kept],
            foreign_files=() if restored is None or restored.claim else restored.checkpoint.files(),
        )
        around = Surroundings(self._engine, self._store, coordinator, self._outputs, self._listener, self._clock)
        run = AttemptRun(self._job, new_attempt(), restored, around)
        self._running = run
        try:
            if self._cancelled.is_set():
                raise JobCancelled
            run.run()
        except RestoreError as error:
            if run.has_begun:  # not the checkpoint's fault any more: an older one would not help
                raise JobFailedError(str(error)) from error
            raise
        except (CheckdamError, JobCancelled):
            raise
        except Exception as unforeseen:
            raise JobFailedError(f"{type(unforeseen).__name__}: {unforeseen}") from unforeseen
        finally:
            self._running = None
            self._is_done = run.is_done
            run.dispose()
            self._next_id = coordinator.next_id

    def _sweep(self) -> list[Restored]:
        """Remove what earlier attempts left half done; returns the job's checkpoints that stay."""
        if self._store is None or self._storage is None:
            return []
        kept = list(newest_first(self._store, self._storage, self._job.job_id, JobListener()))
        self._store.sweep([each.checkpoint for each in kept])
        return kept

    def _clean_up(self, end: JobEnd) -> str | None:
        """Leave only what retention promises: whole checkpoints, or nothing.

        The job has ended already, so trouble here is told, not raised: nobody must think that it has to run again.
        """
        last: str | None = None
        for tries_left in reversed(range(_CLEAN_UP_TRIES)):
            try:
                last = self._tidy(end)
                break
            except (StorageError, RestoreError) as reason:
                if not tries_left:
                    self._listener.left_behind(reason)
        self._listener.job_ended(end, last)
        return last

    def _tidy(self, end: JobEnd) -> str | None:
        """Remove what is no longer needed; doing it again does the rest."""
        kept = self._sweep()
        if end is JobEnd.CANCELLED and kept:
            self._outputs.resume(kept[0])  # the end may have come between a checkpoint and the publishing of its output
        if end is not JobEnd.FAILED:
            self._outputs.close()
        if self._store is None:
            return None
        if keeps_checkpoints(self._job.checkpoints.retention, end):
            superfluous = [each.checkpoint.checkpoint_id for each in kept[self._job.checkpoints.num_retained :]]
        else:
            superfluous, kept = self._store.completed(), []
        for checkpoint_id in sorted(superfluous):
            self._store.discard(checkpoint_id)
        if superfluous:
            self._store.sweep([])
        assert self._storage is not None
        let_go(self._storage, self._job.job_id)
        return kept[0].path if kept else None


def _is_hopeless(failure: CheckdamError, before: CheckdamError | None) -> bool:
    """A record that the user's function rejects twice in a row will be rejected for ever."""
    return isinstance(failure, UserFunctionError) and str(failure) == str(before)
