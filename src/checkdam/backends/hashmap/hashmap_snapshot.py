"""The asynchronous part of a hashmap snapshot; runs beside the processing thread and shares nothing with it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from checkdam.backends.abortable_snapshot import AbortableSnapshot
from checkdam.backends.compaction import Pruning, merge, merge_blocks, merge_into, plan
from checkdam.backends.contract import Prune, StoreOwner
from checkdam.backends.file_copies import copy_state_file
from checkdam.backends.freed_memory import MANY, return_freed_memory
from checkdam.backends.hashmap.hashmap_states import REMOVED, Changes
from checkdam.backends.state_file import (
    BLOCK_BYTES,
    Block,
    BlockContent,
    StateFileWriter,
    StateInfo,
    packed_array,
    read_state_file,
)
from checkdam.errors import JobGraphError
from checkdam.ids import CheckpointId
from checkdam.state.key_groups import key_groups
from checkdam.state.snapshot_handles import KeyedStateHandle, StateFile
from checkdam.storage.contract import Storage
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.types.serializers import Serializer

_SAMPLE = 1000

_elements = msgspec.msgpack.Decoder(list[msgspec.Raw])

Carried = list[tuple[StateInfo, Sequence[Sequence[Block]]]]
"""Restored states that no function asked for, as blocks of the files they came from."""


@dataclass(frozen=True, slots=True)
class SnapshotTable:
    """The part of one state in a snapshot: values by key, REMOVED for removed keys.

    Mutable values are already encoded, in the order of their keys, and only the keys of `entries` are used. With
    `prune`, elements that have expired by the time of writing are omitted.
    """

    info: StateInfo
    keys: Serializer
    values: Serializer
    entries: dict[Any, Any]  # of maps by (key, map key), or a dict by map key for each key if `is_nested`
    is_nested: bool = False
    is_paired: bool = False  # whether the key of a map is a pair of key and namespace
    encoded: bytes | None = None
    prune: Prune | None = None
    has_removed: bool = True  # or may have

    @property
    def is_encoded(self) -> bool:
        """Whether `split` returns values as they are encoded: only pruning needs them as objects."""
        return self.encoded is not None and self.prune is None

    def encode_values(self, values: list[Any]) -> bytes:
        """Encode some of the values that `split` has returned."""
        return packed_array(values) if self.is_encoded else self.values.encode_checked(values)

    def split(self) -> tuple[list[Any], list[Any], list[Any]]:
        """Return entry keys, their values, and the removed entry keys."""
        if self.is_nested:
            keys = [(key, map_key) for key, held in self.entries.items() for map_key in held]
            values = [value for held in self.entries.values() for value in held.values()]
            return *self._pruned(self._entry_keys(keys), values), []
        removed = [key for key, value in self.entries.items() if value is REMOVED] if self.has_removed else []
        if not removed:
            keys, values = list(self.entries), list(self.entries.values())
        else:
            keys = [key for key, value in self.entries.items() if value is not REMOVED]
            values = [value for value in self.entries.values() if value is not REMOVED]
        if self.encoded is not None:
            encoded = self.encoded
            values = list(map(bytes, _elements.decode(encoded))) if self.is_encoded else self.values.decode(encoded)
        return *self._pruned(self._entry_keys(keys), values), self._entry_keys(removed)

    def _entry_keys(self, keys: list[Any]) -> list[Any]:
        if not self.is_paired:
            return keys
        return [(key, namespace, map_key) for (key, namespace), map_key in keys]

    def _pruned(self, keys: list[Any], values: list[Any]) -> tuple[list[Any], list[Any]]:
        if self.prune is None:
            return keys, values
        fresh = [
            (key, left) for key, value in zip(keys, values, strict=True) if (left := self.prune(value)) is not None
        ]
        return [key for key, _ in fresh], [value for _, value in fresh]


class HashMapSnapshot(AbortableSnapshot):
    """One snapshot: a delta on the files of the last completed checkpoint, or a base if `builds_on` is None."""

    def __init__(
        self,
        owner: StoreOwner,
        checkpoint_id: CheckpointId,
        *,
        builds_on: tuple[StateFile, ...] | None,
        changes: dict[str, Changes],
        carried: Carried,
        prunings: dict[str, Pruning],
        generation: int,
    ) -> None:
        super().__init__(owner, checkpoint_id)
        # Changes since the previous snapshot; the next one repeats them unless this one completes. Replaced, never
        # changed in place: a table being written may be the same dict.
        self.changes = changes
        # of the types in its files; a delta can only build on files of the store's current generation
        self.generation = generation
        self.tables: list[SnapshotTable] = []
        self.handle: KeyedStateHandle | None = None
        self._builds_on = builds_on
        self._carried = carried  # restored, but not asked for: a base must hold it, a delta need not
        self._prunings = prunings  # of the states that drop expired elements when files are merged

    def _release(self) -> None:
        self.tables, self._carried = [], []

    def write(self, storage: Storage, directory: str) -> KeyedStateHandle:
        path = f"{directory}/{self._file_stem}"
        with self._written(storage, [path, _merged(path)]) as (tables, carried):
            files = self._write_files(storage, path, tables, carried)
            with self._lock:
                self._refuse_if_aborted()
                self.handle = handle = KeyedStateHandle(self._owner.key_groups, files)
        return handle

    def write_whole(self, target: Storage, source: Storage | None, *, canonical: bool) -> KeyedStateHandle:
        """Write one base, merged from the chain: it has each entry once, however many deltas there are."""
        del canonical  # both forms are the same here
        attempted = [self._file_stem]
        with self._written(target, attempted) as (tables, carried):
            if self._builds_on is None:
                self._write_file(target, self._file_stem, "base", tables, carried)
            else:
                assert source is not None
                self._write_merged(target, source, self._builds_on, tables, attempted)
            with self._lock:
                self._refuse_if_aborted()
        return KeyedStateHandle(self._owner.key_groups, self.new_files)

    def _write_merged(
        self,
        target: Storage,
        source: Storage,
        files: tuple[StateFile, ...],
        tables: list[SnapshotTable],
        attempted: list[str],
    ) -> None:
        """Write the files of the last checkpoint and the changes since then as one file; a single file is copied."""
        changes = MemoryStorage()  # never durable, so that an interrupted savepoint leaves nothing of it
        delta = self._written_file(changes, self._file_stem, "delta", tables, [])
        if delta is None and len(files) == 1:
            attempted.append(files[0].path.rpartition("/")[2])
            self._new_files.append(copy_state_file(source, files[0], target))
            return
        readers = [read_state_file(source, file.path, file.size) for file in files]
        if delta is not None:
            readers.append(read_state_file(changes, delta.path, delta.size))
        check = self._refuse_if_aborted
        self._new_files.append(merge_into(target, self._file_stem, readers, self._prunings, check=check))

    @contextlib.contextmanager
    def _written(self, storage: Storage, attempted: list[str]) -> Iterator[tuple[list[SnapshotTable], Carried]]:
        """Yield the content to write, once; if writing fails, remove the files in `attempted`."""
        with self._lock:
            self._refuse_if_aborted()
            tables, carried = self.tables, self._carried  # an abort during the write takes them from here only
        try:
            with self._removed_on_failure(storage, attempted):
                yield tables, carried
        except BaseException:
            self.abort()  # a failed checkpoint is never written again: its state must not stay in memory
            raise
        self._release()  # the files hold it now
        if sum(len(table.entries) for table in tables) >= MANY:
            return_freed_memory()  # columns and encoded blocks of as many entries

    def _write_files(
        self, storage: Storage, path: str, tables: list[SnapshotTable], carried: Carried
    ) -> tuple[StateFile, ...]:
        if self._builds_on is None:
            written = self._write_file(storage, path, "base", tables, carried)
            return () if written is None else (written,)
        written = self._write_file(storage, path, "delta", tables, [])
        if written is None:
            return self._builds_on
        run = plan(self._builds_on)
        if run is None:
            return (*self._builds_on, written)
        # The old files stay until a checkpoint that uses the merged one completes.
        merged = merge(storage, self._builds_on[run], _merged(path), self._prunings)
        self._new_files.append(merged)
        return (*self._builds_on[: run.start], merged, written)

    def _write_file(
        self, storage: Storage, path: str, kind: Literal["base", "delta"], tables: list[SnapshotTable], carried: Carried
    ) -> StateFile | None:
        """Write the tables and the carried states; return None if there is nothing to write."""
        written = self._written_file(storage, path, kind, tables, carried)
        if written is not None:
            self._new_files.append(written)
        return written

    def _written_file(
        self, storage: Storage, path: str, kind: Literal["base", "delta"], tables: list[SnapshotTable], carried: Carried
    ) -> StateFile | None:
        if not carried and not any(table.entries for table in tables):
            return None
        owner = self._owner
        info = self._file_info(kind, [table.info for table in tables] + [state for state, _ in carried])
        with StateFileWriter(storage, path, info) as writer:
            for index, table in enumerate(tables):
                with naming(owner, table.info):
                    _write_table(writer, index, table, owner)
            for index, (_, sources) in enumerate(carried, start=len(tables)):
                merge_blocks(writer, index, sources, key_groups=owner.key_groups, keep_removed=False)
            return writer.finish()


@contextlib.contextmanager
def naming(owner: StoreOwner, state: StateInfo) -> Iterator[None]:
    """Add the name of the state to the error about a value of the wrong type."""
    try:
        yield
    except JobGraphError as error:
        raise JobGraphError(
            f'state "{state.name}" of operator "{owner.uid}": {error.message}', hint=error.hint
        ) from error


def _merged(path: str) -> str:
    return f"{path}-merged"


class _Sorted:
    """Entry keys in the order of their key groups, with the range of each group."""

    def __init__(self, entry_keys: list[Any], groups: npt.NDArray[np.uint16]) -> None:
        order = np.argsort(groups, kind="stable")
        present, counts = np.unique(groups[order], return_counts=True)
        self.order = order
        self.keys = _arranged(entry_keys, order)
        self.counts: dict[int, int] = dict(zip(present.tolist(), counts.tolist(), strict=True))


def _groups(entry_keys: list[Any], info: StateInfo, owner: StoreOwner) -> npt.NDArray[np.uint16]:
    """Return the key group of each entry key. 16 bits hold any, and numpy uses radix sort for them."""
    keys = [entry_key[0] for entry_key in entry_keys] if info.has_compound_keys else entry_keys
    if not keys:
        return np.empty(0, np.uint16)
    return key_groups(keys, owner.key_type, owner.max_parallelism).astype(np.uint16)


def _groups_of_maps(maps: dict[Any, dict[Any, Any]], owner: StoreOwner, *, is_paired: bool) -> npt.NDArray[np.uint16]:
    """Return the key group of each entry of these maps; each key is hashed once, however many entries it has."""
    keys = [holder[0] for holder in maps] if is_paired else list(maps)
    if not keys:
        return np.empty(0, np.uint16)
    groups = key_groups(keys, owner.key_type, owner.max_parallelism).astype(np.uint16)
    return np.repeat(groups, list(map(len, maps.values())))


def _arranged(items: list[Any], order: npt.NDArray[np.intp]) -> list[Any]:
    """Return the items in another order. Copies plain numbers: with millions of items, most time goes into reading
    each from its place in memory.
    """
    if set(map(type, items)) == {int}:
        with contextlib.suppress(OverflowError):  # of more than 64 bits
            numbers: list[Any] = np.array(items, dtype=np.int64)[order].tolist()
            return numbers
    arranged: list[Any] = np.fromiter(items, dtype=object, count=len(items))[order].tolist()
    return arranged


def _write_table(writer: StateFileWriter, state: int, table: SnapshotTable, owner: StoreOwner) -> None:
    keys, unsorted_values, removed_keys = table.split()
    if table.is_nested and table.prune is None:
        groups_of_keys = _groups_of_maps(table.entries, owner, is_paired=table.is_paired)
    else:
        groups_of_keys = _groups(keys, table.info, owner)
    found = _Sorted(keys, groups_of_keys)
    removed = _Sorted(removed_keys, _groups(removed_keys, table.info, owner))
    values = _arranged(unsorted_values, found.order)
    limit = _entries_per_block(found.keys, values, table)

    entry = gone = 0
    for groups in _block_groups(found.counts, removed.counts, limit):
        counts = [found.counts.get(group, 0) for group in groups]
        removed_counts = [removed.counts.get(group, 0) for group in groups]
        entry_end, gone_end = entry + sum(counts), gone + sum(removed_counts)
        content = BlockContent(
            groups,
            counts,
            removed_counts,
            table.keys.encode_keys(found.keys[entry:entry_end]),
            table.encode_values(values[entry:entry_end]),
            table.keys.encode_keys(removed.keys[gone:gone_end]),
        )
        writer.add_block(state, content)
        entry, gone = entry_end, gone_end


def _entries_per_block(keys: list[Any], values: list[Any], table: SnapshotTable) -> int:
    sampled_keys, sampled_values = keys[:_SAMPLE], values[:_SAMPLE]
    sampled = len(table.keys.encode_keys(sampled_keys)) + len(table.encode_values(sampled_values))
    return max(1, BLOCK_BYTES * max(1, len(sampled_keys)) // sampled)


def _block_groups(counts: dict[int, int], removed_counts: dict[int, int], limit: int) -> Iterator[list[int]]:
    """Split ascending key groups into blocks of about `limit` entries."""
    block: list[int] = []
    filled = 0
    for group in sorted(counts.keys() | removed_counts.keys()):
        block.append(group)
        filled += counts.get(group, 0) + removed_counts.get(group, 0)
        if filled >= limit:
            yield block
            block, filled = [], 0
    if block:
        yield block
