"""A job running in the background of the program: what `execute_async` returns."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from checkdam import config
from checkdam.api.signals import ended_by_signals, exit_if_suspended
from checkdam.errors import CheckdamError, JobControlError, UsageError
from checkdam.ids import CheckpointId, JobId
from checkdam.runtime.answers import new_answer, refuse, refused
from checkdam.runtime.job_result import JobResult
from checkdam.runtime.job_status import JobStatus
from checkdam.state.snapshot_handles import SavepointFormat

if TYPE_CHECKING:  # the runtime is loaded with the first job
    from checkdam.api.background_jobs import JobWatch
    from checkdam.api.execution import JobExecution
    from checkdam.runtime.driver.job_master import JobMaster

T = TypeVar("T")


class JobHandle:
    """Watches and controls one job of this process. Thread-safe.

    The verbs return futures immediately; a future fails with a CheckdamError if its job does not do what was requested.
    A request made before the job runs is executed once it does.

    The job belongs to the program: when the program ends while the job runs, the job is suspended as by SIGTERM. It
    takes a last checkpoint within `execution.suspend.grace-period`, keeps all its checkpoints, and then the process
    ends.
    """

    def __init__(
        self, execution: JobExecution, watch: JobWatch, master: JobMaster, done: Future[JobResult], grace: timedelta
    ) -> None:
        self._execution = execution
        self._savepoint_directory = execution.settings.get(config.SAVEPOINT_DIR)
        self._watch = watch
        self._master = master
        self._done = done
        self._grace = grace

    @property
    def job_id(self) -> JobId:
        return self._master.job.job_id

    @property
    def status(self) -> JobStatus:
        """Flink's name for the job's status, such as RUNNING."""
        return self._master.status

    def wait(self, timeout: timedelta | float | None = None) -> JobResult:
        """Wait until the job has ended; a number counts seconds. Raise the errors of `execute`.

        While the main thread waits here, Ctrl-C cancels the job and SIGTERM suspends it, as in `execute`.

        Raises:
            TimeoutError: the job is still running.
            SystemExit: SIGTERM has suspended the job; the code is 143.
        """
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        with ended_by_signals(self._master, self._grace) as received:
            result = self._done.result(seconds)
        if received:
            self._execution.ended_with(result)
        exit_if_suspended(result, received)
        return result

    def when_ended(self, call: Callable[[], None]) -> None:
        """Call the callback, in some thread, when the job has ended; immediately if it already has."""
        self._done.add_done_callback(lambda _: call())

    def cancel(self) -> None:
        """Cancel the job; the retention of its checkpoints decides which stay. Use `wait` to wait for its end."""
        self._master.cancel()

    def trigger_checkpoint(self, *, full: bool = False) -> Future[CheckpointId]:
        """Take a checkpoint after the current epoch; done when it is complete. A `full` one refers to no earlier files.

        Fails without a checkpoint directory.
        """
        return self._ask(lambda: self._master.trigger_checkpoint(full=full))

    def trigger_savepoint(
        self, target: str | None = None, format: SavepointFormat = SavepointFormat.CANONICAL
    ) -> Future[str]:
        """Write a savepoint below `target`, or below `state.savepoints.dir`; the result is its path."""
        return self._ask_with_target(target, lambda place: self._master.trigger_savepoint(place, format))

    def stop_with_savepoint(
        self,
        target: str | None = None,
        format: SavepointFormat = SavepointFormat.CANONICAL,
        *,
        drain: bool = False,
    ) -> Future[str]:
        """Write a savepoint, publish all output and end as FINISHED; done when the job has ended.

        With `drain` event time ends first, so that every timer fires. If the savepoint fails, the job continues.
        """
        return self._ask_with_target(target, lambda place: self._master.stop_with_savepoint(place, format, drain=drain))

    def rescale(self, parallelism: int) -> Future[None]:
        """Continue at another parallelism, from a checkpoint; done when the job runs again.

        Operators with a parallelism of their own keep it. Fails without a checkpoint directory.
        """
        return self._ask(lambda: self._master.rescale(parallelism))

    def _suspend(self) -> None:
        """Suspend the job and wait until it has ended, in whatever way."""
        self._master.suspend(self._grace)
        self._done.exception()

    def _ask_with_target(self, target: str | None, ask: Callable[[str], Future[str]]) -> Future[str]:
        place = target or self._savepoint_directory
        if place is None:
            return refused(
                UsageError(
                    "no directory is given for the savepoint",
                    hint=f"Give one, or set {config.SAVEPOINT_DIR.key}.",
                )
            )
        return self._ask(lambda: ask(place))

    def _ask(self, ask: Callable[[], Future[T]]) -> Future[T]:
        answer: Future[T] = new_answer()

        def begin() -> None:
            if self._done.done():
                refuse(answer, JobControlError(f'job "{self._execution.job.name}" is {self.status}'))
            else:
                ask().add_done_callback(lambda done: _pass_on(done, answer))

        self._watch.once_running(begin)
        return answer


def _pass_on(done: Future[T], answer: Future[T]) -> None:
    failure = done.exception()
    if failure is None:
        answer.set_result(done.result())
    else:
        assert isinstance(failure, CheckdamError)
        refuse(answer, failure)
