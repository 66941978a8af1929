from __future__ import annotations

import dataclasses
import random
import statistics
import sys
import time
from datetime import timedelta

import msgspec
import pytest

from checkdam.backends import HashMapStateBackend, StoreOwner
from checkdam.backends.hashmap.hashmap_states import REMOVED, DictMap, HashMapCells
from checkdam.backends.hashmap.hashmap_store import HashMapStore
from checkdam.backends.keyed_state import OperatorKeyedState
from checkdam.backends.state_file import read_state_file
from checkdam.errors import CheckpointDamagedError, StateAccessError
from checkdam.ids import Attempt, CheckpointId, Epoch, OperatorUid, SubtaskIndex
from checkdam.runtime.slot.context import OperatorTime
from checkdam.state.descriptors import MapStateDescriptor
from checkdam.state.key_groups import KeyGroupRange, key_group_range
from checkdam.state.spec import StateKind, StateSpec
from checkdam.state.ttl import (
    CleanupFullSnapshot,
    CleanupIncrementally,
    CleanupOnCompaction,
    StateTtlConfig,
    TtlTime,
)
from checkdam.state.ttl_states import Expiry, fresh_element
from checkdam.testing import MemoryStorage
from checkdam.types.type_info import type_info

COUNT = StateSpec("count", StateKind.VALUE, type_info(int))


MAPS = StateSpec("maps", StateKind.MAP, type_info(int), type_info(int))
OWNER = StoreOwner(OperatorUid("op"), SubtaskIndex(0), Attempt("a1"), KeyGroupRange(0, 127), 128, type_info(str))


def open_store(storage: MemoryStorage, handles: tuple[object, ...] = ()) -> HashMapStore:
    return HashMapStateBackend().open(OWNER, handles, storage, claim=True)  # type: ignore[arg-type]


def _snapshot_seconds(held: int) -> float:
    storage = MemoryStorage()
    store = open_store(storage)
    table = store.table(COUNT)
    keys = [f"key-{i}" for i in range(held)]
    table.put_all(dict.fromkeys(keys, 1))
    store.snapshot(CheckpointId(1)).write(storage, "shared")
    store.completed(CheckpointId(1))
    seconds = []
    for number in range(2, 7):
        for store.current_key in random.Random(number).sample(keys, 5000):
            table.update(number)
        start = time.thread_time()
        snapshot = store.snapshot(CheckpointId(number))
        seconds.append(time.thread_time() - start)
        snapshot.write(storage, "shared")
        store.completed(CheckpointId(number))
    return statistics.median(seconds)


def test_a_snapshot_takes_as_long_as_what_changed_not_as_what_is_held() -> None:
    assert _snapshot_seconds(200_000) < 0.02


def test_nothing_but_the_entries_stays_in_memory_after_a_completed_checkpoint() -> None:
    storage = MemoryStorage()
    store = open_store(storage)
    table = store.table(COUNT)
    table.put_all({f"key-{i}": i for i in range(1000)})
    store.snapshot(CheckpointId(1)).write(storage, "shared")

    store.completed(CheckpointId(1))

    assert table.changes == {}
    assert store._pending == {}
    assert sys.getsizeof(table.entries) <= 1.5 * sys.getsizeof(dict(table.entries))


def test_a_delta_costs_little_more_than_its_serialized_entries() -> None:
    storage = MemoryStorage()
    store = open_store(storage)
    table = store.table(COUNT)
    words = [f"{random.Random(i).getrandbits(48):012x}" for i in range(20_000)]
    table.put_all(dict.fromkeys(words, 1))
    store.snapshot(CheckpointId(1)).write(storage, "shared")
    store.completed(CheckpointId(1))
    table.put_all(dict.fromkeys(words[:2000], 100000))

    snapshot = store.snapshot(CheckpointId(2))
    snapshot.write(storage, "shared")

    assert sum(file.size for file in snapshot.new_files) <= 1.5 * 2000 * (13 + 5)


