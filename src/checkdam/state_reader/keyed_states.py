"""Keyed state of a snapshot: lookup by key, pairs, and columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat, zip_longest
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from checkdam.backends.state_file import StateInfo
from checkdam.errors import JobGraphError, UsageError
from checkdam.ids import SubtaskIndex
from checkdam.state.key_groups import KeyGroupRange, key_group_of
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.state_reader.columns import TIME, column, plain
from checkdam.state_reader.content import StateContent
from checkdam.state_reader.descriptions import KeyGroupSize, StateDescription
from checkdam.state_reader.entries import Chunk, Reading, group_sizes, read_chunks
from checkdam.state_reader.entry_fields import EntryParts
from checkdam.storage.contract import Storage
from checkdam.types.serializers import Serializer, serializer
from checkdam.types.type_info import Kind, TypeInfo, map_of
from checkdam.types.type_text import type_from_text

_BATCH_BYTES = 4 << 20  # limits the rows of a batch of large values


@dataclass(frozen=True)
class Group:
    """All entries of a state in one key group, by the ids of their entry keys."""

    number: int
    subtask: int
    entries: dict[Any, tuple[Any, Any]]
    """Entry keys and values."""


class Row(NamedTuple):
    """One entry. `parts` are its key, and its window and map key where the state has them.

    `last_touched` is in milliseconds, None without TTL; for list state one time per element.
    """

    key_group: int
    subtask: int
    parts: tuple[Any, ...]
    value: Any
    last_touched: Any


class KeyedState(StateContent):
    """One keyed state. The rows are its entries, in the order of their key groups.

    Columns: `key`; `window` and `map_key` where the state has them; `value`; with TTL `last_touched`, for list state
    one time per element; `key_group`. Expired entries that are not cleaned up yet are included, with their time.
    Pickled values are unpickled only if the state was requested with `unpickle`, and never in Arrow columns.
    """

    def __init__(
        self,
        description: StateDescription,
        path: str,
        info: StateInfo,
        keys: tuple[str, int],
        handles: Mapping[SubtaskIndex, KeyedStateHandle],
        storage: Storage,
        *,
        unpickle: bool = False,
    ) -> None:
        """Take `handles` by subtask, and in `keys` the durable key type and the max parallelism."""
        self.description = description
        self.path = path
        self._info = info
        self._key_type_text, self.max_parallelism = keys
        self.key_type = type_from_text(self._key_type_text)
        # each key group has one owner, so sorting subtasks by their ranges sorts the key groups
        self._handles = sorted(handles.items(), key=lambda each: each[1].key_groups.first)
        self._storage = storage
        self._parts = EntryParts(info, self._key_type_text, unpickle=unpickle)
        self._columnar = EntryParts(info, self._key_type_text, unpickle=False)
        self._entry_keys = serializer(self._parts.entry_key)
        self._what = f'state "{description.name}" of operator "{description.uid}"'
        self.key_groups_read = KeyGroupRange(0, self.max_parallelism - 1)

    def within(self, key_groups: KeyGroupRange) -> KeyedState:
        """Return the same state restricted to these key groups."""
        narrower = object.__new__(type(self))
        narrower.__dict__.update(self.__dict__)
        narrower.key_groups_read = key_groups
        return narrower

    @property
    def ranges(self) -> tuple[KeyGroupRange, ...]:
        """The key groups of each subtask, ascending."""
        return tuple(handle.key_groups for _, handle in self._handles)

    @property
    def schema(self) -> pa.Schema:
        parts = self._columnar
        fields = [pa.field(name, of.arrow_type) for name, of in parts.keys]
        fields.append(pa.field("value", parts.value.arrow_type))
        if parts.is_timed:
            fields.append(pa.field("last_touched", pa.list_(TIME) if parts.is_timed_list else TIME))
        return pa.schema([*fields, pa.field("key_group", pa.int32())])

    def _batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        schema = self.schema
        for chunk in _gathered(self._chunks(serializer(self._columnar.stored)), batch_rows):
            batch = pa.RecordBatch.from_arrays(self._arrays(chunk), schema=schema)
            for start in range(0, batch.num_rows, batch_rows):
                yield batch.slice(start, batch_rows)

    def _arrays(self, chunk: Chunk) -> list[pa.Array]:
        parts = self._columnar
        arrays = [column(of, values, self._what) for of, values in parts.key_columns(chunk.keys)]
        values, times = parts.split(chunk.values)
        arrays.append(column(parts.value, values, self._what))
        if parts.is_timed:
            arrays.append(pa.array(times, pa.list_(pa.int64()) if parts.is_timed_list else pa.int64()))
            arrays[-1] = arrays[-1].cast(pa.list_(TIME) if parts.is_timed_list else TIME)
        arrays.append(pa.array(np.repeat(np.array(chunk.groups, np.int32), chunk.counts)))
        return arrays

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over key and value of each entry; with a window or map key, the key is a tuple of these."""
        for chunk in self._chunks(Serializer(self._parts.stored)):
            values, _ = self._parts.split(chunk.values)
            yield from zip(chunk.keys, values, strict=True)

    def count(self) -> int:
        if self.description.entries is not None and self.description.entries_are_exact and self._is_whole:
            return self.description.entries
        return sum(len(chunk.keys) for chunk in self._chunks(None))

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key, reading only its key group; `default` if there is none.

        A map is a dict by map key, in which a dataclass is the tuple of its fields. The value of window state is a dict
        by window. For aggregating state it is the accumulator, since the result would need the job's code. A key that
        is a dataclass may be given as an object or as a dict.

        Raises:
            UsageError: the key is not of the key type.
        """
        wanted = self._given_key(key)
        found = (entry for entry in self.within(self._only(wanted)) if self._parts.key_of(entry[0]) == wanted)
        return next((value for _, value in self._parts.by_key(found)), default)

    def of_key(self, key: Any) -> KeyedState:
        """Return the same state restricted to the key group of a key. Raise UsageError as `get`."""
        return self.within(self._only(self._given_key(key)))

    def key_group_of(self, key: Any) -> int:
        """Return the key group of a key. Raise UsageError if it is not of the key type."""
        return self._only(self._given_key(key)).first

    def subtask_of(self, key_group: int) -> int:
        """Return the subtask that owned a key group."""
        return next((subtask for subtask, handle in self._handles if key_group in handle.key_groups), 0)

    def key_of_fields(self, fields: Mapping[str, Any]) -> Any:
        """Build a compound key from all its fields by name."""
        values = {name: fields[name] for name, _ in self.key_type.fields}
        return values if self.key_type.kind is Kind.DATACLASS else tuple(values.values())

    def _given_key(self, key: Any) -> Any:
        """Check a user's key and return it in the one form in which equal keys are read."""
        keys = serializer(self.key_type)
        try:
            return keys.decode_one(keys.encode_keys([plain(self.key_type, key)])[1:])
        except (JobGraphError, AttributeError, KeyError, TypeError, ValueError) as refusal:
            raise self._no_key(key) from refusal

    def _no_key(self, key: Any) -> UsageError:
        return UsageError(
            f"key {ascii(key)[:200]} is not of type {self.description.key_type}, the key type of {self._what}"
        )

    def _only(self, key: Any) -> KeyGroupRange:
        try:
            group = key_group_of(key, self.key_type, self.max_parallelism)
        except JobGraphError as refusal:  # it fits no column, so no record can have it: a Decimal of too many digits
            raise self._no_key(key) from refusal
        return KeyGroupRange(group, group)

    def key_groups(self) -> list[KeyGroupSize]:
        """Return entries and uncompressed bytes of each non-empty key group, ascending."""
        found = []
        for subtask, handle in self._handles:
            sizes = group_sizes(handle, self._storage, self._info.name, self.key_groups_read)
            found += [KeyGroupSize(group, entries, size, subtask) for group, entries, size in sizes]
        return found

    def by_key(self, group: Group) -> list[tuple[Any, Any]]:
        """Return the keys of a key group, each with the value that `get` returns."""
        return self._parts.by_key(group.entries.values())

    def by_holder(self, group: Group) -> list[tuple[Any, Any]]:
        """Return keys with their values like `by_key`, but of window state each pair of key and window separately."""
        found = self.by_key(group)
        if not self.has_window:
            return found
        return [((key, window), value) for key, windows in found for window, value in windows.items()]

    def rows(self) -> Iterator[Row]:
        """Iterate over the entries."""
        for subtask, chunk in self._subtask_chunks(Serializer(self._parts.stored)):
            values, times = self._parts.split(chunk.values)
            groups = chain.from_iterable(map(repeat, chunk.groups, chunk.counts))
            for group, key, value, time in zip_longest(groups, chunk.keys, values, times):
                yield Row(group, subtask, self._parts.key_parts(key), value, time)

    @property
    def part_types(self) -> list[tuple[str, TypeInfo]]:
        """The parts that identify an entry, in order: `key`, and `window` and `map_key` where the state has them."""
        return list(self._parts.keys)

    @property
    def has_window(self) -> bool:
        """Whether entries belong to windows."""
        return self._parts.has_window

    @property
    def value_type(self) -> TypeInfo:
        """The type of an entry's value."""
        return self._parts.value

    @property
    def answer_type(self) -> TypeInfo:
        """The type of the value that `get` returns."""
        return self._nested(self._parts.keys[1:])

    @property
    def window_type(self) -> TypeInfo | None:
        """The type of the windows that entries belong to; None without windows."""
        return self._parts.keys[1][1] if self.has_window else None

    @property
    def held_type(self) -> TypeInfo:
        """The type of the value of a key; of window state that of a key and window."""
        return self._nested(self._parts.keys[2:] if self.has_window else self._parts.keys[1:])

    def _nested(self, parts: Sequence[tuple[str, TypeInfo]]) -> TypeInfo:
        of = self._parts.value
        for _, part in reversed(parts):
            of = map_of(part, of, dict)
        return of

    def groups(self) -> Iterator[Group]:
        """Iterate over the key groups, with one in memory at a time."""
        group: Group | None = None
        values_of = Serializer(self._parts.stored)
        for subtask, chunk in self._subtask_chunks(values_of):
            values, _ = self._parts.split(chunk.values)
            start = 0
            for number, count in zip(chunk.groups, chunk.counts, strict=True):
                if group is None or group.number != number:
                    if group is not None:
                        yield group
                    group = Group(number, subtask, {})
                own = slice(start, start + count)
                pairs = zip(chunk.keys[own], values[own], strict=True)
                group.entries.update(zip(chunk.ids[own], pairs, strict=True))
                start = own.stop
        if group is not None:
            yield group

    @property
    def _is_whole(self) -> bool:
        return len(self.key_groups_read) == self.max_parallelism

    def _chunks(self, values: Serializer | None) -> Iterator[Chunk]:
        return (chunk for _, chunk in self._subtask_chunks(values))

    def _subtask_chunks(self, values: Serializer | None) -> Iterator[tuple[int, Chunk]]:
        reading = Reading(self._info, self._entry_keys, values)
        for subtask, handle in self._handles:
            for chunk in read_chunks(handle, self._storage, reading, self.key_groups_read):
                yield subtask, chunk


def _gathered(chunks: Iterator[Chunk], rows: int) -> Iterator[Chunk]:
    """Combine small chunks, up to about `rows` rows or a few MB."""
    held: list[Chunk] = []
    count = size = 0
    for chunk in chunks:
        held.append(chunk)
        count += len(chunk.keys)
        size += chunk.bytes
        if count >= rows or size >= _BATCH_BYTES:
            yield _joined(held)
            held, count, size = [], 0, 0
    if held:
        yield _joined(held)


def _joined(chunks: Sequence[Chunk]) -> Chunk:
    if len(chunks) == 1:
        return chunks[0]
    lists = [list(chain.from_iterable(part)) for part in list(zip(*chunks, strict=True))[:5]]
    return Chunk(lists[0], lists[1], lists[2], lists[3], lists[4], sum(chunk.bytes for chunk in chunks))
