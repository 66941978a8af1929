"""Descriptions of the states in a snapshot of any backend, and the check that its files are whole."""

from __future__ import annotations

from checkdam.backends.hashmap import hashmap_reading
from checkdam.backends.state_file import StateInfo, read_state_file
from checkdam.errors import StateNotRestorableError
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.storage.contract import Storage


def describe_handle(handle: KeyedStateHandle, storage: Storage, directory: str) -> list[StateInfo]:
    """Every state of the snapshot once, as its newest file describes it; entries are not read.

    Raises:
        CheckpointDamagedError: a file is gone, truncated or altered.
        FormatTooNewError: a file was written by a newer version.
        StateNotRestorableError: no known backend wrote it.
    """
    if handle.backend == "hashmap":
        readers = [read_state_file(storage, _path(directory, file.path), file.size) for file in handle.files]
        return list({info.name: info for reader in readers for info in reader.info.states}.values())
    if handle.backend == "rocksdb":
        from checkdam.backends.rocksdb.snapshot_files import read_info  # other jobs need not load its library

        return read_info(handle, storage, directory).states if handle.files else []
    raise _unknown(handle)


def describe_keys(handle: KeyedStateHandle, storage: Storage, directory: str) -> tuple[str, int] | None:
    """The durable key type and the max parallelism of a snapshot; None if it is empty. Raises as `describe_handle`."""
    if handle.backend == "hashmap":
        return hashmap_reading.read_keys(handle, storage, directory)
    if handle.backend == "rocksdb":
        from checkdam.backends.rocksdb import rocksdb_reading

        return rocksdb_reading.read_keys(handle, storage, directory)
    raise _unknown(handle)


def verify_handle(handle: KeyedStateHandle, storage: Storage, directory: str) -> None:
    """Read every byte of the snapshot and check it, without unpacking entries. Raises as `describe_handle`."""
    if handle.backend == "hashmap":
        for file in handle.files:
            read_state_file(storage, _path(directory, file.path), file.size).verify()
    elif handle.backend == "rocksdb":
        from checkdam.backends.rocksdb.snapshot_files import verify_tables  # other jobs need not load its library

        if handle.files:
            verify_tables(handle, storage, directory)
    else:
        raise _unknown(handle)


def _unknown(handle: KeyedStateHandle) -> StateNotRestorableError:
    return StateNotRestorableError(
        f'there is state of backend "{handle.backend}", which this version does not know',
        hint="Use the version of checkdam that wrote it, or a newer one.",
    )


def _path(directory: str, path: str) -> str:
    return f"{directory}/{path}" if directory else path
