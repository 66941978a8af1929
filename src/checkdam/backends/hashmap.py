"""Keyed state as Python objects in dicts: the fastest backend, bounded by memory."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import xxhash

from checkdam.backends.contract import StoreOwner
from checkdam.backends.hashmap_snapshot import REMOVED, HashMapSealed, SealedTable, naming
from checkdam.backends.state_file import Block, StateInfo, read_state_file
from checkdam.errors import JobGraphError, StateNotRestorableError
from checkdam.ids import CheckpointId
from checkdam.state.descriptors import ValueStateDescriptor
from checkdam.state.handles import ValueState
from checkdam.state.serializers import Serializer, serializer
from checkdam.state.snapshots import KeyedStateHandle, StateFile
from checkdam.state.types import type_info
from checkdam.storage.contract import Storage


@dataclass(frozen=True)
class HashMapStateBackend:
    """Keeps every value as a Python object in memory; snapshots hold what changed."""

    def open(
        self,
        owner: StoreOwner,
        restore_from: Sequence[KeyedStateHandle],
        storage: Storage | None,
        directory: str,
        *,
        claim: bool,
    ) -> HashMapStore:
        restored = {} if storage is None else _restore(owner, restore_from, storage, directory)
        builds_on = claim and len(restore_from) == 1 and restore_from[0].key_groups == owner.key_groups
        return HashMapStore(owner, restored, restore_from[0].files if builds_on else ())


@dataclass
class RestoredState:
    """A state out of a checkpoint that no descriptor has asked for yet: its blocks, file by file, oldest first."""

    info: StateInfo
    sources: list[list[Block]] = field(default_factory=list)

    @property
    def entries(self) -> int:
        return sum(block.info.entries for blocks in self.sources for block in blocks)


class HashMapStore:
    """One dict per state, and one more of what changed since the last seal."""

    __slots__ = ("_confirmed", "_file_prefix", "_lock", "_owner", "_restored", "_seals", "_tables", "current_key")

    def __init__(self, owner: StoreOwner, restored: dict[str, RestoredState], confirmed: tuple[StateFile, ...]) -> None:
        self.current_key: Any = None
        self._owner = owner
        self._file_prefix = f"{xxhash.xxh3_128_hexdigest(owner.uid.encode())}-{owner.subtask}"
        self._restored = restored
        self._tables: dict[str, HashMapTable] = {}
        self._lock = threading.Lock()  # completed() and aborted() may come from the thread that hears them
        self._confirmed = confirmed  # the files of the last completed checkpoint; none: the next snapshot is full
        self._seals: dict[CheckpointId, HashMapSealed] = {}  # since the last completed checkpoint, oldest first

    def value_state(self, descriptor: ValueStateDescriptor) -> ValueState[Any]:
        return self.value_table(descriptor).handle

    def value_table(self, descriptor: ValueStateDescriptor) -> HashMapTable:
        if descriptor.name in self._tables:
            raise JobGraphError(
                f'operator "{self._owner.uid}" asks twice for state "{descriptor.name}"',
                hint="Give each state of an operator its own name, and ask for it once, in open().",
            )
        values = serializer(type_info(descriptor.type))
        info = StateInfo(descriptor.name, "value", values.spec)
        restored = self._restored.get(descriptor.name)
        if restored is not None and restored.info != info:
            raise StateNotRestorableError(
                f'state "{info.name}" of operator "{self._owner.uid}" was {_described(restored.info)} in the checkpoint'
                f" and is {_described(info)} in the job",
                hint="Declare it with the old type, or give the new one another name.",
            )
        entries = {} if restored is None else _decode(restored, serializer(self._owner.key_type), values)
        self._restored.pop(descriptor.name, None)
        table = self._tables[descriptor.name] = HashMapTable(
            self, self._owner, info, values, entries, descriptor.default
        )
        return table

    @property
    def key_count(self) -> int:
        return sum(len(table.entries) for table in self._tables.values())

    def seal(self, checkpoint_id: CheckpointId) -> HashMapSealed:
        with self._lock:
            taken = {name: table.take_changes() for name, table in self._tables.items()}
            changes = {name: self._unconfirmed(name, newest) for name, newest in taken.items()}
            held = sum(len(table.entries) for table in self._tables.values())
            held += sum(state.entries for state in self._restored.values())
            is_full = not self._confirmed or 2 * sum(map(len, changes.values())) >= max(held, 1)
            sealed = self._seals[checkpoint_id] = HashMapSealed(
                self._owner,
                checkpoint_id,
                builds_on=None if is_full else self._confirmed,
                changes=taken,  # noted first: should a value not encode below, the next seal still has them all
                carried=[(state.info, state.sources) for state in self._restored.values()],
                file_stem=f"{self._file_prefix}-{checkpoint_id}-{self._owner.attempt}",
            )
            sealed.tables = [table.sealed(None if is_full else changes[name]) for name, table in self._tables.items()]
            return sealed

    def _unconfirmed(self, name: str, newest: dict[Any, Any]) -> dict[Any, Any]:
        """What changed in a state since the last completed checkpoint."""
        older = [seal.changes[name] for seal in self._seals.values() if seal.changes.get(name)]
        if not older:
            return newest
        changes: dict[Any, Any] = {}
        for each in (*older, newest):
            changes.update(each)
        return changes

    def completed(self, checkpoint_id: CheckpointId) -> None:
        with self._lock:
            sealed = self._seals.get(checkpoint_id)
            if sealed is None:
                return  # older than the last completed one, or taken before this store was opened
            if sealed.handle is None:
                raise RuntimeError(f"checkpoint {checkpoint_id} cannot be complete: its state is not written")
            self._confirmed = sealed.handle.files
            self._seals = {number: seal for number, seal in self._seals.items() if number > checkpoint_id}

    def aborted(self, checkpoint_id: CheckpointId) -> None:
        with self._lock:
            sealed = self._seals.get(checkpoint_id)
        if sealed is not None:
            sealed.abort()


class _Value:
    """The ValueState of one table. Plain methods on slots measure faster here than closures over the dicts."""

    __slots__ = ("_default", "_store", "changes", "entries")

    def __init__(self, store: HashMapStore, entries: dict[Any, Any], default: Any) -> None:
        self._store = store
        self._default = default
        self.entries = entries
        self.changes: dict[Any, Any] = {}

    def value(self) -> Any:
        return self.entries.get(self._store.current_key, self._default)

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
        else:
            key = self._store.current_key
            self.entries[key] = value
            self.changes[key] = value

    def clear(self) -> None:
        key = self._store.current_key
        if self.entries.pop(key, None) is not None:
            self.changes[key] = REMOVED


class _ValueWithMutableDefault(_Value):
    """Gives each reader a default of its own, so that changing it in place touches no other key."""

    __slots__ = ()

    def value(self) -> Any:
        found = self.entries.get(self._store.current_key)
        return copy.deepcopy(self._default) if found is None else found


class HashMapTable:
    """One value state: its entries, and what changed in them since the last seal."""

    def __init__(
        self,
        store: HashMapStore,
        owner: StoreOwner,
        info: StateInfo,
        values: Serializer,
        entries: dict[Any, Any],
        default: Any,
    ) -> None:
        self.info = info
        self.entries = entries
        self._owner = owner
        self._values = values
        shares_default = default is None or values.type.is_immutable
        self.handle: _Value = (_Value if shares_default else _ValueWithMutableDefault)(store, entries, default)

    def put_all(self, values: Mapping[Any, Any]) -> None:
        self.entries.update(values)
        self.handle.changes.update(values)

    def take_changes(self) -> dict[Any, Any]:
        """What changed since the last call; counting starts anew."""
        taken, self.handle.changes = self.handle.changes, {}
        return taken

    def sealed(self, changes: dict[Any, Any] | None) -> SealedTable:
        """These changes, or everything, fixed as of now: objects that nobody can change are kept by reference."""
        found = self.entries.copy() if changes is None else changes
        if self._values.type.is_immutable:
            return SealedTable(self.info, self._values, found, None)
        with naming(self._owner, self.info):
            encoded = self._values.encode_checked([value for value in found.values() if value is not REMOVED])
        keys_only = {key: REMOVED if value is REMOVED else None for key, value in found.items()}
        return SealedTable(self.info, self._values, keys_only, encoded)


def _restore(
    owner: StoreOwner, handles: Sequence[KeyedStateHandle], storage: Storage, directory: str
) -> dict[str, RestoredState]:
    key_spec = serializer(owner.key_type).spec
    restored: dict[str, RestoredState] = {}
    for handle in handles:
        for file in handle.files:
            path = f"{directory}/{file.path}" if directory else file.path
            reader = read_state_file(storage, path, file.size, owner.key_groups)
            _check_keys(owner, key_spec, reader.info.key_type, reader.info.max_parallelism)
            for index, info in enumerate(reader.info.states):
                state = restored.setdefault(info.name, RestoredState(info))
                if state.info != info:
                    raise StateNotRestorableError(
                        f'state "{info.name}" of operator "{owner.uid}" is {_described(state.info)} in one file of the'
                        f" checkpoint and {_described(info)} in another"
                    )
                blocks = list(reader.blocks(index))
                if blocks:
                    state.sources.append(blocks)
    return restored


def _check_keys(owner: StoreOwner, key_spec: str, restored_spec: str, restored_max_parallelism: int) -> None:
    if restored_spec != key_spec:
        raise StateNotRestorableError(
            f'operator "{owner.uid}" had keys of type {restored_spec} in the checkpoint and has {key_spec} in the job',
            hint="Key the stream by the old type, or give the operator another uid to start it empty.",
        )
    if restored_max_parallelism != owner.max_parallelism:
        raise StateNotRestorableError(
            f'operator "{owner.uid}" had max parallelism {restored_max_parallelism} in the checkpoint and has'
            f" {owner.max_parallelism} in the job",
            hint=f"Set max parallelism to {restored_max_parallelism}; it is fixed with the first checkpoint.",
        )


def _decode(restored: RestoredState, keys: Serializer, values: Serializer) -> dict[Any, Any]:
    entries: dict[Any, Any] = {}
    for blocks in restored.sources:
        for block in blocks:
            packed_keys, packed_values, packed_removed = block.unpack()
            for key in keys.decode(packed_removed)[block.removed] if block.info.removed_counts else ():
                entries.pop(key, None)
            decoded_keys, decoded_values = keys.decode(packed_keys), values.decode(packed_values)
            if not block.is_whole:
                decoded_keys, decoded_values = decoded_keys[block.entries], decoded_values[block.entries]
            entries.update(zip(decoded_keys, decoded_values, strict=True))
        blocks.clear()  # so that the compressed form does not stay beside the decoded one
    return entries


def _described(info: StateInfo) -> str:
    return f"a {info.kind} of type {info.type}"
