"""How much each key group of a state holds, as far as possible from the files' indexes alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import msgspec

from checkdam.backends.compaction import merged_groups
from checkdam.backends.state_file import BlockInfo, StateFileReader
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.state_reader.entries import blocks_of, open_files, overlap, rocksdb_entries
from checkdam.storage.contract import Storage

_raw = msgspec.msgpack.Decoder(list[msgspec.Raw])

Size = tuple[int, int, int]
"""A key group, its entries, and the bytes of their keys and values."""


def group_sizes(handle: KeyedStateHandle, storage: Storage, name: str, key_groups: KeyGroupRange) -> Iterator[Size]:
    """Every key group with entries, ascending; one key group in memory at a time. Raises as `read_chunks`."""
    wanted = overlap(handle.key_groups, key_groups)
    if not len(wanted) or not handle.files:
        return
    if handle.backend != "hashmap":
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
    """A block of one key group needs no reading: the index has its size. One of several is looked into."""
    states = {place for place, info in enumerate(reader.info.states) if info.name == name}
    blocks = [block for block in reader.info.blocks if block.state in states]
    if all(len(block.groups) == 1 and not block.removed_counts for block in blocks):
        for block in blocks:
            if block.first in wanted and block.entries:
                yield block.first, block.entries, block.raw_length - _overhead(block)
        return
    for content in reader.blocks_of(name):
        keys, values, _ = (_raw.decode(part) for part in content.unpack())
        start = 0
        for group, count in zip(content.info.groups, content.info.counts, strict=True):
            own = slice(start, start + count)
            if group in wanted and count:
                yield group, count, sum(len(bytes(key)) for key in keys[own]) + sum(len(bytes(v)) for v in values[own])
            start = own.stop


def _overhead(block: BlockInfo) -> int:
    """What the msgpack around keys and values takes: an array of three, two arrays and an empty one."""
    head = 1 if block.entries < 1 << 4 else 3 if block.entries < 1 << 16 else 5
    return 2 + 2 * head
