"""The contract of a keyed state backend, for the operators that use it and the checkpoints taken of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from checkdam.errors import JobGraphError, StateAccessError
from checkdam.ids import Attempt, CheckpointId, Epoch, OperatorUid, SubtaskIndex
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import KeyedStateHandle, StateFile
from checkdam.state.spec import StateSpec
from checkdam.state.state_count import StateCount
from checkdam.state.stored import Cells, Maps, Prune
from checkdam.storage.contract import Storage
from checkdam.types.type_info import TypeInfo

__all__ = [
    "NO_KEY",
    "Cells",
    "HeldChanges",
    "KeyedStateBackend",
    "KeyedStateStore",
    "Maps",
    "MemberOwner",
    "NoKey",
    "PendingSnapshot",
    "Prune",
    "Published",
    "StoreOwner",
    "ValueTable",
    "asked_twice",
]


def _no_directory() -> Path:
    raise RuntimeError("the store was opened without a working directory")


@dataclass(frozen=True)
class StoreOwner:
    """The owner of a store: one subtask of one operator, in one attempt of the job."""

    uid: OperatorUid
    subtask: SubtaskIndex
    attempt: Attempt
    key_groups: KeyGroupRange
    max_parallelism: int
    key_type: TypeInfo
    work_directory: Callable[[], Path] = _no_directory
    """Creates a local directory for working files; it disappears with the process, however that ends."""


class NoKey:
    """Placeholder for a missing current key: any lookup with it raises a clear error."""

    def __hash__(self) -> int:
        raise StateAccessError(
            "keyed state was read or written outside a keyed context",
            hint="Use it while a record or timer of a key is processed, not in open(), close() or snapshot_state().",
        )


NO_KEY: Any = NoKey()


def asked_twice(uid: OperatorUid | None, name: str) -> JobGraphError:
    """Return the error of a store that is asked for the same state again."""
    return JobGraphError(
        f'operator "{uid}" asks twice for state "{name}"',
        hint="Give each state of an operator its own name, and ask for it once, in open().",
    )


class ValueTable(Protocol):
    """A state as one table of entries, for operators that work on many keys at once.

    An entry is found by its entry key: the key, or a tuple of key, namespace and map key where the state has them.
    """

    def put(self, key: Any, value: Any) -> None:
        """Set the value of one entry; it may not be None."""

    def remove(self, key: Any) -> None:
        """Remove an entry that exists."""

    def remove_all(self, keys: Iterable[Any]) -> None:
        """Remove many entries, each of which exists."""

    def all(self) -> Iterator[tuple[Any, Any]]:
        """Return every entry key with its value. Do not write meanwhile."""

    def get_all(self, keys: Sequence[Any]) -> list[Any]:
        """Return the stored values of these keys, None where there is none."""

    def put_all(self, values: Mapping[Any, Any]) -> None:
        """Set the values of many keys; none may be None."""

    def promise_no_change_in_place(self) -> None:
        """Let snapshots refer to values of mutable types: the caller replaces values, and never changes one."""


class MemberOwner(Protocol):
    """The owner of a set, who holds its members in memory: the store only makes them durable.

    A member is an entry key.
    """

    def __len__(self) -> int: ...

    def members(self) -> Iterator[Any]:
        """Return all members. The store reads them at once."""

    def take_changes(self) -> tuple[list[Any], list[bool]]:
        """Return the members added and removed since the last call, in order, and for each whether it was added."""


class HeldChanges(Protocol):
    """Changes that an operator holds back from the tables of its store, because it works on another form of them."""

    def write_back(self) -> None:
        """Write all of them to the tables."""

    @property
    def new_entries(self) -> Mapping[str, int]:
        """How many more entries each state has than its table, by name; negative if it has fewer."""


class PendingSnapshot(Protocol):
    """A snapshot that is taken but not written: its asynchronous part. Later writes do not affect it."""

    @property
    def new_files(self) -> tuple[StateFile, ...]:
        """The files that `write` has written; removed if the checkpoint aborts."""

    def write(self, storage: Storage, directory: str) -> KeyedStateHandle:
        """Make the state durable as files in `directory`; may run in another thread while processing continues.

        File names are derived from owner, attempt and checkpoint, so no two writers share one. A failure leaves no
        files, as far as the storage still accepts deletions.

        Raises:
            CheckpointDeclinedError: the checkpoint was aborted meanwhile.
        """

    def write_whole(self, target: Storage, source: Storage | None, *, canonical: bool) -> KeyedStateHandle:
        """Write everything that a restore needs to the root of `target`, under bare file names. Replaces `write`.

        `source` holds the files that the snapshot builds on, by their paths; it may be None for a store that was
        opened without `claim` and has completed no checkpoint. With `canonical` the files have the form that every
        backend reads, that of the hashmap backend; else the backend's own.
        """


class Published(Protocol):
    """A store as of the end of an epoch, for readers in any thread while the next epoch runs.

    Keys and values are encoded by the serializers of `StateSpec.holder_key` and `StateSpec.value`; the entries of a
    map are an array of pairs. Expired elements that may not be read are omitted. A state that no function has asked
    for, or one with a value of the wrong type, raises StateAccessError.
    """

    @property
    def specs(self) -> Sequence[StateSpec]:
        """The states that functions had asked for by then."""

    def has(self, name: str) -> bool:
        """Return whether a function had asked for the state by then."""

    def get(self, name: str, keys: Sequence[bytes], map_key: bytes | None = None) -> tuple[Epoch, list[bytes | None]]:
        """Return the content of each key as of that epoch's end, None if it has none. `map_key` selects one entry."""

    def windows(
        self, name: str, keys: Sequence[bytes], map_key: bytes | None = None
    ) -> tuple[Epoch, list[list[tuple[bytes, bytes]]]]:
        """Return the namespaces of each key with their content. For states with namespaces; `keys` are keys alone."""

    def page(self, name: str, after: bytes, limit: int) -> tuple[Epoch, list[tuple[bytes, bytes]], bytes | None]:
        """Return at most `limit` keys with their content, and the next position; None at the end. Begin with b"".

        A page is of one epoch. While nothing changes, the pages together contain each key once.
        """

    def find(
        self, name: str, after: bytes, limit: int, text: str
    ) -> tuple[Epoch, list[tuple[bytes, bytes]], bytes | None, int]:
        """Return a page of the keys that a TextFilter finds, and how many keys were looked at: at most `MOST_SCANNED`.

        So a page may have few keys or none without being the last.
        """

    def count(self, name: str) -> StateCount:
        """Return how much the state holds; an estimate where counting would take long."""


