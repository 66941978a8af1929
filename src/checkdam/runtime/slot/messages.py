"""What driver and slots say to each other; all of it travels as frozen dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from checkdam.backends.contract import KeyedStateBackend
from checkdam.graph.levels import JobPlan
from checkdam.ids import Attempt, Epoch, JobId, OperatorUid, SubtaskIndex
from checkdam.state.snapshot_handles import KeyedStateHandle, OperatorStateHandle
from checkdam.types.type_info import TypeInfo, registered_types

if TYPE_CHECKING:
    from checkdam.runtime.driver_memory import DriverMemory


@dataclass(frozen=True)
class RestorePoint:
    """The state to start from: whose files, and which of them belong to which operator."""

    directory: str  # of the job that wrote the files, relative to `storage`
    storage: str
    keyed: Mapping[OperatorUid, tuple[KeyedStateHandle, ...]]
    claim: bool  # whether the files are the job's own, so that its snapshots may build on them
    operator: Mapping[OperatorUid, tuple[OperatorStateHandle | None, ...]] = field(default_factory=dict)
    """The operator state of every subtask there was, in their order; None for one that had none."""
    finished: Mapping[OperatorUid, tuple[bool, ...]] = field(default_factory=dict)
    """By old subtask: whether it had read all its input; operators that had none such are left out."""

    def had_finished(self, uid: OperatorUid, subtask: SubtaskIndex, parallelism: int) -> bool:
        """Whether this subtask has nothing more to read.

        After a change of parallelism that is so when all had finished: else what the finished ones kept was dealt out
        with the rest.
        """
        before = self.finished.get(uid, ())
        return bool(before) and (all(before) or (len(before) == parallelism and before[subtask]))


@dataclass(frozen=True)
class SlotSetup:
    """All that one slot needs to begin: its part of the job, where snapshots go, what to restore."""

    job_id: JobId
    attempt: Attempt
    subtask: SubtaskIndex
    plan: JobPlan
    backend: KeyedStateBackend
    last_epoch: Epoch  # the epoch the state stands at; the next one must be its successor
    storage: str | None  # None: no checkpoints
    restore: RestorePoint | None = None
    event_time: Mapping[int, int] = field(default_factory=dict)  # per assigner, the largest timestamp seen so far
    watermarks: Mapping[int, int] = field(default_factory=dict)  # per operator, how far event time has come for it
    driver_memory: DriverMemory | None = None  # if the checkpoints are there
    local_directory: str | None = None  # where working files go; None: with other temporary files
    next_checkpoint: int = 1  # the number that the next checkpoint is expected to have
    registered_types: Mapping[type, TypeInfo] = field(default_factory=registered_types)
    """The types registered in the driver; functions may use their classes in `open`."""
    unread_assigners: frozenset[int] = frozenset()  # of static sources whose records come with the next epoch


@dataclass(frozen=True)
class OperatorCounts:
    """What one operator did in one epoch. Bytes are those of Arrow batches that crossed an exchange; an operator behind
    another of its level has none."""

    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    busy_seconds: float = 0.0  # its own work, that of operators behind it not counted
    entries: int = 0  # held in keyed state


@dataclass(frozen=True)
class EdgeCounts:
    """What came to one subtask by one edge in one epoch."""

    records: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class EpochReport:
    """What one slot did in one epoch."""

    epoch: Epoch
    subtask: SubtaskIndex
    operators: Mapping[int, OperatorCounts] = field(default_factory=dict)
    printed: tuple[str, ...] = ()
    committables: Mapping[OperatorUid, tuple[bytes, ...]] = field(default_factory=dict)  # at-least-once output
    keys: int = 0
    event_time: Mapping[int, int] = field(default_factory=dict)  # per assigner, the largest timestamp seen so far
    watermarks: Mapping[int, int] = field(default_factory=dict)  # per operator, how far event time has come for it
    unfinished_sources: bool = False  # a source function of this slot may have more records
    ready_sources: bool = False  # one has records by now, or was stopped because this epoch had enough
    signals: int = 0  # how often source functions had asked for an epoch when this was found out
    next_due: int | None = None
    """When something comes due by the clock though no records come, in milliseconds since 1970."""
    received: Mapping[int, EdgeCounts] = field(default_factory=dict)  # by edge
    memory: int = -1  # resident bytes of the slot's process; -1 where the system does not tell
