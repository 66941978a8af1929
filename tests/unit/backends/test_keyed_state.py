from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any

import pytest
from tests.unit.state.plain_store import PlainStore, RecordTime, keyed_state

from checkdam.backends import HashMapStateBackend, KeyedStateStore, StoreOwner
from checkdam.backends.contract import NO_KEY
from checkdam.backends.hashmap.hashmap_states import HashMapCells
from checkdam.backends.keyed_state import OperatorKeyedState
from checkdam.errors import JobGraphError, StateAccessError, StateNotRestorableError, StateRequestError
from checkdam.ids import Attempt, CheckpointId, OperatorUid, SubtaskIndex
from checkdam.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.state.spec import StateKind
from checkdam.state.ttl import CleanupIncrementally, StateTtlConfig
from checkdam.testing import MemoryStorage
from checkdam.types.hints import AvroType, PickleType
from checkdam.types.type_info import type_info

SECOND = StateTtlConfig(timedelta(seconds=1))
SWEPT = StateTtlConfig(timedelta(seconds=1), cleanup=(CleanupIncrementally(5, run_for_every_record=True),))


class Opaque:
    pass


@dataclass
class Changeable:
    number: int


class Last:
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return value

    def get_result(self, accumulator: int) -> int:
        return accumulator


def open_store(handles: tuple[KeyedStateHandle, ...] = (), storage: MemoryStorage | None = None) -> KeyedStateStore:
    owner = StoreOwner(OperatorUid("op"), SubtaskIndex(0), Attempt("a1"), KeyGroupRange(0, 7), 8, type_info(str))
    return HashMapStateBackend().open(owner, handles, storage, claim=True)


def keyed(store: KeyedStateStore, time: RecordTime | None = None, namespace: Any = None) -> OperatorKeyedState:
    return OperatorKeyedState(store, time or RecordTime(), OperatorUid("op"), namespace=namespace)


def test_a_plain_value_of_the_hashmap_backend_is_the_stores_own_object() -> None:
    state = keyed(open_store()).get_state(ValueStateDescriptor("count", int))

    assert isinstance(state, HashMapCells)


def test_a_default_is_read_where_there_is_no_value() -> None:
    store = PlainStore()
    state = keyed_state(store).get_state(ValueStateDescriptor("pair", tuple[int, int], default=(0, 0)))
    assert state.value() == (0, 0)

    state.update((1, 2))
    assert state.value() == (1, 2)
    state.clear()
    assert state.value() == (0, 0)
    state.update((1, 2))
    state.update(None)
    assert state.value() == (0, 0)


class Colour(Enum):
    RED = 1


@pytest.mark.parametrize(
    ("of", "default"),
    [
        (Colour, Colour.RED),
        (tuple[Colour, int], (Colour.RED, 1)),
        (tuple[Colour | None, int], (None, 1)),
        (AvroType({"type": "map", "values": "int"}), {"a": 1}),
    ],
)
def test_a_default_may_be_of_a_type_that_is_kept_in_another_form(of: Any, default: Any) -> None:
    assert keyed_state(PlainStore()).get_state(ValueStateDescriptor("s", of, default=default)).value() == default


def test_a_mutable_default_is_each_readers_own() -> None:
    state = keyed_state(PlainStore()).get_state(ValueStateDescriptor("words", list[str], default=[]))

    state.value().append("lost")

    assert state.value() == []


def test_a_falsy_value_is_not_the_default() -> None:
    state = keyed_state(PlainStore()).get_state(ValueStateDescriptor("count", int, default=7))

    state.update(0)

    assert state.value() == 0


@pytest.mark.parametrize(
    ("of", "default"),
    [
        (int, "0"),
        (int, True),
        (list[int], ["a"]),
        (tuple[int, int], (0,)),
        (tuple[int, int], [0, 0]),
        (tuple[tuple[int, int], int], ([0, 0], 0)),
        (bytes, bytearray(b"a")),
        (list[int], (1, 2)),
        (Changeable, {"number": 1}),
    ],
)
def test_a_default_of_another_type_is_refused(of: Any, default: Any) -> None:
    with pytest.raises(JobGraphError, match=r'the default of state "s" of operator "op" is .* not of its type'):
        keyed_state(PlainStore()).get_state(ValueStateDescriptor("s", of, default=default))


