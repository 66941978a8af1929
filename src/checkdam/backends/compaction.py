"""Merging of old delta files, which keeps the chain of files short without rewriting everything each time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import msgspec

from checkdam.backends.contract import Prune
from checkdam.backends.state_file import (
    BLOCK_BYTES,
    Block,
    BlockContent,
    FileInfo,
    StateFileReader,
    StateFileWriter,
    packed_array,
    read_state_file,
)
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import StateFile
from checkdam.storage.contract import Storage
from checkdam.types.serializers import Serializer

CHAIN_LENGTH = 8
"""A chain up to this length is not merged."""

_SMALL = 64 * 1024  # below this size a file costs its round trip, not its bytes
_GROWTH = 2

_elements = msgspec.msgpack.Decoder(list[msgspec.Raw])


def plan(files: Sequence[StateFile]) -> slice | None:
    """Return the run of files to merge into one; None if the chain is short or no merge is worth it.

    The run consists of the newest files, extended backwards as long as the next older file is at most twice the size
    of the run. So merging makes the file that contains any given byte at least 1.5 times larger, except once, when it
    was the newest: each byte is rewritten at most 1 + log1.5(all / smallest file) times. Every file that is not merged
    is more than twice the sum of all newer files, which bounds the chain by log3(all / smallest file).
    """
    if len(files) <= CHAIN_LENGTH:
        return None
    start = len(files) - 1
    total = max(files[start].size, _SMALL)
    while start > 0 and max(files[start - 1].size, _SMALL) <= _GROWTH * total:
        start -= 1
        total += max(files[start].size, _SMALL)
    return slice(start, len(files)) if len(files) - start > 1 else None


@dataclass(frozen=True)
class Pruning:
    """How a merge drops expired elements of a state; the only reason for a merge to decode values."""

    values: Serializer
    prune: Prune

    def apply(self, entries: dict[bytes, bytes]) -> set[bytes]:
        """Remove expired elements; return the keys that have none left."""
        gone = set()
        for key, encoded in entries.items():
            stored = self.values.decode_one(encoded)
            pruned = self.prune(stored)
            if pruned is None:
                gone.add(key)
            elif pruned is not stored:
                entries[key] = self.values.encode_one(pruned)
        for key in gone:
            del entries[key]
        return gone


def merge(
    storage: Storage, files: Sequence[StateFile], target: str, prunings: Mapping[str, Pruning] | None = None
) -> StateFile:
    """Merge a run of adjacent files, oldest first, into one file beside them, as `merge_into` does."""
    readers = [read_state_file(storage, file.path, file.size) for file in files]
    return merge_into(storage, target, readers, prunings)


def merge_into(
    storage: Storage,
    target: str,
    readers: Sequence[StateFileReader],
    prunings: Mapping[str, Pruning] | None = None,
    *,
    check: Callable[[], None] = lambda: None,
) -> StateFile:
    """Write the content of adjacent files, oldest first, to one file; the newest entry of each key wins.

    The result is a base if the run begins with one, and only then drops removed keys: a delta must still hide entries
    of older files. Holds one block of each file in memory, whatever their size. Drops expired elements of the states
    with a pruning (by name). `check` is called before each block is read, and may raise.
    """
    first, newest = readers[0].info, readers[-1].info
    states = {state.name: state for reader in readers for state in reader.info.states}
    info = FileInfo(
        kind=first.kind,
        uid=newest.uid,
        subtask=newest.subtask,
        checkpoint_id=newest.checkpoint_id,
        max_parallelism=newest.max_parallelism,
        key_type=newest.key_type,
        states=list(states.values()),
    )
    with StateFileWriter(storage, target, info) as writer:
        for index, state in enumerate(info.states):
            sources = [_checked(reader.blocks_of(state.name), check) for reader in readers]
            pruning = None if prunings is None else prunings.get(state.name)
            merge_blocks(writer, index, sources, keep_removed=first.kind != "base", pruning=pruning)
        return writer.finish()


def _checked(blocks: Iterable[Block], check: Callable[[], None]) -> Iterator[Block]:
    for block in blocks:
        check()
        yield block


class _Group:
    """The entries and removed keys of one key group in one file, as msgpack."""

    __slots__ = ("age", "keys", "number", "removed", "values")

    def __init__(self, number: int, age: int, keys: list[bytes], values: list[bytes], removed: list[bytes]) -> None:
        self.number = number
        self.age = age
        self.keys = keys
        self.values = values
        self.removed = removed


class PendingBlock:
    """Key groups, ascending, collected until they fill a block."""

    def __init__(self) -> None:
        self.size = 0
        self.groups: list[int] = []
        self.counts: list[int] = []
        self.removed_counts: list[int] = []
        self.keys: list[bytes] = []
        self.values: list[bytes] = []
        self.removed: list[bytes] = []

    @property
    def is_full(self) -> bool:
        return self.size >= BLOCK_BYTES

    def add(self, group: int, entries: dict[bytes, bytes], removed: set[bytes]) -> None:
        self.groups.append(group)
        self.counts.append(len(entries))
        self.removed_counts.append(len(removed))
        self.keys.extend(entries)
        self.values.extend(entries.values())
        self.removed.extend(sorted(removed))
        self.size += sum(map(len, entries)) + sum(map(len, entries.values())) + sum(map(len, removed))

    def content(self) -> BlockContent:
        return BlockContent(
            self.groups,
            self.counts,
            self.removed_counts,
            packed_array(self.keys),
            packed_array(self.values),
            packed_array(self.removed),
        )


@dataclass(frozen=True, slots=True)
class MergedGroup:
    """The merged blocks of one state in one key group."""

    number: int
    entries: dict[bytes, bytes]
    removed: set[bytes]  # removed, but perhaps still in files older than those merged


def merged_groups(sources: Sequence[Iterable[Block]], key_groups: KeyGroupRange | None = None) -> Iterator[MergedGroup]:
    """Yield the merged key groups of one state in ascending order, sources oldest first, without decoding its types.

    Keys are compared by their msgpack form, which is equal for equal keys of one type.
    """
    cursors = [_groups(blocks, age, key_groups) for age, blocks in enumerate(sources)]
    merged = heapq.merge(*cursors, key=lambda group: (group.number, group.age))
    for number, versions in groupby(merged, key=lambda group: group.number):
        entries: dict[bytes, bytes] = {}
        removed: set[bytes] = set()
        for version in versions:
            for key in version.removed:
                entries.pop(key, None)
            removed.update(version.removed)
            entries.update(zip(version.keys, version.values, strict=True))
            removed.difference_update(version.keys)
        yield MergedGroup(number, entries, removed)


def merge_blocks(
    writer: StateFileWriter,
    state: int,
    sources: Sequence[Iterable[Block]],
    *,
    key_groups: KeyGroupRange | None = None,
    keep_removed: bool,
    pruning: Pruning | None = None,
) -> None:
    """Write the merged blocks of one state, sources oldest first."""
    pending = PendingBlock()
    for group in merged_groups(sources, key_groups):
        removed = group.removed
        if pruning is not None:
            removed |= pruning.apply(group.entries)
        if not keep_removed:
            removed.clear()
        if not group.entries and not removed:
            continue
        pending.add(group.number, group.entries, removed)
        if pending.is_full:
            writer.add_block(state, pending.content())
            pending = PendingBlock()
    if pending.groups:
        writer.add_block(state, pending.content())


def _groups(blocks: Iterable[Block], age: int, key_groups: KeyGroupRange | None) -> Iterator[_Group]:
    for block in blocks:
        keys, values, removed = (list(map(bytes, _elements.decode(part))) for part in block.unpack())
        counts, removed_counts = block.info.counts, block.info.removed_counts or [0] * len(block.info.groups)
        entry = gone = 0
        for number, count, removed_count in zip(block.info.groups, counts, removed_counts, strict=True):
            if key_groups is None or number in key_groups:
                yield _Group(
                    number,
                    age,
                    keys[entry : entry + count],
                    values[entry : entry + count],
                    removed[gone : gone + removed_count],
                )
            entry += count
            gone += removed_count
