"""Counts of RocksDB states: exact as of their begin, in a share of the time, and never a saw-tooth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from checkdam.backends.rocksdb.database import ColumnFamily, Database
from checkdam.backends.rocksdb.entry_counter import SMALL, EntryCounter
from checkdam.backends.rocksdb.memory_budget import slot_memory
from checkdam.backends.state_backends import SMALLEST_ROCKSDB_MEMORY
from checkdam.state.state_count import StateCount
from checkdam.types.serializers import serializer
from checkdam.types.type_info import type_info

MANY = 20 * SMALL
PAIRS = serializer(type_info(tuple[str, int]))


class Ticking:
    """A clock on which every look takes a millisecond."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


@pytest.fixture
def column(tmp_path: Path) -> Iterator[ColumnFamily]:
    database = Database(tmp_path / "db", slot_memory(SMALLEST_ROCKSDB_MEMORY))
    yield database.column("state")
    database.close()


def write(column: ColumnFamily, numbers: range, value: bytes | None = b"\x01") -> None:
    column.write((number.to_bytes(6, "big"), value) for number in numbers)


def counted(counter: EntryCounter) -> StateCount:
    for _ in range(1000):
        counter.advance(1.0)
        if counter.is_exact:
            break
    assert counter.last is not None
    return counter.last


def test_entries_are_counted_once_however_often_they_were_written_or_removed(column: ColumnFamily) -> None:
    counter = EntryCounter(column, has_compound_keys=False, monotonic=Ticking())
    for _ in range(5):
        write(column, range(MANY))
    write(column, range(MANY // 2), None)
    write(column, range(MANY, 2 * MANY), None)  # of entries that never were
    counter.changed()

    assert counted(counter) == StateCount(MANY // 2, MANY // 2)
    assert column.estimated_entries != MANY // 2  # as RocksDB has it


def test_the_keys_of_maps_are_fewer_than_their_entries(column: ColumnFamily) -> None:
    counter = EntryCounter(column, has_compound_keys=True, monotonic=Ticking())
    pairs = [(key, number) for key in ("a", "ab", "b", "") for number in range(SMALL)]
    column.write((b"\0\0" + PAIRS.encode_key(pair), b"\x01") for pair in pairs)

    assert counted(counter) == StateCount(4 * SMALL, 4)


def test_a_count_takes_no_more_than_its_share_of_the_time(column: ColumnFamily) -> None:
    write(column, range(MANY))
    clock = Ticking()
    counter = EntryCounter(column, has_compound_keys=False, monotonic=clock)
    counter.advance(0.0)  # spends what it has for the beginning
    spent, passed = 0.0, 0.0

    for _ in range(200):
        before = clock.now
        counter.changed()
        counter.advance(0.01)
        spent += clock.now - before
        clock.now += 0.1  # the next epoch
        passed += 0.1

    looks = 200 * 0.002
    assert counter.last is not None
    assert spent - looks <= 0.011 * passed + 0.01


def test_a_count_is_of_its_begin_and_no_longer_exact_once_something_has_changed(column: ColumnFamily) -> None:
    write(column, range(MANY))
    counter = EntryCounter(column, has_compound_keys=False, monotonic=Ticking())
    found = []

    counter.advance(0.0)
    found.append(counter.last)
    write(column, range(MANY, 2 * MANY))
    counter.changed()
    while counter.last is None:
        counter.advance(1.0)
    found.append(counter.last)

    assert found == [None, StateCount(MANY, MANY)]
    assert not counter.is_exact
    assert counted(counter) == StateCount(2 * MANY, 2 * MANY)


def test_a_small_state_is_counted_whole_at_every_end_of_an_epoch(column: ColumnFamily) -> None:
    counter = EntryCounter(column, has_compound_keys=False, monotonic=Ticking())

    for number in range(1, 30):
        write(column, range(number))
        counter.changed()
        counter.advance(0.0)
        assert counter.is_exact
        assert counter.last == StateCount(number, number)


def test_a_count_leaves_the_block_cache_to_what_the_job_reads(column: ColumnFamily) -> None:
    write(column, range(MANY))
    column.merge(slot_memory(SMALLEST_ROCKSDB_MEMORY))  # into a table on disk
    column.get((0).to_bytes(6, "big"))  # its index is cached from now on
    cached = _cached_bytes(column)

    assert counted(EntryCounter(column, has_compound_keys=False, monotonic=Ticking())) == StateCount(MANY, MANY)

    assert _cached_bytes(column) <= cached
    list(column.scan())
    assert _cached_bytes(column) > cached


def _cached_bytes(column: ColumnFamily) -> int:
    return column._property("block-cache-usage")
