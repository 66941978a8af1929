"""The entries of one keyed state in one subtask's snapshot, of any backend: reads or only sizes them by key group."""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, groupby
from pathlib import Path
from typing import Any, NamedTuple

from checkdam.backends.compaction import merged_groups
from checkdam.backends.snapshot_contents import is_hashmap, open_files
from checkdam.backends.state_file import Block, BlockInfo, StateFileReader, StateInfo, packed_array, split_array
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.state_reader.columns import is_hashable
from checkdam.storage.contract import Storage
from checkdam.types.serializers import Serializer

_ROCKSDB_ROWS = 2_048  # RocksDB entries unpacked at once; more is slower, because of the garbage collector


class Chunk(NamedTuple):
    """Some entries in the order of their key groups: `counts[i]` entries of `groups[i]`.

    `ids` identify the entry keys: the keys themselves if these are hashable.
    """

    groups: list[int]
    counts: list[int]
    ids: list[Any]
    keys: list[Any]
    values: list[Any]
    bytes: int
    """The approximate uncompressed size."""


@dataclass(frozen=True)
class Reading:
    """A state and the serializers to read it with. Without a serializer for values, only keys are read."""

    info: StateInfo
    keys: Serializer
    values: Serializer | None

    @property
    def ids_are_keys(self) -> bool:
        return is_hashable(self.keys.type)


def read_chunks(
    handle: KeyedStateHandle, storage: Storage, reading: Reading, key_groups: KeyGroupRange
) -> Iterator[Chunk]:
    """Iterate over the entries in these key groups. Each entry key appears once, from the newest file; removed ones do
    not.

    Only data of these key groups is read. Holds one key group, or one block of several, in memory at a time.

    Raises:
        CheckpointDamagedError: a file is missing, truncated or altered.
        FormatTooNewError: a file was written by a newer version.
        StateNotRestorableError: it was written by an unknown backend.
    """
    wanted = handle.key_groups.overlap(key_groups)
    if not len(wanted) or not handle.files:
        return iter(())
    if is_hashmap(handle):
        return _hashmap_chunks(open_files(handle, storage, wanted), reading, wanted)
    return _rocksdb_chunks(handle, storage, reading, wanted)


def blocks_of(reader: StateFileReader, name: str, key_groups: KeyGroupRange) -> int:
    """Return how many blocks of a state touch these key groups, from the index."""
    states = {place for place, info in enumerate(reader.info.states) if info.name == name}
    return sum(
        block.state in states and block.first <= key_groups.last and key_groups.first <= block.last
        for block in reader.info.blocks
    )


def _hashmap_chunks(readers: Sequence[StateFileReader], reading: Reading, wanted: KeyGroupRange) -> Iterator[Chunk]:
    name = reading.info.name
    filled = [reader for reader in readers if blocks_of(reader, name, wanted)]
    if len(filled) == 1:
        return _whole_blocks(filled[0].blocks_of(name), reading, wanted)
    return _merged([reader.blocks_of(name) for reader in filled], reading, wanted)


def _whole_blocks(blocks: Iterator[Block], reading: Reading, wanted: KeyGroupRange) -> Iterator[Chunk]:
    """Iterate over a state that is in one file: no file overrides another, so removals have nothing to remove."""
    for block in blocks:
        packed_keys, packed_values, _ = block.unpack()
        keys = reading.keys.decode(packed_keys)
        ids = keys if reading.ids_are_keys else split_array(packed_keys)
        values = [] if reading.values is None else reading.values.decode(packed_values)
        groups, counts = block.info.groups, block.info.counts
        if not block.is_whole:
            ids, keys, values = ids[block.entries], keys[block.entries], values[block.entries]
            counts = [count for group, count in zip(groups, counts, strict=True) if group in wanted]
            groups = [group for group in groups if group in wanted]
        if keys:
            yield Chunk(groups, counts, ids, keys, values, block.info.raw_length)


class _FileVersion(NamedTuple):
    """The content of one file for one key group."""

    group: int
    age: int
    ids: list[Any]
    keys: list[Any]
    values: list[Any]
    removed: list[Any]
    bytes: int


def _merged(sources: Sequence[Iterator[Block]], reading: Reading, wanted: KeyGroupRange) -> Iterator[Chunk]:
    cursors = [_versions(blocks, -age, reading, wanted) for age, blocks in enumerate(sources)]
    in_order = heapq.merge(*cursors, key=lambda version: (version.group, version.age))
    for group, versions in groupby(in_order, key=lambda version: version.group):
        ids: list[Any] = []
        keys: list[Any] = []
        values: list[Any] = []
        known: set[Any] = set()  # ids that newer files hold or remove
        size = 0
        for version in versions:  # newest first
            size += version.bytes
            if known.isdisjoint(version.ids):
                ids += version.ids
                keys += version.keys
                values += version.values
            else:
                is_new = [each not in known for each in version.ids]
                ids += compress(version.ids, is_new)
                keys += compress(version.keys, is_new)
                values += compress(version.values, is_new)
            if version.age < 0:  # the oldest file overrides no other
                known.update(version.ids)
                known.update(version.removed)
        if keys:
            yield Chunk([group], [len(keys)], ids, keys, values, size)


