"""What OperatorKeyedState promises on every backend of a function that is applied to the state of all keys."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.contract.keyed_stores import checkpoint, open_store
from tests.unit.state.plain_store import RecordTime

from checkdam.backends import KeyedStateBackend
from checkdam.backends.keyed_state import OperatorKeyedState
from checkdam.ids import OperatorUid
from checkdam.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from checkdam.state.ttl import StateTtlConfig, TtlVisibility
from checkdam.testing import MemoryStorage

MANY = [f"key {number}" for number in range(3000)]
"""More than are read at once."""


class Sum:
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator


def put_two(state: Any, value: int) -> None:
    state["x"], state["y"] = value, value


def add_anew(state: Any, value: int) -> None:
    state.clear()
    state.add(value)


Ask = Callable[[StateTtlConfig | None], StateDescriptor]
KINDS: dict[str, tuple[str, Ask, Callable[[Any, int], None], Callable[[Any], Any]]] = {
    "value": (
        "get_state",
        lambda ttl: ValueStateDescriptor("s", int, ttl=ttl),
        lambda state, value: state.update(value),
        lambda state: state.value(),
    ),
    "list": (
        "get_list_state",
        lambda ttl: ListStateDescriptor("s", int, ttl),
        lambda state, value: state.update([value]),
        lambda state: sum(state.get()) or None,
    ),
    "reducing": (
        "get_reducing_state",
        lambda ttl: ReducingStateDescriptor("s", int, lambda kept, added: added, ttl),
        lambda state, value: state.add(value),
        lambda state: state.get(),
    ),
    "aggregating": (
        "get_aggregating_state",
        lambda ttl: AggregatingStateDescriptor("s", int, Sum(), ttl),
        add_anew,
        lambda state: state.get(),
    ),
    "map": (
        "get_map_state",
        lambda ttl: MapStateDescriptor("s", str, int, ttl),
        put_two,
        lambda state: state.get("y"),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_meets_every_key_once_and_may_change_or_clear_it(
    backend: KeyedStateBackend, storage: MemoryStorage, kind: str
) -> None:
    call, ask, write, read = KINDS[kind]
    store = open_store(backend, storage)
    descriptor = ask(None)
    state = getattr(OperatorKeyedState(store, RecordTime(), OperatorUid("op")), call)(descriptor)
    for number, store.current_key in enumerate(MANY, 1):
        write(state, number)
    store = open_store(backend, storage, [checkpoint(store, storage, 1)])
    store.current_key = "key 7"
    keyed = OperatorKeyedState(store, RecordTime(), OperatorUid("op"))
    met: dict[Any, int] = {}

    def change(key: str, handle: Any) -> None:
        assert key not in met
        met[key] = read(handle)
        if met[key] % 2:
            handle.clear()
        else:
            write(handle, 10 * met[key])

    keyed.apply_to_all(descriptor, change)
    left: dict[Any, int] = {}
    keyed.apply_to_all(descriptor, lambda key, handle: left.update({key: read(handle)}))

    assert met == {key: number for number, key in enumerate(MANY, 1)}
    assert left == {key: 10 * number for number, key in enumerate(MANY, 1) if number % 2 == 0}
    assert store.current_key == "key 7"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("visibility", TtlVisibility)
def test_a_function_meets_what_has_expired_only_where_it_may_be_seen(
    backend: KeyedStateBackend, storage: MemoryStorage, kind: str, visibility: TtlVisibility
) -> None:
    call, ask, write, read = KINDS[kind]
    ttl = StateTtlConfig(timedelta(seconds=1), visibility=visibility, cleanup=None)
    store, time = open_store(backend, storage), RecordTime()
    keyed = OperatorKeyedState(store, time, OperatorUid("op"))
    state = getattr(keyed, call)(ask(ttl))
    for store.current_key in ("old", "older"):
        write(state, 1)
    time.advance(1000)
    store.current_key = "new"
    write(state, 2)
    met: dict[Any, int] = {}

    keyed.apply_to_all(ask(ttl), lambda key, handle: met.update({key: read(handle)}))

    shown = {"old": 1, "older": 1} if visibility is TtlVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP else {}
    assert met == {"new": 2, **shown}


def test_a_failing_function_leaves_the_current_key_as_it_was(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    store = open_store(backend, storage)
    keyed = OperatorKeyedState(store, RecordTime(), OperatorUid("op"))
    descriptor = ValueStateDescriptor("s", int)
    store.current_key = "a"
    keyed.get_state(descriptor).update(1)
    store.current_key = "before"

    def fail(key: str, handle: Any) -> None:
        raise ValueError(key)

    with pytest.raises(ValueError, match="a"):
        keyed.apply_to_all(descriptor, fail)

    assert store.current_key == "before"
