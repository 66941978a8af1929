"""What every KeyedStateBackend promises of state that expires: gone for good, and only as its TTL says."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from tests.contract.keyed_stores import (
    KEYS,
    Expiry,
    checkpoint,
    entries,
    expiring,
    get,
    open_store,
    owner,
    put,
    put_maps,
)

from checkdam.backends import KeyedStateBackend
from checkdam.ids import CheckpointId
from checkdam.state import ttl_states
from checkdam.state.spec import StateSpec
from checkdam.state.stored import Prune
from checkdam.state.ttl import CleanupFullSnapshot, CleanupIncrementally, CleanupOnCompaction, StateTtlConfig, TtlTime
from checkdam.state.ttl_states import fresh_element, fresh_elements
from checkdam.testing import MemoryStorage

OLD_AND_NEW = {key: (i, 5 if i % 2 else 15) for i, key in enumerate(KEYS)}
NEW = {key: stored for key, stored in OLD_AND_NEW.items() if stored[1] == 15}
MAPS = {"a": OLD_AND_NEW, "b": {"x": (1, 5)}}
NEW_IN_MAPS = {("a", map_key): stored for map_key, stored in NEW.items()}


def test_what_has_expired_does_not_come_through_a_restore(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    cells, lists, maps = expiring("c"), expiring("l", is_list=True), expiring("m", is_map=True)
    store = open_store(backend, storage)
    put(store, store.cells(cells, Expiry().one), OLD_AND_NEW)
    put(store, store.cells(lists, Expiry().elements), {"a": [(1, 5), (2, 15)], "b": [(3, 5)], "c": [(4, 15)]})
    put_maps(store, store.maps(maps, Expiry().one), MAPS)

    restored = open_store(backend, storage, [checkpoint(store, storage, 1)])

    later = Expiry(10)
    assert dict(restored.cells(cells, later.one).all()) == NEW
    assert dict(restored.cells(lists, later.elements).all()) == {"a": [(2, 15)], "c": [(4, 15)]}
    assert dict(restored.maps(maps, later.one).all()) == NEW_IN_MAPS


@pytest.mark.parametrize("is_map", [False, True])
def test_what_a_restore_dropped_stays_gone_under_a_longer_time_to_live(
    backend: KeyedStateBackend, storage: MemoryStorage, is_map: bool
) -> None:
    spec = expiring("s", is_map=is_map)
    store = open_store(backend, storage)
    few_old = {**dict.fromkeys(KEYS, (0, 15)), "k1": (1, 5)}
    _fill(store, spec, few_old)
    handle = checkpoint(store, storage, 1)
    restored = open_store(backend, storage, [handle])
    _state(restored, spec, Expiry(10).one)

    handle = checkpoint(restored, storage, 2)

    assert len(entries(backend, storage, [handle], spec)) == len(KEYS) - 1


@pytest.mark.parametrize("time", TtlTime)
@pytest.mark.parametrize("is_list", [False, True])
@pytest.mark.parametrize(("old", "new"), [(10, 1000), (1000, 10)])
def test_what_has_expired_by_the_shorter_of_two_lives_does_not_come_through_a_restore(
    backend: KeyedStateBackend, storage: MemoryStorage, old: int, new: int, is_list: bool, time: TtlTime
) -> None:
    now = [15]
    before, after = (_living(length, now, is_list=is_list, time=time) for length in (old, new))
    store = open_store(backend, storage)
    put(store, store.cells(*before), {"a": [(1, 5)], "b": [(2, 8)]} if is_list else {"a": (1, 5), "b": (2, 8)})

    restored = open_store(backend, storage, [checkpoint(store, storage, 1)])

    left = {"b": [(2, 8)] if is_list else (2, 8)}
    assert dict(restored.cells(*after).all()) == left
    longest = _living(5000, now, is_list=is_list, time=time)
    again = open_store(backend, storage, [checkpoint(restored, storage, 2)])
    assert dict(again.cells(*longest).all()) == left


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_longer_life_goes_on_over_a_restore_though_nothing_changed_meanwhile(
    backend: KeyedStateBackend, storage: MemoryStorage, parallelism: int
) -> None:
    now = [15]
    store = open_store(backend, storage)
    put(store, store.cells(*_living(10, now)), dict.fromkeys(KEYS, (1, 8)))
    handle = checkpoint(store, storage, 1)
    handles = []
    for subtask in range(parallelism):
        store = open_store(backend, storage, [handle], owner(subtask, parallelism))
        store.cells(*_living(1000, now))
        handles.append(checkpoint(store, storage, 2))

    now[0] = 900
    restored = open_store(backend, storage, handles)

    assert len(dict(restored.cells(*_living(1000, now)).all())) == len(KEYS)


def test_of_two_durations_in_a_checkpoint_the_longer_counts(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    now = [15]
    store = open_store(backend, storage)
    put(store, store.cells(*_living(10, now)), dict.fromkeys(KEYS, (1, 8)))
    handle = checkpoint(store, storage, 1)
    handles = []
    for subtask in range(2):
        store = open_store(backend, storage, [handle], owner(subtask, 2))
        if subtask:  # the other has not asked for it yet
            store.cells(*_living(1000, now))
        handles.append(checkpoint(store, storage, 2))

    now[0] = 900
    restored = open_store(backend, storage, handles)

    assert len(dict(restored.cells(*_living(1000, now)).all())) == len(KEYS)


@pytest.mark.parametrize("time", TtlTime)
@pytest.mark.parametrize("shape", ["cells", "lists", "maps"])
@pytest.mark.parametrize("is_asked_for", [True, False])
def test_a_full_snapshot_leaves_out_what_has_expired_if_asked_to(
    backend: KeyedStateBackend, storage: MemoryStorage, shape: str, is_asked_for: bool, time: TtlTime
) -> None:
    cleanup = [CleanupFullSnapshot()] if is_asked_for else []
    spec = expiring("s", *cleanup, is_map=shape == "maps", is_list=shape == "lists", time=time)
    expiry = Expiry()
    store = open_store(backend, storage)
    if shape == "lists":
        state = store.cells(spec, expiry.elements)
        put(store, state, {key: [stored, (9, 15)] for key, stored in OLD_AND_NEW.items()})
    elif shape == "cells":
        state = store.cells(spec, expiry.one)
        put(store, state, OLD_AND_NEW)
    else:
        _fill(store, spec, OLD_AND_NEW, expiry)
    expiry.now = 10

    found = entries(backend, storage, [checkpoint(store, storage, 1)], spec)

    if shape == "lists":
        assert len(found["k1"]) == (1 if is_asked_for else 2)
        assert len(found) == len(KEYS)
    else:
        assert len(found) == (len(NEW) if is_asked_for else len(KEYS))


def test_in_event_time_a_snapshot_does_not_depend_on_when_it_is_written(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    spec = expiring("s", CleanupFullSnapshot(), time=TtlTime.EVENT_TIME)
    expiry = Expiry()
    store = open_store(backend, storage)
    put(store, store.cells(spec, expiry.one), OLD_AND_NEW)
    snapshot = store.snapshot(CheckpointId(1))
    expiry.now = 10

    handle = snapshot.write(storage, "shared")

    assert entries(backend, storage, [handle], spec) == OLD_AND_NEW


@pytest.mark.parametrize("is_map", [False, True])
def test_a_sweep_goes_round_all_entries_a_few_at_a_time(
    backend: KeyedStateBackend, storage: MemoryStorage, is_map: bool
) -> None:
    spec = expiring("s", CleanupIncrementally(7), is_map=is_map)
    expiry = Expiry()
    store = open_store(backend, storage)
    state = _fill(store, spec, OLD_AND_NEW, expiry)
    checkpoint(store, storage, 1)
    expiry.now = 10

    for _ in range(2 * len(KEYS) // 7 + 2):
        before = expiry.asked
        state.sweep(7)
        assert expiry.asked - before <= 7
    store.end_epoch()

    assert len(dict(state.all())) == len(NEW)
    assert store.count().entries == len(NEW)
    assert len(entries(backend, storage, [checkpoint(store, storage, 2)], spec)) == len(NEW)


@pytest.mark.parametrize("is_map", [False, True])
def test_a_sweep_gets_round_while_entries_come_and_go(
    backend: KeyedStateBackend, storage: MemoryStorage, is_map: bool
) -> None:
    spec = expiring("s", CleanupIncrementally(3), is_map=is_map)
    expiry = Expiry()
    store = open_store(backend, storage)
    state = _fill(store, spec, OLD_AND_NEW, expiry)
    expiry.now = 10

    for number in range(len(KEYS)):
        _fill_state(store, state, {f"new-{number}": (number, 20)}, is_map=is_map)
        _fill_state(store, state, {f"new-{number - 3}": None}, is_map=is_map)
        state.sweep(3)

    assert not [stored for _, stored in state.all() if stored[1] < 10]


def test_a_sweep_of_lists_drops_elements(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    spec = expiring("s", CleanupIncrementally(3), is_list=True)
    expiry = Expiry()
    store = open_store(backend, storage)
    state = store.cells(spec, expiry.elements)
    fresh = {key: [(0, 15)] for key in KEYS}
    put(store, state, {**fresh, "a": [(1, 5), (2, 15)], "b": [(3, 5)], "c": [(4, 15)]})
    checkpoint(store, storage, 1)
    expiry.now = 10

    state.sweep(200)
    store.end_epoch()

    left = {**fresh, "a": [(2, 15)], "c": [(4, 15)]}
    assert get(store, state, [*KEYS, "a", "b", "c"]) == left
    assert entries(backend, storage, [checkpoint(store, storage, 2)], spec) == left


def test_a_sweep_of_nothing_or_of_state_without_ttl_does_nothing(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    store = open_store(backend, storage)
    empty = store.maps(expiring("s", CleanupIncrementally(3), is_map=True), Expiry().one)
    plain = store.cells(expiring("p"))
    put(store, plain, {"a": (1, 5)})

    empty.sweep(5)
    plain.sweep(5)

    assert dict(plain.all()) == {"a": (1, 5)}


def test_merged_files_hold_nothing_expired_that_could_come_back(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    cleaned, kept = expiring("cleaned", CleanupOnCompaction(1), is_map=True), expiring("kept", is_map=True)
    expiry = Expiry()
    store = open_store(backend, storage)
    states = [store.maps(spec, expiry.one) for spec in (cleaned, kept)]
    for state in states:
        put_maps(store, state, {"a": {f"old-{i}": (i, 5) for i in range(500)}, "b": OLD_AND_NEW})
    checkpoint(store, storage, 1)
    expiry.now = 10

    for number in range(2, 40):
        for state in states:
            put_maps(store, state, {"c": {f"n{number}": (number, 20)}})
        handle = checkpoint(store, storage, number)

    fresh = {("c", f"n{number}") for number in range(2, 40)} | {("b", map_key) for map_key in NEW}
    assert fresh <= set(entries(backend, storage, [handle], cleaned))
    assert len(entries(backend, storage, [handle], kept)) == 500 + len(KEYS) + 38


def _living(
    milliseconds: int, now: list[int], *, is_list: bool = False, time: TtlTime = TtlTime.PROCESSING_TIME
) -> tuple[StateSpec, Prune]:
    """A state whose elements live that long by the clock `now`, and its prune."""
    ttl = StateTtlConfig(timedelta(milliseconds=milliseconds), time=time, cleanup=None)
    spec = dataclasses.replace(expiring("s", is_list=is_list), ttl=ttl)
    return spec, ttl_states.Expiry(lambda: now[0] - milliseconds, fresh_elements if is_list else fresh_element)


def _state(store: Any, spec: StateSpec, prune: Any) -> Any:
    return store.maps(spec, prune) if spec.map_key is not None else store.cells(spec, prune)


def _fill(store: Any, spec: StateSpec, values: dict[str, Any], expiry: Expiry | None = None) -> Any:
    """One entry for each, in cells or in the maps of a few keys."""
    state = _state(store, spec, (expiry or Expiry()).one)
    _fill_state(store, state, values, is_map=spec.map_key is not None)
    return state


def _fill_state(store: Any, state: Any, values: dict[str, Any], *, is_map: bool) -> None:
    if not is_map:
        put(store, state, values)
        return
    for name, stored in values.items():
        put_maps(store, state, {f"key-{len(name) % 3}": {name: stored}})
