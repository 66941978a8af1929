"""What every KeyedStateBackend promises of live state: cells, maps and tables, by key and namespace."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.keyed_stores import (
    COUNT,
    HUNDRED,
    KEYS,
    VISITS,
    WINDOWED,
    WINDOWED_VISITS,
    Item,
    bytes_of,
    cell,
    checkpoint,
    content,
    entries,
    get,
    get_maps,
    mapping,
    open_store,
    owner,
    put,
    put_maps,
)

from checkdam.backends import KeyedStateBackend
from checkdam.backends.contract import NO_KEY
from checkdam.errors import JobGraphError, StateAccessError
from checkdam.ids import CheckpointId
from checkdam.state.state_count import StateCount
from checkdam.testing import MemoryStorage

MAPS = {key: {"home": i, "shop": i + 1} for i, key in enumerate(KEYS)}


def test_each_key_has_its_own_value(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    state = store.cells(COUNT)

    put(store, state, {"a": 1, "b": 2})
    put(store, state, {"a": 3})

    assert get(store, state, ["a", "b", "c"]) == {"a": 3, "b": 2}


def test_a_cleared_cell_reads_as_none(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    state = store.cells(COUNT)
    store.current_key = "a"

    state.update(0)
    assert state.value() == 0
    state.clear()
    assert state.value() is None
    state.update(1)
    state.update(None)
    assert state.value() is None
    state.clear()
    assert dict(state.all()) == {}


def test_a_value_false_by_its_own_account_is_kept_and_cleared(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    store = open_store(backend, storage)
    state = store.cells(cell("flag", bool))
    put(store, state, {"a": False, "b": True, "c": False})
    put(store, state, {"c": None})

    assert get(store, state, ["a", "b", "c"]) == {"a": False, "b": True}
    assert entries(backend, storage, [checkpoint(store, storage, 1)], cell("flag", bool)) == {"a": False, "b": True}


def test_a_value_read_back_is_the_one_that_was_put(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    state = store.cells(cell("item", Item))
    put(store, state, {"a": Item("a", ["x"])})

    store.current_key = "a"
    item = state.value()
    item.tags.append("y")
    state.update(item)
    store.end_epoch()

    assert state.value() == Item("a", ["x", "y"])
    assert entries(backend, storage, [checkpoint(store, storage, 1)], cell("item", Item)) == {
        "a": Item("a", ["x", "y"])
    }


@pytest.mark.parametrize("again", [COUNT, mapping("count")])
def test_asking_twice_for_a_state_is_an_error(backend: KeyedStateBackend, storage: MemoryStorage, again: Any) -> None:
    store = open_store(backend, storage)
    store.cells(COUNT)

    with pytest.raises(JobGraphError, match='operator "op" asks twice for state "count"'):
        store.maps(again) if again.map_key is not None else store.cells(again)


def test_a_table_and_its_snapshots_see_bulk_updates(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    table = store.table(COUNT)
    checkpoint(store, storage, 1)

    table.put_all(HUNDRED)
    table.put_all({"k1": -1})
    store.end_epoch()

    assert table.get_all(["k1", "k2", "none"]) == [-1, 2, None]
    assert content(backend, storage, [checkpoint(store, storage, 2)], KEYS) == {**HUNDRED, "k1": -1}


def test_a_map_has_entries_of_its_own_for_each_key(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    state = store.maps(VISITS)

    put_maps(store, state, {"a": {"home": 1, "shop": 2}, "b": {"home": 3}})
    put_maps(store, state, {"a": {"home": 4, "none": None}})

    store.current_key = "a"
    assert state.get("home") == 4
    assert state.get("none") is None
    assert get_maps(store, state, ["a", "b", "c"]) == {"a": {"home": 4, "shop": 2}, "b": {"home": 3}}


def test_with_its_last_entry_a_map_is_gone(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    state = store.maps(VISITS)
    put_maps(store, state, {"a": {"home": 1, "shop": 2}, "b": {"home": 3}})

    put_maps(store, state, {"a": {"home": None, "shop": None}})
    store.current_key = "b"
    state.clear()
    state.clear()

    for store.current_key in "abc":
        assert state.is_empty()
        assert list(state.items()) == []
    assert list(state.all()) == []
    assert entries(backend, storage, [checkpoint(store, storage, 1)], VISITS) == {}


def test_a_cleared_map_can_be_filled_again(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    state = store.maps(VISITS)
    put_maps(store, state, MAPS)
    checkpoint(store, storage, 1)
    store.current_key = "k1"
    state.clear()
    state.put("new", 1)

    found = entries(backend, storage, [checkpoint(store, storage, 2)], VISITS)

    assert dict(state.items()) == {"new": 1}
    assert {map_key for key, map_key in found if key == "k1"} == {"new"}
    assert len(found) == 2 * len(KEYS) - 1


def test_entries_may_be_put_and_removed_while_they_are_read(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    state = store.maps(VISITS)
    put_maps(store, state, {"a": {f"m{i}": i for i in range(50)}})
    store.current_key = "a"

    for number, (map_key, value) in enumerate(state.items()):
        state.remove(map_key)
        if number < 50:
            state.put(f"n{value}", value)

    left = dict(state.items())
    assert not any(map_key.startswith("m") for map_key in left)
    assert set(left.values()) <= set(range(50))


def test_one_entry_changed_is_one_entry_in_the_snapshot(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    state = store.maps(VISITS)
    put_maps(store, state, {"a": {f"page-{i * 7919 % 10007}": i for i in range(5000)}})
    first = checkpoint(store, storage, 1)
    put_maps(store, state, {"a": {"page-0": -1, "page-7919": None}})

    second = checkpoint(store, storage, 2)

    assert bytes_of(second, besides=first) < bytes_of(first) / 4
    found = entries(backend, storage, [second], VISITS)
    assert found["a", "page-0"] == -1
    assert ("a", "page-7919") not in found
    assert len(found) == 4999


def test_namespaces_keep_the_state_of_a_key_apart(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    cells, maps, plain = store.cells(WINDOWED), store.maps(WINDOWED_VISITS), store.cells(COUNT)

    for store.current_namespace in (10, 20):
        put(store, cells, {"a": store.current_namespace})
        put_maps(store, maps, {"a": {"m": store.current_namespace}, "b": {"n": 1}})
        put(store, plain, {"a": store.current_namespace})
    store.current_namespace, store.current_key = 20, "b"
    maps.clear()

    store.current_namespace = 10
    assert get(store, cells, "ab") == {"a": 10}
    assert get_maps(store, maps, "ab") == {"a": {"m": 10}, "b": {"n": 1}}
    assert get(store, plain, "ab") == {"a": 20}
    store.current_namespace = 20
    assert get_maps(store, maps, "ab") == {"a": {"m": 20}}
    assert dict(cells.all()) == {("a", 10): 10, ("a", 20): 20}
    assert dict(maps.all()) == {("a", 10, "m"): 10, ("a", 20, "m"): 20, ("b", 10, "n"): 1}


def test_namespaces_are_in_snapshots(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    cells, maps = store.cells(WINDOWED), store.maps(WINDOWED_VISITS)
    for store.current_namespace in (10, 20):
        put(store, cells, HUNDRED)
        put_maps(store, maps, MAPS)
    checkpoint(store, storage, 1)
    put(store, cells, {"k1": None})
    put_maps(store, maps, {"k1": {"home": None, "shop": -1}})
    handle = checkpoint(store, storage, 2)

    restored = open_store(backend, storage, [handle])

    again, maps_again = restored.cells(WINDOWED), restored.maps(WINDOWED_VISITS)
    restored.current_namespace = 10
    assert get(restored, again, KEYS) == HUNDRED
    assert get_maps(restored, maps_again, KEYS) == MAPS
    restored.current_namespace = 20
    assert get(restored, again, KEYS) == {key: value for key, value in HUNDRED.items() if key != "k1"}
    assert get_maps(restored, maps_again, KEYS) == {**MAPS, "k1": {"shop": -1}}
    put_maps(restored, maps_again, {"k2": {"home": 7}})
    third = entries(backend, storage, [checkpoint(restored, storage, 3)], WINDOWED_VISITS)
    assert third["k2", 20, "home"] == 7
    assert third["k2", 10, "home"] == 2


def test_without_a_key_state_is_out_of_reach(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    cells, maps, windowed = store.cells(COUNT), store.maps(VISITS), store.maps(WINDOWED_VISITS)
    assert store.current_key is NO_KEY
    store.current_namespace = 1

    for use in (
        cells.value,
        cells.clear,
        lambda: cells.update(1),
        lambda: maps.get("m"),
        lambda: maps.put("m", 1),
        lambda: maps.remove("m"),
        lambda: list(maps.items()),
        maps.is_empty,
        maps.clear,
        lambda: windowed.get("m"),
        lambda: windowed.put("m", 1),
    ):
        with pytest.raises(StateAccessError, match="outside a keyed context"):
            use()

    assert store.count().entries == 0


def test_keys_and_map_keys_may_be_tuples(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    of = owner(key_type=tuple[str, int])
    spec = mapping("edges", tuple[int, str], of=list[int])
    store = open_store(backend, storage, of=of)
    state, count = store.maps(spec), store.cells(COUNT)
    put_maps(store, state, {("a", 1): {(1, "x"): [1], (2, "y"): [2]}, ("a", 2): {(1, "x"): [3]}})
    put(store, count, {("a", 1): 5})

    restored = open_store(backend, storage, [checkpoint(store, storage, 1)], of)

    assert get_maps(restored, restored.maps(spec), [("a", 1), ("a", 2)]) == {
        ("a", 1): {(1, "x"): [1], (2, "y"): [2]},
        ("a", 2): {(1, "x"): [3]},
    }
    assert get(restored, restored.cells(COUNT), [("a", 1), ("b", 1)]) == {("a", 1): 5}


def test_a_map_value_changed_in_place_after_snapshot_does_not_show_in_it(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    spec = mapping("items", of=Item)
    store = open_store(backend, storage)
    state = store.maps(spec)
    item = Item("a", ["x"])
    put_maps(store, state, {"a": {"m": item}})
    snapshot = store.snapshot(CheckpointId(1))
    item.tags.append("late")

    handle = snapshot.write(storage, "shared")

    assert entries(backend, storage, [handle], spec) == {("a", "m"): Item("a", ["x"])}


def test_entries_are_counted(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    cells, maps = store.cells(COUNT), store.maps(VISITS)
    put(store, cells, {"a": 1, "b": 2, "c": 3})
    put_maps(store, maps, {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 2}})
    put(store, cells, {"a": 7, "b": None})
    put_maps(store, maps, {"a": {"x": 5, "y": None, "z": None}})
    store.current_key = "b"
    maps.clear()
    store.end_epoch()

    assert store.count() == StateCount(entries=3, keys=2)
    restored = open_store(backend, storage, [checkpoint(store, storage, 1)])
    restored.cells(COUNT)
    restored.maps(VISITS)
    restored.end_epoch()
    assert restored.count() == StateCount(entries=3, keys=2)
