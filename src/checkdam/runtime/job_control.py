"""What may be asked of a running job, and who serves it. The job master keeps these promises; REST relays them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from checkdam.ids import CheckpointId, Epoch, JobId
from checkdam.runtime.monitor.job_records import JobRecord
from checkdam.state.snapshot_handles import SavepointFormat as SavepointFormat
from checkdam.types.type_info import TypeInfo


class JobControl(Protocol):
    """Every call may come from any thread and returns at once; a future ends with a CheckdamError if it fails.

    What fails leaves the job running, unless it says otherwise. When the job ends first, futures fail too.
    """

    def trigger_checkpoint(self, *, full: bool = False) -> Future[CheckpointId]:
        """Cut a checkpoint at the end of the epoch that runs, or now; done when it is complete.

        Waits while as many as allowed are in progress. A `full` one refers to no file of another. It counts as any
        other: its failure may fail the job over. Refused without checkpoint storage.
        """

    def trigger_savepoint(self, target: str, format: SavepointFormat) -> Future[str]:
        """Write a self-contained copy of the state below `target`; the result is its directory.

        Goes beside checkpoints, one savepoint at a time, and needs no checkpoint storage. It publishes no output; what
        is not published yet is kept for the job's next checkpoint, or for whoever restores the savepoint. One that
        fails leaves nothing behind and counts for nothing.
        """

    def stop_with_savepoint(self, target: str, format: SavepointFormat, *, drain: bool) -> Future[str]:
        """Take no more records, write a savepoint, publish all output, and end as FINISHED.

        With `drain` event time ends first, so that every timer fires. If the savepoint fails the job goes on; after a
        drain, from its last checkpoint. Done when the job has ended. A second stop while one is under way fails.
        """

    def rescale(self, parallelism: int) -> Future[None]:
        """Go on at another parallelism, from a cut where nothing is lost or repeated; done when it runs again.

        Operators that were given a parallelism of their own keep it. Refused without checkpoint storage, below 1 and
        above the max parallelism. If the job cannot start again like that, the restart strategy decides whether it
        goes on as it was.
        """

    def cancel(self) -> None:
        """End the job in order; retention decides what stays."""


@dataclass(frozen=True)
class QueryableState:
    """One keyed state that can be asked for by key."""

    uid: str
    name: str
    kind: str  # of StateKind
    key_type: TypeInfo
    value_type: TypeInfo
    map_key_type: TypeInfo | None
    entries: int
    has_ttl: bool
    has_namespace: bool = False


@dataclass(frozen=True)
class QueryAnswer:
    """What one key holds as of the end of `epoch`: a value, a list, a dict of a map's entries; None if nothing."""

    epoch: Epoch
    subtask: int
    key_group: int
    found: bool
    value: Any


@dataclass(frozen=True)
class KeysPage:
    """Some of a state's keys with their values; `cursor` asks for the next page, None at the end."""

    epoch: Epoch
    entries: Sequence[tuple[Any, Any]]
    cursor: str | None


class StateQueries(Protocol):
    """Live state, as of whole epochs. Safe from many threads at once; raises CheckdamError (StateAccessError for an
    unknown uid, name or key type, StateNotReadyError while the job fails over or no epoch has ended)."""

    def states(self) -> Sequence[QueryableState]: ...

    def get(self, uid: str, name: str, keys: Sequence[Any], *, map_key: Any = None) -> Sequence[QueryAnswer]:
        """One answer a key, all of keys in one slot as of the same epoch; with `map_key`, of maps, only that entry."""

    def page(self, uid: str, name: str, cursor: str | None, limit: int) -> KeysPage: ...


@dataclass(frozen=True)
class RunningJob:
    """A job as its host sees it: what it tells, what may be asked of it."""

    job_id: JobId
    name: str
    control: JobControl
    queries: StateQueries
    monitor: JobMonitor


class JobMonitor(Protocol):
    def record(self) -> JobRecord:
        """All that is known of the job now; cheap enough to ask for with every request."""


class JobHost(Protocol):
    """Serves the jobs of a process: the REST server in earnest. `None` in a Launch: nobody does."""

    def job_started(self, job: RunningJob) -> None: ...

    def job_ended(self, job_id: JobId) -> None:
        """The job's futures are all done. What was asked for may still be waited for by a client."""
