"""Opens the database of a subtask from the snapshots it is restored from."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from checkdam.backends.contract import StoreOwner
from checkdam.backends.restoring import agreed, check_keys, read_states
from checkdam.backends.rocksdb.database import ColumnFamily, Database, chunks, write_sorted
from checkdam.backends.rocksdb.memory_budget import SlotMemory
from checkdam.backends.rocksdb.rocksdb_reading import open_fetched, read_keyed
from checkdam.backends.rocksdb.rocksdb_snapshot import DurableTable
from checkdam.backends.rocksdb.snapshot_files import SnapshotInfo, fetch, read_info
from checkdam.backends.state_file import StateInfo, packed_array
from checkdam.state.key_groups import key_groups
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.storage.contract import Storage

_CHUNK = 1024


@dataclass
class RestoredDatabase:
    """An open database in `path/db`, its states, and those of its tables that are already in the checkpoint."""

    path: Path
    database: Database
    states: dict[str, StateInfo] = field(default_factory=dict)
    tables: dict[str, DurableTable] = field(default_factory=dict)


def open_empty(owner: StoreOwner, memory: SlotMemory) -> RestoredDatabase:
    path = owner.work_directory()
    return RestoredDatabase(path, Database(path / "db", memory))


def restore(
    owner: StoreOwner, memory: SlotMemory, handles: Sequence[KeyedStateHandle], storage: Storage
) -> RestoredDatabase:
    """Open a database with exactly the owner's key groups, out of all handles.

    Opens the snapshot with most of these key groups as it is, drops its other key groups, and adds the content of
    other snapshots. So the usual cases, the same parallelism or a multiple of it, take the time to link or copy files.
    """
    infos = {
        place: read_info(handle, storage)
        for place, handle in enumerate(handles)
        if handle.backend == "rocksdb" and handle.files
    }
    for info in infos.values():
        check_keys(owner, info.key_type, info.max_parallelism)
    shared = {place: len(handles[place].key_groups.overlap(owner.key_groups)) for place in infos}
    first = max(shared, key=lambda place: shared[place], default=None)
    path = owner.work_directory()
    try:
        if first is None or not shared[first]:
            restored = RestoredDatabase(path, Database(path / "db", memory))
        else:
            restored = _open(owner, memory, path, handles[first], infos[first], storage)
        try:
            for place, handle in enumerate(handles):
                if place in infos and (place == first or not shared[place]):
                    continue
                if place in infos:
                    _ingest(owner, memory, restored, handle, infos[place], storage)
                else:
                    _load(owner, restored, handle, storage)
        except BaseException:
            restored.database.close()
            raise
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return restored


def _open(
    owner: StoreOwner, memory: SlotMemory, path: Path, handle: KeyedStateHandle, info: SnapshotInfo, storage: Storage
) -> RestoredDatabase:
    fetch(handle, info, storage, path / "db", owner.key_groups)
    database = open_fetched(handle, path / "db", memory)
    if handle.key_groups != owner.key_groups:
        database.keep_only(owner.key_groups)
    tables = {
        file.name: DurableTable(file, info.tables[file.name], info.key_groups.get(file.name))
        for file in handle.files
        if file.name in info.tables
    }
    return RestoredDatabase(path, database, {state.name: state for state in info.states}, tables)


def _ingest(
    owner: StoreOwner,
    memory: SlotMemory,
    restored: RestoredDatabase,
    handle: KeyedStateHandle,
    info: SnapshotInfo,
    storage: Storage,
) -> None:
    """Add the owner's key groups of another RocksDB snapshot; its keys are already in order."""
    local = restored.path / "other"
    try:
        for state, entries in read_keyed(handle, info, storage, owner.key_groups, local):
            column = _column(owner, restored, state)
            if write_sorted(restored.path / "sorted", memory, entries):
                column.ingest(restored.path / "sorted")
    finally:
        shutil.rmtree(local, ignore_errors=True)
        (restored.path / "sorted").unlink(missing_ok=True)


def _load(owner: StoreOwner, restored: RestoredDatabase, handle: KeyedStateHandle, storage: Storage) -> None:
    """Add the owner's key groups of another backend's snapshot."""
    for state, entries in read_states(owner, handle, storage):
        column = _column(owner, restored, state)
        for chunk in chunks(entries, _CHUNK):
            column.write(_with_key_groups(owner, state, chunk))


def _with_key_groups(
    owner: StoreOwner, state: StateInfo, entries: Sequence[tuple[bytes, bytes]]
) -> Iterator[tuple[bytes, bytes]]:
    found = state.entry_key(owner.key_type).decode(packed_array([key for key, _ in entries]))
    keys = [key[0] for key in found] if state.has_compound_keys else found
    groups = key_groups(keys, owner.key_type, owner.max_parallelism)
    for group, (key, value) in zip(groups.tolist(), entries, strict=True):
        yield group.to_bytes(2, "big") + key, value


def _column(owner: StoreOwner, restored: RestoredDatabase, state: StateInfo) -> ColumnFamily:
    restored.states[state.name] = agreed(owner.uid, restored.states.get(state.name, state), state)
    return restored.database.column(state.name)
