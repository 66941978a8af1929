"""What every KeyedStateBackend promises of values of the wrong type: they are refused where they are written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from tests.contract.keyed_stores import open_store

from checkdam.backends import KeyedStateBackend, KeyedStateStore
from checkdam.backends.keyed_state import OperatorKeyedState
from checkdam.errors import JobGraphError, StateAccessError
from checkdam.ids import CheckpointId, OperatorUid
from checkdam.runtime.slot.context import OperatorTime
from checkdam.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from checkdam.state.ttl import StateTtlConfig
from checkdam.testing import MemoryStorage
from checkdam.types.hints import PickleType

TTL = StateTtlConfig(timedelta(hours=1))


@dataclass
class Reading:
    sensor: str
    value: float | None


class Gathered:
    """Keeps whatever it is given as its accumulator."""

    def create_accumulator(self) -> Any:
        return 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return value

    def get_result(self, accumulator: Any) -> Any:
        return accumulator


def _value(states: OperatorKeyedState, name: str, of: Any, ttl: StateTtlConfig | None) -> Callable[[Any], None]:
    return states.get_state(ValueStateDescriptor(name, of, ttl=ttl)).update


def _added(states: OperatorKeyedState, name: str, of: Any, ttl: StateTtlConfig | None) -> Callable[[Any], None]:
    return states.get_list_state(ListStateDescriptor(name, of, ttl=ttl)).add


def _all_added(states: OperatorKeyedState, name: str, of: Any, ttl: StateTtlConfig | None) -> Callable[[Any], None]:
    state = states.get_list_state(ListStateDescriptor(name, of, ttl=ttl))
    return lambda value: state.add_all([value])


def _list_updated(states: OperatorKeyedState, name: str, of: Any, ttl: StateTtlConfig | None) -> Callable[[Any], None]:
    state = states.get_list_state(ListStateDescriptor(name, of, ttl=ttl))
    return lambda value: state.update([value])


def _reduced(states: OperatorKeyedState, name: str, of: Any, ttl: StateTtlConfig | None) -> Callable[[Any], None]:
    return states.get_reducing_state(ReducingStateDescriptor(name, of, lambda kept, added: added, ttl=ttl)).add


def _gathered(states: OperatorKeyedState, name: str, of: Any, ttl: StateTtlConfig | None) -> Callable[[Any], None]:
    return states.get_aggregating_state(AggregatingStateDescriptor(name, of, Gathered(), ttl=ttl)).add


def _put(states: OperatorKeyedState, name: str, of: Any, ttl: StateTtlConfig | None) -> Callable[[Any], None]:
    state = states.get_map_state(MapStateDescriptor(name, str, of, ttl=ttl))
    return lambda value: state.put("m", value)


WAYS = [_value, _added, _all_added, _list_updated, _reduced, _gathered, _put]
PAIRS: list[tuple[Any, Any, Any]] = [
    (int, 1, "text"),
    (int, -(2**63), 2**63),
    (int, 1, True),
    (str, "é", "\ud800"),
    (str, "a", b"a"),
    (float, 1, "1"),
    (tuple[int, int], (1, 2), (1, "2")),
    (tuple[int, int], (1, 2), (1, 2, 3)),
    (Reading, Reading("a", None), Reading("a", "1")),  # type: ignore[arg-type]
    (list[tuple[str, int]], [("a", 1)], [("a", 1), ("b", None)]),
    (dict[str, list[int]], {"a": [1]}, {"a": [1, 1.5]}),
    (PickleType(Reading), Reading("a", 1), "text"),
]


def keyed(store: KeyedStateStore) -> OperatorKeyedState:
    return OperatorKeyedState(store, OperatorTime(), OperatorUid("op"))


@pytest.mark.parametrize("ttl", [None, TTL], ids=["", "ttl"])
@pytest.mark.parametrize("way", WAYS)
def test_a_value_of_another_type_is_refused_by_every_way_to_write_and_leaves_the_state_as_it_was(
    backend: KeyedStateBackend, storage: MemoryStorage, way: Any, ttl: StateTtlConfig | None
) -> None:
    store = open_store(backend, storage)
    states = keyed(store)
    writes = [way(states, f"s{place}", of, ttl) for place, (of, _, _) in enumerate(PAIRS)]
    store.current_key = "k"

    for write, (_, good, wrong) in zip(writes, PAIRS, strict=True):
        write(good)
        with pytest.raises(StateAccessError, match=r'state "s\d+" of operator "op" must be of type .*, but was .*'):
            write(wrong)

    store.end_epoch()
    store.snapshot(CheckpointId(1)).write(storage, "shared")


@pytest.mark.parametrize("key", [2**63, True, None])
def test_a_map_key_of_another_type_is_refused_where_it_is_put(
    backend: KeyedStateBackend, storage: MemoryStorage, key: Any
) -> None:
    store = open_store(backend, storage)
    state = keyed(store).get_map_state(MapStateDescriptor("s", int, int))
    store.current_key = "k"

    with pytest.raises(StateAccessError, match=r'a key of map state "s" of operator "op" must be of type int, but was'):
        state[key] = 1


def test_a_value_that_was_changed_in_place_is_found_later_with_operator_and_state(
    backend: KeyedStateBackend, storage: MemoryStorage
) -> None:
    store = open_store(backend, storage)
    state = keyed(store).get_state(ValueStateDescriptor("s", list[int]))
    store.current_key = "k"
    kept: list[Any] = [1]
    state.update(kept)
    kept.append("text")

    with pytest.raises(JobGraphError, match=r'state "s" of operator "op": value .* does not fit'):  # noqa: PT012
        store.end_epoch()
        store.snapshot(CheckpointId(1)).write(storage, "shared")
