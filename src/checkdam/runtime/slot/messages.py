"""What driver and slots say to each other; all of it travels as frozen dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from checkdam.backends.contract import KeyedStateBackend
from checkdam.graph.levels import JobPlan
from checkdam.ids import Attempt, Epoch, JobId, OperatorUid, SubtaskIndex
from checkdam.state.snapshots import KeyedStateHandle


@dataclass(frozen=True)
class RestorePoint:
    """The state to start from: whose files, and which of them belong to which operator."""

    directory: str  # of the job that wrote the files, relative to `storage`
    storage: str
    keyed: Mapping[OperatorUid, tuple[KeyedStateHandle, ...]]
    claim: bool  # whether the files are the job's own, so that its snapshots may build on them


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


@dataclass(frozen=True)
class OperatorCounts:
    records_in: int = 0
    records_out: int = 0


@dataclass(frozen=True)
class EpochReport:
    """What one slot did in one epoch."""

    epoch: Epoch
    subtask: SubtaskIndex
    operators: Mapping[int, OperatorCounts] = field(default_factory=dict)
    printed: tuple[str, ...] = ()
    committables: Mapping[OperatorUid, tuple[bytes, ...]] = field(default_factory=dict)  # at-least-once output
    keys: int = 0
