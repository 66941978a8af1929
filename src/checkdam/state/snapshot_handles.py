"""Snapshot handles: the locations of state that slots report and checkpoints record."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from checkdam.ids import CheckpointId, OperatorUid, SubtaskIndex
from checkdam.state.key_groups import KeyGroupRange


class SavepointFormat(StrEnum):
    """The layout of keyed state in a savepoint. The names are Flink's, and durable."""

    CANONICAL = "CANONICAL"  # the same layout for every backend
    NATIVE = "NATIVE"  # the backend's own files


@dataclass(frozen=True)
class SavepointTarget:
    """Where slots write a savepoint: the URI of a directory that holds nothing else."""

    directory: str
    format: SavepointFormat


@dataclass(frozen=True)
class StateFile:
    """One immutable state file, by its path in the job's directory ("shared/…"), or in a savepoint by its bare name.

    `name` is the backend's name for it in its working directory, where that matters.
    """

    path: str
    size: int
    name: str = ""


@dataclass(frozen=True)
class KeyedStateHandle:
    """The keyed state of one subtask of one operator.

    Hashmap backend: a base file and its deltas, oldest first; a later file overrides an earlier one key by key.
    RocksDB backend: the files of a RocksDB checkpoint under their own names.
    """

    key_groups: KeyGroupRange
    files: tuple[StateFile, ...]
    backend: str = "hashmap"


class Redistribution(IntEnum):
    """How an operator state is redistributed when the parallelism changes. The numbers are Flink's, and durable."""

    SPLIT = 0  # the elements of all subtasks are split evenly
    UNION = 1  # every subtask gets the elements of all
    BROADCAST = 2  # all subtasks hold the same; each gets one copy


@dataclass(frozen=True)
class OperatorStatePart:
    """One operator state of one subtask: its elements, each encoded separately.

    `type` is the durable text of the element type; elements of a broadcast state are its entries, as pairs.
    """

    name: str
    redistribution: Redistribution
    type: str
    elements: tuple[bytes, ...]


@dataclass(frozen=True)
class OperatorStateHandle:
    """All operator states of one subtask of one operator: stored inline if small, else in a file.

    `offsets` lists for each state, by name and redistribution, where each of its elements begins in the content.
    """

    offsets: tuple[tuple[str, Redistribution, tuple[int, ...]], ...]
    content: bytes | StateFile

    @property
    def inline_bytes(self) -> int:
        """The size of the inline content; 0 if it is in a file."""
        return len(self.content) if isinstance(self.content, bytes) else 0

    @property
    def has_union(self) -> bool:
        return any(redistribution is Redistribution.UNION for _, redistribution, _ in self.offsets)


@dataclass(frozen=True)
class OperatorSnapshot:
    """The snapshot of one subtask of one operator for a checkpoint.

    `committables` identify the output that a sink has written and must publish when the checkpoint completes;
    `is_finished` marks a source function that has no more records.
    """

    uid: OperatorUid
    name: str
    keyed: KeyedStateHandle | None = None
    committables: tuple[bytes, ...] = ()
    operator_state: OperatorStateHandle | None = None
    is_finished: bool = False
    sync_seconds: float = 0.0
    async_seconds: float = 0.0
    new_bytes: int = 0  # written for this snapshot
    state_bytes: int = 0  # all that a restore of it reads

    def files(self) -> frozenset[StateFile]:
        """Return every state file it refers to, old and new."""
        files = frozenset(self.keyed.files) if self.keyed is not None else frozenset()
        content = self.operator_state.content if self.operator_state is not None else None
        return files | {content} if isinstance(content, StateFile) else files


@dataclass(frozen=True)
class SlotSnapshot:
    """The snapshots of every operator in one slot for one checkpoint, with their cost."""

    checkpoint_id: CheckpointId
    subtask: SubtaskIndex
    operators: tuple[OperatorSnapshot, ...]
    new_files: tuple[StateFile, ...] = field(default=())  # written for this checkpoint; removed if it aborts
    sync_seconds: float = 0.0
    async_seconds: float = 0.0
    state_bytes: int = 0
