from __future__ import annotations

import random
import statistics
import sys
import time

import pytest

from checkdam.backends import HashMapStateBackend, StoreOwner
from checkdam.backends.hashmap import HashMapStore
from checkdam.backends.state_file import read_state_file
from checkdam.errors import CheckpointDamagedError
from checkdam.ids import Attempt, CheckpointId, OperatorUid, SubtaskIndex
from checkdam.state.descriptors import ValueStateDescriptor
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.types import type_info
from checkdam.testing import MemoryStorage

COUNT = ValueStateDescriptor("count", int, default=0)


def open_store(storage: MemoryStorage, handles: tuple[object, ...] = ()) -> HashMapStore:
    owner = StoreOwner(OperatorUid("op"), SubtaskIndex(0), Attempt("a1"), KeyGroupRange(0, 127), 128, type_info(str))
    return HashMapStateBackend().open(owner, handles, storage, "", claim=True)  # type: ignore[arg-type]


def _seal_seconds(held: int) -> float:
    storage = MemoryStorage()
    store = open_store(storage)
    table = store.value_table(COUNT)
    keys = [f"key-{i}" for i in range(held)]
    table.put_all(dict.fromkeys(keys, 1))
    store.seal(CheckpointId(1)).write(storage, "shared")
    store.completed(CheckpointId(1))
    seconds = []
    for number in range(2, 7):
        for store.current_key in random.Random(number).sample(keys, 5000):
            table.handle.update(number)
        start = time.perf_counter()
        sealed = store.seal(CheckpointId(number))
        seconds.append(time.perf_counter() - start)
        sealed.write(storage, "shared")
        store.completed(CheckpointId(number))
    return statistics.median(seconds)


def test_sealing_takes_as_long_as_what_changed_not_as_what_is_held() -> None:
    assert _seal_seconds(200_000) < 0.02


def test_nothing_but_the_entries_stays_in_memory_after_a_completed_checkpoint() -> None:
    storage = MemoryStorage()
    store = open_store(storage)
    table = store.value_table(COUNT)
    table.put_all({f"key-{i}": i for i in range(1000)})
    store.seal(CheckpointId(1)).write(storage, "shared")

    store.completed(CheckpointId(1))

    assert table.take_changes() == {}
    assert store._seals == {}
    assert sys.getsizeof(table.entries) <= 1.5 * sys.getsizeof(dict(table.entries))


def test_a_delta_costs_little_more_than_its_serialized_entries() -> None:
    storage = MemoryStorage()
    store = open_store(storage)
    table = store.value_table(COUNT)
    words = [f"{random.Random(i).getrandbits(48):012x}" for i in range(20_000)]
    table.put_all(dict.fromkeys(words, 1))
    store.seal(CheckpointId(1)).write(storage, "shared")
    store.completed(CheckpointId(1))
    table.put_all(dict.fromkeys(words[:2000], 100000))

    sealed = store.seal(CheckpointId(2))
    sealed.write(storage, "shared")

    assert sum(file.size for file in sealed.new_files) <= 1.5 * 2000 * (13 + 5)


def test_blocks_are_about_64_kb_and_end_with_a_key_group() -> None:
    storage = MemoryStorage()
    store = open_store(storage)
    store.value_table(COUNT).put_all({f"key-{i}": i for i in range(100_000)})

    (file,) = store.seal(CheckpointId(1)).write(storage, "shared").files

    blocks = read_state_file(storage, file.path, file.size).info.blocks
    groups = [group for block in blocks for group in block.groups]
    assert groups == list(range(128))
    assert all(64_000 <= block.raw_length <= 96_000 for block in blocks[:-1])


def test_a_damaged_file_is_noticed_when_the_store_is_opened() -> None:
    storage = MemoryStorage()
    store = open_store(storage)
    store.value_table(COUNT).put_all({f"key-{i}": i for i in range(1000)})
    handle = store.seal(CheckpointId(1)).write(storage, "shared")
    data = bytearray(storage.read(handle.files[0].path))
    data[100] ^= 1
    storage.write(handle.files[0].path, bytes(data))

    with pytest.raises(CheckpointDamagedError, match=handle.files[0].path):
        open_store(storage, (handle,))


def test_a_failed_write_may_be_tried_again() -> None:
    storage = MemoryStorage()
    store = open_store(storage)
    table = store.value_table(COUNT)
    table.put_all({"a": 1})
    sealed = store.seal(CheckpointId(1))
    with pytest.raises(ValueError):
        sealed.write(storage, "/outside")

    handle = sealed.write(storage, "shared")

    assert open_store(storage, (handle,)).value_table(COUNT).entries == {"a": 1}


def test_completing_what_was_never_written_is_refused() -> None:
    store = open_store(MemoryStorage())
    store.seal(CheckpointId(1))

    with pytest.raises(RuntimeError, match="not written"):
        store.completed(CheckpointId(1))


def test_values_with_an_equality_of_their_own_are_kept() -> None:
    storage = MemoryStorage()
    store = open_store(storage)
    table = store.value_table(ValueStateDescriptor("flag", bool))

    table.put_all({"a": False, "b": True})

    handle = store.seal(CheckpointId(1)).write(storage, "shared")
    restored = open_store(storage, (handle,)).value_table(ValueStateDescriptor("flag", bool))
    assert restored.entries == {"a": False, "b": True}
