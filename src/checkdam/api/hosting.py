"""Connects a job to its host: notifies the host of the job's start and, whatever happens, of its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from checkdam.api.launch import Launch
from checkdam.clock import SystemClock
from checkdam.config import Configuration
from checkdam.runtime.driver.job_master import JobMaster
from checkdam.runtime.job import Job
from checkdam.runtime.job_control import RunningJob
from checkdam.runtime.live_state.state_queries import LiveState
from checkdam.runtime.monitor.job_events import JobListener
from checkdam.runtime.monitor.job_monitor import JobMonitor
from checkdam.runtime.monitor.listeners import JointListener


class Served:
    """The listener and monitor of a job for its host. Without a host, only the launch's own listener is notified."""

    def __init__(self, launch: Launch, job: Job, configuration: Configuration) -> None:
        self._host = launch.host
        self._job = job
        self._is_handed_over = False
        self.listener: JobListener = launch.listener
        if self._host is not None:
            self._monitor = JobMonitor(job, SystemClock(), configuration=configuration)
            self.listener = JointListener(launch.listener, self._monitor, *launch.watchers(job, self._monitor))

    def by(self, master: JobMaster) -> JobMaster:
        """Hand the job to its host."""
        if self._host is not None:
            queries = LiveState(master.live_slots)
            self._is_handed_over = True
            self._host.job_started(RunningJob(self._job.job_id, self._job.name, master, queries, self._monitor))
        return master

    def end(self) -> None:
        if self._host is not None and self._is_handed_over:
            self._host.job_ended(self._job.job_id)


@contextmanager
def hosted(launch: Launch, job: Job, configuration: Configuration) -> Iterator[Served]:
    served = Served(launch, job, configuration)
    try:
        yield served
    finally:
        served.end()
