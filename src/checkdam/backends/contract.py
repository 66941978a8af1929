"""What a keyed state backend promises to the operator that uses it and to the checkpoints taken of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from checkdam.ids import Attempt, CheckpointId, OperatorUid, SubtaskIndex
from checkdam.state.descriptors import ValueStateDescriptor
from checkdam.state.handles import ValueState
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshots import KeyedStateHandle, StateFile
from checkdam.state.types import TypeInfo
from checkdam.storage.contract import Storage


@dataclass(frozen=True)
class StoreOwner:
    """Whose state a store holds: one subtask of one operator, in one attempt of the job."""

    uid: OperatorUid
    subtask: SubtaskIndex
    attempt: Attempt
    key_groups: KeyGroupRange
    max_parallelism: int
    key_type: TypeInfo


class ValueTable(Protocol):
    """A value state as a whole, for operators that work on many keys at once."""

    entries: dict[Any, Any]
    """Key to value. For reading only: writes go through `put_all`, or snapshots miss them."""

    def put_all(self, values: Mapping[Any, Any]) -> None:
        """Set the values of many keys; none of them may be None."""


class Sealed(Protocol):
    """The state as of one `seal`, waiting to be written. Later writes to the store do not show in it."""

    @property
    def new_files(self) -> tuple[StateFile, ...]:
        """What `write` has written; to be removed if the checkpoint aborts."""

    def write(self, storage: Storage, directory: str) -> KeyedStateHandle:
        """Make the sealed state durable as files in `directory`; may run in another thread while processing goes on.

        File names follow from owner, attempt and checkpoint, so no two writers share one. After a failure nothing
        of it is left, as far as the storage lets itself be asked.

        Raises:
            CheckpointDeclinedError: the checkpoint was aborted meanwhile.
        """


class KeyedStateStore(Protocol):
    """The live keyed state of one operator in one subtask. Never leaves the process that opened it.

    A snapshot holds what changed since the last checkpoint that `completed` was called for, on top of that one's
    files. What was sealed for a checkpoint not yet confirmed is sealed again by the next, so an aborted or forgotten
    checkpoint loses nothing, and no other ever needs its files.

    The files that a snapshot builds on are those of the checkpoint that was the last completed one when it was sealed:
    they must be kept until it has completed or aborted, also when another checkpoint completes in between.
    """

    current_key: Any
    """The key that state handles are about; the operator sets it before each record."""

    def value_state(self, descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """The state of that name, with what was restored for it.

        Raises:
            JobGraphError: the operator asked for this name before.
            StateNotRestorableError: the restored state of this name has another type.
        """

    def value_table(self, descriptor: ValueStateDescriptor) -> ValueTable:
        """Like `value_state`, as a table of all keys."""

    @property
    def key_count(self) -> int:
        """How many entries all its states hold together; what nobody has asked for yet may be left out."""

    def seal(self, checkpoint_id: CheckpointId) -> Sealed:
        """Fix the state as of now, in time that depends on what changed and not on what is held.

        Checkpoint ids grow. State that no descriptor has asked for yet is carried on.
        """

    def completed(self, checkpoint_id: CheckpointId) -> None:
        """The checkpoint is complete: later snapshots build on it. Ones older than the last are ignored."""

    def aborted(self, checkpoint_id: CheckpointId) -> None:
        """The checkpoint will not complete; a write still under way removes what it wrote."""


class KeyedStateBackend(Protocol):
    """A way to keep working state. Configuration alone, so it pickles to any worker."""

    def open(
        self,
        owner: StoreOwner,
        restore_from: Sequence[KeyedStateHandle],
        storage: Storage | None,
        directory: str,
        *,
        claim: bool,
    ) -> KeyedStateStore:
        """Open the state of one subtask, holding exactly the key groups it owns, out of all handles given.

        Without handles no storage is needed.
        The files of the handles lie at `directory/path` in `storage` ("" when paths start at its root). With
        `claim` the job owns them and later snapshots build on them, provided that one handle of the same key groups
        was restored; then `Sealed.write` must be given a storage in which the same paths lead to them. Otherwise the
        first snapshot is full and needs no file but its own.

        Raises:
            CheckpointDamagedError: a file is gone, truncated or altered.
            FormatTooNewError: a file was written by a newer version.
            StateNotRestorableError: the key type or the max parallelism is another.
        """