def test_blocks_are_about_64_kb_and_end_with_a_key_group() -> None:
    storage = MemoryStorage()
    store = open_store(storage)
    store.table(COUNT).put_all({f"key-{i}": i for i in range(100_000)})

    (file,) = store.snapshot(CheckpointId(1)).write(storage, "shared").files

    blocks = read_state_file(storage, file.path, file.size).info.blocks
    groups = [group for block in blocks for group in block.groups]
    assert groups == list(range(128))
    assert all(64_000 <= block.raw_length <= 96_000 for block in blocks[:-1])


def test_a_damaged_file_is_noticed_when_the_store_is_opened() -> None:
    storage = MemoryStorage()
    store = open_store(storage)
    store.table(COUNT).put_all({f"key-{i}": i for i in range(1000)})
    handle = store.snapshot(CheckpointId(1)).write(storage, "shared")
    data = bytearray(storage.read(handle.files[0].path))
    data[100] ^= 1
    storage.write(handle.files[0].path, bytes(data))

    with pytest.raises(CheckpointDamagedError, match=handle.files[0].path):
        open_store(storage, (handle,))


def test_completing_what_was_never_written_is_refused() -> None:
    store = open_store(MemoryStorage())
    store.snapshot(CheckpointId(1))

    with pytest.raises(RuntimeError, match="not written"):
        store.completed(CheckpointId(1))


def test_a_checkpoint_without_changes_writes_nothing() -> None:
    storage = MemoryStorage()
    store = open_store(storage)
    store.table(COUNT).put_all(dict.fromkeys(map(str, range(100)), 1))
    first = store.snapshot(CheckpointId(1)).write(storage, "shared")
    store.completed(CheckpointId(1))

    snapshot = store.snapshot(CheckpointId(2))

    assert snapshot.write(storage, "shared") == first
    assert snapshot.new_files == ()


def test_when_half_changed_a_snapshot_stands_alone() -> None:
    storage = MemoryStorage()
    store = open_store(storage)
    table = store.table(COUNT)
    table.put_all(dict.fromkeys(map(str, range(100)), 1))
    store.snapshot(CheckpointId(1)).write(storage, "shared")
    store.completed(CheckpointId(1))
    table.put_all(dict.fromkeys(map(str, range(50)), 2))

    snapshot = store.snapshot(CheckpointId(2))

    assert snapshot.write(storage, "shared").files == snapshot.new_files


def test_after_many_checkpoints_there_are_still_few_files() -> None:
    storage = MemoryStorage()
    store = open_store(storage)
    table = store.table(COUNT)
    table.put_all(dict.fromkeys(map(str, range(1000)), 1))

    for number in range(1, 60):
        handle = store.snapshot(CheckpointId(number)).write(storage, "shared")
        store.completed(CheckpointId(number))
        table.put_all({"1": number})

    assert len(handle.files) <= 10


def test_after_a_change_of_type_a_snapshot_stands_alone() -> None:
    storage = MemoryStorage()
    store = open_store(storage)
    store.table(COUNT).put_all(dict.fromkeys(map(str, range(100)), 1))
    first = store.snapshot(CheckpointId(1)).write(storage, "shared")

    migrated = open_store(storage, (first,))
    migrated.cells(StateSpec("count", StateKind.VALUE, type_info(int | None)))
    handle = migrated.snapshot(CheckpointId(2)).write(storage, "shared")

    assert not set(handle.files) & set(first.files)


