"""Maps of the RocksDB backend: a mapping per key, or per key and namespace, with each entry stored separately."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from checkdam.backends.rocksdb.database import after_prefix, chunks
from checkdam.backends.rocksdb.table import UNKNOWN, StateTable, footprint
from checkdam.backends.state_file import packed_array
from checkdam.types.serializers import serializer

_KEPT_WHOLE = 256  # a map up to this size is cached as completely known once it was read in full
_CHUNK = 256
_MAP = 3  # the overhead of a map, counted in entries
_PAIR, _TRIPLE = b"\x92", b"\x93"  # the first byte of a msgpack tuple of two or three


class _Entries(dict[Any, Any]):
    """The cached entries of one map; None is the value of a map key known to be missing."""

    is_whole = False  # whether every entry is here; no slot, since that would need a constructor in Python


class RocksDBMaps(StateTable):
    """Maps. The owner of a map is the key; with a namespace, the pair of both."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._hot: dict[Any, _Entries] = {}
        self._cooling: dict[Any, _Entries] = {}
        self._changes: dict[Any, dict[Any, Any]] = {}
        self._waiting = 0
        self._held = 0
        self._keys = serializer(self._owner.key_type)
        self._namespaces = serializer(self.spec.namespace) if self.spec.namespace is not None else None

    def get(self, map_key: Any) -> Any:
        owner = self._current.current_key
        entries = self._hot.get(owner)
        if entries is None:
            entries = self._warm(owner)
        found = entries.get(map_key, UNKNOWN)
        return found if found is not UNKNOWN else self._load(owner, entries, map_key)

    def put(self, map_key: Any, value: Any) -> None:
        self._put(self._current.current_key, map_key, value)

    def remove(self, map_key: Any) -> None:
        self.put(map_key, None)

    def items(self) -> Iterator[tuple[Any, Any]]:
        owner = self._map_owner()
        entries = self._hot.get(owner)
        if entries is None:
            entries = self._warm(owner)
        if entries.is_whole:
            return iter([(map_key, value) for map_key, value in entries.items() if value is not None])
        stored = self._stored(owner)
        first = list(islice(stored, _KEPT_WHOLE + 1))
        if len(first) > _KEPT_WHOLE:
            return self._merged(first, stored, dict(self._changes.get(owner, ())))
        for map_key, value in first:
            if map_key not in entries:
                entries[map_key] = value
                self._held += 1
        entries.is_whole = True
        self._make_room()
        return iter([(map_key, value) for map_key, value in entries.items() if value is not None])

    def is_empty(self) -> bool:
        owner = self._map_owner()
        entries = self._hot.get(owner)
        if entries is None:
            entries = self._warm(owner)
        if any(value is not None for value in entries.values()):
            return False
        if entries.is_whole:
            return True
        changes = self._changes.get(owner, {})
        return all(map_key in changes for map_key, _ in self._stored(owner))

    def clear(self) -> None:
        owner = self._map_owner()
        for map_key in [map_key for map_key, _ in self.items()]:
            self._put(owner, map_key, None)

    def _map_owner(self) -> Any:
        return self._current.current_key

    def _entry(self, owner: Any, map_key: Any) -> Any:
        return (*owner, map_key) if self._has_namespace else (owner, map_key)

    def _put(self, owner: Any, map_key: Any, value: Any) -> None:
        entries = self._hot.get(owner)
        if entries is None:
            entries = self._warm(owner)
        changes = self._changes.get(owner)
        if changes is None:
            changes = self._changes[owner] = {}
        before, held = len(changes), len(entries)
        changes[map_key] = value
        entries[map_key] = value
        self._held += len(entries) - held
        self._waiting += len(changes) - before
        if self._waiting >= self._check_at:
            self._check_changes()

    def _warm(self, owner: Any) -> _Entries:
        """Start caching a map, beginning with its pending changes."""
        entries = self._cooling.pop(owner, None) if self._cooling else None
        if entries is None:
            entries = _Entries(self._changes.get(owner, ()))
            self._held += len(entries) + _MAP
        self._hot[owner] = entries
        return entries

    def _load(self, owner: Any, entries: _Entries, map_key: Any) -> Any:
        if entries.is_whole:
            return None
        key = self.encode_entry((*owner, map_key) if self._has_namespace else (owner, map_key))
        stored = self.column.get(key)
        value = entries[map_key] = None if stored is None else self._values.decode_one(stored)
        self._held += 1
        self._loaded(key, stored)
        return value

    def _stored(self, owner: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the entries of one map in the database, without pending changes."""
        key, *namespace = owner if self._has_namespace else (owner,)
        prefix = self._groups[self._hash(key) % self._owner.max_parallelism]
        prefix += (_TRIPLE if self._has_namespace else _PAIR) + self._keys.encode_key(key)
        if self._namespaces is not None:
            prefix += self._namespaces.encode_key(namespace[0])
        for chunk in chunks(self.column.scan(prefix, after_prefix(prefix)), _CHUNK):
            keys, values = zip(*chunk, strict=True)
            map_keys = [entry[-1] for entry in self.decode_entries(keys)]
            yield from zip(map_keys, self._values.decode(packed_array(values)), strict=True)

    def _merged(
        self, first: list[tuple[Any, Any]], stored: Iterator[tuple[Any, Any]], changes: dict[Any, Any]
    ) -> Iterator[tuple[Any, Any]]:
        for entries in (first, stored):
            for map_key, value in entries:
                current = changes.pop(map_key, UNKNOWN)
                if current is UNKNOWN:
                    yield map_key, value
                elif current is not None:
                    yield map_key, current
        yield from ((map_key, value) for map_key, value in changes.items() if value is not None)

    def _footprint(self) -> tuple[int, float]:
        assert self.spec.map_key is not None
        of_key, of_value = footprint(self.spec.map_key), footprint(self.spec.value)
        return of_key[0] + of_value[0] + 50, max(of_key[1], of_value[1])

    def waiting(self) -> int:
        return self._waiting

    def waiting_value(self, entry: Any) -> Any:
        owner, map_key = self._parts(entry)
        return self._changes.get(owner, {}).get(map_key, UNKNOWN)

    def change(self, entry: Any, value: Any) -> None:
        self._put(*self._parts(entry), value)

    def _parts(self, entry: Any) -> tuple[Any, Any]:
        return (entry[:2], entry[2]) if self._has_namespace else entry

    def changes(self) -> Iterator[tuple[Any, Any]]:
        for owner, changes in self._changes.items():
            for map_key, value in changes.items():
                yield self._entry(owner, map_key), value

    def newest_changes(self, count: int) -> list[tuple[Any, Any]]:
        newest = [
            (self._entry(owner, map_key), value)
            for owner, changes in islice(reversed(self._changes.items()), count)
            for map_key, value in islice(reversed(changes.items()), count)
        ]
        return newest[:count]

    def forget_changes(self) -> None:
        self._changes = {}
        self._waiting = 0

    def held(self) -> int:
        return self._held

    def evict(self, count: int) -> None:
        if not self._cooling:
            self._cooling, self._hot = self._hot, {}
        evicted, wanted = [], self._held - count
        for owner, entries in self._cooling.items():
            if self._held <= wanted:
                break
            evicted.append(owner)
            self._held -= len(entries) + _MAP
        for owner in evicted:
            del self._cooling[owner]

    def close(self) -> None:
        super().close()
        self._hot, self._cooling, self._changes = {}, {}, {}


class RocksDBNamespacedMaps(RocksDBMaps):
    """Maps whose owner is a pair of key and namespace."""

    def get(self, map_key: Any) -> Any:
        owner = self._map_owner()
        entries = self._hot.get(owner)
        if entries is None:
            entries = self._warm(owner)
        found = entries.get(map_key, UNKNOWN)
        return found if found is not UNKNOWN else self._load(owner, entries, map_key)

    def put(self, map_key: Any, value: Any) -> None:
        self._put(self._map_owner(), map_key, value)

    def _map_owner(self) -> Any:
        return self._current.current_key, self._current.current_namespace
