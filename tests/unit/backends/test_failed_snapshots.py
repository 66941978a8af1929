"""What a hashmap store holds on to when checkpoints fail: its state once, however many of them there were."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from checkdam.backends import HashMapStateBackend, StoreOwner
from checkdam.backends.hashmap.hashmap_store import HashMapStore
from checkdam.errors import CheckpointDeclinedError, JobGraphError, StorageError
from checkdam.ids import Attempt, CheckpointId, OperatorUid, SubtaskIndex
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.state.spec import StateKind, StateSpec
from checkdam.testing import Fault, FaultyStorage, MemoryStorage
from checkdam.types.type_info import type_info

COUNT = StateSpec("count", StateKind.VALUE, type_info(int))
OTHER = StateSpec("other", StateKind.VALUE, type_info(int))
OWNER = StoreOwner(OperatorUid("op"), SubtaskIndex(0), Attempt("a1"), KeyGroupRange(0, 127), 128, type_info(str))
HELD = {f"k{i}": i for i in range(1000)}


def _open(storage: MemoryStorage, *handles: KeyedStateHandle) -> HashMapStore:
    return HashMapStateBackend().open(OWNER, handles, storage, claim=True)


def _completed(store: HashMapStore, storage: MemoryStorage, number: int) -> KeyedStateHandle:
    handle = store.snapshot(CheckpointId(number)).write(storage, "shared")
    store.completed(CheckpointId(number))
    return handle


def _content(storage: MemoryStorage, handle: KeyedStateHandle) -> dict[Any, Any]:
    return dict(_open(storage, handle).cells(COUNT).all())


def _entries_held(store: HashMapStore) -> int:
    """Entries in all dicts that live only through the store, besides its state itself."""
    seen: set[int] = set()
    found, waiting = 0, [store]
    while waiting:
        each: Any = waiting.pop()
        if id(each) in seen or isinstance(each, type) or (type(each).__module__ == "builtins" and callable(each)):
            continue
        seen.add(id(each))
        if isinstance(each, dict):
            found += sum(1 for key in each if isinstance(key, str) and key[:1] == "k" and key[1:].isdigit())
        if isinstance(each, dict | list | tuple) or type(each).__module__.startswith("checkdam.backends.hashmap"):
            waiting += gc.get_referents(each)
    return found - sum(kept.state.count for kept in store._states.values())


@pytest.mark.parametrize("has_base", [False, True])
def test_aborted_checkpoints_leave_no_copy_of_the_state_and_lose_no_change(has_base: bool) -> None:
    storage = MemoryStorage()
    store = _open(storage)
    table = store.table(COUNT)
    table.put_all(HELD)
    if has_base:
        _completed(store, storage, 1)
    expected = dict(HELD)

    for number in range(2, 52):
        table.put_all({f"k{number}": -number, "k0": -number})
        expected |= {f"k{number}": -number, "k0": -number}
        store.snapshot(CheckpointId(number))
        store.aborted(CheckpointId(number))

    assert _entries_held(store) <= (51 if has_base else 0)
    assert _content(storage, _completed(store, storage, 60)) == expected


def test_changes_of_aborted_checkpoints_take_no_more_than_the_state_does() -> None:
    storage = MemoryStorage()
    store = _open(storage)
    table = store.cells(COUNT)
    table.put_all(HELD)
    _completed(store, storage, 1)

    for number in range(2, 40):  # keys come and go, and every checkpoint fails
        for i in range(100):
            store.current_key = f"k{number * 1000 + i}"
            table.update(1)
            table.clear()
        store.snapshot(CheckpointId(number))
        store.aborted(CheckpointId(number))

    assert _entries_held(store) <= len(HELD)
    assert _content(storage, _completed(store, storage, 60)) == HELD


def test_an_aborted_checkpoint_between_others_hands_its_changes_to_the_next_one() -> None:
    storage = MemoryStorage()
    store = _open(storage)
    table = store.table(COUNT)
    table.put_all(HELD)
    _completed(store, storage, 1)
    snapshot = {}
    for number in (2, 3, 4):
        table.put_all({f"k{number}": -number, "k9": -number})
        snapshot[number] = store.snapshot(CheckpointId(number))

    store.aborted(CheckpointId(3))
    handle = snapshot[2].write(storage, "shared")
    store.completed(CheckpointId(2))
    store.aborted(CheckpointId(4))

    assert _content(storage, handle) == {**HELD, "k2": -2, "k9": -2}
    assert _content(storage, _completed(store, storage, 5)) == {**HELD, "k2": -2, "k3": -3, "k4": -4, "k9": -4}


def test_an_abort_while_a_later_checkpoint_is_written_does_not_touch_what_it_writes() -> None:
    storage = MemoryStorage()
    store = _open(storage)
    table = store.table(COUNT)
    table.put_all(HELD)
    _completed(store, storage, 1)
    table.put_all({"k1": -1})
    store.snapshot(CheckpointId(2))
    table.put_all({"k2": -2})
    third = store.snapshot(CheckpointId(3))
    written = third.tables[0].entries.copy()

    store.aborted(CheckpointId(2))

    assert third.tables[0].entries == written == {"k1": -1, "k2": -2}


def test_a_failed_write_lets_go_of_the_state_and_is_not_tried_again() -> None:
    storage = MemoryStorage()
    store = _open(storage)
    store.table(COUNT).put_all(HELD)
    snapshot = store.snapshot(CheckpointId(1))
    with pytest.raises(StorageError):
        snapshot.write(FaultyStorage(storage, 0, Fault.REFUSED), "shared")

    assert snapshot.tables == []
    with pytest.raises(CheckpointDeclinedError):
        snapshot.write(storage, "shared")

    store.aborted(CheckpointId(1))
    assert _content(storage, _completed(store, storage, 2)) == HELD


def test_a_snapshot_that_fails_lets_go_of_the_state_and_loses_no_change() -> None:
    storage = MemoryStorage()
    store = _open(storage)
    first, second = store.table(COUNT), store.table(OTHER)
    first.put_all(HELD)
    second.put_all({"k1": []})
    with pytest.raises(JobGraphError, match='state "other" of operator "op"'):
        store.snapshot(CheckpointId(1))
    store.aborted(CheckpointId(1))

    assert _entries_held(store) == 0
    second.put_all({"k1": 5})
    assert _content(storage, _completed(store, storage, 2)) == HELD
