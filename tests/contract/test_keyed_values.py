"""What every KeyedStateBackend promises of values and keys that are not quite what was declared, or were renamed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from tests.contract.keyed_stores import (
    COUNT,
    HUNDRED,
    Expiry,
    cell,
    checkpoint,
    entries,
    get,
    mapping,
    open_store,
    owner,
    put,
)

from checkdam.backends import HashMapStateBackend, KeyedStateBackend
from checkdam.errors import JobGraphError, StateNotRestorableError
from checkdam.ids import CheckpointId
from checkdam.state.spec import StateKind, StateSpec
from checkdam.state.ttl import StateTtlConfig
from checkdam.testing import MemoryStorage
from checkdam.types.type_info import list_of, tuple_of, type_info


@dataclass(frozen=True)
class Frozen:
    x: int


def test_a_wrong_value_fails_the_epoch_on_rocksdb_and_the_checkpoint_on_hashmap_with_the_same_words(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    store = open_store(backend, storage)
    state = store.cells(COUNT)
    store.current_key = "a"
    state.update("text")
    told = r'state "count" of operator "op": value \'text\' does not fit the declared type int.*got `str`'

    if isinstance(backend, HashMapStateBackend):
        store.end_epoch()
        snapshot = store.snapshot(CheckpointId(1))
        with pytest.raises(JobGraphError, match=told):
            snapshot.write(storage, "shared")
    else:
        with pytest.raises(JobGraphError, match=told):
            store.end_epoch()


def _changed_list(given: Any) -> None:
    given[0] = 99


def _changed_bytes(given: Any) -> None:
    given[0] = 122


def _changed_dict(given: Any) -> None:
    given["x"] = 99


def _changed_inner(given: Any) -> None:
    given[0][0] = 99


STAND_INS = [
    (tuple[int, int], lambda: [1, 1], _changed_list, (1, 1)),
    (bytes, lambda: bytearray(b"aa"), _changed_bytes, b"aa"),
    (Frozen, lambda: {"x": 1}, _changed_dict, Frozen(1)),
    (tuple[tuple[int, int], int], lambda: ([1, 1], 1), _changed_inner, ((1, 1), 1)),
    (tuple[bytes, int], lambda: (bytearray(b"aa"), 1), lambda given: _changed_bytes(given[0]), (b"aa", 1)),
]


@pytest.mark.parametrize(("of", "make", "change", "kept_as"), STAND_INS)
@pytest.mark.parametrize("is_map", [False, True])
@pytest.mark.parametrize("is_delta", [False, True])
def test_a_snapshot_holds_the_value_of_its_barrier_also_where_a_value_that_can_change_stands_for_one_that_cannot(
    backend: KeyedStateBackend,
    storage: MemoryStorage,
    of: Any,
    make: Any,
    change: Any,
    kept_as: Any,
    is_map: bool,
    is_delta: bool,
) -> None:
    spec = mapping("s", of=of) if is_map else cell("s", of)
    store = open_store(backend, storage)
    state: Any = store.maps(spec) if is_map else store.cells(spec)
    expected = {}
    for store.current_key in [f"k{i}" for i in range(10)] if is_delta else []:
        state.put("m", kept_as) if is_map else state.update(kept_as)
        expected[(store.current_key, "m") if is_map else store.current_key] = kept_as
    store.end_epoch()
    checkpoint(store, storage, 1)
    store.current_key = "k1"
    given = make()
    state.put("m", given) if is_map else state.update(given)
    store.end_epoch()

    snapshot = store.snapshot(CheckpointId(2))
    change(given)
    handle = snapshot.write(storage, "shared")

    expected["k1" if not is_map else ("k1", "m")] = kept_as
    assert entries(backend, storage, [handle], spec) == expected


class KeyV1(NamedTuple):
    city: str
    number: int


class KeyV2(NamedTuple):
    city: str
    number: int


class WiderKey(NamedTuple):
    city: str
    number: int
    floor: int = 0


def test_a_renamed_class_of_keys_finds_its_state_again(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage, of=owner(key_type=KeyV1))
    put(store, store.cells(COUNT), {KeyV1(key, i): i for key, i in HUNDRED.items()})
    handle = checkpoint(store, storage, 1)

    for number in (2, 3):  # also on top of what the first job wrote
        store = open_store(backend, storage, [handle], owner(key_type=KeyV2))
        put(store, store.cells(COUNT), {KeyV2("k1", 1): -number})
        handle = checkpoint(store, storage, number)

    last = open_store(backend, storage, [handle], owner(key_type=KeyV2))
    keys = [KeyV2(key, i) for key, i in HUNDRED.items()]
    assert get(last, last.cells(COUNT), keys) == {**{KeyV2(k, i): i for k, i in HUNDRED.items()}, KeyV2("k1", 1): -3}


def test_a_renamed_class_of_map_keys_finds_its_entries_again(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    store = open_store(backend, storage)
    state = store.maps(mapping("m", KeyV1))
    for store.current_key, value in HUNDRED.items():
        state.put(KeyV1("home", value), value)
    store.end_epoch()
    renamed = open_store(backend, storage, [checkpoint(store, storage, 1)])
    state = renamed.maps(mapping("m", KeyV2))
    renamed.current_key = "k1"
    state.put(KeyV2("home", 1), -1)
    renamed.end_epoch()

    found = entries(backend, storage, [checkpoint(renamed, storage, 2)], mapping("m", KeyV2))

    expected = {(key, KeyV2("home", value)): value for key, value in HUNDRED.items()}
    assert found == {**expected, ("k1", KeyV2("home", 1)): -1}


def test_keys_with_another_field_are_refused_in_words_of_the_job(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    store = open_store(backend, storage, of=owner(key_type=KeyV1))
    state = store.maps(mapping("m", KeyV1))
    store.current_key = KeyV1("a", 1)
    state.put(KeyV1("b", 2), 1)
    store.end_epoch()
    handle = checkpoint(store, storage, 1)

    with pytest.raises(StateNotRestorableError, match="had keys of type KeyV1 in the checkpoint and has WiderKey"):
        open_store(backend, storage, [handle], owner(key_type=WiderKey))
    with pytest.raises(StateNotRestorableError, match="had map keys of type KeyV1 in the checkpoint and has WiderKey"):
        open_store(backend, storage, [handle], owner(key_type=KeyV1)).maps(mapping("m", WiderKey))


def _timed(kind: StateKind, of: Any) -> StateSpec:
    element = tuple_of([type_info(of), type_info(int)])
    stored = list_of(element, list) if kind is StateKind.LIST else element
    return StateSpec("s", kind, stored, ttl=StateTtlConfig(timedelta(seconds=1)))


@pytest.mark.parametrize(("kind", "place"), [(StateKind.VALUE, "int became str"), (StateKind.LIST, 'field "[]": int')])
def test_a_refusal_tells_of_the_declared_type_without_the_times_of_its_time_to_live(
    backend: KeyedStateBackend, storage: MemoryStorage, kind: StateKind, place: str
) -> None:
    store = open_store(backend, storage)
    state = store.cells(_timed(kind, int), Expiry().one if kind is StateKind.VALUE else Expiry().elements)
    put(store, state, {"a": (1, 5) if kind is StateKind.VALUE else [(1, 5)]})
    restored = open_store(backend, storage, [checkpoint(store, storage, 1)])

    with pytest.raises(StateNotRestorableError) as refused:
        restored.cells(_timed(kind, str), Expiry().one)

    told = f"{refused.value} {refused.value.hint}"
    assert place in told
    assert "tuple" not in told
    assert "[0]" not in told


@dataclass
class Amount:
    cents: int


@dataclass
class Checked:
    cents: int
    currency: str = "EUR"

    def __post_init__(self) -> None:
        if self.cents < 0:
            raise LookupError("no such amount")


def test_a_class_that_rejects_its_old_values_is_told_with_operator_and_state(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    store = open_store(backend, storage)
    put(store, store.cells(cell("amount", Amount)), {"a": Amount(-1)})
    restored = open_store(backend, storage, [checkpoint(store, storage, 1)])

    with pytest.raises(StateNotRestorableError, match=r'state "amount" of operator "op".*LookupError: no such amount'):
        restored.cells(cell("amount", Checked))


class Tagged(NamedTuple):
    cents: int
    tags: list[str] = []  # noqa: RUF012  # what users write


class Untagged(NamedTuple):
    cents: int


def test_each_migrated_value_has_a_default_of_its_own(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage)
    put(store, store.cells(cell("s", Untagged)), {"a": Untagged(1), "b": Untagged(2)})
    restored = open_store(backend, storage, [checkpoint(store, storage, 1)])
    state = restored.cells(cell("s", Tagged))

    restored.current_key = "a"
    state.value().tags.append("x")

    assert get(restored, state, ["b"]) == {"b": Tagged(2, [])}
    assert Tagged(0).tags == []


def test_nan_is_refused_as_a_key_where_it_would_be_written(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    store = open_store(backend, storage, of=owner(key_type=float))
    state = store.cells(COUNT)
    store.current_key = float("nan")
    state.update(1)

    with pytest.raises(JobGraphError, match=r'state "count" of operator "op": .*NaN'):  # noqa: PT012  # may come with any
        store.end_epoch()
        store.snapshot(CheckpointId(1)).write(storage, "shared")
