"""Spark as the target of jobs: the session they share, and the resources of each job."""

from __future__ import annotations

import itertools
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from checkdam.runtime.execution_target import PreparedJob
from checkdam.runtime.janitor import outlived_by, work_directory
from checkdam.runtime.job import Job
from checkdam.runtime.local_copy_places import made
from checkdam.runtime.spark.jvm import is_on_one_machine
from checkdam.runtime.spark.memory_service import memory_served
from checkdam.runtime.spark.session import running_session, spark_session, stop
from checkdam.runtime.spark.spark_engine import SparkEngine
from checkdam.runtime.spark.spark_watch import SparkWatch


class _SessionUse:
    """Counts the jobs of this process that run on Spark, so that the last one stops a session created for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs = 0
        self._left: SparkSession | None = None  # the environment that created it no longer needs it

    @contextmanager
    def job(self) -> Iterator[None]:
        with self._lock:
            self._jobs += 1
        try:
            yield
        finally:
            with self._lock:
                self._jobs -= 1

    def leave(self, owned: SparkSession | None) -> SparkSession | None:
        """Return the session to stop now: the environment that created it has left it, and no job runs on it."""
        with self._lock:
            self._left = owned or self._left
            if self._jobs:
                return None
            left, self._left = self._left, None
            return left


_use = _SessionUse()


class SparkTarget:
    """Runs the jobs of one environment on the Spark session of the process, which is created on first use."""

    def __init__(self, settings: Callable[[], Mapping[str, str]]) -> None:
        self._settings = settings
        self._session: SparkSession | None = None
        self._owns_session = False
        self._work: Path | None = None
        self._numbers = itertools.count()
        self._unused: list[SparkWatch] = []  # of jobs that have ended

    @property
    def session(self) -> SparkSession:
        if self._session is None or self._session.sparkContext._jsc is None:  # None: it was stopped
            self._owns_session = running_session() is None
            self._session = spark_session(self._settings(), str(self._work_directory() / "spark"))
            outlived_by(int(self._session._jvm.java.lang.ProcessHandle.current().pid()))
        return self._session

    @property
    def default_parallelism(self) -> int:
        return int(self.session.sparkContext.defaultParallelism)

    def running(self, job: Job) -> AbstractContextManager[PreparedJob]:
        session = self.session
        properties = session.sparkContext._jsc.sc().getLocalProperties().clone()  # of the user's thread
        return self._running(job, session, properties)

    @contextmanager
    def _running(self, job: Job, session: SparkSession, properties: Any) -> Iterator[PreparedJob]:
        work = self._work_directory() / f"job{next(self._numbers)}"  # several may run concurrently
        work.mkdir(mode=0o700)
        session.sparkContext._jsc.sc().setLocalProperties(properties)
        watch = SparkWatch(session, job.heartbeat)
        try:
            with (
                _use.job(),
                memory_served(job, session, work) as served,
                _with_local_copies(served, session) as reachable,
            ):
                yield PreparedJob(
                    reachable, lambda plan: SparkEngine(session, plan, work, job.heartbeat, watch, job.logs)
                )
        finally:
            self._unused.append(watch)

    def close(self) -> None:
        left = _use.leave(self._session if self._owns_session else None)
        if self._owns_session:
            self._session, self._owns_session = None, False
        if left is not None:
            stop(left)
        while self._unused:  # not before: stopping the session may hang too
            self._unused.pop().stop()

    def _work_directory(self) -> Path:
        if self._work is None:
            self._work = work_directory(Path(tempfile.gettempdir()))
        return self._work


@contextmanager
def _with_local_copies(job: Job, session: SparkSession) -> Iterator[Job]:
    """Make the directories of the job's local copies, if it wants any and its slots are on this machine."""
    if job.local_copies is None or not is_on_one_machine(session):
        yield replace(job, local_copies=None)
        return
    with made(job.local_copies, work_directory) as places:
        yield replace(job, local_copies=places)
