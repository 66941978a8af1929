"""The content of hashmap snapshots as encoded entries, for whoever restores them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from checkdam.backends.compaction import merged_groups
from checkdam.backends.state_file import Block, StateInfo, read_state_file
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.storage.contract import Storage

Entries = Iterator[tuple[bytes, bytes]]
"""Entry keys and stored values, encoded by the serializers of `StateSpec.entry_key` and `StateInfo.type`."""


def read_handle(
    handle: KeyedStateHandle,
    storage: Storage,
    directory: str,
    key_groups: KeyGroupRange,
    work_directory: Callable[[], Path],
) -> Iterator[tuple[StateInfo, Entries]]:
    """Every state in a snapshot with its entries in these key groups, each entry key once.

    Entries come in the order of their key groups, to be read before the next state is asked for. Only blocks that touch
    the key groups are fetched.

    Raises:
        CheckpointDamagedError: a file is gone, truncated or altered.
        FormatTooNewError: a file was written by a newer version.
    """
    del work_directory  # the files are read where they lie
    readers = [
        read_state_file(storage, f"{directory}/{file.path}" if directory else file.path, file.size, key_groups)
        for file in handle.files
    ]
    states = {info.name: info for reader in readers for info in reader.info.states}
    for info in states.values():
        sources = [reader.blocks_of(info.name) for reader in readers]
        yield info, _entries(sources, key_groups)


def read_keys(handle: KeyedStateHandle, storage: Storage, directory: str) -> tuple[str, int] | None:
    """The durable key type and the max parallelism of a snapshot; None if it is empty."""
    if not handle.files:
        return None
    file = handle.files[-1]
    path = f"{directory}/{file.path}" if directory else file.path
    info = read_state_file(storage, path, file.size).info
    return info.key_type, info.max_parallelism


def _entries(sources: list[Iterator[Block]], key_groups: KeyGroupRange) -> Entries:
    for group in merged_groups(sources, key_groups):
        yield from group.entries.items()
