"""For any type and any value: a state takes the value when it is written if and only if the snapshot would."""

from __future__ import annotations

import enum
import itertools
import tempfile
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from checkdam.backends import HashMapStateBackend, KeyedStateBackend, RocksDBStateBackend, StoreOwner
from checkdam.backends.keyed_state import OperatorKeyedState
from checkdam.errors import JobGraphError, StateAccessError
from checkdam.ids import Attempt, OperatorUid, SubtaskIndex
from checkdam.runtime.slot.context import OperatorTime
from checkdam.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from checkdam.state.key_groups import KeyGroupRange
from checkdam.types.serializers import serializer
from checkdam.types.type_info import type_info


class Level(enum.IntEnum):
    LOW = 1


class OwnInt(int):
    pass


class OwnText(str):
    __slots__ = ()


class Point(NamedTuple):
    x: int
    y: float


@dataclass
class Reading:
    sensor: str
    value: float | None


@dataclass
class Tagged(Reading):
    tag: bytes


_EAST, _WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
_OF_KIND: dict[Any, list[Any]] = {
    int: [0, -1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 2**70, np.int64(1), Level.LOW, OwnInt(3)],
    float: [1.5, float("nan"), float("inf"), -0.0, 7, 2**64, np.float32(1.5)],
    str: ["a", "", "\u00e9", "\ud800", "a\udfffb", OwnText("a"), np.str_("s")],
    bytes: [b"", b"\xff", bytearray(b"a"), memoryview(b"a")],
    bool: [True, False, np.bool_(1)],
    date: [date.min, date.max, datetime(2020, 1, 1, tzinfo=UTC), "2020-01-01"],
    datetime: [
        *(datetime(2020, 1, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=_EAST), datetime(9999, 12, 31, 23, tzinfo=_WEST)),
        *(datetime(1, 1, 1), datetime(2020, 1, 1, 1, 1, 1, 1), "2020-01-01T00:00:00Z"),  # noqa: DTZ001
    ],
    Decimal: [Decimal("1.50"), Decimal("NaN"), Decimal("-Infinity"), Decimal("1E+9999"), "1.5"],
}
_ALL: list[Any] = [*itertools.chain.from_iterable(_OF_KIND.values()), timedelta(1), object(), [], {}, ()]
_STRANGE = st.sampled_from([*_ALL, None])

Typed = tuple[Any, st.SearchStrategy[Any]]  # a hint, and values of which most are of the type


def _scalar(of: Any) -> Typed:
    known = st.sampled_from(_OF_KIND[of])
    return of, st.one_of(known, known, known, known, known, _STRANGE)


def _tuple(inner: list[Typed]) -> Typed:
    fields = [values for _, values in inner]
    right, short = st.tuples(*fields), st.tuples(*fields[1:])
    return tuple[tuple(of for of, _ in inner)], st.one_of(right, right.map(list), right, short)  # type: ignore[misc]


def _dict(inner: tuple[Typed, Typed]) -> Typed:
    (key, keys), (of, values) = inner
    hashable = keys.filter(lambda found: getattr(found, "__hash__", None) is not None)
    return dict[key, of], st.dictionaries(hashable, values, max_size=2)  # type: ignore[valid-type]


_SCALARS = st.sampled_from([_scalar(of) for of in _OF_KIND])
_NUMBERS, _TEXTS = _scalar(float)[1], _scalar(str)[1]
_CLASSES: list[Typed] = [
    (Point, st.builds(Point, _scalar(int)[1], _NUMBERS) | st.tuples(_scalar(int)[1], _NUMBERS)),
    (Reading, st.builds(Reading, _TEXTS, _NUMBERS | st.none()) | st.builds(Tagged, _TEXTS, _NUMBERS, st.binary())),
]
_TYPES = st.recursive(
    _SCALARS | st.sampled_from(_CLASSES),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(_tuple),
        inner.map(lambda of: (list[of[0]], st.lists(of[1], max_size=3))),  # type: ignore[valid-type]
        inner.map(lambda of: (of[0] | None, of[1] | st.none())),
        st.tuples(_SCALARS, inner).map(_dict),
    ),
    max_leaves=3,
)


def _takes(write: Any, value: Any) -> bool:
    try:
        write(value)
    except StateAccessError:
        return False
    return True


def _is_encoded(of: Any, value: Any) -> bool:
    try:
        serializer(type_info(of)).encode_one_checked(value)
    except JobGraphError:
        return False
    return True


def _check(backend: KeyedStateBackend, typed: list[tuple[Any, list[Any]]]) -> None:
    """Write values to states of these types, each in every way there is."""
    with tempfile.TemporaryDirectory() as work:
        owner = StoreOwner(
            OperatorUid("op"),
            SubtaskIndex(0),
            Attempt("a1"),
            KeyGroupRange(0, 7),
            8,
            type_info(str),
            lambda: Path(tempfile.mkdtemp(dir=work)),
        )
        store = backend.open(owner, (), None, claim=False)
        states = OperatorKeyedState(store, OperatorTime(), OperatorUid("op"))
        try:
            for place, (of, values) in enumerate(typed):
                cell = states.get_state(ValueStateDescriptor(f"value {place}", of))
                listed = states.get_list_state(ListStateDescriptor(f"list {place}", of))
                mapped = states.get_map_state(MapStateDescriptor(f"map {place}", str, of))
                ways = [cell.update, listed.add, partial(_add_twice, listed), partial(mapped.put, "m")]
                for number, value in enumerate(values):
                    store.current_key = str(number)
                    assert [_takes(write, value) for write in ways] == [_is_encoded(of, value)] * len(ways), value
            store.end_epoch()  # and RocksDB, which encodes now, agrees
        finally:
            store.close()


def _add_twice(state: Any, value: Any) -> None:
    state.add_all([value, value])


def _drawn(data: st.DataObject) -> list[tuple[Any, list[Any]]]:
    of, values = data.draw(_TYPES)
    return [(of, [value for value in data.draw(st.lists(values, min_size=3, max_size=10)) if value is not None])]


BACKENDS: list[KeyedStateBackend] = [HashMapStateBackend(), RocksDBStateBackend("32 MB")]


@pytest.mark.parametrize("backend", BACKENDS, ids=["hashmap", "rocksdb"])
def test_a_state_of_scalars_takes_what_a_snapshot_takes(backend: KeyedStateBackend) -> None:
    _check(backend, [(of, _ALL) for of in _OF_KIND])


@settings(deadline=None, max_examples=examples(60))
@given(st.data())
def test_the_hashmap_backend_takes_what_a_snapshot_takes(data: st.DataObject) -> None:
    _check(BACKENDS[0], _drawn(data))


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(30))
@given(st.data())
def test_the_rocksdb_backend_takes_what_a_snapshot_takes(data: st.DataObject) -> None:
    _check(BACKENDS[1], _drawn(data))
