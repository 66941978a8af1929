"""A RocksDB database with one column family per state, without a write-ahead log: only checkpoints make it durable."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from rocksdict import AccessType, Checkpoint, IngestExternalFileOptions, Rdict, ReadOptions, SstFileWriter, WriteBatch
from rocksdict import WriteOptions as _WriteOptions

from checkdam.backends.rocksdb.memory_budget import SlotMemory
from checkdam.state.key_groups import KeyGroupRange

Change = tuple[bytes, bytes | None]
"""A key of the database with its new value; None deletes it."""

_PREFIX = "state:"  # separates a state called "default" from the column family that every database has
LAST = b"\xff\xff\xff"
"""A bound above every key."""
_LEVELS = 7
_FIRST_CHUNK = 64
CHUNK_BYTES = 512 << 10
"""Roughly how much stored data may be in memory at once on its way from or to the database."""

_SMALL = 2 << 20
_USUAL = 1 << 40


def group_prefix(key_group: int) -> bytes:
    """Return the common prefix of all keys of a key group; after the last possible group, a bound above all keys."""
    return key_group.to_bytes(2, "big") if key_group < 1 << 16 else LAST


def after_prefix(prefix: bytes) -> bytes:
    """Return the first key above every key with this prefix."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else LAST


def _group_of(key: bytes | None) -> int:
    """Return the key group of a key, or of the bound of a deleted range."""
    return int.from_bytes((key or b"")[:2].ljust(2, b"\0"), "big")


def _without_log() -> Any:
    options = _WriteOptions()
    setattr(options, "disable_wal", True)  # noqa: B010  # a property, which the type stub takes for a method
    return options


