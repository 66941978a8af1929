"""What every KeyedStateBackend promises of snapshots: what is in them, and what becomes of them."""

from __future__ import annotations

import pickle
import threading

import pytest
from tests.contract.keyed_stores import (
    COUNT,
    HUNDRED,
    KEYS,
    Item,
    bytes_of,
    cell,
    checkpoint,
    content,
    get,
    open_store,
    put,
)

from checkdam.backends import KeyedStateBackend
from checkdam.errors import CheckpointDeclinedError, JobGraphError, StorageError
from checkdam.ids import CheckpointId
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.state.spec import StateKind, StateSpec
from checkdam.testing import Fault, FaultyStorage, MemoryStorage
from checkdam.types.type_info import type_info


def test_a_backend_is_configuration_that_pickles(backend: KeyedStateBackend) -> None:
    assert pickle.loads(pickle.dumps(backend)) == backend


def test_later_writes_do_not_show_in_a_snapshot(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    state = store.cells(COUNT)
    put(store, state, HUNDRED)
    first = store.snapshot(CheckpointId(1))
    put(store, state, {"k1": -1, "k2": None, "new": 5})

    handle = first.write(storage, "shared")

    assert content(backend, storage, [handle], [*KEYS, "new"]) == HUNDRED


@pytest.mark.parametrize("full", [True, False])
def test_values_that_are_only_replaced_are_as_of_the_snapshot(
    backend: KeyedStateBackend, storage: MemoryStorage, full: bool
) -> None:
    names = StateSpec("names", StateKind.VALUE, type_info(list[str]))
    store = open_store(backend, storage)
    table = store.table(names)
    table.promise_no_change_in_place()
    table.put_all({key: [key] for key in KEYS})
    store.end_epoch()
    if not full:
        checkpoint(store, storage, 1)
    table.put_all({"k1": ["of the snapshot"]})
    table.remove_all(["k2"])
    store.end_epoch()
    snapshot = store.snapshot(CheckpointId(2))
    table.put_all({"k1": ["late"], "k2": ["late"]})
    store.end_epoch()

    restored = open_store(backend, storage, [snapshot.write(storage, "shared")])

    assert restored.table(names).get_all(["k1", "k2", "k3"]) == [["of the snapshot"], None, ["k3"]]


@pytest.mark.parametrize("full", [True, False])
def test_values_changed_in_place_after_snapshot_do_not_show_in_it(
    backend: KeyedStateBackend, storage: MemoryStorage, full: bool
) -> None:
    descriptor = cell("item", Item)
    store = open_store(backend, storage)
    state = store.cells(descriptor)
    put(store, state, {key: Item(key, []) for key in KEYS})
    if not full:
        checkpoint(store, storage, 1)
    item = Item("a", ["x"])
    put(store, state, {"k1": item, "k2": None})
    snapshot = store.snapshot(CheckpointId(2))
    item.tags.append("late")

    restored = open_store(backend, storage, [snapshot.write(storage, "shared")])

    assert get(restored, restored.cells(descriptor), ["k1", "k2", "k3"]) == {
        "k1": Item("a", ["x"]),
        "k3": Item("k3", []),
    }


def test_a_delta_holds_what_changed_on_top_of_the_completed_checkpoint(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    store = open_store(backend, storage)
    state = store.cells(COUNT)
    put(store, state, HUNDRED)
    base = checkpoint(store, storage, 1)
    put(store, state, {"k1": -1, "k2": None})

    snapshot = store.snapshot(CheckpointId(2))
    handle = snapshot.write(storage, "shared")

    assert {file.path for file in handle.files} - {file.path for file in base.files} == {
        file.path for file in snapshot.new_files
    }
    assert bytes_of(handle, besides=base) < bytes_of(base)
    expected = {key: value for key, value in {**HUNDRED, "k1": -1}.items() if key != "k2"}
    assert content(backend, storage, [handle], KEYS) == expected


def test_an_empty_store_can_be_snapshotted_and_restored(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    state = store.cells(COUNT)
    empty = checkpoint(store, storage, 1)
    put(store, state, {"a": 1})
    one = checkpoint(store, storage, 2)
    put(store, state, {"a": None})
    emptied = checkpoint(store, storage, 3)

    assert [content(backend, storage, [handle], ["a"]) for handle in (empty, one, emptied)] == [{}, {"a": 1}, {}]


@pytest.mark.parametrize("end", ["aborted", "forgotten"])
def test_what_an_unconfirmed_checkpoint_holds_is_in_the_next_one_without_its_files(
    backend: KeyedStateBackend, storage: MemoryStorage, end: str
) -> None:
    store = open_store(backend, storage)
    state = store.cells(COUNT)
    put(store, state, HUNDRED)
    checkpoint(store, storage, 1)
    put(store, state, {"k1": -1, "k2": None, "k3": -3})
    lost = store.snapshot(CheckpointId(2))
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
    state = store.cells(COUNT)
    put(store, state, HUNDRED)
    checkpoint(store, storage, 1)
    put(store, state, {"k1": -1})
    second = store.snapshot(CheckpointId(2))
    put(store, state, {"k2": -2})
    third = store.snapshot(CheckpointId(3))
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
    put(store, store.cells(COUNT), HUNDRED)
    snapshot = store.snapshot(CheckpointId(1))

    class AbortsMeanwhile(FaultyStorage):
        def write(self, path: str, data: bytes) -> None:
            super().write(path, data)
            store.aborted(CheckpointId(1))

    with pytest.raises(CheckpointDeclinedError):
        snapshot.write(AbortsMeanwhile(storage, -1, Fault.REFUSED), "shared")

    assert storage.list("") == []
    assert snapshot.new_files == ()
    with pytest.raises(CheckpointDeclinedError):
        snapshot.write(storage, "shared")


@pytest.mark.slow
@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("at", range(30))
def test_a_failed_operation_leaves_no_file_and_loses_no_change(
    backend: KeyedStateBackend, storage: MemoryStorage, fault: Fault, at: int
) -> None:
    store = open_store(backend, storage)
    state = store.cells(COUNT)
    put(store, state, HUNDRED)
    faulty = FaultyStorage(storage, at, fault)
    expected = dict(HUNDRED)
    handles: list[KeyedStateHandle] = []

    for number in range(1, 26):  # long enough for merges
        before = {status.path for status in storage.list("")}
        try:
            handles.append(store.snapshot(CheckpointId(number)).write(faulty, "shared"))
            store.completed(CheckpointId(number))
        except StorageError:
            store.aborted(CheckpointId(number))
            assert {status.path for status in storage.list("")} == before
        put(store, state, {f"k{number}": -number})
        expected[f"k{number}"] = -number

    assert faulty.has_failed or at >= faulty.operations
    handles.append(checkpoint(store, storage, 100))
    assert content(backend, storage, handles[-1:], KEYS) == expected


def test_files_no_longer_referenced_may_go_once_the_next_checkpoint_is_complete(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    store = open_store(backend, storage)
    state = store.cells(COUNT)
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
    put(store, store.cells(COUNT), HUNDRED)

    for file in checkpoint(store, storage, 1).files:
        status = storage.status(file.path)
        assert status is not None
        assert status.size == file.size
        assert file.path.startswith("shared/")


def test_a_value_of_the_wrong_type_fails_the_snapshot_with_its_name_and_loses_no_other(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    store = open_store(backend, storage)
    state = store.cells(COUNT)
    put(store, state, {"a": 1})

    with pytest.raises(JobGraphError, match='state "count" of operator "op"'):  # noqa: PT012  # may come with any
        put(store, state, {"b": "text"})
        store.snapshot(CheckpointId(1)).write(storage, "shared")

    store.aborted(CheckpointId(1))
    put(store, state, {"b": 2})
    assert content(backend, storage, [checkpoint(store, storage, 2)], ["a", "b"]) == {"a": 1, "b": 2}


def test_a_snapshot_is_written_in_another_thread_while_processing_goes_on(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    store = open_store(backend, storage)
    state = store.cells(COUNT)
    many = {f"k{i}": i for i in range(20_000)}
    put(store, state, many)
    snapshot = store.snapshot(CheckpointId(1))
    written: list[KeyedStateHandle] = []
    writer = threading.Thread(target=lambda: written.append(snapshot.write(storage, "shared")))

    writer.start()
    while writer.is_alive():
        put(store, state, {"k1": -1, "k2": None, "new": 1})
    writer.join()

    assert content(backend, storage, written, [*many, "new"]) == many


def test_completing_a_checkpoint_keeps_what_later_ones_hold(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    state = store.cells(COUNT)
    put(store, state, HUNDRED)
    checkpoint(store, storage, 1)
    put(store, state, {"k1": -1})
    second = store.snapshot(CheckpointId(2))
    put(store, state, {"k2": -2})
    store.snapshot(CheckpointId(3))
    second.write(storage, "shared")
    store.completed(CheckpointId(2))
    store.aborted(CheckpointId(3))

    handle = checkpoint(store, storage, 4)

    assert content(backend, storage, [handle], KEYS) == {**HUNDRED, "k1": -1, "k2": -2}
