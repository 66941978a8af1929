"""What every KeyedStateBackend promises of enums, of None as a value, and of registered classes."""

from __future__ import annotations

import enum
from typing import Any
from uuid import UUID

import pytest
from tests.contract.keyed_stores import checkpoint, open_store
from tests.unit.state.plain_store import RecordTime

from checkdam import register_type
from checkdam.backends import KeyedStateBackend
from checkdam.backends.contract import KeyedStateStore
from checkdam.backends.keyed_state import OperatorKeyedState
from checkdam.ids import Epoch, OperatorUid
from checkdam.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from checkdam.testing import MemoryStorage
from checkdam.types.serializers import serializer, serializer_from_spec
from checkdam.types.type_info import list_of, tuple_of, type_info
from checkdam.types.type_text import text_of


class Colour(enum.Enum):
    RED = "r"
    BLUE = object()


def keyed_state(store: KeyedStateStore) -> OperatorKeyedState:
    return OperatorKeyedState(store, RecordTime(), OperatorUid("op"))


ID = UUID(int=7)
MAPS: list[tuple[Any, Any, dict[Any, Any], list[Any]]] = [  # key type, value type, entries, as others read them
    (None, str, {None: "x"}, [(None, "x")]),
    (str | None, int, {None: 1, "a": 2}, [(None, 1), ("a", 2)]),
    (str, str | None, {"a": None, "b": "x"}, [("a", None), ("b", "x")]),
    (Colour, Colour, {Colour.RED: Colour.BLUE}, [("RED", "BLUE")]),
    (Colour | None, Colour | None, {None: None, Colour.RED: None}, [(None, None), ("RED", None)]),
    (UUID, UUID | None, {ID: ID, UUID(int=8): None}, [(str(ID), str(ID)), (str(UUID(int=8)), None)]),
]


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkdam.types.type_info._registered", {})
    register_type(UUID, to=str, from_=UUID, schema=str, immutable=True)


@pytest.mark.parametrize(("of_key", "of_value", "entries", "plain"), MAPS)
def test_entries_are_restored_and_published_as_they_are(
    backend: KeyedStateBackend, storage: MemoryStorage, of_key: Any, of_value: Any, entries: Any, plain: Any
) -> None:
    descriptor = MapStateDescriptor("seen", of_key, of_value)
    store = open_store(backend, storage)
    seen = keyed_state(store).get_map_state(descriptor)
    store.current_key = "a"
    seen.update(entries)
    store.end_epoch()
    store.publish(Epoch(1))
    assert store.published is not None
    _, [published] = store.published.get("seen", [serializer(type_info(str)).encode_key("a")], None)

    again = open_store(backend, storage, [checkpoint(store, storage, 1)])
    restored = keyed_state(again).get_map_state(descriptor)
    again.current_key = "a"

    assert dict(restored.items()) == dict(seen.items()) == entries
    assert all(key in restored for key in entries)
    pairs = list_of(tuple_of([type_info(of_key), type_info(of_value)]), list)
    assert published is not None
    assert sorted(serializer_from_spec(text_of(pairs)).decode_one(published), key=repr) == sorted(plain, key=repr)


def test_values_and_elements_are_restored(backend: KeyedStateBackend, storage: MemoryStorage) -> None:
    value = ValueStateDescriptor("value", tuple[Colour, UUID | None])
    elements = ListStateDescriptor("elements", Colour | None)
    store = open_store(backend, storage)
    states = keyed_state(store)
    kept, listed = states.get_state(value), states.get_list_state(elements)
    store.current_key = "a"
    kept.update((Colour.BLUE, ID))
    listed.add_all([None, Colour.RED])
    store.end_epoch()

    again = open_store(backend, storage, [checkpoint(store, storage, 1)])
    states = keyed_state(again)
    again.current_key = "a"

    assert states.get_state(value).value() == (Colour.BLUE, ID)
    assert states.get_list_state(elements).get() == [None, Colour.RED]
