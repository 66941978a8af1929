"""What a keyed state backend promises to the operator that uses it and to the checkpoints taken of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from checkdam.errors import StateAccessError
from checkdam.ids import Attempt, CheckpointId, Epoch, OperatorUid, SubtaskIndex
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import KeyedStateHandle, StateFile
from checkdam.state.spec import StateSpec
from checkdam.state.stored import Cells, Maps, Prune
from checkdam.storage.contract import Storage
from checkdam.types.type_info import TypeInfo

__all__ = [
    "NO_KEY",
    "Cells",
    "KeyedStateBackend",
    "KeyedStateStore",
    "Maps",
    "NoKey",
    "Prune",
    "Published",
    "Sealed",
    "StoreOwner",
    "ValueTable",
]


def _no_directory() -> Path:
    raise RuntimeError("this store was opened without a place for working files")


@dataclass(frozen=True)
class StoreOwner:
    """Whose state a store holds: one subtask of one operator, in one attempt of the job."""

    uid: OperatorUid
    subtask: SubtaskIndex
    attempt: Attempt
    key_groups: KeyGroupRange
    max_parallelism: int
    key_type: TypeInfo
    work_directory: Callable[[], Path] = _no_directory
    """Makes a local directory for working files; it disappears with the process, however that ends."""


class NoKey:
    """Stands for the current key where there is none: any attempt to look something up by it is a clear error."""

    def __hash__(self) -> int:
        raise StateAccessError(
            "keyed state was read or written outside a keyed context",
            hint="Use it while a record or timer of a key is processed, not in open(), close() or snapshot_state().",
        )


NO_KEY: Any = NoKey()


class ValueTable(Protocol):
    """Cells as a whole, for operators that work on many keys at once."""

    def get_all(self, keys: Sequence[Any]) -> list[Any]:
        """The stored values of these keys, None where there is none."""

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

    def write_whole(self, target: Storage, source: Storage | None, *, canonical: bool) -> KeyedStateHandle:
        """As `write`, but all that restoring needs goes into the root of `target`, under bare file names.

        `source` holds the files that the seal builds on, by their paths; None will do for a store that was opened
        without `claim` and has completed no checkpoint. With `canonical` the files are such as every backend has them,
        those of the hashmap backend; else the backend's own. `write` is not called, too.
        """


class Published(Protocol):
    """A store as it was at the end of an epoch, for readers in any thread while the next one runs.

    Keys and values are encoded by the serializers of `StateSpec.holder_key` and `StateSpec.value`; the entries of a map
    are an array of pairs. What may not be read because it has expired is left out. A state that no function has asked
    for, or one with a value that does not fit its type, is a StateAccessError.
    """

    @property
    def specs(self) -> Sequence[StateSpec]:
        """The states that had been asked for by then."""

    def has(self, name: str) -> bool:
        """Whether the state had been asked for by then."""

    def get(self, name: str, keys: Sequence[bytes], map_key: bytes | None = None) -> tuple[Epoch, list[bytes | None]]:
        """What each key holds, None if nothing, all as of the end of that epoch. With `map_key`, of maps, only that."""

    def page(self, name: str, after: bytes, limit: int) -> tuple[Epoch, list[tuple[bytes, bytes]], bytes | None]:
        """At most `limit` keys with what they hold, and where to go on; None at the end. Begin with b"".

        A page is of one epoch. While nothing changes, the pages together hold each key once.
        """

    def entries(self, name: str) -> int:
        """How many entries the state has; an estimate where counting would take long."""


class KeyedStateStore(Protocol):
    """The live keyed state of one operator in one subtask. Never leaves the process that opened it.

    A snapshot holds what changed since the last checkpoint that `completed` was called for, on top of that one's
    files. What was sealed for a checkpoint not yet confirmed is sealed again by the next, so an aborted or forgotten
    checkpoint loses nothing, and no other ever needs its files.

    The files that a snapshot builds on are those of the checkpoint that was the last completed one when it was sealed:
    they must be kept until it has completed or aborted, also when another checkpoint completes in between.
    """

    current_key: Any
    """The key that states are about; the operator sets it before each record, and NO_KEY when it is done with them."""

    current_namespace: Any
    """The namespace that states with one are about; None unless somebody has set it."""

    def cells(self, spec: StateSpec, prune: Prune | None = None) -> Cells:
        """The state of that name, with what was restored for it, migrated to the new type if it has to be.

        With `prune`, what has expired is dropped on restore, by the shorter of the durations then and now, and
        wherever the spec's TTL asks for cleanup: in full snapshots, when files are merged, and by `sweep`.

        Raises:
            JobGraphError: the operator asked for this name before.
            StateNotRestorableError: the restored state of this name is of another kind or an incompatible type, or one
                of both has TTL and the other has not, or has it by another time.
        """

    def maps(self, spec: StateSpec, prune: Prune | None = None) -> Maps:
        """The same for a spec with a map key."""

    def table(self, spec: StateSpec) -> ValueTable:
        """Like `cells`, for a state without namespace and TTL, as a table of all keys."""

    def end_epoch(self) -> None:
        """All records of an epoch have been applied: write what is gathered. May take the time of a batch write."""

    @property
    def not_asked_for(self) -> Sequence[str]:
        """The names of restored states that no function has asked for yet. May be read from any thread."""

    @property
    def published(self) -> Published | None:
        """What readers in other threads may see; None unless `publish` was called."""

    def publish(self, epoch: Epoch) -> None:
        """Let readers see the state as of now, the end of this epoch, until the next call; whatever is written later.

        Between epochs only. The first call may take time in proportion to what is held, later ones to what changed.
        Until it is called, and after `unpublish`, a store keeps and does nothing for readers.
        """

    def unpublish(self) -> None: ...

    def close(self) -> None:
        """Let go of files and memory; nothing of the state is needed any more."""

    @property
    def key_count(self) -> int:
        """How many entries all its states hold together; what nobody has asked for yet may be left out."""

    def seal(self, checkpoint_id: CheckpointId, *, full: bool = False) -> Sealed:
        """Fix the state as of now, in time that depends on what changed and not on what is held.

        Checkpoint ids grow. State that no descriptor has asked for yet is carried on. With `full` the snapshot needs no
        file but its own, and fixing it may take time in proportion to what is held.
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