class Counting(MemoryStorage):
    """Notes what is read, by path and stretch."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = 0

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        data = super().read_range(path, offset, length)
        self.bytes_read += len(data)
        return data


@pytest.mark.parametrize("of_maps", [False, True])
def test_a_subtask_reads_only_the_blocks_of_its_key_groups(of_maps: bool) -> None:
    storage = Counting()
    store = open_store(storage)
    numbers = random.Random(1)
    if of_maps:
        maps = store.maps(MAPS)
        for store.current_key in (f"key-{i}" for i in range(50_000)):
            maps.put(numbers.getrandbits(60), numbers.getrandbits(60))
            maps.put(numbers.getrandbits(60), numbers.getrandbits(60))
    else:
        store.table(COUNT).put_all({f"key-{i}": numbers.getrandbits(60) for i in range(100_000)})
    handle = store.snapshot(CheckpointId(1)).write(storage, "shared")
    tail = 64 * 1024  # holds the index
    total = sum(file.size for file in handle.files)

    read = []
    for subtask in range(8):
        storage.bytes_read = 0
        eighth = dataclasses.replace(
            OWNER, subtask=SubtaskIndex(subtask), key_groups=key_group_range(subtask, 8, OWNER.max_parallelism)
        )
        HashMapStateBackend().open(eighth, [handle], storage, claim=False)
        read.append(storage.bytes_read)

    assert max(read) <= total / 8 + 3 * tail


def test_the_last_removed_entry_leaves_no_empty_dict_behind() -> None:
    store = open_store(MemoryStorage())
    maps = store.maps(MAPS)
    store.current_key = "a"
    maps.put(1, 1)
    maps.put(2, 2)
    maps.remove(1)
    maps.remove(2)
    store.current_key = "b"
    with pytest.raises(TypeError):
        maps.put([], 1)

    assert maps.entries == {}
    assert maps.count == 0


def test_one_entry_of_a_map_that_changed_is_one_change() -> None:
    storage = MemoryStorage()
    store = open_store(storage)
    maps = store.maps(MAPS)
    store.current_key = "a"
    for i in range(100):
        maps.put(i, i)
    store.snapshot(CheckpointId(1)).write(storage, "shared")
    store.completed(CheckpointId(1))

    maps.put(7, 8)

    assert maps.take_changes() == {("a", 7): 8}


def test_the_handle_of_a_map_counts_and_records_what_it_writes() -> None:
    store = open_store(MemoryStorage())
    states = OperatorKeyedState(store, OperatorTime(), OperatorUid("op"))
    visits = states.get_map_state(MapStateDescriptor("maps", int, int))
    assert isinstance(visits, DictMap)
    kept = store._states["maps"].state
    assert kept.take_changes() is None  # the first snapshot has all entries; from now on changes are recorded
    store.current_key = "a"
    visits[1] = 5
    visits[2] = 6
    visits[2] = visits.get(2, 0) + 1
    store.current_key = "b"
    visits[1] = 8
    with pytest.raises(StateAccessError, match="64 bits"):
        visits[2] = 2**63
    with pytest.raises(StateAccessError, match="64 bits"):
        visits[-(2**63) - 1] = 1
    with pytest.raises(StateAccessError, match="type int"):
        visits[2] = True
    store.current_key = "a"
    del visits[1]

    assert store.count().entries == 2
    assert kept.take_changes() == {("a", 1): REMOVED, ("a", 2): 7, ("b", 1): 8}
    assert kept.take_changes() == {}


@pytest.mark.slow
def test_a_sweep_takes_as_long_as_what_it_looks_at_not_as_what_is_held() -> None:
    ttl = StateTtlConfig(timedelta(seconds=1))
    store = open_store(MemoryStorage())
    touched = type_info(tuple[int, int])
    cells = store.cells(StateSpec("cells", StateKind.VALUE, touched, ttl=ttl), lambda stored: stored)
    maps = store.maps(StateSpec("maps", StateKind.MAP, touched, type_info(int), ttl=ttl), lambda stored: stored)
    cells.put_all({f"key-{i}": (i, 0) for i in range(200_000)})
    store.current_key = "a"
    for i in range(200_000):
        maps.put(i, (i, 0))
    slowest = []
    for state in (cells, maps):
        seconds = []
        for _ in range(200):
            start = time.thread_time()
            state.sweep(5)
            seconds.append(time.thread_time() - start)
        slowest.append(statistics.median(seconds))

    assert max(slowest) < 0.0005


@pytest.mark.slow
def test_a_merge_drops_what_has_expired_and_hides_what_lies_below() -> None:
    storage = MemoryStorage()
    ttl = StateTtlConfig(timedelta(seconds=1), cleanup=(CleanupOnCompaction(),))
    spec = StateSpec("s", StateKind.VALUE, type_info(tuple[int, int]), ttl=ttl)
    store = open_store(storage)
    now = 0
    cells = store.cells(spec, lambda stored: stored if stored[1] >= now else None)
    numbers = random.Random(1)
    many = {f"key-{i}": (numbers.getrandbits(60), 5) for i in range(120_000)}  # too large to be merged with the deltas
    cells.put_all(many)
    store.snapshot(CheckpointId(1)).write(storage, "shared")
    store.completed(CheckpointId(1))
    now = 10
    for number in range(2, 13):
        cells.put_all({f"key-{number}": (number, 7), f"new-{number}": (number, 20)})
        handle = store.snapshot(CheckpointId(number)).write(storage, "shared")
        store.completed(CheckpointId(number))

    merged = [file for file in handle.files if file.path.endswith("-merged")]

    found = [read_state_file(storage, file.path, file.size).info for file in merged]
    assert [(info.kind, info.entries, sum(block.removed for block in info.blocks)) for info in found] == [
        ("delta", 8, 8)
    ]
    longer = open_store(storage, (handle,)).cells(spec)
    dropped = {f"key-{number}" for number in range(2, 10)}
    assert not dropped & set(longer.entries)
    assert len(longer.entries) == len(many) - 8 + 11


@pytest.mark.parametrize("is_before_the_snapshot", [True, False])
def test_in_event_time_a_merge_drops_what_had_expired_at_the_snapshot(is_before_the_snapshot: bool) -> None:
    storage = MemoryStorage()
    ttl = StateTtlConfig(timedelta(seconds=1), cleanup=(CleanupOnCompaction(1),), time=TtlTime.EVENT_TIME)
    spec = StateSpec("s", StateKind.VALUE, type_info(tuple[int, int]), ttl=ttl)
    store = open_store(storage)
    deadline = 0
    cells = store.cells(spec, Expiry(lambda: deadline, fresh_element))
    cells.put_all({f"key-{i}": (i, 7) for i in range(100)})
    for number in range(1, 40):
        cells.put_all({f"new-{number}": (number, 20)})
        deadline = 10 if is_before_the_snapshot else 0
        snapshot = store.snapshot(CheckpointId(number))
        deadline = 10
        handle = snapshot.write(storage, "shared")
        store.completed(CheckpointId(number))

    found = open_store(storage, (handle,)).cells(spec).entries

    assert len([key for key in found if key.startswith("key")]) == (0 if is_before_the_snapshot else 100)
    assert len(found) == (39 if is_before_the_snapshot else 139)


def test_a_merge_reads_the_clock_once_in_so_many_entries() -> None:
    storage = MemoryStorage()
    ttl = StateTtlConfig(timedelta(seconds=1), cleanup=(CleanupOnCompaction(30),))
    store = open_store(storage)
    asked = [0]

    def deadline() -> int:
        asked[0] += 1
        return 0

    spec = StateSpec("s", StateKind.VALUE, type_info(tuple[int, int]), ttl=ttl)
    cells = store.cells(spec, Expiry(deadline, fresh_element))
    cells.put_all({f"key-{i}": (i, 7) for i in range(100)})
    merged = []
    for number in range(1, 12):
        cells.put_all({f"new-{number}": (number, 20)})
        before = asked[0]
        handle = store.snapshot(CheckpointId(number)).write(storage, "shared")
        store.completed(CheckpointId(number))
        merged += [asked[0] - before] if any(file.path.endswith(f"{number}-a1-merged") for file in handle.files) else []

    assert merged == [4]  # of 100 and a few entries


def test_only_states_that_expire_on_compaction_are_decoded_in_a_merge() -> None:
    storage = MemoryStorage()
    store = open_store(storage)
    plain = store.cells(StateSpec("s", StateKind.VALUE, type_info(int)))
    background = StateTtlConfig(timedelta(seconds=1), cleanup=(CleanupFullSnapshot(), CleanupIncrementally()))
    store.cells(StateSpec("t", StateKind.VALUE, type_info(tuple[int, int]), ttl=background), lambda stored: None)
    compacted = StateTtlConfig(timedelta(seconds=1))
    store.cells(StateSpec("u", StateKind.VALUE, type_info(tuple[int, int]), ttl=compacted), lambda stored: None)
    plain.put_all({"a": 1})

    assert set(store.snapshot(CheckpointId(1))._prunings) == {"u"}


def _changed_after_a_checkpoint(storage: MemoryStorage, changed: int) -> tuple[HashMapStore, HashMapCells]:
    """Return a store of 100 entries of which this many have changed since a completed checkpoint."""
    store = open_store(storage)
    table = store.table(COUNT)
    table.put_all({f"key-{i}": 1 for i in range(100)})
    store.snapshot(CheckpointId(1)).write(storage, "shared")
    store.completed(CheckpointId(1))
    for number in range(changed):
        table.put(f"key-{number}", 2)
    store.batch_ended()
    return store, table


def test_changes_are_not_recorded_before_the_first_checkpoint() -> None:
    storage = MemoryStorage()
    store = open_store(storage)
    table = store.table(COUNT)

    table.put("a", 1)

    assert table.changes is None
    handle = store.snapshot(CheckpointId(1)).write(storage, "shared")
    assert dict(open_store(storage, (handle,)).table(COUNT).all()) == {"a": 1}


def test_few_changes_are_recorded_for_a_delta() -> None:
    storage = MemoryStorage()

    store, table = _changed_after_a_checkpoint(storage, 49)

    assert table.changes is not None
    handle = store.snapshot(CheckpointId(2)).write(storage, "shared")
    assert len(handle.files) == 2


@pytest.mark.parametrize("is_aborted", [False, True])
def test_many_changes_are_not_recorded_and_none_is_lost(is_aborted: bool) -> None:
    storage = MemoryStorage()

    store, table = _changed_after_a_checkpoint(storage, 50)

    assert table.changes is None
    table.remove("key-99")
    if is_aborted:
        store.snapshot(CheckpointId(2))
        store.aborted(CheckpointId(2))
    handle = store.snapshot(CheckpointId(3)).write(storage, "shared")
    assert len(handle.files) == 1
    expected = {f"key-{i}": 2 if i < 50 else 1 for i in range(99)}
    assert dict(open_store(storage, (handle,)).table(COUNT).all()) == expected


def test_readers_see_every_change_though_none_was_recorded() -> None:
    store = open_store(MemoryStorage())
    table = store.table(COUNT)
    table.put_all({f"key-{i}": 1 for i in range(300_000)})
    store.publish(Epoch(1))
    table.remove_all([f"key-{i}" for i in range(200_000)])
    table.put("key-299999", 2)
    store.batch_ended()
    assert table.changes is None

    store.publish(Epoch(2))

    assert store.published is not None
    assert store.published.count("count").entries == 100_000
    assert store.published.get("count", [msgspec.msgpack.encode("key-299999")]) == (2, [msgspec.msgpack.encode(2)])


@pytest.mark.parametrize(("changed", "are_recorded"), [(5, True), (51, False)])
@pytest.mark.parametrize("is_aborted", [False, True])
def test_maps_lose_no_change_whether_it_is_recorded_or_not(changed: int, are_recorded: bool, is_aborted: bool) -> None:
    storage = MemoryStorage()
    store = open_store(storage)
    maps = store.maps(MAPS)
    for key in "ab":
        store.current_key = key
        for i in range(50):
            maps.put(i, 1)
    store.snapshot(CheckpointId(1)).write(storage, "shared")
    store.completed(CheckpointId(1))
    store.publish(Epoch(1))

    for i in range(changed):
        store.current_key = "ab"[i % 2]
        maps.put(i // 2, 2)
    store.batch_ended()
    assert (maps.changes is not None) is are_recorded
    store.current_key = "a"
    maps.remove(49)
    store.current_key = "c"
    maps.put(0, 3)
    maps.clear()
    if is_aborted:
        store.snapshot(CheckpointId(2))
        store.aborted(CheckpointId(2))
    store.publish(Epoch(2))

    handle = store.snapshot(CheckpointId(3)).write(storage, "shared")
    assert len(handle.files) == (2 if are_recorded else 1)
    expected = {("ab"[side], i): 2 if 2 * i + side < changed else 1 for side in (0, 1) for i in range(50)}
    del expected["a", 49]
    assert dict(open_store(storage, (handle,)).maps(MAPS).all()) == expected
    assert store.published is not None
    assert store.published.count("maps").entries == 99