@pytest.mark.parametrize(
    "ask",
    [
        lambda state: state.get_state(ValueStateDescriptor("s", Opaque)),
        lambda state: state.get_list_state(ListStateDescriptor("s", Opaque)),
        lambda state: state.get_reducing_state(ReducingStateDescriptor("s", list[Opaque], max)),
        lambda state: state.get_aggregating_state(AggregatingStateDescriptor("s", Opaque, Last())),  # type: ignore[misc]
        lambda state: state.get_map_state(MapStateDescriptor("s", str, Opaque)),
        lambda state: state.get_map_state(MapStateDescriptor("s", Opaque, str)),
        lambda state: state.get_state(ValueStateDescriptor("s", Opaque, ttl=SECOND)),
    ],
)
def test_a_type_without_a_durable_form_is_refused_and_the_way_out_is_named(ask: Any) -> None:
    with pytest.raises(JobGraphError, match=r'state "s" of operator "op" is of type .*Opaque.*PickleType'):
        ask(keyed_state(PlainStore()))


@pytest.mark.parametrize("ttl", [None, SECOND])
def test_pickled_values_are_kept_in_every_kind(ttl: StateTtlConfig | None) -> None:
    store = open_store()
    states = keyed(store)
    value = states.get_state(ValueStateDescriptor("v", PickleType(Opaque), ttl=ttl))
    elements = states.get_list_state(ListStateDescriptor("l", PickleType(Opaque), ttl))
    reduced = states.get_reducing_state(ReducingStateDescriptor("r", PickleType(Opaque), lambda kept, added: 3, ttl))
    store.current_key = "a"

    value.update(Opaque())
    elements.add(Opaque())
    reduced.add(Opaque())
    store.snapshot(CheckpointId(1)).write(MemoryStorage(), "shared")

    assert isinstance(value.value(), Opaque)
    assert isinstance(elements.get()[0], Opaque)
    with pytest.raises(StateAccessError, match="must be of type"):
        reduced.add(Opaque())


@pytest.mark.parametrize("of", [list[int], dict[str, int], Changeable, tuple[str, list[int]], PickleType(Opaque)])
def test_a_map_key_type_that_cannot_be_looked_up_by_is_refused(of: Any) -> None:
    with pytest.raises(JobGraphError, match=r'map state "s" of operator "op" has keys of type .* not hashable'):
        keyed_state(PlainStore()).get_map_state(MapStateDescriptor("s", of, int))


EVERY_KIND: list[tuple[str, Callable[[], StateDescriptor]]] = [
    ("get_state", lambda: ValueStateDescriptor("s", int, default=1)),
    ("get_list_state", lambda: ListStateDescriptor("s", list[int], ttl=SECOND)),
    ("get_reducing_state", lambda: ReducingStateDescriptor("s", int, lambda kept, added: kept + added)),
    ("get_aggregating_state", lambda: AggregatingStateDescriptor("s", int, Last())),
    ("get_map_state", lambda: MapStateDescriptor("s", str, int)),
]


@pytest.mark.parametrize(("call", "descriptor"), EVERY_KIND)
def test_a_state_asked_for_again_is_the_same_handle(call: str, descriptor: Callable[[], StateDescriptor]) -> None:
    ask = getattr(keyed(open_store()), call)
    first = descriptor()

    assert ask(first) is ask(first) is ask(descriptor())


@pytest.mark.parametrize(
    ("call", "other", "told"),
    [
        ("get_map_state", MapStateDescriptor("s", str, int), "with a ValueStateDescriptor and then with a MapStateDes"),
        ("get_state", ValueStateDescriptor("s", str), "with type int and then with type str"),
        ("get_state", ValueStateDescriptor("s", int, default=1), "with default None and then with default 1"),
        ("get_state", ValueStateDescriptor("s", int, ttl=SECOND), "with ttl None and then with ttl StateTtlConfig"),
    ],
)
def test_another_state_of_a_name_is_refused(call: str, other: StateDescriptor, told: str) -> None:
    states = keyed(open_store())
    states.get_state(ValueStateDescriptor("s", int))

    with pytest.raises(StateRequestError, match=f'operator "op" asks for state "s" {told}'):
        getattr(states, call)(other)


@pytest.mark.parametrize(("call", "descriptor"), EVERY_KIND)
@pytest.mark.parametrize("given", [*(each for _, each in EVERY_KIND), lambda: "s", lambda: None])
def test_a_descriptor_of_another_kind_is_refused(
    call: str, descriptor: Callable[[], StateDescriptor], given: Callable[[], Any]
) -> None:
    if given is descriptor:
        return
    right = next(name for name, each in EVERY_KIND if each is given) if isinstance(given(), StateDescriptor) else call

    with pytest.raises(StateRequestError, match=rf'operator "op" calls {call}\(\) for state.* {right}\(') as refused:
        getattr(keyed(open_store()), call)(given())
    assert type(descriptor()).__name__ in str(refused.value)


