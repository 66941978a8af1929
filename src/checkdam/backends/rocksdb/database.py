"""A RocksDB database with one column family a state, written without a log: checkpoints alone make it durable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from rocksdict import AccessType, Checkpoint, IngestExternalFileOptions, Rdict, ReadOptions, SstFileWriter, WriteBatch
from rocksdict import WriteOptions as _WriteOptions

from checkdam.backends.rocksdb.memory import SlotMemory
from checkdam.state.key_groups import KeyGroupRange

Change = tuple[bytes, bytes | None]
"""A key of the database with its new value, None to delete it."""

_PREFIX = "state:"  # keeps a state called "default" apart from the column family that every database has
_AFTER_ALL_GROUPS = b"\xff\xff\xff"


def group_prefix(key_group: int) -> bytes:
    """What every key of a key group begins with; after the last possible one, what all keys are below."""
    return key_group.to_bytes(2, "big") if key_group < 1 << 16 else _AFTER_ALL_GROUPS


def after_prefix(prefix: bytes) -> bytes:
    """The first key that is above every key with this prefix."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else _AFTER_ALL_GROUPS


def _without_log() -> Any:
    options = _WriteOptions()
    setattr(options, "disable_wal", True)  # noqa: B010  # a property, which the type stub takes for a method
    return options


class Column:
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

    def scan(self, start: bytes = b"", end: bytes = _AFTER_ALL_GROUPS) -> Iterator[tuple[bytes, bytes]]:
        """The entries from `start` up to but without `end`, as they are when the first is asked for."""
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        found: Any = self._entries.items(from_key=start, read_opt=options)
        yield from found  # not returned: the bound lies in `options`, which must live as long as the iterator

    def delete_range(self, start: bytes, end: bytes) -> None:
        self._entries.delete_range(start, end, self._no_log)

    def ingest(self, path: Path) -> None:
        """Take over a file of `write_sorted`; it is moved if the file system allows."""
        options = IngestExternalFileOptions()
        options.set_move_files(True)
        self._entries.ingest_external_file([str(path)], options)

    @property
    def estimated_entries(self) -> int:
        return self._entries.property_int_value("rocksdb.estimate-num-keys") or 0

    def close(self) -> None:
        self._entries.close()


class Database:
    """An open database in a directory of its own."""

    def __init__(self, path: Path, memory: SlotMemory, *, is_read_only: bool = False) -> None:
        self._memory = memory
        exists = (path / "CURRENT").exists()
        names = [name for name in Rdict.list_cf(str(path), memory.options()) if name != "default"] if exists else []
        access = AccessType.read_only(error_if_log_file_exist=False) if is_read_only else AccessType.read_write()
        families = {name: memory.options() for name in names}
        self._rocks = Rdict(str(path), memory.options(), families, access)
        self._columns: dict[str, Column] = {}
        self._families = set(names)

    @property
    def states(self) -> list[str]:
        """The names of the states that have a column family."""
        return sorted(unquote(name.removeprefix(_PREFIX)) for name in self._families)

    def column(self, state: str) -> Column:
        """The column family of a state, made if there is none."""
        name = _PREFIX + quote(state, safe="")
        if name not in self._families:
            self._rocks.create_column_family(name, self._memory.options()).close()
            self._families.add(name)
        if state not in self._columns:
            self._columns[state] = Column(self._rocks, name)
        return self._columns[state]

    def keep_only(self, key_groups: KeyGroupRange) -> None:
        """Forget every key outside these key groups, in time that does not depend on how many there are."""
        for state in self.states:
            column = self.column(state)
            column.delete_range(b"", group_prefix(key_groups.first))
            column.delete_range(group_prefix(key_groups.last + 1), _AFTER_ALL_GROUPS)

    def checkpoint(self, path: Path) -> None:
        """Flush what is in memory, and link all files of the database as of now into a new directory."""
        Checkpoint(self._rocks).create_checkpoint(str(path))

    def close(self) -> None:
        for column in self._columns.values():
            column.close()
        self._columns.clear()
        self._rocks.close()


def write_sorted(path: Path, memory: SlotMemory, entries: Iterable[tuple[bytes, bytes]]) -> bool:
    """Make a file for `Column.ingest` of entries in ascending order; False and no file if there are none."""
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
    """The entries, at most `size` at a time."""
    while chunk := list(islice(entries, size)):
        yield chunk
