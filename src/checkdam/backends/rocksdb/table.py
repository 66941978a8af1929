"""One state in a column family, cached as Python objects: the common part of cells and maps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from checkdam.backends.contract import Prune, StoreOwner
from checkdam.backends.hashmap.hashmap_snapshot import naming
from checkdam.backends.restoring import StateReading
from checkdam.backends.rocksdb.database import CHUNK_BYTES, Change, ColumnFamily, chunks
from checkdam.backends.rocksdb.entry_counter import EntryCounter
from checkdam.backends.rocksdb.memory_budget import SlotMemory
from checkdam.backends.state_file import StateInfo, packed_array, split_array, state_info
from checkdam.state.key_groups import key_groups, key_hasher
from checkdam.state.spec import StateSpec
from checkdam.state.state_count import StateCount
from checkdam.types.serializers import serializer
from checkdam.types.type_info import COMPOUND, Kind, TypeInfo

UNKNOWN: Any = type("Unknown", (), {"__slots__": ()})()
"""Stands for a value that is not in memory; None stands for a missing value."""

_CHANGES = 0.35  # the share of pending changes in a state's memory; the rest is for cached objects
_CHUNK = 1024
_WRITTEN_SHARE = 16  # of a state's memory, for changes that are written together
_MOST_WRITTEN = 8192  # more no longer fit into the caches of a core
_AHEAD = 128
_SAMPLED = 8
_ASKED_EVERY = 64
_LOADED_UNSEEN = 15  # small entries that may be loaded before room is made
_LARGE = 2048
_FEW_BYTES = 64 << 10
_SLOT = 90  # the size of a dict entry, with the spare room of a growing dict

_SMALL = frozenset({Kind.INT, Kind.FLOAT, Kind.BOOL, Kind.NONE})


class CurrentKey(Protocol):
    """Where states look up the current key."""

    current_key: Any
    current_namespace: Any


def footprint(of: TypeInfo) -> tuple[int, float]:
    """Estimate the memory of a value of a type: a fixed number of bytes, and a factor for each byte of its encoding."""
    if of.form is not None:
        fixed, factor = footprint(of.form)
        return fixed + 64, factor
    if of.kind is Kind.LIST:
        fixed, factor = footprint(of.fields[0][1])
        return 72, max(factor, (8 + fixed) / 4)
    if of.kind is Kind.MAP:
        of_key, of_value = footprint(of.fields[0][1]), footprint(of.fields[1][1])
        return 250, max(of_key[1], of_value[1], (_SLOT + of_key[0] + of_value[0]) / 8)
    if of.kind in COMPOUND:
        parts = [footprint(each) for _, each in of.fields]
        return 64 + sum(fixed + 16 for fixed, _ in parts), max(factor for _, factor in parts)
    return (50, 1.0) if of.kind in (Kind.STR, Kind.BYTES) else (32, 1.0) if of.kind in _SMALL else (56, 2.0)


class StateTable(ABC):
    """A read-through and write-behind cache: objects stay while there is room, changes until they are written.

    `StateSpec.entry_key` describes an entry key; in the database the key group precedes it. Since msgpack is
    self-delimiting, the encoding of a key is never a prefix of another's, and all entries of a key, or of a key and
    namespace, are one range.
    """

    def __init__(
        self,
        current: CurrentKey,
        owner: StoreOwner,
        spec: StateSpec,
        prune: Prune | None,
        column: ColumnFamily,
        memory: SlotMemory,
    ) -> None:
        self.info: StateInfo = state_info(spec)
        self.spec = spec
        self.column = column
        self._current = current
        self._owner = owner
        self.prune = prune
        self._memory = memory
        self._entry_type = spec.entry_key(owner.key_type)
        self._entry_keys = serializer(self._entry_type)
        self._values = serializer(spec.value)
        self._has_namespace = spec.namespace is not None
        self._has_compound_keys = self._has_namespace or spec.map_key is not None
        self._counter = EntryCounter(column, has_compound_keys=self._has_compound_keys)
        self._hash: Callable[[Any], int] = key_hasher(owner.key_type)
        self._groups = [group.to_bytes(2, "big") for group in range(owner.max_parallelism)]
        self._fixed, self._factor = self._footprint()
        self._sampled_bytes, self._samples = self._fixed + 32, 1  # the memory of entries so far, for their mean
        self._check_at = 64  # the number of pending changes at which their size is checked again
        self._ahead: deque[tuple[bytes, Any, Any]] = deque()  # read for sweep: database key, entry key, value
        self._swept_up_to = b""
        self._sweeps_stored = True  # rather than the pending changes
        self._few: list[tuple[bytes, Any, Any]] | None = None  # all stored entries, if few and already read
        self._unseen = 0
        self._allowance = memory.allowance(self, 0)
        self._until_asked = 0

    def close(self) -> None:
        self._memory.remove(self)
        self._counter.close()
        self._forget_ahead()

    @abstractmethod
    def waiting(self) -> int:
        """Return the number of changes that are not written yet."""

    @abstractmethod
    def waiting_value(self, entry: Any) -> Any:
        """Return the changed value of an entry: None if it was removed, UNKNOWN if it did not change."""

    @abstractmethod
    def change(self, entry: Any, value: Any) -> None:
        """Set an entry, whatever the current key; None removes it."""

    @abstractmethod
    def changes(self) -> Iterator[tuple[Any, Any]]:
        """Return the changed entries, newest last."""

    @abstractmethod
    def newest_changes(self, count: int) -> list[tuple[Any, Any]]: ...

    @abstractmethod
    def forget_changes(self) -> None:
        """Clear the changes after they were written."""

    @abstractmethod
    def held(self) -> int:
        """Return the number of entries cached as objects, besides changes."""

    @abstractmethod
    def evict(self, count: int) -> None:
        """Drop the objects of about this many entries, the least recently used first."""

    # ---- the database

    def encode_entry(self, entry: Any) -> bytes:
        key = entry[0] if self._has_compound_keys else entry
        return self._groups[self._hash(key) % self._owner.max_parallelism] + self._entry_keys.encode_key(entry)

    def encode_entries(self, entries: list[Any]) -> list[bytes]:
        return self._with_groups(self._key_groups(entries), entries)

    def _key_groups(self, entries: list[Any]) -> npt.NDArray[np.int64]:
        keys = [entry[0] for entry in entries] if self._has_compound_keys else entries
        return key_groups(keys, self._owner.key_type, self._owner.max_parallelism)

    def _with_groups(self, groups: npt.NDArray[np.int64], entries: list[Any]) -> list[bytes]:
        packed = split_array(self._entry_keys.encode_keys(entries))
        prefixes = self._groups
        return [prefixes[group] + key for group, key in zip(groups.tolist(), packed, strict=True)]

    def decode_entries(self, stored: Sequence[bytes]) -> list[Any]:
        return self._entry_keys.decode(packed_array([key[2:] for key in stored]))

    def write(self) -> None:
        """Write all changes to the database. Keeps them if a value does not fit its type."""
        self._until_asked = 0
        if not self.waiting():
            self._make_room()
            return
        changes = self.changes()
        with naming(self._owner, self.info):
            while chunk := list(islice(changes, self._written_at_once())):
                self.column.write(self._encoded(chunk))
        self.forget_changes()
        self._counter.changed()
        self._check_at = 64
        self._forget_ahead()
        self._make_room()

    def _encoded(self, changes: list[tuple[Any, Any]]) -> list[Change]:
        """Encode changes, in the order of their key groups: RocksDB inserts keys that are close together faster."""
        entries = [entry for entry, _ in changes]
        groups = self._key_groups(entries)
        keys = self._with_groups(groups, entries)
        present = [value for _, value in changes if value is not None]
        packed = iter(split_array(self._values.encode_checked(present)))
        values = [None if value is None else next(packed) for _, value in changes]
        self._sample(len(keys), sum(map(len, keys)) + sum(len(value or b"") for value in values))
        order = np.argsort(groups.astype(np.uint16), kind="stable").tolist()  # a radix sort for 16 bits
        return [(keys[place], values[place]) for place in order]

    def all(self) -> Iterator[tuple[Any, Any]]:
        self.write()
        for chunk in chunks(self.column.scan(), _CHUNK):
            keys, values = zip(*chunk, strict=True)
            yield from zip(self.decode_entries(keys), self._values.decode(packed_array(values)), strict=True)

    def stored_keys(self) -> Iterator[Any]:
        self.write()
        entries = self.column.snapshot().scan()
        latest = UNKNOWN
        for chunk in chunks(entries, _CHUNK):
            for entry in self.decode_entries([stored for stored, _ in chunk]):
                key = entry[0] if self._has_compound_keys else entry
                if latest is UNKNOWN or key != latest:  # all entries of a key are adjacent
                    latest = key
                    yield key

    def advance_count(self) -> None:
        """Count the written entries, a part of them if there are many."""
        self._counter.advance(self._memory.counting_share)

    def count(self) -> StateCount:
        """Return how much was written: the latest count, or RocksDB's estimate before there is one."""
        last = self._counter.last
        if last is None:
            estimate = self.column.estimated_entries
            return StateCount(estimate, None if self._has_compound_keys else estimate, is_exact=False)
        return replace(last, is_exact=self._counter.is_exact)

    # ---- memory

    def _footprint(self) -> tuple[int, float]:
        of_key, of_value = footprint(self._entry_type), footprint(self.spec.value)
        return of_key[0] + of_value[0] + _SLOT, max(of_key[1], of_value[1])

    def _sample(self, entries: int, encoded_bytes: int) -> None:
        self._samples += entries
        self._sampled_bytes += int(entries * self._fixed + self._factor * encoded_bytes)
        if self._samples > 1 << 16:  # so that the mean follows the current entries
            self._samples >>= 1
            self._sampled_bytes >>= 1

    def _at_once(self) -> int:
        """Return how many entries to encode or decode together, limited by their memory."""
        return max(16, min(_CHUNK, CHUNK_BYTES * self._samples // self._sampled_bytes))

    def _written_at_once(self) -> int:
        """Return how many changes to write together, which are objects already: more than may be encoded of others."""
        room = max(CHUNK_BYTES, self._allowance // _WRITTEN_SHARE)
        return max(16, min(_MOST_WRITTEN, room * self._samples // self._sampled_bytes))

    def _loaded(self, key: bytes, value: bytes | None) -> None:
        """Record an entry that was loaded into memory."""
        self._unseen += 1
        size = 0 if value is None else len(value)
        if self._unseen > _LOADED_UNSEEN or size > _LARGE:
            self._unseen = 0
            self._sample(1, len(key) + size)
            self._make_room()

    def _make_room(self) -> None:
        """Keep objects within this state's share, which shrinks as other states need theirs."""
        size = self._sampled_bytes / self._samples
        self._until_asked -= 1
        if self._until_asked < 0:
            self._until_asked = _ASKED_EVERY
            self._allowance = self._memory.allowance(self, int((self.held() + self.waiting()) * size))
        surplus = self.held() - int(self._allowance * (1 - _CHANGES) / size)
        if surplus > 0:
            self.evict(surplus + self.held() // 16)

    def _check_changes(self) -> None:
        """Write pending changes if they exceed their share, estimated from the newest."""
        newest = self.newest_changes(_SAMPLED)
        with naming(self._owner, self.info):
            sizes = [
                len(self._entry_keys.encode_key(entry)) + len(b"" if value is None else self._values.encode_one(value))
                for entry, value in newest
            ]
        self._sample(len(newest), sum(sizes))
        if self.waiting() * self._sampled_bytes > self._samples * self._allowance * _CHANGES:
            self.write()
        else:
            self._check_at = self.waiting() + 256
            self._make_room()

    # ---- expiry and migration

    def sweep(self, count: int) -> None:
        """Inspect the next `count` entries, in endless rotation, and drop what has expired."""
        if self.prune is None:
            return
        rounds = 0
        for _ in range(count):
            while not self._ahead:
                rounds += not self._read_ahead(count)
                if rounds > 1:
                    return  # every entry was inspected
            self._swept_up_to, entry, value = self._ahead.popleft()
            self._drop_expired(entry, value, self.prune)

    def _read_ahead(self, count: int) -> bool:
        """Load the next entries to sweep: those in the database, then unwritten changes; return False after these."""
        if self._sweeps_stored:
            found = self._read_stored(min(max(count, _AHEAD), self._at_once()))
            self._ahead.extend(found)
        if not self._ahead:
            self._sweeps_stored = not self._sweeps_stored
            self._swept_up_to = b""
            if self._sweeps_stored:
                return False
            self._ahead.extend((b"", entry, value) for entry, value in self.changes())
        return True

    def _read_stored(self, wanted: int) -> list[tuple[bytes, Any, Any]]:
        """Return the next entries in the database; if there are few, keeps them in memory for the next rounds."""
        if self._few is not None:
            return [] if self._swept_up_to else self._few
        after = self._swept_up_to + b"\0" if self._swept_up_to else b""
        chunk = list(islice(self.column.scan(after), wanted))
        keys, values = [key for key, _ in chunk], [value for _, value in chunk]
        decoded = self._values.decode(packed_array(values))
        found = list(zip(keys, self.decode_entries(keys), decoded, strict=True))
        if not after and len(found) < wanted and sum(map(len, values)) <= _FEW_BYTES:
            self._few = found
        return found

    def _forget_ahead(self) -> None:
        """Discard entries read ahead because the database has changed. The round continues at its position."""
        self._ahead.clear()
        self._few = None
        self._sweeps_stored = True

    def _drop_expired(self, entry: Any, stored: Any, prune: Prune | None) -> None:
        assert prune is not None
        changed = self.waiting_value(entry)
        value = stored if changed is UNKNOWN else changed
        if value is None:
            return
        fresh = prune(value)
        if fresh is not value:
            self.change(entry, fresh)

    def sweep_all(self, prune: Prune | None = None) -> None:
        """Inspect every entry once, with the state's own prune or another."""
        self.write()
        self._forget_ahead()
        self._swept_up_to = b""
        while self._read_ahead(_CHUNK):
            while self._ahead:
                self._swept_up_to, entry, value = self._ahead.popleft()
                self._drop_expired(entry, value, prune or self.prune)
        self.write()

    def rewrite(self, reading: StateReading) -> None:
        """Convert every stored value to the job's type."""
        for chunk in chunks(self.column.scan(), _CHUNK):
            keys, old = zip(*chunk, strict=True)
            with naming(self._owner, self.info):
                new = split_array(self._values.encode_checked(reading.values(packed_array(old))))
            self.column.write(zip(keys, new, strict=True))