class KeyedStateStore(Protocol):
    """The live keyed state of one operator in one subtask. Never leaves the process that opened it.

    A snapshot contains the changes since the last checkpoint for which `completed` was called, on top of that
    checkpoint's files. The next snapshot repeats changes of a checkpoint that is not confirmed yet, so an aborted or
    forgotten checkpoint loses nothing, and no other checkpoint needs its files.

    A snapshot builds on the files of the checkpoint that was the last completed one when it was taken: they must be
    kept until the snapshot's checkpoint has completed or aborted, also if another checkpoint completes in between.
    """

    current_key: Any
    """The key that states apply to; the operator sets it before each record, and to NO_KEY after the last one."""

    current_namespace: Any
    """The namespace that states with namespaces apply to; None unless it was set."""

    def cells(self, spec: StateSpec, prune: Prune | None = None) -> Cells:
        """Return the state of that name with its restored content, migrated to the new type if necessary.

        With `prune`, expired elements are dropped on restore, by the shorter of the old and the new duration, and
        wherever the spec's TTL asks for cleanup: in full snapshots, when files are merged, and by `sweep`.

        Raises:
            JobGraphError: the operator asked for this name before.
            StateNotRestorableError: the restored state of this name has another kind or an incompatible type, or only
                one of both has TTL, or they use different clocks.
        """

    def maps(self, spec: StateSpec, prune: Prune | None = None) -> Maps:
        """Return the maps of a spec with a map key; otherwise as `cells`."""

    def table(self, spec: StateSpec) -> ValueTable:
        """Return a state without TTL as a table of all its entries; otherwise as `cells`."""

    def kept_set(self, spec: StateSpec, owner: MemberOwner) -> Iterator[Any]:
        """Keep a state without TTL that is a set, and return its restored members; otherwise as `cells`.

        The store asks the owner for changes at the end of each epoch and before each snapshot.
        """

    def batch_ended(self) -> None:
        """Take the chance, after a batch of records, to drop what is not needed any more. Costs next to nothing."""

    def hold_back(self, changes: HeldChanges) -> int | None:
        """Accept that an operator holds changes back: they are written back before the store reads its tables.

        Return the most bytes that the operator should take for them, and for what it has read; None if it may hold all.
        """

    def end_epoch(self) -> None:
        """Write buffered changes after all records of an epoch were applied. May take the time of a batch write."""

    @property
    def not_asked_for(self) -> Sequence[str]:
        """The names of restored states that no function has asked for yet. May be read from any thread."""

    @property
    def published(self) -> Published | None:
        """The view for readers in other threads; None unless `publish` was called."""

    def publish(self, epoch: Epoch) -> None:
        """Publish the state as of now, the end of this epoch, until the next call; later writes do not show.

        Between epochs only. The first call may take time in proportion to the size of the state, later ones to the
        changes. Before it is called, and after `unpublish`, a store keeps nothing for readers.
        """

    def unpublish(self) -> None: ...

    def close(self) -> None:
        """Release files and memory; the state is not needed any more."""

    def count(self) -> StateCount:
        """Return how much all states hold, as of the last end of an epoch; an estimate where counting would take long.

        May exclude states that no function has asked for yet. Timers are entries, but no keys.
        """

    def snapshot(self, checkpoint_id: CheckpointId, *, full: bool = False) -> PendingSnapshot:
        """Take the synchronous part of a snapshot: fix the state as of now, in time proportional to the changes.

        Checkpoint ids grow. The snapshot includes restored state that no descriptor has asked for yet. With `full` it
        needs no files of other snapshots, and may take time in proportion to the size of the state.
        """

    def completed(self, checkpoint_id: CheckpointId) -> None:
        """Let later snapshots build on this completed checkpoint. Ignores those older than the last completed one."""

    def aborted(self, checkpoint_id: CheckpointId) -> None:
        """Forget an aborted checkpoint; a write in progress removes its files."""


class KeyedStateBackend(Protocol):
    """A way to keep working state. Configuration alone, so it pickles to any worker."""

    def open(
        self, owner: StoreOwner, restore_from: Sequence[KeyedStateHandle], storage: Storage | None, *, claim: bool
    ) -> KeyedStateStore:
        """Open the state of one subtask, holding exactly the key groups it owns, out of all handles given.

        Without handles no storage is needed. The paths of the handles' files start at the root of `storage`. With
        `claim` the job owns the files and later snapshots build on them, provided that one handle with the same key
        groups was restored; then `PendingSnapshot.write` must be given a storage in which the same paths lead to them.
        Otherwise the first snapshot is full and needs no files but its own.

        Raises:
            CheckpointDamagedError: a file is gone, truncated or altered.
            FormatTooNewError: a file was written by a newer version.
            StateNotRestorableError: the key type or the max parallelism is another.
        """
