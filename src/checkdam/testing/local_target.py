"""This process as the execution target of jobs: the local engine runs the epochs, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.launch import Launch
from checkdam.clock import Clock
from checkdam.config import Configuration
from checkdam.runtime.driver.attempt import Machinery
from checkdam.runtime.execution_target import PreparedJob
from checkdam.runtime.janitor import work_directory
from checkdam.runtime.job import Job
from checkdam.runtime.local_copy_places import made
from checkdam.runtime.monitor.job_events import JobListener
from checkdam.testing.gate import Gate
from checkdam.testing.local_engine import LocalEngine
from checkdam.testing.mounts import watched_by
from checkdam.testing.trouble import Trouble


class LocalTarget:
    """Runs jobs in this process. `change` replaces each job before it runs; options are those of LocalEngine."""

    default_parallelism = 2

    def __init__(
        self,
        troubles: Sequence[Trouble] = (),
        *,
        lockstep: bool = True,
        clock: Clock | None = None,
        joins_batches: bool = True,
        until: Gate | None = None,
        change: Callable[[Job], Job] = lambda job: job,
        engines: type[LocalEngine] = LocalEngine,
        machinery: Machinery | None = None,
    ) -> None:
        self._open_engine = partial(
            engines, troubles=troubles, lockstep=lockstep, clock=clock, joins_batches=joins_batches, until=until
        )
        self._clock = clock
        self._machinery = machinery
        self._change = change
        self.engine: LocalEngine | None = None  # of the job started last

    @contextmanager
    def running(self, job: Job) -> Iterator[PreparedJob]:
        with _with_local_copies(self._change(job)) as prepared:
            yield from self._running(prepared)

    def _running(self, job: Job) -> Iterator[PreparedJob]:
        engine = self.engine = self._open_engine(job.plan, heartbeat=job.heartbeat)
        with watched_by(engine.driver):
            yield PreparedJob(job, engine.adopt, self._clock, self._machinery)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def local_environment(
    settings: Mapping[str, Any] | None = None,
    *,
    parallelism: int = 2,
    listener: JobListener | None = None,
    until: Gate | None = None,
) -> StreamExecutionEnvironment:
    """Return an environment whose jobs run in this process, without Spark.

    `execute`, `execute_async` and `execute_and_collect` work as usual. Only collections and source functions can be
    sources: the others need Spark. With `until` the input of a job does not end before that gate opens.
    """
    launch = Launch(Configuration.load(None), target=LocalTarget(until=until), listener=listener or JobListener())
    environment = StreamExecutionEnvironment(launch).set_parallelism(parallelism)
    for key, value in (settings or {}).items():
        environment._configuration = environment._configuration.with_value(key, value)
    return environment


@contextmanager
def _with_local_copies(job: Job) -> Iterator[Job]:
    """Make the directories of the job's local copies, if it wants any."""
    if job.local_copies is None:
        yield job
        return
    with made(job.local_copies, work_directory) as places:
        yield replace(job, local_copies=places)
