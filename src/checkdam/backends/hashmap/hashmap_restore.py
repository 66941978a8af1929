"""Restored state of a hashmap store, kept compressed until a function asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Any

from checkdam.backends.compaction import PendingBlock
from checkdam.backends.contract import Prune, StoreOwner
from checkdam.backends.hashmap.hashmap_states import REMOVED
from checkdam.backends.restoring import StateReading, agreed, check_keys, read_states
from checkdam.backends.state_file import Block, StateInfo, packed_array, read_state_file
from checkdam.state.key_groups import key_groups
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.storage.contract import Storage
from checkdam.types.serializers import Serializer

_AT_ONCE = 50_000  # entries of another backend that are held unpacked


@dataclass
class RestoredState:
    """A restored state that no descriptor has asked for yet: its blocks, file by file, oldest first."""

    info: StateInfo
    sources: list[list[Block]] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(block.info.entries for blocks in self.sources for block in blocks)


def restore(owner: StoreOwner, handles: Sequence[KeyedStateHandle], storage: Storage) -> dict[str, RestoredState]:
    """Read every state, by name, in the owner's key groups only.

    Raises:
        CheckpointDamagedError: a file is gone, truncated or altered.
        FormatTooNewError: a file was written by a newer version.
        StateNotRestorableError: the key type or the max parallelism is another.
    """
    restored: dict[str, RestoredState] = {}
    for handle in handles:
        read = _own_states if handle.backend == "hashmap" else _foreign_states
        for info, blocks in read(owner, handle, storage):
            state = restored.setdefault(info.name, RestoredState(info))
            state.info = agreed(owner.uid, state.info, info)
            if blocks:
                state.sources.append(blocks)
    return restored


def _own_states(
    owner: StoreOwner, handle: KeyedStateHandle, storage: Storage
) -> Iterator[tuple[StateInfo, list[Block]]]:
    for file in handle.files:
        reader = read_state_file(storage, file.path, file.size, owner.key_groups)
        check_keys(owner, reader.info.key_type, reader.info.max_parallelism)
        for index, info in enumerate(reader.info.states):
            yield info, list(reader.blocks(index))


def _foreign_states(
    owner: StoreOwner, handle: KeyedStateHandle, storage: Storage
) -> Iterator[tuple[StateInfo, list[Block]]]:
    """Read the states of another backend's snapshot, whose entries have another order."""
    for info, entries in read_states(owner, handle, storage):
        yield info, []  # a state without entries must be known, too
        keys = info.entry_key(owner.key_type)
        while chunk := list(islice(entries, _AT_ONCE)):
            yield info, _packed(owner, info, keys, chunk)


def _packed(owner: StoreOwner, info: StateInfo, keys: Serializer, entries: list[tuple[bytes, bytes]]) -> list[Block]:
    entry_keys = keys.decode(packed_array([key for key, _ in entries]))
    of = [entry_key[0] for entry_key in entry_keys] if info.has_compound_keys else entry_keys
    groups = key_groups(of, owner.key_type, owner.max_parallelism).tolist()
    by_group = sorted(zip(groups, entries, strict=True), key=lambda each: each[0])
    blocks, pending = [], PendingBlock()
    for group, members in groupby(by_group, key=lambda each: each[0]):
        pending.add(group, dict(entry for _, entry in members), set())
        if pending.is_full:
            blocks.append(pending.content().block())
            pending = PendingBlock()
    return [*blocks, pending.content().block()] if pending.groups else blocks


def decode(restored: RestoredState, keys: Serializer, reading: StateReading) -> dict[Any, Any]:
    """Decode the entries to objects; consumes the restored form."""
    entries: dict[Any, Any] = {}
    for blocks in restored.sources:
        for block in blocks:
            packed_keys, packed_values, packed_removed = block.unpack()
            for key in keys.decode(packed_removed)[block.removed] if block.info.removed_counts else ():
                entries.pop(key, None)
            decoded_keys, decoded_values = keys.decode(packed_keys), reading.values(packed_values)
            if not block.is_whole:
                decoded_keys, decoded_values = decoded_keys[block.entries], decoded_values[block.entries]
            entries.update(zip(decoded_keys, decoded_values, strict=True))
        blocks.clear()  # so that the compressed and the decoded form are not in memory together
    return entries


def prune_entries(entries: dict[Any, Any], prune: Prune) -> dict[Any, Any]:
    """Remove expired elements; return the changes for the next snapshot.

    Without them, a restore with a longer time to live would bring the elements back.
    """
    changes: dict[Any, Any] = {}
    for key, stored in entries.items():
        pruned = prune(stored)
        if pruned is not stored:
            changes[key] = REMOVED if pruned is None else pruned
    for key, pruned in changes.items():
        if pruned is REMOVED:
            del entries[key]
        else:
            entries[key] = pruned
    return changes
