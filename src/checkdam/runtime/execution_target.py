"""The place where the jobs of an environment run: Spark, or this process in tests."""

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
    """A job as its target runs it; `engines` makes the engine for each plan of the job."""

    job: Job
    engines: Callable[[JobPlan], Engine]
    clock: Clock | None = None
    machinery: Machinery | None = None  # None: threads


class ExecutionTarget(Protocol):
    @property
    def default_parallelism(self) -> int:
        """The parallelism of a job that sets none."""

    def running(self, job: Job) -> AbstractContextManager[PreparedJob]:
        """Return the context to run a job in. Called in the user's thread; entered and left in the job's thread."""

    def close(self) -> None:
        """Release the resources of an environment whose job has ended, or could not be built."""