class ColumnFamily:
    """The column family of one state. Keys sort by key group first."""

    def __init__(self, database: Rdict, name: str) -> None:
        self._database = database
        self._entries = database.get_column_family(name)
        self._handle = database.get_column_family_handle(name)
        self._no_log = _without_log()
        self.get: Any = self._entries.get  # of one key or a list of keys; None where there is no value

    def write(self, changes: Iterable[Change]) -> None:
        batch = WriteBatch(raw_mode=True)
        put, delete, handle = batch.put, batch.delete, self._handle
        for key, value in changes:
            if value is None:
                delete(key, handle)
            else:
                put(key, value, handle)
        self._database.write(batch, self._no_log)

    def scan(self, start: bytes = b"", end: bytes = LAST) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries from `start` up to but excluding `end`, as of the first one read."""
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        found: Any = self._entries.items(from_key=start, read_opt=options)
        yield from found  # not returned: the bound lies in `options`, which must live as long as the iterator

    def keys(self) -> Iterator[bytes]:
        """Return all keys, as of now. The database stays open as long as the iterator lives.

        What it reads is not cached: it would evict the blocks that the job needs.
        """
        options = ReadOptions()
        options.fill_cache(v=False)  # type: ignore[call-arg]  # its stub lacks the argument
        found: Iterator[Any] = iter(self._entries.keys(read_opt=options))
        return found

    def snapshot(self) -> ColumnSnapshot:
        return ColumnSnapshot(self._entries)

    def delete_range(self, start: bytes, end: bytes) -> None:
        self._entries.delete_range(start, end, self._no_log)

    def ingest(self, path: Path) -> None:
        """Take over a file of `write_sorted`; moves it if the file system allows."""
        options = IngestExternalFileOptions()
        options.set_move_files(True)
        self._entries.ingest_external_file([str(path)], options)

    def merge(self, memory: SlotMemory) -> None:
        """Merge all tables into one sorted run, without deleted entries; others may read meanwhile."""
        table_bytes = memory.table_bytes(self.stored_bytes)
        self._entries.set_options({"target_file_size_base": str(table_bytes)})
        self._entries.compact_range(None, None)
        self._entries.set_options({"target_file_size_base": str(memory.table_bytes(_USUAL))})

    @property
    def is_merged(self) -> bool:
        """Whether it is one sorted run in tables of the right size, or too small to matter."""
        in_memory = self._property("num-entries-active-mem-table")
        first, *deeper = (self._property(f"num-files-at-level{level}") for level in range(_LEVELS))
        undivided = first + bool(in_memory) + self._property("num-immutable-mem-table")
        if undivided + sum(map(bool, deeper)) > 1:
            return False
        return not undivided or self.stored_bytes + self._property("cur-size-all-mem-tables") <= _SMALL

    @property
    def stored_bytes(self) -> int:
        """The size of its tables on disk, without data still in memory."""
        return self._property("total-sst-files-size")

    def _property(self, name: str) -> int:
        return int(self._entries.property_value(f"rocksdb.{name}") or 0)

    @property
    def estimated_entries(self) -> int:
        return self._entries.property_int_value("rocksdb.estimate-num-keys") or 0

    def close(self) -> None:
        self._entries.close()
        del self._handle  # the database stays open as long as a handle lives, even after close


class ColumnSnapshot:
    """A column family as of now, readable from any thread. The database stays open while one lives.

    Implemented as an iterator, which sees the data as of its creation. A database snapshot would not do: rocksdict's
    iterators over one see current data, and a lookup in one cannot report a missing key.
    """

    def __init__(self, entries: Rdict) -> None:
        self._rows = entries.iter()
        self._lock = threading.Lock()  # an iterator has one position

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, None where there is none."""
        rows = self._rows
        found: list[bytes | None] = []
        with self._lock:
            for key in keys:
                rows.seek(key)
                found.append(rows.value() if rows.valid() and rows.key() == key else None)
            rows.status()
        return found

    def first(self, start: bytes, end: bytes, count: int) -> list[tuple[bytes, bytes]]:
        """Return at most this many entries from `start` up to but excluding `end`."""
        rows = self._rows
        found: list[tuple[bytes, bytes]] = []
        with self._lock:
            rows.seek(start)
            while len(found) < count and rows.valid() and (key := rows.key()) < end:
                found.append((key, rows.value()))
                rows.next()
            rows.status()
        return found

    def scan(self, start: bytes = b"", end: bytes = LAST) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries from `start` up to but excluding `end`, read on demand."""
        while chunk := self.first(start, end, _FIRST_CHUNK):
            yield from chunk
            start = chunk[-1][0] + b"\0"


class Database:
    """An open database in a directory of its own."""

    def __init__(self, path: Path, memory: SlotMemory, *, is_read_only: bool = False) -> None:
        self._memory = memory
        exists = (path / "CURRENT").exists()
        names = [name for name in Rdict.list_cf(str(path), memory.options()) if name != "default"] if exists else []
        access = AccessType.read_only(error_if_log_file_exist=False) if is_read_only else AccessType.read_write()
        families = {name: memory.options() for name in names}
        self._rocks = Rdict(str(path), memory.options(), families, access)
        self._columns: dict[str, ColumnFamily] = {}
        self._families = set(names)
        self._is_clipped = False

    @property
    def states(self) -> list[str]:
        """The names of the states that have a column family."""
        return sorted(unquote(name.removeprefix(_PREFIX)) for name in self._families)

    def column(self, state: str) -> ColumnFamily:
        """Return the column family of a state; creates it if there is none."""
        name = _PREFIX + quote(state, safe="")
        if name not in self._families:
            self._rocks.create_column_family(name, self._memory.options()).close()
            self._families.add(name)
        if state not in self._columns:
            self._columns[state] = ColumnFamily(self._rocks, name)
        return self._columns[state]

    def entries(self, state: str, key_groups: KeyGroupRange) -> Iterator[tuple[bytes, bytes]]:
        """Return the entries of a state in these key groups; none if there is no such state."""
        if state not in self.states or not len(key_groups):
            return iter(())
        return self.column(state).scan(group_prefix(key_groups.first), group_prefix(key_groups.last + 1))

    def keep_only(self, key_groups: KeyGroupRange) -> None:
        """Drop every key outside these key groups, in time independent of their number."""
        self._is_clipped = True
        for state in self.states:
            column = self.column(state)
            column.delete_range(b"", group_prefix(key_groups.first))
            column.delete_range(group_prefix(key_groups.last + 1), LAST)

    def merge(self) -> None:
        """Merge the tables of every state into one sorted run, without deleted entries.

        Takes time in proportion to the stored data; other threads continue meanwhile.
        """
        for column in map(self.column, self.states):
            if not column.is_merged:
                column.merge(self._memory)
        self._is_clipped = False

    @property
    def is_clipped(self) -> bool:
        """Whether its tables still contain what `keep_only` has dropped."""
        return self._is_clipped

    @property
    def stored_bytes(self) -> int:
        return sum(self.column(state).stored_bytes for state in self.states)

    def tables(self) -> dict[str, tuple[int, int]]:
        """Return the first and the last key group that each table may have keys of."""
        return {
            file["name"].lstrip("/"): (_group_of(file["start_key"]), _group_of(file["end_key"]))
            for file in self._rocks.live_files()
        }

    def checkpoint(self, path: Path) -> None:
        """Flush memory to disk, and link all files of the database as of now into a new directory."""
        Checkpoint(self._rocks).create_checkpoint(str(path))

    def close(self) -> None:
        for column in self._columns.values():
            column.close()
        self._columns.clear()
        self._rocks.close()


def write_sorted(path: Path, memory: SlotMemory, entries: Iterable[tuple[bytes, bytes]]) -> bool:
    """Write entries in ascending order to a file for `ColumnFamily.ingest`; return False if there are none."""
    writer: SstFileWriter | None = None
    for key, value in entries:
        if writer is None:
            writer = SstFileWriter(memory.options())
            writer.open(str(path))
        writer[key] = value
    if writer is not None:
        writer.finish()
    return writer is not None


def chunks(entries: Iterator[tuple[bytes, bytes]], size: int) -> Iterator[Sequence[tuple[bytes, bytes]]]:
    """Yield the entries in lists of at most `size`, and fewer after large ones."""
    count = min(size, _FIRST_CHUNK)
    while chunk := list(islice(entries, count)):
        yield chunk
        taken = sum(map(len, chain.from_iterable(chunk)))
        count = max(1, min(size, CHUNK_BYTES * len(chunk) // (taken + 1)))
