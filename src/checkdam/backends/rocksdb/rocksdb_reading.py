"""Reads RocksDB snapshots as encoded entries, for restores."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from checkdam.backends.rocksdb.database import Database
from checkdam.backends.rocksdb.memory_budget import SlotMemory, slot_memory
from checkdam.backends.rocksdb.snapshot_files import SnapshotInfo, fetch, read_info
from checkdam.backends.snapshot_contents import Entries
from checkdam.backends.state_backends import SMALLEST_ROCKSDB_MEMORY
from checkdam.backends.state_file import StateInfo, damaged
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.storage.contract import Storage


def read_handle(
    handle: KeyedStateHandle, storage: Storage, key_groups: KeyGroupRange, work_directory: Callable[[], Path]
) -> Iterator[tuple[StateInfo, Entries]]:
    """Yield every state in a snapshot with its entries in these key groups, each entry key once, in their order.

    Consume the entries of a state before asking for the next state. Tables without a key in these key groups are not
    read.

    Raises:
        CheckpointDamagedError: a file is gone, truncated or altered.
        FormatTooNewError: a file was written by a newer version.
    """
    if not handle.files:
        return
    info = read_info(handle, storage)
    local = work_directory()
    try:
        for state, entries in read_keyed(handle, info, storage, key_groups, local):
            yield state, ((key[2:], value) for key, value in entries)
    finally:
        shutil.rmtree(local, ignore_errors=True)


def read_keyed(
    handle: KeyedStateHandle, info: SnapshotInfo, storage: Storage, key_groups: KeyGroupRange, local: Path
) -> Iterator[tuple[StateInfo, Entries]]:
    """Read like `read_handle`, with keys as in the database; leaves the files in `local`."""
    fetch(handle, info, storage, local, key_groups)
    database = open_fetched(handle, local, slot_memory(SMALLEST_ROCKSDB_MEMORY), is_read_only=True)
    with closing(database):
        for state in info.states:
            yield state, _scanned(handle, database.entries(state.name, key_groups))


def _scanned(handle: KeyedStateHandle, entries: Entries) -> Entries:
    try:
        yield from entries
    except Exception as error:  # RocksDB's errors have no class of their own
        raise damaged(handle.files[0].path, f"RocksDB cannot read it ({error})") from error


def open_fetched(handle: KeyedStateHandle, local: Path, memory: SlotMemory, *, is_read_only: bool = False) -> Database:
    """Open the files that `fetch` has put there.

    Raises:
        CheckpointDamagedError: RocksDB refuses them.
    """
    try:
        return Database(local, memory, is_read_only=is_read_only)
    except Exception as error:  # RocksDB's errors have no class of their own
        raise damaged(handle.files[0].path, f"RocksDB cannot open it ({error})") from error
