"""One execution of a job on a target: built, handed to its host, run to its end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from checkdam.api.hosting import hosted
from checkdam.api.launch import Launch
from checkdam.config import Configuration
from checkdam.runtime.driver.job_master import JobMaster
from checkdam.runtime.driver.restore import Restored
from checkdam.runtime.execution_target import ExecutionTarget
from checkdam.runtime.job import Job
from checkdam.runtime.job_result import JobResult


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
            with self._running as prepared, hosted(launch, prepared.job, self.settings) as served:
                master = served.by(
                    JobMaster(
                        prepared.job,
                        prepared.engines,
                        restored=None if resumes else restored,
                        listener=served.listener,
                        clock=prepared.clock,
                        resumes=resumes,
                        take_over=launch.take_over,
                        machinery=prepared.machinery,
                    )
                )
                with around(master):
                    return master.run()
        finally:
            self._target.close()

    def ended_with(self, result: JobResult) -> None:
        """Record the job's result for the launch, as the outcome of the program."""
        self._launch.results.append(result)
