"""What every KeyedStateBackend promises of restored state: other parallelism, other types, other backends."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from tests.contract.keyed_stores import (
    BACKENDS,
    COUNT,
    GROUP_OF,
    HUNDRED,
    KEYS,
    VISITS,
    WINDOWED,
    WINDOWED_VISITS,
    Expiry,
    Item,
    bytes_of,
    cell,
    checkpoint,
    content,
    entries,
    expiring,
    get,
    get_maps,
    mapping,
    open_store,
    owner,
    put,
    put_maps,
)

from checkdam.backends import KeyedStateBackend, StoreOwner
from checkdam.errors import StateNotRestorableError
from checkdam.ids import CheckpointId, SubtaskIndex
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import KeyedStateHandle, StateFile
from checkdam.state.spec import StateKind, StateSpec
from checkdam.state.ttl import TtlTime
from checkdam.storage.subtree import subtree
from checkdam.testing import MemoryStorage
from checkdam.types.type_info import type_info


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 2, 3, 5, 16])
@pytest.mark.parametrize("before", [1, 3, 4])
def test_rescaling_gives_each_subtask_the_key_groups_it_owns(
    backend: KeyedStateBackend, storage: MemoryStorage, before: int, after: int
) -> None:
    handles = []
    for subtask in range(before):
        of = owner(subtask, before)
        store = open_store(backend, storage, of=of)
        state = store.cells(COUNT)
        put(store, state, {key: value for key, value in HUNDRED.items() if GROUP_OF[key] in of.key_groups})
        checkpoint(store, storage, 1)
        put(store, state, {key: -1 for key in ("k5", "k6") if GROUP_OF[key] in of.key_groups})
        handles.append(checkpoint(store, storage, 2))
    expected = {**HUNDRED, "k5": -1, "k6": -1}

    for subtask in range(after):
        of = owner(subtask, after)
        store = open_store(backend, storage, handles, of)
        state = store.cells(COUNT)
        mine = {key: value for key, value in expected.items() if GROUP_OF[key] in of.key_groups}
        assert get(store, state, KEYS) == mine
        if before != after:
            snapshot = store.snapshot(CheckpointId(3))
            assert snapshot.write(storage, "new").files == snapshot.new_files


def test_a_restored_store_goes_on_with_deltas(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    put(store, store.cells(COUNT), HUNDRED)
    first = checkpoint(store, storage, 1)
    restored = open_store(backend, storage, [first])
    put(restored, restored.cells(COUNT), {"k1": -1})

    handle = restored.snapshot(CheckpointId(2)).write(storage, "shared")

    assert {file.path for file in first.files} & {file.path for file in handle.files}
    assert bytes_of(handle, besides=first) < bytes_of(first)
    assert content(backend, storage, [handle], KEYS) == {**HUNDRED, "k1": -1}


def test_without_claim_the_first_snapshot_needs_no_file_of_the_old_directory(backend: KeyedStateBackend) -> None:
    old, new = MemoryStorage(), MemoryStorage()
    store = open_store(backend, old)
    put(store, store.cells(COUNT), HUNDRED)
    handle = checkpoint(store, old, 1)
    for file in handle.files:
        old.rename(file.path, f"job/{file.path}")
    restored = open_store(backend, subtree(old, "job"), [handle], claim=False)
    put(restored, restored.cells(COUNT), {"k1": -1})
    old.delete_directory("job")

    moved = checkpoint(restored, new, 2)

    assert content(backend, new, [moved], KEYS) == {**HUNDRED, "k1": -1}


@pytest.mark.parametrize("claim", [True, False])
def test_state_that_nobody_asks_for_is_carried_on(
    backend: KeyedStateBackend, storage: MemoryStorage, claim: bool
) -> None:
    store = open_store(backend, storage)
    put(store, store.cells(COUNT), HUNDRED)
    put(store, store.cells(cell("item", Item)), {"a": Item("a", ["x"])})
    checkpoint(store, storage, 1)
    put(store, store.cells(cell("third", str)), {"a": "b"})
    handle = checkpoint(store, storage, 2)
    second = open_store(backend, storage, [handle], claim=claim)
    put(second, second.cells(cell("other", int)), {"b": 2})
    handle = checkpoint(second, storage, 3)

    third = open_store(backend, storage, [handle])

    assert get(third, third.cells(COUNT), KEYS) == HUNDRED
    assert get(third, third.cells(cell("item", Item)), ["a"]) == {"a": Item("a", ["x"])}
    assert get(third, third.cells(cell("third", str)), ["a"]) == {"a": "b"}
    assert get(third, third.cells(cell("other", int)), ["b"]) == {"b": 2}


@pytest.mark.parametrize("of", [owner(key_type=int), owner(max_parallelism=32)])
def test_another_key_type_or_max_parallelism_is_refused(
    backend: KeyedStateBackend, storage: MemoryStorage, of: StoreOwner
) -> None:
    store = open_store(backend, storage)
    put(store, store.cells(COUNT), {"a": 1})
    handle = checkpoint(store, storage, 1)

    with pytest.raises(StateNotRestorableError, match='operator "op"'):
        open_store(backend, storage, [handle], of)


def test_an_empty_key_group_range_holds_nothing(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    put(store, store.cells(COUNT), HUNDRED)
    of = dataclasses.replace(owner(), subtask=SubtaskIndex(9), key_groups=KeyGroupRange(5, 4))

    restored = open_store(backend, storage, [checkpoint(store, storage, 1)], of)

    assert list(restored.cells(COUNT).all()) == []


def test_rescaling_divides_also_the_state_that_nobody_asks_for(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    store = open_store(backend, storage)
    put(store, store.cells(COUNT), HUNDRED)
    handle = checkpoint(store, storage, 1)
    halves = [open_store(backend, storage, [handle], owner(subtask, 2)) for subtask in range(2)]

    handles = [half.snapshot(CheckpointId(2)).write(storage, f"half-{i}") for i, half in enumerate(halves)]

    held = [content(backend, storage, [each], KEYS) for each in handles]
    assert held[0] | held[1] == HUNDRED
    assert len(held[0]) + len(held[1]) == len(HUNDRED)


def test_rescaling_divides_maps_and_namespaces_by_their_keys(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    handles = []
    for subtask in range(2):
        of = owner(subtask, 2)
        store = open_store(backend, storage, of=of)
        maps, windows = store.maps(VISITS), store.maps(WINDOWED_VISITS)
        mine = [key for key in KEYS if GROUP_OF[key] in of.key_groups]
        put_maps(store, maps, {key: {"x": 1, key: 2} for key in mine})
        store.current_namespace = 7
        put_maps(store, windows, {key: {"w": HUNDRED[key]} for key in mine})
        handles.append(checkpoint(store, storage, 1))

    for parallelism in (1, 3, 16):
        found: dict[Any, Any] = {}
        for subtask in range(parallelism):
            of = owner(subtask, parallelism)
            store = open_store(backend, storage, handles, of)
            maps, windows = store.maps(VISITS), store.maps(WINDOWED_VISITS)
            store.current_namespace = 7
            mine = [key for key in KEYS if GROUP_OF[key] in of.key_groups]
            assert get_maps(store, maps, KEYS) == {key: {"x": 1, key: 2} for key in mine}
            found.update(windows.all())
        assert found == {(key, 7, "w"): value for key, value in HUNDRED.items()}


@pytest.mark.parametrize("is_asked_before", [True, False])
def test_state_that_is_asked_for_late_is_in_every_snapshot(
    backend: KeyedStateBackend, storage: MemoryStorage, is_asked_before: bool
) -> None:
    store = open_store(backend, storage)
    put(store, store.cells(COUNT), HUNDRED)
    first = checkpoint(store, storage, 1)
    restored = open_store(backend, storage, [first], claim=False)
    put(restored, restored.cells(cell("other")), {"a": 1})
    if not is_asked_before:
        snapshot = restored.snapshot(CheckpointId(2))
    late = restored.cells(COUNT)
    put(restored, late, {"k1": -1})
    if is_asked_before:
        snapshot = restored.snapshot(CheckpointId(2))

    second = snapshot.write(storage, "shared")

    restored.completed(CheckpointId(2))
    put(restored, late, {"k2": -2})
    third = checkpoint(restored, storage, 3)
    expected = {**HUNDRED, "k1": -1} if is_asked_before else HUNDRED
    assert content(backend, storage, [second], KEYS) == expected
    assert content(backend, storage, [third], KEYS) == {**HUNDRED, "k1": -1, "k2": -2}


class PointV1(NamedTuple):
    x: int
    y: int


class PointV2(NamedTuple):
    y: int
    x: int
    z: int = 9


@pytest.mark.parametrize("claim", [True, False])
def test_values_of_an_older_type_migrate(backend: KeyedStateBackend, storage: MemoryStorage, claim: bool) -> None:
    old, new = cell("point", PointV1), cell("point", PointV2)
    old_map, new_map = mapping("points", of=PointV1), mapping("points", of=PointV2)
    store = open_store(backend, storage)
    put(store, store.cells(old), {key: PointV1(i, -i) for key, i in HUNDRED.items()})
    put_maps(store, store.maps(old_map), {"a": {"m": PointV1(1, 2)}})
    put(store, store.cells(COUNT), HUNDRED)
    first = checkpoint(store, storage, 1)

    migrated = open_store(backend, storage, [first], claim=claim)
    state = migrated.cells(new)
    expected = {key: PointV2(-i, i, 9) for key, i in HUNDRED.items()}
    assert get(migrated, state, KEYS) == expected
    assert dict(migrated.maps(new_map).all()) == {("a", "m"): PointV2(2, 1, 9)}
    put(migrated, state, {"k1": PointV2(0, 0, 0)})
    second = checkpoint(migrated, storage, 2)
    put(migrated, state, {"k2": PointV2(0, 0, 0)})
    third = checkpoint(migrated, storage, 3)

    after = {**expected, "k1": PointV2(0, 0, 0)}
    assert entries(backend, storage, [second], new) == after
    assert entries(backend, storage, [third], new) == {**after, "k2": PointV2(0, 0, 0)}
    assert entries(backend, storage, [third], new_map) == {("a", "m"): PointV2(2, 1, 9)}
    assert content(backend, storage, [third], KEYS) == HUNDRED  # nobody asked for it in between


def test_a_checkpoint_taken_before_a_late_migration_is_no_ground_for_deltas(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    store = open_store(backend, storage)
    put(store, store.cells(cell("point", PointV1)), {key: PointV1(i, -i) for key, i in HUNDRED.items()})
    restored = open_store(backend, storage, [checkpoint(store, storage, 1)])
    put(restored, restored.cells(COUNT), {"a": 1})
    before = restored.snapshot(CheckpointId(2))
    state = restored.cells(cell("point", PointV2))
    before.write(storage, "shared")
    restored.completed(CheckpointId(2))
    put(restored, state, {"k1": PointV2(0, 0, 0)})

    handle = checkpoint(restored, storage, 3)

    found = entries(backend, storage, [handle], cell("point", PointV2))
    assert found == {**{key: PointV2(-i, i, 9) for key, i in HUNDRED.items()}, "k1": PointV2(0, 0, 0)}


class Renamed(NamedTuple):
    x: int
    y: int


def test_a_class_by_another_name_is_the_same_type(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    put(store, store.cells(cell("point", PointV1)), {key: PointV1(i, -i) for key, i in HUNDRED.items()})
    renamed = open_store(backend, storage, [checkpoint(store, storage, 1)])
    put(renamed, renamed.cells(cell("point", Renamed)), {"k1": Renamed(0, 0)})

    handle = checkpoint(renamed, storage, 2)

    found = entries(backend, storage, [handle], cell("point", Renamed))
    assert found == {**{key: Renamed(i, -i) for key, i in HUNDRED.items()}, "k1": Renamed(0, 0)}


class PointOfText(NamedTuple):
    x: int
    y: str


REFUSED = [
    (COUNT, cell("count", str), ["int", "str"]),
    (cell("point", PointV1), cell("point", PointOfText), ['"y"', "int", "str"]),
    (COUNT, cell("count", kind=StateKind.REDUCING), ["a value state", "a reducing state"]),
    (COUNT, mapping("count"), ["a value state", "a map state"]),
    (VISITS, mapping("visits", int), ["map keys", "str", "int"]),
    (VISITS, mapping("visits", of=str), ["int", "str"]),
    (WINDOWED, cell("windowed"), ["windows", "int", "none"]),
    (WINDOWED, cell("windowed", namespace=type_info(str)), ["windows", "int", "str"]),
    (expiring("s"), cell("s"), ["had a time to live", "has no time to live", "StateTtlConfig"]),
    (cell("s"), expiring("s"), ["had no time to live", "has a time to live", "Leave its ttl out"]),
    (mapping("s"), expiring("s", is_map=True), ["had no time to live"]),
    (
        expiring("s"),
        expiring("s", time=TtlTime.EVENT_TIME),
        ["in processing time in", "in event time in", "time=TtlTime.PROCESSING_TIME"],
    ),
    (
        expiring("s", is_map=True, time=TtlTime.EVENT_TIME),
        expiring("s", is_map=True),
        ["in event time in", "in processing time in", "time=TtlTime.EVENT_TIME"],
    ),
]


@pytest.mark.parametrize(
    ("old", "new", "words"), REFUSED, ids=[f"{i}-{old.name}" for i, (old, _, _) in enumerate(REFUSED)]
)
def test_what_does_not_go_together_is_refused_with_operator_state_and_both_sides(
    backend: KeyedStateBackend, storage: MemoryStorage, old: StateSpec, new: StateSpec, words: list[str]
) -> None:
    store = open_store(backend, storage)
    store.current_key, store.current_namespace = "a", 1
    stored: Any = PointV1(1, 2) if old.name == "point" else (1, 2) if old.ttl else 1
    if old.map_key is not None:
        store.maps(old).put("m", stored)
    else:
        store.cells(old).update(stored)
    store.end_epoch()
    restored = open_store(backend, storage, [checkpoint(store, storage, 1)])

    with pytest.raises(StateNotRestorableError) as caught:
        restored.maps(new) if new.map_key is not None else restored.cells(new)

    told = f"{caught.value} {caught.value.hint}"
    assert all(word in told for word in [f'"{old.name}"', '"op"', *words]), told


def test_the_duration_of_a_time_to_live_may_change(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    spec = expiring("s")
    store = open_store(backend, storage)
    put(store, store.cells(spec, Expiry().one), {"a": (1, 5)})
    assert spec.ttl is not None
    longer = dataclasses.replace(spec, ttl=dataclasses.replace(spec.ttl, time_to_live=timedelta(days=9)))

    restored = open_store(backend, storage, [checkpoint(store, storage, 1)])

    assert dict(restored.cells(longer, Expiry().one).all()) == {"a": (1, 5)}


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("other", BACKENDS)
def test_the_backend_may_change_between_runs(
    backend: KeyedStateBackend, storage: MemoryStorage, other: str, parallelism: int
) -> None:
    store = open_store(BACKENDS[other], storage)
    put(store, store.cells(COUNT), HUNDRED)
    put(store, store.cells(cell("item", Item)), {"a": Item("a", ["x"])})
    maps, windows = store.maps(VISITS), store.maps(WINDOWED_VISITS)
    put_maps(store, maps, {key: {"x": 1, key: 2} for key in KEYS})
    store.current_namespace = 3
    put_maps(store, windows, {key: {"w": 2} for key in KEYS})
    put(store, store.cells(cell("point", PointV1)), {"a": PointV1(1, 2)})
    put(store, store.cells(cell("unasked")), HUNDRED)
    checkpoint(store, storage, 1)
    put_maps(store, maps, {"k1": {"x": None}})
    handle = checkpoint(store, storage, 2)

    subtasks = [open_store(backend, storage, [handle], owner(i, parallelism)) for i in range(parallelism)]
    handles = []
    for subtask in subtasks:
        subtask.cells(COUNT)
        subtask.maps(VISITS)
        subtask.cells(cell("point", PointV2))
        handles.append(subtask.snapshot(CheckpointId(3)).write(storage, "shared"))

    assert {each.backend for each in handles} == {handles[0].backend}
    if other != handles[0].backend:
        assert not {file.path for each in handles for file in each.files} & {file.path for file in handle.files}
    visits = {(key, map_key): value for key in KEYS for map_key, value in {"x": 1, key: 2}.items()}
    del visits["k1", "x"]
    assert entries(backend, storage, handles, COUNT) == HUNDRED
    assert entries(backend, storage, handles, cell("unasked")) == HUNDRED
    assert entries(backend, storage, handles, cell("item", Item)) == {"a": Item("a", ["x"])}
    assert entries(backend, storage, handles, VISITS) == visits
    assert entries(backend, storage, handles, WINDOWED_VISITS) == {(key, 3, "w"): 2 for key in KEYS}
    assert entries(backend, storage, handles, cell("point", PointV2)) == {"a": PointV2(2, 1, 9)}


@pytest.mark.parametrize("of", [owner(key_type=int), owner(max_parallelism=32)])
@pytest.mark.parametrize("other", BACKENDS)
def test_another_backend_is_no_way_round_the_checks(
    backend: KeyedStateBackend, storage: MemoryStorage, other: str, of: StoreOwner
) -> None:
    store = open_store(BACKENDS[other], storage)
    put(store, store.cells(COUNT), {"a": 1})
    handle = checkpoint(store, storage, 1)

    with pytest.raises(StateNotRestorableError, match='operator "op"'):
        open_store(backend, storage, [handle], of)


def test_state_of_an_unknown_backend_is_refused(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    handle = KeyedStateHandle(owner().key_groups, (StateFile("shared/x", 3),), "granite")

    with pytest.raises(StateNotRestorableError, match='backend "granite"'):
        open_store(backend, storage, [handle])