def _versions(blocks: Iterator[Block], age: int, reading: Reading, wanted: KeyGroupRange) -> Iterator[_FileVersion]:
    for block in blocks:
        packed_keys, packed_values, packed_removed = block.unpack()
        keys = reading.keys.decode(packed_keys)
        ids = keys if reading.ids_are_keys else split_array(packed_keys)
        removed: list[Any] = []
        if block.info.removed_counts:
            removed = reading.keys.decode(packed_removed) if reading.ids_are_keys else split_array(packed_removed)
        values = [] if reading.values is None else reading.values.decode(packed_values)
        gone_counts = block.info.removed_counts or [0] * len(block.info.groups)
        size = block.info.raw_length // max(1, len(block.info.groups))
        entry = gone = 0
        for group, count, gone_count in zip(block.info.groups, block.info.counts, gone_counts, strict=True):
            own, own_gone = slice(entry, entry + count), slice(gone, gone + gone_count)
            if group in wanted:
                yield _FileVersion(group, age, ids[own], keys[own], values[own], removed[own_gone], size)
            entry, gone = own.stop, own_gone.stop


def _rocksdb_chunks(
    handle: KeyedStateHandle, storage: Storage, reading: Reading, wanted: KeyGroupRange
) -> Iterator[Chunk]:
    from checkdam.backends.rocksdb.database import chunks  # loads its library only when needed

    for pairs in chunks(rocksdb_entries(handle, storage, reading.info.name, wanted), _ROCKSDB_ROWS):
        found, stored = [key for key, _ in pairs], [value for _, value in pairs]
        encoded = [key[2:] for key in found]
        keys = reading.keys.decode(packed_array(encoded))
        groups, counts = _key_groups_of(found)
        yield Chunk(
            groups,
            counts,
            keys if reading.ids_are_keys else encoded,
            keys,
            [] if reading.values is None else reading.values.decode(packed_array(stored)),
            sum(map(len, encoded)) + sum(map(len, stored)),
        )


def _key_groups_of(found: Sequence[bytes]) -> tuple[list[int], list[int]]:
    """Return the key groups at the start of database keys, in their ascending order, and the number of keys in each."""
    if found[0][:2] == found[-1][:2]:
        return [int.from_bytes(found[0][:2], "big")], [len(found)]
    prefixes = [(prefix, len(list(each))) for prefix, each in groupby(key[:2] for key in found)]
    return [int.from_bytes(prefix, "big") for prefix, _ in prefixes], [count for _, count in prefixes]


def rocksdb_entries(
    handle: KeyedStateHandle, storage: Storage, name: str, wanted: KeyGroupRange
) -> Iterator[tuple[bytes, bytes]]:
    """Iterate over the database keys, key group first, and values of one state. Links or copies its files meanwhile."""
    from checkdam.backends.rocksdb.rocksdb_reading import read_keyed
    from checkdam.backends.rocksdb.snapshot_files import read_info

    info = read_info(handle, storage)
    with tempfile.TemporaryDirectory(prefix="checkdam-reader-") as work:
        for state, entries in read_keyed(handle, info, storage, wanted, Path(work) / "db"):
            if state.name == name:
                yield from entries
                return


Size = tuple[int, int, int]
"""A key group, its number of entries, and the bytes of their keys and values."""


def group_sizes(handle: KeyedStateHandle, storage: Storage, name: str, key_groups: KeyGroupRange) -> Iterator[Size]:
    """Size every key group with entries, ascending, one in memory at a time. Raise the errors of `read_chunks`."""
    wanted = handle.key_groups.overlap(key_groups)
    if not len(wanted) or not handle.files:
        return
    if not is_hashmap(handle):
        pairs = rocksdb_entries(handle, storage, name, wanted)
        for prefix, each in groupby(pairs, key=lambda pair: pair[0][:2]):
            lengths = [len(key) - len(prefix) + len(value) for key, value in each]
            yield int.from_bytes(prefix, "big"), len(lengths), sum(lengths)
        return
    filled = [reader for reader in open_files(handle, storage, wanted) if blocks_of(reader, name, wanted)]
    if len(filled) == 1:
        yield from _of_one_file(filled[0], name, wanted)
        return
    for group in merged_groups([reader.blocks_of(name) for reader in filled], wanted):
        if group.entries:
            size = sum(map(len, group.entries)) + sum(map(len, group.entries.values()))
            yield group.number, len(group.entries), size


def _of_one_file(reader: StateFileReader, name: str, wanted: KeyGroupRange) -> Iterator[Size]:
    """Size the key groups of one file: from the index for a block of one key group, by reading a block of several."""
    states = {place for place, info in enumerate(reader.info.states) if info.name == name}
    blocks = [block for block in reader.info.blocks if block.state in states]
    if all(len(block.groups) == 1 and not block.removed_counts for block in blocks):
        for block in blocks:
            if block.first in wanted and block.entries:
                yield block.first, block.entries, block.raw_length - _overhead(block)
        return
    for content in reader.blocks_of(name):
        keys, values, _ = map(split_array, content.unpack())
        start = 0
        for group, count in zip(content.info.groups, content.info.counts, strict=True):
            own = slice(start, start + count)
            if group in wanted and count:
                yield group, count, sum(map(len, keys[own])) + sum(map(len, values[own]))
            start = own.stop


def _overhead(block: BlockInfo) -> int:
    """Return the size of the msgpack framing of keys and values: an array of three, two arrays and an empty one."""
    head = 1 if block.entries < 1 << 4 else 3 if block.entries < 1 << 16 else 5
    return 2 + 2 * head
