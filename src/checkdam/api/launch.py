"""Launch options: what the command line sets for a program before it runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from checkdam.config import Configuration
from checkdam.graph.operators import Operator
from checkdam.ids import OperatorUid
from checkdam.runtime.source_position import SourceStart

if TYPE_CHECKING:
    from checkdam.runtime.execution_target import ExecutionTarget
    from checkdam.runtime.job import Job
    from checkdam.runtime.job_control import JobHost, WatchedJob
    from checkdam.runtime.job_result import JobResult
    from checkdam.runtime.monitor.job_events import JobListener

LogEvent = Callable[[int, str], None]
"""Writes a line to the driver's log; the number is a level of `logging`."""

DEFAULT_FILE = Path("checkdam.yaml")


class Resume(StrEnum):
    """How `--resume` looks for an earlier run's checkpoint."""

    LATEST = "latest"  # fail if there is nothing to resume from
    AUTO = "auto"  # start from the beginning if there is nothing to resume from


@dataclass(frozen=True)
class JobToExamine:
    """A job as built by its program, at the point where it would run."""

    name: str
    operators: Sequence[Operator]
    configuration: Configuration


def _printing_listener() -> JobListener:
    from checkdam.runtime.monitor.job_events import PrintingListener  # loaded with the first job

    return PrintingListener()


@dataclass
class Launch:
    """How jobs of this process are started. A program run by itself gets the defaults."""

    configuration: Configuration
    restore_path: str | None = None
    resume: Resume | None = None
    allow_non_restored_state: bool = False
    source_positions: Mapping[OperatorUid, SourceStart] = field(default_factory=dict)
    """Where to resume sources that have changed since the checkpoint, by uid."""
    take_over: bool = False
    """Take over the job even from a process that is known to run."""
    listener: JobListener = field(default_factory=_printing_listener)
    results: list[JobResult] = field(default_factory=list)
    examine: Callable[[JobToExamine], NoReturn] | None = None
    """Called with the job instead of running it; ends the program there."""
    host: JobHost | None = None
    """Serves the job while it runs."""
    watchers: Callable[[Job, WatchedJob], Sequence[JobListener]] = lambda job, monitor: ()
    """More listeners for a served job, notified of each event after the monitor."""

    log_files: bool = False
    """Write log files even if `env.log.dir` is not set."""
    event_log: Callable[[LogEvent], JobListener] | None = None
    """Makes the listener that writes a job's events to its log, with the function it is given."""

    target: ExecutionTarget | None = None
    """Where the jobs run; None: on Spark."""


_current: ContextVar[Launch | None] = ContextVar("checkdam_launch", default=None)


def current_launch() -> Launch:
    return _current.get() or Launch(Configuration.load(DEFAULT_FILE if DEFAULT_FILE.exists() else None))


def set_launch(launch: Launch | None) -> None:
    _current.set(launch)
