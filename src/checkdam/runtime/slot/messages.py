"""The messages between driver and slots; all of them frozen dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from checkdam.backends.contract import KeyedStateBackend
from checkdam.graph.levels import JobPlan
from checkdam.graph.metrics import MetricValue
from checkdam.ids import Attempt, Epoch, JobId, OperatorUid, SubtaskIndex
from checkdam.state.snapshot_handles import KeyedStateHandle, OperatorStateHandle
from checkdam.state.state_count import StateCount
from checkdam.types.type_info import TypeInfo, registered_types

if TYPE_CHECKING:
    from checkdam.runtime.driver_memory import DriverMemory


@dataclass(frozen=True)
class RestorePoint:
    """The state to start from: the directory of its files, and which of them belong to which operator."""

    directory: str  # of the job that wrote the files, relative to `storage`
    storage: str
    keyed: Mapping[OperatorUid, tuple[KeyedStateHandle, ...]]
    claim: bool  # whether the job owns the files, so that its snapshots may build on them
    operator: Mapping[OperatorUid, tuple[OperatorStateHandle | None, ...]] = field(default_factory=dict)
    """The operator state of every old subtask, in order; None for one without any."""
    finished: Mapping[OperatorUid, tuple[bool, ...]] = field(default_factory=dict)
    """Whether each old subtask had read all its input; operators without such a subtask are left out."""

    def had_finished(self, uid: OperatorUid, subtask: SubtaskIndex, parallelism: int) -> bool:
        """Return whether this subtask has nothing more to read.

        After a change of parallelism that holds only if all had finished: otherwise the state of the finished ones was
        redistributed with the rest.
        """
        before = self.finished.get(uid, ())
        return bool(before) and (all(before) or (len(before) == parallelism and before[subtask]))


@dataclass(frozen=True)
class SlotSetup:
    """Everything that one slot needs to start: its part of the job, where snapshots go, what to restore."""

    job_id: JobId
    attempt: Attempt
    subtask: SubtaskIndex
    plan: JobPlan
    backend: KeyedStateBackend
    last_epoch: Epoch  # the epoch of the state; the next one must be its successor
    storage: str | None  # None: no checkpoints
    restore: RestorePoint | None = None
    event_time: Mapping[int, int] = field(default_factory=dict)  # per assigner, the largest timestamp seen so far
    watermarks: Mapping[int, int] = field(default_factory=dict)  # per operator, its watermark
    driver_memory: DriverMemory | None = None  # if the checkpoints are there
    local_directory: str | None = None  # for working files; None: the usual temporary directory
    local_copies: Path | None = None  # where this subtask keeps copies of its files; None: nowhere
    next_checkpoint: int = 1  # the expected number of the next checkpoint
    registered_types: Mapping[type, TypeInfo] = field(default_factory=registered_types)
    """The types registered in the driver; functions may use their classes in `open`."""
    unread_assigners: frozenset[int] = frozenset()  # of static sources whose records come with the next epoch


@dataclass(frozen=True)
class OperatorCounts:
    """The counts of one operator in one epoch. Bytes are those of Arrow batches that crossed an exchange; an operator
    that is chained behind another has none.
    """

    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    busy_seconds: float = 0.0  # its own work, without that of downstream operators
    held: StateCount = field(default_factory=StateCount)  # in keyed state
    late_records_dropped: int | None = None  # of windows and interval joins
    is_timed: bool = True  # False for Spark's own work, whose time is unknown


@dataclass(frozen=True)
class EdgeCounts:
    """Records and bytes that one subtask received by one edge in one epoch."""

    records: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class EpochReport:
    """The report of one slot about one epoch."""

    epoch: Epoch
    subtask: SubtaskIndex
    operators: Mapping[int, OperatorCounts] = field(default_factory=dict)
    printed: tuple[str, ...] = ()
    committables: Mapping[OperatorUid, tuple[bytes, ...]] = field(default_factory=dict)  # at-least-once output
    event_time: Mapping[int, int] = field(default_factory=dict)  # per assigner, the largest timestamp seen so far
    watermarks: Mapping[int, int] = field(default_factory=dict)  # per operator, its watermark
    unfinished_sources: bool = False  # a source function of this slot may have more records
    ready_sources: bool = False  # one has records now, or was stopped because this epoch had enough
    signals: int = 0  # how often source functions had asked for an epoch at that time
    next_due: int | None = None
    """When something is due by the clock even without records, in milliseconds since 1970."""
    received: Mapping[int, EdgeCounts] = field(default_factory=dict)  # by edge
    memory: int = -1  # resident bytes of the slot's process; -1 where unknown
    metrics: Mapping[int, Mapping[str, MetricValue]] = field(default_factory=dict)  # of user functions, by operator
