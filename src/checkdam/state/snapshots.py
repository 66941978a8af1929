"""Where a snapshot lies: the handles that slots report and checkpoints keep."""

from __future__ import annotations

from dataclasses import dataclass, field

from checkdam.ids import CheckpointId, OperatorUid, SubtaskIndex
from checkdam.state.key_groups import KeyGroupRange


@dataclass(frozen=True)
class StateFile:
    """One immutable file of state, by its path relative to the job's directory ("shared/…")."""

    path: str
    size: int


@dataclass(frozen=True)
class KeyedStateHandle:
    """The keyed state of one subtask of one operator: a base file and its deltas, oldest first.

    A later file overrides an earlier one key by key. The files index their own key groups.
    """

    key_groups: KeyGroupRange
    files: tuple[StateFile, ...]
    backend: str = "hashmap"


@dataclass(frozen=True)
class OperatorSnapshot:
    """What one subtask of one operator hands to a checkpoint.

    `operator_state` is one opaque element list a subtask may store (even-split list state); `committables`
    are what a sink has written and must publish when the checkpoint completes.
    """

    uid: OperatorUid
    name: str
    keyed: KeyedStateHandle | None = None
    committables: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class SlotSnapshot:
    """The snapshots of every operator in one slot for one checkpoint, with what the snapshot cost."""

    checkpoint_id: CheckpointId
    subtask: SubtaskIndex
    operators: tuple[OperatorSnapshot, ...]
    new_files: tuple[StateFile, ...] = field(default=())  # written for this checkpoint; to be removed if it aborts
    sync_seconds: float = 0.0
    async_seconds: float = 0.0
    state_bytes: int = 0