def test_the_store_is_told_what_is_stored() -> None:
    store = PlainStore()
    states = keyed_state(store)
    states.get_state(ValueStateDescriptor("v", str))
    states.get_state(ValueStateDescriptor("vt", str, ttl=SECOND))
    states.get_list_state(ListStateDescriptor("l", str))
    states.get_list_state(ListStateDescriptor("lt", str, SECOND))
    states.get_reducing_state(ReducingStateDescriptor("r", str, max))
    states.get_aggregating_state(AggregatingStateDescriptor("at", int, Last(), SECOND))
    states.get_map_state(MapStateDescriptor("m", int, str))
    states.get_map_state(MapStateDescriptor("mt", int, str, SECOND))

    told = {name: (spec.kind, spec.value, spec.map_key, spec.ttl) for name, spec in store.specs.items()}

    assert told == {
        "v": (StateKind.VALUE, type_info(str), None, None),
        "vt": (StateKind.VALUE, type_info(tuple[str, int]), None, SECOND),
        "l": (StateKind.LIST, type_info(list[str]), None, None),
        "lt": (StateKind.LIST, type_info(list[tuple[str, int]]), None, SECOND),
        "r": (StateKind.REDUCING, type_info(str), None, None),
        "at": (StateKind.AGGREGATING, type_info(tuple[int, int]), None, SECOND),
        "m": (StateKind.MAP, type_info(str), type_info(int), None),
        "mt": (StateKind.MAP, type_info(tuple[str, int]), type_info(int), SECOND),
    }


def test_all_states_that_ask_for_it_are_swept_with_every_record() -> None:
    store = PlainStore()
    states = keyed_state(store)
    states.get_state(ValueStateDescriptor("v", int, ttl=SWEPT))
    states.get_map_state(MapStateDescriptor("m", int, int, SWEPT))
    states.get_list_state(ListStateDescriptor("l", int, SECOND))
    sweep = states.for_every_record()
    assert sweep is not None

    sweep()

    assert [store.states[name].sweeps for name in "vml"] == [[5], [5], []]


def test_without_such_states_there_is_nothing_to_call() -> None:
    states = keyed_state(PlainStore())
    states.get_state(ValueStateDescriptor("v", int, ttl=SECOND))
    states.get_state(ValueStateDescriptor("w", int))

    assert states.for_every_record() is None


@pytest.mark.parametrize("ttl", [None, SECOND])
def test_state_outside_a_keyed_context_is_a_clear_error(ttl: StateTtlConfig | None) -> None:
    store = open_store()
    states = keyed(store)
    uses: list[Any] = [
        states.get_state(ValueStateDescriptor("v", int, default=1, ttl=ttl)).value,
        states.get_list_state(ListStateDescriptor("l", int, ttl)).get,
        states.get_reducing_state(ReducingStateDescriptor("r", int, max, ttl)).get,
        states.get_aggregating_state(AggregatingStateDescriptor("a", int, Last(), ttl)).get,
        states.get_map_state(MapStateDescriptor("m", int, int, ttl)).is_empty,
    ]
    store.current_key = NO_KEY

    for use in uses:
        with pytest.raises(StateAccessError, match="outside a keyed context"):
            use()


def test_namespaces_of_a_key_are_kept_apart() -> None:
    store = open_store()
    states = keyed(store, namespace=int)
    value = states.get_state(ValueStateDescriptor("v", str))
    entries = states.get_map_state(MapStateDescriptor("m", str, str))
    store.current_key = "a"
    for store.current_namespace in (1, 2):
        value.update(f"in {store.current_namespace}")
        entries["x"] = f"in {store.current_namespace}"

    store.current_namespace = 1
    assert (value.value(), dict(entries)) == ("in 1", {"x": "in 1"})
    store.current_key = "b"

    assert (value.value(), dict(entries)) == (None, {})


def test_turning_ttl_on_for_restored_state_is_refused() -> None:
    storage = MemoryStorage()
    store = open_store(storage=storage)
    state = keyed(store).get_state(ValueStateDescriptor("v", int))
    store.current_key = "a"
    state.update(1)
    handle = store.snapshot(CheckpointId(1)).write(storage, "shared")

    with pytest.raises(StateNotRestorableError, match='"v"'):
        keyed(open_store((handle,), storage)).get_state(ValueStateDescriptor("v", int, ttl=SECOND))


def test_what_has_expired_does_not_come_back_with_a_restore() -> None:
    storage, time = MemoryStorage(), RecordTime()
    store = open_store(storage=storage)
    state = keyed(store, time).get_state(ValueStateDescriptor("v", int, ttl=SECOND))
    for store.current_key in ("a", "b"):
        state.update(1)
        time.advance(600)
    handle = store.snapshot(CheckpointId(1)).write(storage, "shared")
    longer = StateTtlConfig(timedelta(milliseconds=1100))
    time.advance(500)

    restored = open_store((handle,), storage)
    again = keyed(restored, time).get_state(ValueStateDescriptor("v", int, ttl=longer))

    assert restored.count().entries == 0
    restored.current_key = "b"
    assert again.value() is None
