"""What every KeyedStateBackend promises. A new one is one more line in BACKENDS."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from checkdam.backends import HashMapStateBackend, KeyedStateBackend, KeyedStateStore, StoreOwner
from checkdam.errors import CheckpointDeclinedError, JobGraphError, StateNotRestorableError, StorageError
from checkdam.ids import Attempt, CheckpointId, OperatorUid, SubtaskIndex
from checkdam.state.descriptors import ValueStateDescriptor
from checkdam.state.key_groups import KeyGroupRange, key_group_range, key_groups
from checkdam.state.snapshots import KeyedStateHandle
from checkdam.state.types import type_info
from checkdam.storage import Storage
from checkdam.testing import Fault, FaultyStorage, MemoryStorage

BACKENDS: dict[str, KeyedStateBackend] = {"hashmap": HashMapStateBackend()}
MAX_PARALLELISM = 16
COUNT = ValueStateDescriptor("count", int)


@dataclass
class Item:
    name: str
    tags: list[str]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> KeyedStateBackend:
    return BACKENDS[request.param]


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


def owner(subtask: int = 0, parallelism: int = 1, key_type: Any = str, max_parallelism: int = 16) -> StoreOwner:
    owned = key_group_range(subtask, parallelism, max_parallelism)
    return StoreOwner(
        OperatorUid("op"), SubtaskIndex(subtask), Attempt("a1"), owned, max_parallelism, type_info(key_type)
    )


def open_store(
    backend: KeyedStateBackend,
    storage: Storage,
    handles: Sequence[KeyedStateHandle] = (),
    of: StoreOwner | None = None,
    *,
    directory: str = "",
    claim: bool = True,
) -> KeyedStateStore:
    return backend.open(of or owner(), handles, storage, directory, claim=claim)


def put(store: KeyedStateStore, state: Any, values: dict[str, Any]) -> None:
    for store.current_key, value in values.items():
        state.update(value)


def get(store: KeyedStateStore, state: Any, keys: Sequence[str]) -> dict[str, Any]:
    found = {}
    for store.current_key in keys:
        if state.value() is not None:
            found[store.current_key] = state.value()
    return found


def checkpoint(store: KeyedStateStore, storage: Storage, number: int) -> KeyedStateHandle:
    handle = store.seal(CheckpointId(number)).write(storage, "shared")
    store.completed(CheckpointId(number))
    return handle


def content(
    backend: KeyedStateBackend, storage: Storage, handles: Sequence[KeyedStateHandle], keys: Sequence[str]
) -> dict[str, Any]:
    store = open_store(backend, storage, handles)
    return get(store, store.value_state(COUNT), keys)


KEYS = [f"k{i}" for i in range(100)]
HUNDRED = {key: i for i, key in enumerate(KEYS)}


def test_a_backend_is_configuration_that_pickles(backend: KeyedStateBackend) -> None:
    assert pickle.loads(pickle.dumps(backend)) == backend


def test_each_key_has_its_own_value(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    state = store.value_state(COUNT)

    put(store, state, {"a": 1, "b": 2})
    put(store, state, {"a": 3})

    assert get(store, state, ["a", "b", "c"]) == {"a": 3, "b": 2}


def test_a_cleared_value_reads_as_the_default(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    state = store.value_state(ValueStateDescriptor("count", int, default=7))
    store.current_key = "a"
    assert state.value() == 7

    state.update(0)
    assert state.value() == 0
    state.clear()
    assert state.value() == 7
    state.update(1)
    state.update(None)
    assert state.value() == 7


def test_a_mutable_default_is_new_for_each_key(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    state = store.value_state(ValueStateDescriptor("names", list[str], default=[]))
    store.current_key = "a"
    state.value().append("x")

    store.current_key = "b"

    assert state.value() == []


def test_asking_twice_for_a_state_is_an_error(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    store.value_state(COUNT)

    with pytest.raises(JobGraphError, match='operator "op" asks twice for state "count"'):
        store.value_table(COUNT)


def test_a_table_and_its_snapshots_see_bulk_updates(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    table = store.value_table(COUNT)
    checkpoint(store, storage, 1)

    table.put_all(HUNDRED)
    table.put_all({"k1": -1})

    assert table.entries == {**HUNDRED, "k1": -1}
    assert content(backend, storage, [checkpoint(store, storage, 2)], KEYS) == {**HUNDRED, "k1": -1}


def test_later_writes_do_not_show_in_a_sealed_snapshot(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    state = store.value_state(COUNT)
    put(store, state, HUNDRED)
    first = store.seal(CheckpointId(1))
    put(store, state, {"k1": -1, "k2": None, "new": 5})

    handle = first.write(storage, "shared")

    assert content(backend, storage, [handle], [*KEYS, "new"]) == HUNDRED


@pytest.mark.parametrize("full", [True, False])
def test_values_changed_in_place_after_seal_do_not_show_in_it(
    backend: KeyedStateBackend, storage: MemoryStorage, full: bool
) -> None:
    descriptor = ValueStateDescriptor("item", Item)
    store = open_store(backend, storage)
    state = store.value_state(descriptor)
    put(store, state, {key: Item(key, []) for key in KEYS})
    if not full:
        checkpoint(store, storage, 1)
    item = Item("a", ["x"])
    put(store, state, {"k1": item, "k2": None})
    sealed = store.seal(CheckpointId(2))
    item.tags.append("late")

    restored = open_store(backend, storage, [sealed.write(storage, "shared")])

    assert get(restored, restored.value_state(descriptor), ["k1", "k2", "k3"]) == {
        "k1": Item("a", ["x"]),
        "k3": Item("k3", []),
    }


def test_a_delta_holds_what_changed_on_top_of_the_completed_checkpoint(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    store = open_store(backend, storage)
    state = store.value_state(COUNT)
    put(store, state, HUNDRED)
    base = checkpoint(store, storage, 1)
    put(store, state, {"k1": -1, "k2": None})

    sealed = store.seal(CheckpointId(2))
    handle = sealed.write(storage, "shared")

    assert handle.files[: len(base.files)] == base.files
    assert handle.files[len(base.files) :] == sealed.new_files
    assert sum(file.size for file in sealed.new_files) < base.files[0].size
    expected = {key: value for key, value in {**HUNDRED, "k1": -1}.items() if key != "k2"}
    assert content(backend, storage, [handle], KEYS) == expected


def test_a_checkpoint_without_changes_writes_nothing(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    put(store, store.value_state(COUNT), HUNDRED)
    first = checkpoint(store, storage, 1)

    sealed = store.seal(CheckpointId(2))

    assert sealed.write(storage, "shared") == first
    assert sealed.new_files == ()


def test_an_empty_store_can_be_sealed_and_restored(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    state = store.value_state(COUNT)
    empty = checkpoint(store, storage, 1)
    put(store, state, {"a": 1})
    one = checkpoint(store, storage, 2)
    put(store, state, {"a": None})
    emptied = checkpoint(store, storage, 3)

    assert [content(backend, storage, [handle], ["a"]) for handle in (empty, one, emptied)] == [{}, {"a": 1}, {}]


def test_when_half_changed_a_snapshot_stands_alone(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    state = store.value_state(COUNT)
    put(store, state, HUNDRED)
    checkpoint(store, storage, 1)
    put(store, state, dict.fromkeys(KEYS[:50], -1))

    sealed = store.seal(CheckpointId(2))

    assert sealed.write(storage, "shared").files == sealed.new_files


@pytest.mark.parametrize("end", ["aborted", "forgotten"])
def test_what_an_unconfirmed_checkpoint_sealed_is_in_the_next_one_without_its_files(
    backend: KeyedStateBackend, storage: MemoryStorage, end: str
) -> None:
    store = open_store(backend, storage)
    state = store.value_state(COUNT)
    put(store, state, HUNDRED)
    checkpoint(store, storage, 1)
    put(store, state, {"k1": -1, "k2": None, "k3": -3})
    lost = store.seal(CheckpointId(2))
    lost.write(storage, "shared")
    if end == "aborted":
        store.aborted(CheckpointId(2))
    for file in lost.new_files:
        storage.delete(file.path)
    put(store, state, {"k3": -33})

    handle = checkpoint(store, storage, 3)

    expected = {**HUNDRED, "k1": -1, "k3": -33}
    del expected["k2"]
    assert content(backend, storage, [handle], KEYS) == expected


def test_confirmations_may_come_late_and_out_of_order(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    state = store.value_state(COUNT)
    put(store, state, HUNDRED)
    checkpoint(store, storage, 1)
    put(store, state, {"k1": -1})
    second = store.seal(CheckpointId(2))
    put(store, state, {"k2": -2})
    third = store.seal(CheckpointId(3))
    second.write(storage, "shared")
    third.write(storage, "shared")
    store.completed(CheckpointId(3))
    store.completed(CheckpointId(2))  # echo of an older one: must not move the base back
    for file in second.new_files:
        storage.delete(file.path)
    put(store, state, {"k3": -3})

    handle = checkpoint(store, storage, 4)

    assert content(backend, storage, [handle], KEYS) == {**HUNDRED, "k1": -1, "k2": -2, "k3": -3}


def test_a_late_writer_of_an_aborted_checkpoint_leaves_no_file(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    store = open_store(backend, storage)
    put(store, store.value_state(COUNT), HUNDRED)
    sealed = store.seal(CheckpointId(1))

    class AbortsMeanwhile(FaultyStorage):
        def write(self, path: str, data: bytes) -> None:
            super().write(path, data)
            store.aborted(CheckpointId(1))

    with pytest.raises(CheckpointDeclinedError):
        sealed.write(AbortsMeanwhile(storage, -1, Fault.REFUSED), "shared")

    assert storage.list("") == []
    assert sealed.new_files == ()
    with pytest.raises(CheckpointDeclinedError):
        sealed.write(storage, "shared")


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("at", range(30))
def test_a_failed_operation_leaves_no_file_and_loses_no_change(
    backend: KeyedStateBackend, storage: MemoryStorage, fault: Fault, at: int
) -> None:
    store = open_store(backend, storage)
    state = store.value_state(COUNT)
    put(store, state, HUNDRED)
    faulty = FaultyStorage(storage, at, fault)
    expected = dict(HUNDRED)
    handles: list[KeyedStateHandle] = []

    for number in range(1, 26):  # long enough for merges
        before = {status.path for status in storage.list("")}
        try:
            handles.append(store.seal(CheckpointId(number)).write(faulty, "shared"))
            store.completed(CheckpointId(number))
        except StorageError:
            store.aborted(CheckpointId(number))
            assert {status.path for status in storage.list("")} == before
        put(store, state, {f"k{number}": -number})
        expected[f"k{number}"] = -number

    assert faulty.has_failed or at >= faulty.operations
    handles.append(checkpoint(store, storage, 100))
    assert content(backend, storage, handles[-1:], KEYS) == expected
    assert len(handles[-1].files) <= 10


def test_files_no_longer_referenced_may_go_once_the_next_checkpoint_is_complete(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    store = open_store(backend, storage)
    state = store.value_state(COUNT)
    put(store, state, HUNDRED)

    for number in range(1, 60):
        handle = checkpoint(store, storage, number)
        for status in storage.list(""):
            if status.path not in {file.path for file in handle.files}:
                storage.delete(status.path)
        put(store, state, {f"k{number % 10}": -number})

    assert content(backend, storage, [handle], KEYS)["k8"] == -58


def test_the_files_of_a_handle_are_whole_and_as_large_as_it_says(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    store = open_store(backend, storage)
    put(store, store.value_state(COUNT), HUNDRED)

    for file in checkpoint(store, storage, 1).files:
        status = storage.status(file.path)
        assert status is not None
        assert status.size == file.size
        assert file.path.startswith("shared/")


@pytest.mark.parametrize("after", [1, 2, 3, 5, 16])
@pytest.mark.parametrize("before", [1, 3, 4])
def test_rescaling_gives_each_subtask_the_key_groups_it_owns(
    backend: KeyedStateBackend, storage: MemoryStorage, before: int, after: int
) -> None:
    group_of = dict(zip(KEYS, key_groups(KEYS, type_info(str), MAX_PARALLELISM).tolist(), strict=True))
    handles = []
    for subtask in range(before):
        of = owner(subtask, before)
        store = open_store(backend, storage, of=of)
        state = store.value_state(COUNT)
        put(store, state, {key: value for key, value in HUNDRED.items() if group_of[key] in of.key_groups})
        checkpoint(store, storage, 1)
        put(store, state, {key: -1 for key in ("k5", "k6") if group_of[key] in of.key_groups})
        handles.append(checkpoint(store, storage, 2))
    expected = {**HUNDRED, "k5": -1, "k6": -1}

    for subtask in range(after):
        of = owner(subtask, after)
        store = open_store(backend, storage, handles, of)
        state = store.value_state(COUNT)
        mine = {key: value for key, value in expected.items() if group_of[key] in of.key_groups}
        assert get(store, state, KEYS) == mine
        if before != after:
            sealed = store.seal(CheckpointId(3))
            assert sealed.write(storage, "new").files == sealed.new_files


def test_a_restored_store_goes_on_with_deltas(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    put(store, store.value_state(COUNT), HUNDRED)
    first = checkpoint(store, storage, 1)
    restored = open_store(backend, storage, [first])
    put(restored, restored.value_state(COUNT), {"k1": -1})

    handle = restored.seal(CheckpointId(2)).write(storage, "shared")

    assert handle.files[0] == first.files[0]
    assert content(backend, storage, [handle], KEYS) == {**HUNDRED, "k1": -1}


def test_without_claim_the_first_snapshot_needs_no_file_of_the_old_directory(backend: KeyedStateBackend) -> None:
    old, new = MemoryStorage(), MemoryStorage()
    store = open_store(backend, old)
    put(store, store.value_state(COUNT), HUNDRED)
    handle = checkpoint(store, old, 1)
    for file in handle.files:
        old.rename(file.path, f"job/{file.path}")
    restored = open_store(backend, old, [handle], directory="job", claim=False)
    put(restored, restored.value_state(COUNT), {"k1": -1})
    old.delete_directory("job")

    moved = checkpoint(restored, new, 2)

    assert content(backend, new, [moved], KEYS) == {**HUNDRED, "k1": -1}


@pytest.mark.parametrize("claim", [True, False])
def test_state_that_nobody_asks_for_is_carried_on(
    backend: KeyedStateBackend, storage: MemoryStorage, claim: bool
) -> None:
    store = open_store(backend, storage)
    put(store, store.value_state(COUNT), HUNDRED)
    put(store, store.value_state(ValueStateDescriptor("item", Item)), {"a": Item("a", ["x"])})
    checkpoint(store, storage, 1)
    put(store, store.value_state(ValueStateDescriptor("third", str)), {"a": "b"})
    handle = checkpoint(store, storage, 2)
    second = open_store(backend, storage, [handle], claim=claim)
    put(second, second.value_state(ValueStateDescriptor("other", int)), {"b": 2})
    handle = checkpoint(second, storage, 3)

    third = open_store(backend, storage, [handle])

    assert get(third, third.value_state(COUNT), KEYS) == HUNDRED
    assert get(third, third.value_state(ValueStateDescriptor("item", Item)), ["a"]) == {"a": Item("a", ["x"])}
    assert get(third, third.value_state(ValueStateDescriptor("third", str)), ["a"]) == {"a": "b"}
    assert get(third, third.value_state(ValueStateDescriptor("other", int)), ["b"]) == {"b": 2}


def test_another_type_than_the_restored_one_is_refused_with_both_named(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    store = open_store(backend, storage)
    put(store, store.value_state(COUNT), {"a": 1})
    restored = open_store(backend, storage, [checkpoint(store, storage, 1)])

    with pytest.raises(StateNotRestorableError) as caught:
        restored.value_state(ValueStateDescriptor("count", str))

    assert all(word in str(caught.value) for word in ('"op"', '"count"', "int", "str"))


@pytest.mark.parametrize("of", [owner(key_type=int), owner(max_parallelism=32)])
def test_another_key_type_or_max_parallelism_is_refused(
    backend: KeyedStateBackend, storage: MemoryStorage, of: StoreOwner
) -> None:
    store = open_store(backend, storage)
    put(store, store.value_state(COUNT), {"a": 1})
    handle = checkpoint(store, storage, 1)

    with pytest.raises(StateNotRestorableError, match='operator "op"'):
        open_store(backend, storage, [handle], of)


def test_a_value_of_the_wrong_type_fails_the_snapshot_with_its_name_and_loses_no_other(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    store = open_store(backend, storage)
    state = store.value_state(COUNT)
    put(store, state, {"a": 1, "b": "text"})

    with pytest.raises(JobGraphError, match='state "count" of operator "op"'):
        store.seal(CheckpointId(1)).write(storage, "shared")

    store.aborted(CheckpointId(1))
    put(store, state, {"b": 2})
    assert content(backend, storage, [checkpoint(store, storage, 2)], ["a", "b"]) == {"a": 1, "b": 2}


def test_a_snapshot_is_written_in_another_thread_while_processing_goes_on(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    store = open_store(backend, storage)
    state = store.value_state(COUNT)
    many = {f"k{i}": i for i in range(20_000)}
    put(store, state, many)
    sealed = store.seal(CheckpointId(1))
    written: list[KeyedStateHandle] = []
    writer = threading.Thread(target=lambda: written.append(sealed.write(storage, "shared")))

    writer.start()
    while writer.is_alive():
        put(store, state, {"k1": -1, "k2": None, "new": 1})
    writer.join()

    assert content(backend, storage, written, [*many, "new"]) == many


def test_an_empty_key_group_range_holds_nothing(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    put(store, store.value_state(COUNT), HUNDRED)
    of = StoreOwner(
        OperatorUid("op"), SubtaskIndex(9), Attempt("a1"), KeyGroupRange(5, 4), MAX_PARALLELISM, type_info(str)
    )

    restored = open_store(backend, storage, [checkpoint(store, storage, 1)], of)

    assert restored.value_table(COUNT).entries == {}


def test_completing_a_checkpoint_keeps_what_later_ones_sealed(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    store = open_store(backend, storage)
    state = store.value_state(COUNT)
    put(store, state, HUNDRED)
    checkpoint(store, storage, 1)
    put(store, state, {"k1": -1})
    second = store.seal(CheckpointId(2))
    put(store, state, {"k2": -2})
    store.seal(CheckpointId(3))
    second.write(storage, "shared")
    store.completed(CheckpointId(2))
    store.aborted(CheckpointId(3))

    handle = checkpoint(store, storage, 4)

    assert content(backend, storage, [handle], KEYS) == {**HUNDRED, "k1": -1, "k2": -2}


def test_rescaling_divides_also_the_state_that_nobody_asks_for(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    store = open_store(backend, storage)
    put(store, store.value_state(COUNT), HUNDRED)
    handle = checkpoint(store, storage, 1)
    halves = [open_store(backend, storage, [handle], owner(subtask, 2)) for subtask in range(2)]

    handles = [half.seal(CheckpointId(2)).write(storage, f"half-{i}") for i, half in enumerate(halves)]

    held = [content(backend, storage, [each], KEYS) for each in handles]
    assert held[0] | held[1] == HUNDRED
    assert len(held[0]) + len(held[1]) == len(HUNDRED)
