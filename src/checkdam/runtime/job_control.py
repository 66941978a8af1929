"""The requests to a running job, and its hosts. The job master serves them; REST relays them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from checkdam.ids import CheckpointId, Epoch, JobId
from checkdam.runtime.logs.log_reader import LogSource
from checkdam.runtime.monitor.figure_history import FigureSample
from checkdam.runtime.monitor.job_records import JobRecord
from checkdam.state.snapshot_handles import Redistribution
from checkdam.state.snapshot_handles import SavepointFormat as SavepointFormat
from checkdam.state.state_count import StateCount
from checkdam.types.type_info import TypeInfo


class JobControl(Protocol):
    """Any thread may call any method, and it returns at once; a future fails with a CheckdamError.

    A failed request leaves the job running, unless noted otherwise. If the job ends first, futures fail too.
    """

    def trigger_checkpoint(self, *, full: bool = False) -> Future[CheckpointId]:
        """Take a checkpoint at the end of the running epoch, or now; done when it is complete.

        Waits while the limit of concurrent checkpoints is reached. A `full` one refers to no file of another. It counts
        like any other: its failure may fail the job over. Refused without checkpoint storage.
        """

    def trigger_savepoint(self, target: str, format: SavepointFormat) -> Future[str]:
        """Write a self-contained copy of the state below `target`; the result is its directory.

        Runs alongside checkpoints, one savepoint at a time, and needs no checkpoint storage. It publishes no output;
        unpublished output is kept for the job's next checkpoint, or for a job that restores the savepoint. A failed
        savepoint leaves nothing behind and does not count as a failure of the job.
        """

    def stop_with_savepoint(self, target: str, format: SavepointFormat, *, drain: bool) -> Future[str]:
        """Stop reading records, write a savepoint, publish all output, and end as FINISHED.

        With `drain` event time ends first, so that every timer fires. If the savepoint fails the job continues; after a
        drain, from its last checkpoint. Done when the job has ended. A second stop while one is in progress fails.
        """

    def rescale(self, parallelism: int) -> Future[None]:
        """Resume at another parallelism, from a checkpoint that loses and repeats nothing; done when the job runs
        again.

        Operators with a parallelism of their own keep it. Refused without checkpoint storage, below 1 and above the max
        parallelism. If the job cannot start at the new parallelism, the restart strategy decides whether it resumes at
        the old.
        """

    def cancel(self) -> None:
        """End the job in order; retention decides what is kept."""


@dataclass(frozen=True)
class QueryableState:
    """One keyed state that can be queried by key."""

    uid: str
    name: str
    kind: str  # of StateKind
    key_type: TypeInfo
    value_type: TypeInfo
    map_key_type: TypeInfo | None
    held: StateCount
    has_ttl: bool
    window_type: TypeInfo | None = None


@dataclass(frozen=True)
class ReadableOperatorState:
    """One operator state over all subtasks; `elements` counts broadcast state, which is the same in all, once."""

    uid: str
    name: str
    mode: Redistribution
    element_type: TypeInfo
    elements: int


@dataclass(frozen=True)
class ReadableTimers:
    """The timers of one operator and time domain over all subtasks."""

    uid: str
    domain: str
    count: int
    next: int | None
    """The time of the earliest."""


@dataclass(frozen=True)
class StateOverview:
    """Which state a job has, as of the last epoch that any slot reports."""

    epoch: Epoch
    keyed: Sequence[QueryableState]
    operator: Sequence[ReadableOperatorState]
    timers: Sequence[ReadableTimers]


@dataclass(frozen=True)
class QueryAnswer:
    """The content of one key as of the end of `epoch`: a value, a list, a dict of a map's entries; None if empty."""

    epoch: Epoch
    subtask: int
    key_group: int
    found: bool
    value: Any


@dataclass(frozen=True)
class KeysPage:
    """Some of a state's keys with their values; `cursor` requests the next page, None at the end."""

    epoch: Epoch
    entries: Sequence[tuple[Any, Any]]
    cursor: str | None
    scanned: int = 0
    """How many keys a filter has looked at for it."""


@dataclass(frozen=True)
class ElementsPage:
    """Some elements of an operator state, each with its subtask; elements of broadcast state are pairs."""

    epoch: Epoch
    mode: Redistribution
    element_type: TypeInfo
    entries: Sequence[tuple[int, Any]]
    cursor: str | None
    scanned: int


@dataclass(frozen=True)
class LiveTimer:
    domain: str
    time: int
    key: Any
    window: Any
    key_group: int


@dataclass(frozen=True)
class NextTimers:
    """The next timers of an operator, the earliest of each domain first, and how many there are in all."""

    epoch: Epoch
    key_type: TypeInfo
    window_type: TypeInfo | None
    timers: Sequence[LiveTimer]
    count: int


class StateQueries(Protocol):
    """Live state, as of whole epochs. Thread-safe. Raises CheckdamError: StateAccessError for an unknown uid, name or
    key type, StateNotReadyError while the job fails over or before an epoch has ended.
    """

    def states(self) -> Sequence[QueryableState]: ...

    def get(
        self, uid: str, name: str, keys: Sequence[Any], *, map_key: Any = None, window: Any = None
    ) -> Sequence[QueryAnswer]:
        """Return one answer per key, all of one slot as of the same epoch; with `map_key`, only that entry of maps.

        For window state the value is a dict by window, or with `window` the content of that one.
        """

    def page(self, uid: str, name: str, cursor: str | None, limit: int, text: str | None = None) -> KeysPage:
        """Return some keys; with `text`, those whose JSON contains it, among a limited number of keys."""


@dataclass(frozen=True)
class RunningJob:
    """A job as its host sees it: its records, and the requests it serves."""

    job_id: JobId
    name: str
    control: JobControl
    queries: StateQueries
    monitor: WatchedJob
    logs: Callable[[int], LogSource | None] = lambda subtask: None
    """Finds the log files of a running slot that may be on another machine."""


class WatchedJob(Protocol):
    """A running or ended job whose records can be read."""

    def record(self) -> JobRecord:
        """Return everything known about the job now; cheap enough to call with every request."""

    def figure_history(self) -> Sequence[FigureSample]:
        """Return the figures of its operators over the last hour, oldest first."""


class JobHost(Protocol):
    """Serves the jobs of a process: the REST server in production. `None` in a Launch: there is no host."""

    def job_started(self, job: RunningJob) -> None: ...

    def job_ended(self, job_id: JobId) -> None:
        """Note that the job has ended and all its futures are done. Clients may still be waiting for a result."""
