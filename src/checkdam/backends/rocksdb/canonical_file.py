"""Writes a database as one state file in the form that every backend reads, entry by entry, in bounded memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

from checkdam.backends.rocksdb.database import Database, chunks, group_prefix
from checkdam.backends.rocksdb.memory_budget import slot_memory
from checkdam.backends.state_backends import SMALLEST_ROCKSDB_MEMORY
from checkdam.backends.state_file import BlockContent, FileInfo, StateFileWriter, packed_array
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import StateFile
from checkdam.storage.contract import Storage

_ENTRIES = 8192  # of a block, unless they are large

_NO_ELEMENTS = packed_array([])


def write_canonical(
    local: Path,
    info: FileInfo,
    key_groups: KeyGroupRange,
    target: Storage,
    name: str,
    *,
    check: Callable[[], None],
) -> StateFile:
    """Write the states of `info`, from the database at `local`, to the file `name`, atomically.

    The database is sorted by key group like the file. A key group may be split into several blocks, so that memory
    does not grow with it. `check` is called now and then, and may raise.
    """
    database = Database(local, slot_memory(SMALLEST_ROCKSDB_MEMORY), is_read_only=True)
    with closing(database), StateFileWriter(target, name, info) as writer:
        for index, state in enumerate(info.states):
            for chunk in chunks(database.entries(state.name, key_groups), _ENTRIES):
                check()
                writer.add_block(index, _block(chunk))
        return writer.finish()


def _block(entries: Iterable[tuple[bytes, bytes]]) -> BlockContent:
    keys, values = zip(*entries, strict=True)
    groups: list[int] = []
    counts: list[int] = []
    begin = 0
    while begin < len(keys):
        group = int.from_bytes(keys[begin][:2], "big")
        end = bisect_left(keys, group_prefix(group + 1), begin)
        groups.append(group)
        counts.append(end - begin)
        begin = end
    return BlockContent(
        groups,
        counts,
        [0] * len(groups),
        packed_array([key[2:] for key in keys]),
        packed_array(values),
        _NO_ELEMENTS,
    )
