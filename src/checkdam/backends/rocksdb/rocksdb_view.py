"""The published view of a RocksDB store: its database as of the end of an epoch.

Changes are written early if too many are pending, so the database itself may contain half an epoch; a snapshot does
not. Taking one is cheap, and reading it needs no lock of the processing thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from checkdam.backends.contract import Prune, StoreOwner
from checkdam.backends.published_view import MOST_ENTRIES, StateCodec, packed_pairs, unknown_state
from checkdam.backends.rocksdb.database import LAST, ColumnSnapshot, after_prefix
from checkdam.backends.rocksdb.table import StateTable
from checkdam.backends.state_file import split_array
from checkdam.ids import Epoch
from checkdam.state.key_groups import key_hasher
from checkdam.state.spec import StateSpec
from checkdam.state.state_count import StateCount
from checkdam.types.serializers import serializer
from checkdam.types.text_filter import MOST_SCANNED

_MOST_READ = 64 << 20  # bytes of values that one page of a filter reads
_PAIR, _TRIPLE = b"\x92", b"\x93"  # the first byte of a msgpack tuple of two or three


class PublishedTable:
    """One state in a snapshot of its column family."""

    def __init__(
        self, owner: StoreOwner, codec: StateCodec, snapshot: ColumnSnapshot, prune: Prune | None, count: StateCount
    ) -> None:
        self.count = count
        self._owner = owner
        self._codec = codec
        self._snapshot = snapshot
        self._prune = prune
        self._hash = key_hasher(owner.key_type)
        self._keys = serializer(owner.key_type)
        self._has_namespace = codec.spec.namespace is not None

    def get(self, keys: Sequence[bytes], map_key: bytes | None) -> list[bytes | None]:
        stored = list(map(self._stored_key, keys))
        if self._codec.map_keys is None:
            return [None if each is None else self._visible(each) for each in self._snapshot.get(stored)]
        if map_key is None:
            return [self._map(prefix) for prefix in stored]
        found = self._snapshot.get([prefix + map_key for prefix in stored])
        fresh = [None if each is None else self._visible(each) for each in found]
        return [None if each is None else packed_pairs([(map_key, each)]) for each in fresh]

    def windows(self, key: bytes, map_key: bytes | None) -> list[tuple[bytes, bytes]]:
        """Return the namespaces of a key with their content."""
        group = self._hash(self._keys.decode_one(key)) % self._owner.max_parallelism
        is_map = self._codec.map_keys is not None
        start = group.to_bytes(2, "big") + (_TRIPLE if is_map else _PAIR) + key
        found = ((stored, self._visible(value)) for stored, value in self._snapshot.scan(start, after_prefix(start)))
        shown = [(stored, value) for stored, value in found if value is not None]
        if not is_map:
            return [(stored[len(start) :], value) for stored, value in shown]
        maps: dict[bytes, list[tuple[bytes, bytes]]] = {}
        for stored, value in shown:
            prefix = self._prefix_of(stored)
            if map_key in (None, stored[len(prefix) :]):
                maps.setdefault(prefix[len(start) :], []).append((stored[len(prefix) :], value))
        return [(namespace, packed_pairs(pairs)) for namespace, pairs in maps.items()]

    def page(self, after: bytes, limit: int) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        return self._page_of_cells(after, limit) if self._codec.map_keys is None else self._page_of_maps(after, limit)

    def find(self, after: bytes, limit: int, text: str) -> tuple[list[tuple[bytes, bytes]], bytes | None, int]:
        """Return a page of the keys that match, the next position, and how many keys were looked at."""
        matches = self._codec.filter_of(text)
        found: list[tuple[bytes, bytes]] = []
        scanned = size = read = 0
        place = after
        for place, holder, stored in self._holders(after):
            scanned += 1
            read += len(stored or b"")
            if matches(self._codec.holder(holder)):
                pairs = None if stored is not None else list(self._pairs(place))
                content = self._visible(stored) if stored is not None else packed_pairs(pairs) if pairs else None
                size += len(pairs) if pairs else 1
                if content is not None:
                    found.append((holder, content))
            if len(found) == limit or scanned == MOST_SCANNED or size >= MOST_ENTRIES or read > _MOST_READ:
                break
        return found, place if place and self._snapshot.first(self._behind(place), LAST, 1) else None, scanned

    def _holders(self, after: bytes) -> Iterator[tuple[bytes, bytes, bytes | None]]:
        """Yield position and encoded key of each holder; of a state without map keys also the stored value."""
        if self._codec.map_keys is None:
            for key, stored in self._snapshot.scan(self._behind(after)):
                yield key, key[2:], stored
            return
        while first := self._snapshot.first(self._behind(after), LAST, 1):
            after = self._prefix_of(first[0][0])
            yield after, self._holder_of(after), None

    def _behind(self, place: bytes) -> bytes:
        """Return where to read on after a holder."""
        if not place:
            return b""
        return place + b"\0" if self._codec.map_keys is None else after_prefix(place)

    def _page_of_cells(self, after: bytes, limit: int) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        found = self._snapshot.first(after + b"\0" if after else b"", LAST, limit + 1)
        shown = [(key[2:], value) for key, stored in found[:limit] if (value := self._visible(stored)) is not None]
        return shown, found[limit - 1][0] if len(found) > limit else None

    def _page_of_maps(self, after: bytes, limit: int) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        shown: list[tuple[bytes, bytes]] = []
        size = holders = 0
        prefix = after
        while holders < limit and size < MOST_ENTRIES:
            first = self._snapshot.first(after_prefix(prefix) if prefix else b"", LAST, 1)
            if not first:
                return shown, None
            prefix = self._prefix_of(first[0][0])
            pairs = list(self._pairs(prefix))
            holders, size = holders + 1, size + len(pairs)
            if pairs:
                shown.append((self._holder_of(prefix), packed_pairs(pairs)))
        has_more = self._snapshot.first(after_prefix(prefix), LAST, 1)
        return shown, prefix if has_more else None

    def _stored_key(self, key: bytes) -> bytes:
        """Return the database key, or the common prefix of all entries of a map."""
        holder = self._codec.holder(key)
        group = self._hash(holder[0] if self._has_namespace else holder) % self._owner.max_parallelism
        prefix = group.to_bytes(2, "big")
        if self._codec.map_keys is None:
            return prefix + key
        return prefix + (_TRIPLE + key[1:] if self._has_namespace else _PAIR + key)

    def _prefix_of(self, stored: bytes) -> bytes:
        """Return the common prefix of all entries of the same map."""
        map_key = split_array(stored[2:])[-1]
        return stored[: -len(map_key)]

    def _holder_of(self, prefix: bytes) -> bytes:
        return _PAIR + prefix[3:] if self._has_namespace else prefix[3:]

    def _map(self, prefix: bytes) -> bytes | None:
        pairs = list(self._pairs(prefix))
        return packed_pairs(pairs) if pairs else None

    def _pairs(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key, stored in self._snapshot.scan(prefix, after_prefix(prefix)):
            value = self._visible(stored)
            if value is not None:
                yield key[len(prefix) :], value

    def _visible(self, stored: bytes) -> bytes | None:
        return self._codec.visible(stored, self._prune)


class RocksDBPublished:
    """The states of a store at the end of one epoch. Every epoch has a new one, so that readers block nothing."""

    def __init__(
        self, owner: StoreOwner, epoch: Epoch, tables: Sequence[StateTable], before: RocksDBPublished | None
    ) -> None:
        self._owner = owner
        self._epoch = epoch
        known: dict[str, StateCodec] = {} if before is None else before._codecs
        self._codecs: dict[str, StateCodec] = {
            table.spec.name: known.get(table.spec.name) or StateCodec(table.spec, owner.key_type, table.prune)
            for table in tables
        }
        self._tables = {
            table.spec.name: PublishedTable(
                owner,
                codec := self._codecs[table.spec.name],
                table.column.snapshot(),
                codec.prune_of_epoch(),
                table.count(),
            )
            for table in tables
        }

    @property
    def specs(self) -> Sequence[StateSpec]:
        return [codec.spec for codec in self._codecs.values()]

    def has(self, name: str) -> bool:
        return name in self._tables

    def get(self, name: str, keys: Sequence[bytes], map_key: bytes | None = None) -> tuple[Epoch, list[bytes | None]]:
        return self._epoch, self._table(name).get(keys, map_key)

    def windows(
        self, name: str, keys: Sequence[bytes], map_key: bytes | None = None
    ) -> tuple[Epoch, list[list[tuple[bytes, bytes]]]]:
        table = self._table(name)
        return self._epoch, [table.windows(key, map_key) for key in keys]

    def page(self, name: str, after: bytes, limit: int) -> tuple[Epoch, list[tuple[bytes, bytes]], bytes | None]:
        return self._epoch, *self._table(name).page(after, limit)

    def find(
        self, name: str, after: bytes, limit: int, text: str
    ) -> tuple[Epoch, list[tuple[bytes, bytes]], bytes | None, int]:
        return self._epoch, *self._table(name).find(after, limit, text)

    def count(self, name: str) -> StateCount:
        return self._table(name).count

    def _table(self, name: str) -> PublishedTable:
        if name not in self._tables:
            raise unknown_state(self._owner.uid, name, self._tables)
        return self._tables[name]
