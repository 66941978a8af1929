"""The content of a snapshot of any backend: its states, keys and entries, and its integrity."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from checkdam.backends.compaction import merged_groups
from checkdam.backends.state_file import FileInfo, StateFileReader, StateInfo, read_state_file
from checkdam.errors import StateNotRestorableError
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.storage.contract import Storage

if TYPE_CHECKING:
    from checkdam.backends.rocksdb.snapshot_files import SnapshotInfo

Entries = Iterator[tuple[bytes, bytes]]
"""Entry keys and stored values, encoded by the serializers of `StateSpec.entry_key` and `StateInfo.type`."""


def describe_handle(handle: KeyedStateHandle, storage: Storage) -> list[StateInfo]:
    """Return every state of the snapshot once, as its newest file describes it, without reading entries.

    Raises:
        CheckpointDamagedError: a file is gone, truncated or altered.
        FormatTooNewError: a file was written by a newer version.
        StateNotRestorableError: no known backend wrote it.
    """
    if not handle.files:
        return []
    return _states(open_files(handle, storage)) if is_hashmap(handle) else _rocksdb_info(handle, storage).states


def describe_keys(handle: KeyedStateHandle, storage: Storage) -> tuple[str, int] | None:
    """Return the durable key type and the max parallelism of a snapshot; None if it is empty. Raises as
    `describe_handle`.
    """
    hashmap = is_hashmap(handle)
    if not handle.files:
        return None
    newest = handle.files[-1]
    info: FileInfo | SnapshotInfo
    info = read_state_file(storage, newest.path, newest.size).info if hashmap else _rocksdb_info(handle, storage)
    return info.key_type, info.max_parallelism


def _rocksdb_info(handle: KeyedStateHandle, storage: Storage) -> SnapshotInfo:
    from checkdam.backends.rocksdb.snapshot_files import read_info  # other jobs need not load its library

    return read_info(handle, storage)


def read_entries(
    handle: KeyedStateHandle, storage: Storage, key_groups: KeyGroupRange, work_directory: Callable[[], Path]
) -> Iterator[tuple[StateInfo, Entries]]:
    """Read every state in a snapshot with its entries in these key groups, each entry key once.

    Entries come in the order of their key groups; consume those of a state before asking for the next state. Reads
    only blocks and tables that touch the key groups. `work_directory` creates a local directory for files that cannot
    be read in place.

    Raises:
        CheckpointDamagedError, FormatTooNewError, StateNotRestorableError: as `describe_handle`.
    """
    if is_hashmap(handle):
        return _hashmap_entries(open_files(handle, storage, key_groups), key_groups)
    from checkdam.backends.rocksdb.rocksdb_reading import read_handle

    return read_handle(handle, storage, key_groups, work_directory)


def verify_handle(handle: KeyedStateHandle, storage: Storage) -> None:
    """Read and verify every byte of the snapshot, without unpacking entries. Raises as `describe_handle`."""
    if is_hashmap(handle):
        for reader in open_files(handle, storage):
            reader.verify()
    elif handle.files:
        from checkdam.backends.rocksdb.snapshot_files import verify_tables

        verify_tables(handle, storage)


def open_files(
    handle: KeyedStateHandle, storage: Storage, key_groups: KeyGroupRange | None = None
) -> list[StateFileReader]:
    """Open the files of a hashmap snapshot, oldest first. Raises as `describe_handle`."""
    return [read_state_file(storage, file.path, file.size, key_groups) for file in handle.files]


def _states(readers: list[StateFileReader]) -> list[StateInfo]:
    return list({info.name: info for reader in readers for info in reader.info.states}.values())


def _hashmap_entries(readers: list[StateFileReader], key_groups: KeyGroupRange) -> Iterator[tuple[StateInfo, Entries]]:
    for info in _states(readers):
        groups = merged_groups([reader.blocks_of(info.name) for reader in readers], key_groups)
        yield info, (entry for group in groups for entry in group.entries.items())


def is_hashmap(handle: KeyedStateHandle) -> bool:
    """Return whether the hashmap backend wrote the snapshot; False if the RocksDB backend did.

    Raises:
        StateNotRestorableError: no known backend wrote it.
    """
    if handle.backend not in ("hashmap", "rocksdb"):
        raise StateNotRestorableError(
            f'a snapshot was written by backend "{handle.backend}", which this version of checkdam does not know',
            hint="Use the version of checkdam that wrote it, or a newer one.",
        )
    return handle.backend == "hashmap"
