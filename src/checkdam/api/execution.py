"""One execution of a job on a target: built, handed to its host, run to its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from checkdam.api.launch import Launch
from checkdam.clock import SystemClock
from checkdam.config import Configuration
from checkdam.runtime.driver.job_master import JobMaster
from checkdam.runtime.driver.restore import Restored
from checkdam.runtime.execution_target import ExecutionTarget
from checkdam.runtime.job import Job
from checkdam.runtime.job_control import RunningJob
from checkdam.runtime.job_result import JobResult
from checkdam.runtime.live_logs import LiveLogs
from checkdam.runtime.live_state.state_queries import LiveState
from checkdam.runtime.logs.driver_logs import driver_logged
from checkdam.runtime.monitor.job_events import JobListener
from checkdam.runtime.monitor.job_monitor import JobMonitor
from checkdam.runtime.monitor.listeners import JointListener
from checkdam.runtime.monitor.masking import masked


class JobExecution:
    """A job that is ready to run once, in the thread that calls `run`."""

    def __init__(
        self, launch: Launch, job: Job, settings: Configuration, restored: Restored | None, target: ExecutionTarget
    ) -> None:
        self.job = job
        self._launch = launch
        self.settings = settings
        self.restored = restored
        self._target = target
        self._running = target.running(job)

    def run(self, around: Callable[[JobMaster], AbstractContextManager[Any]]) -> JobResult:
        """Run the job to its end inside the context `around(master)`. Raise the failure if restarts did not help."""
        launch, restored = self._launch, self.restored
        resumes = restored is not None and restored.claim
        try:
            with (
                self._running as prepared,
                logged(launch, prepared.job, self.settings) as logs,
                hosted(launch, prepared.job, self.settings, logs) as (listener, hand_over),
            ):
                master = JobMaster(
                    prepared.job,
                    prepared.engines,
                    restored=None if resumes else restored,
                    listener=listener,
                    clock=prepared.clock,
                    resumes=resumes,
                    take_over=launch.take_over,
                    machinery=prepared.machinery,
                )
                hand_over(master)
                with around(master):
                    return master.run()
        finally:
            self._target.close()

    def ended_with(self, result: JobResult) -> None:
        """Record the job's result for the launch, as the outcome of the program."""
        self._launch.results.append(result)


@contextmanager
def logged(launch: Launch, job: Job, configuration: Configuration) -> Iterator[Sequence[JobListener]]:
    """Send the driver's log to files, if the job has any. Yield the listeners that write the job's events there."""
    if job.logs is None:
        yield ()
        return
    with driver_logged(job.logs) as log:
        if launch.event_log is None:
            yield (log,)
            return
        for key, value in masked({key: each.value for key, each in configuration.given().items()}).items():
            log.write(logging.INFO, f"setting {key}: {value}")
        yield log, launch.event_log(log.write)


@contextmanager
def hosted(
    launch: Launch, job: Job, configuration: Configuration, watchers: Sequence[JobListener] = ()
) -> Iterator[tuple[JobListener, Callable[[JobMaster], None]]]:
    """Yield the job's listener, and a function that hands the job to its host, which is notified of the job's end.

    Without a host, only the launch's own listener and `watchers` are notified.
    """
    host = launch.host
    if host is None:
        yield JointListener(launch.listener, *watchers) if watchers else launch.listener, lambda master: None
        return
    monitor = JobMonitor(job, SystemClock(), configuration=configuration)
    is_handed_over = False

    def hand_over(master: JobMaster) -> None:
        nonlocal is_handed_over
        is_handed_over = True
        live = master.live_slots
        host.job_started(RunningJob(job.job_id, job.name, master, LiveState(live), monitor, LiveLogs(live)))

    try:
        yield JointListener(launch.listener, monitor, *launch.watchers(job, monitor), *watchers), hand_over
    finally:
        if is_handed_over:
            host.job_ended(job.job_id)
