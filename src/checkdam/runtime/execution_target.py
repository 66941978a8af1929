"""Where the jobs of an environment run: on Spark, or, in tests, in this process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from checkdam.clock import Clock
from checkdam.graph.levels import JobPlan
from checkdam.runtime.driver.attempt import Machinery
from checkdam.runtime.engine import Engine
from checkdam.runtime.job import Job


@dataclass(frozen=True)
class PreparedJob:
    """A job as its target runs it; `engines` makes what runs the epochs of a plan, for each plan that the job has."""

    job: Job
    engines: Callable[[JobPlan], Engine]
    clock: Clock | None = None
    machinery: Machinery | None = None  # None: with threads


class ExecutionTarget(Protocol):
    @property
    def default_parallelism(self) -> int:
        """The parallelism of a job that names none."""

    def running(self, job: Job) -> AbstractContextManager[PreparedJob]:
        """Return what to run a job within. Called in the user's thread; entered and left in the thread of the job."""

    def close(self) -> None:
        """Let go of what the target holds for an environment whose job has ended, or could not be made."""
