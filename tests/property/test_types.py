"""For any type and any values of it: Arrow and the durable form give the values back, and the spec tells the type."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import cloudpickle
from hypothesis import given, settings
from hypothesis import strategies as st

from checkdam.state.key_groups import key_groups, key_hasher
from checkdam.types.rows import from_arrow, to_arrow
from checkdam.types.serializers import serializer, serializer_from_spec
from checkdam.types.type_info import type_info

Typed = tuple[Any, st.SearchStrategy[Any]]  # a hint and its values

_HASHABLE: list[Typed] = [
    (int, st.integers(-(2**63), 2**63 - 1)),
    (str, st.text()),
    (bytes, st.binary()),
    (float, st.floats(allow_nan=False)),
    (bool, st.booleans()),
    (date, st.dates()),
    (datetime, st.datetimes(timezones=st.just(UTC))),
    (Decimal, st.decimals(-(10**15), 10**15, places=6)),
]


def _tuple_of(inner: list[Typed]) -> Typed:
    return tuple[tuple(hint for hint, _ in inner)], st.tuples(*(values for _, values in inner))  # type: ignore[misc]


def _list_of(inner: Typed) -> Typed:
    hint, values = inner
    return list[hint], st.lists(values, max_size=4)  # type: ignore[valid-type]


def _dict_of(inner: Typed) -> Typed:
    hint, values = inner
    return dict[str, hint], st.dictionaries(st.text(), values, max_size=4)  # type: ignore[valid-type]


_scalars = st.sampled_from(_HASHABLE)
_keys = st.recursive(_scalars, lambda inner: st.lists(inner, min_size=1, max_size=3).map(_tuple_of), max_leaves=5)
_types = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(_tuple_of),
        inner.map(_list_of),
        inner.map(lambda of: (of[0] | None, st.none() | of[1])),
        inner.map(_dict_of),
    ),
    max_leaves=5,
)


@settings(deadline=None)
@given(st.data())
def test_values_of_any_type_survive_arrow_and_the_durable_form(data: st.DataObject) -> None:
    hint, of_hint = data.draw(_types)
    values = data.draw(st.lists(of_hint, max_size=8))
    of = type_info(hint)

    durable = serializer(of)
    written = durable.encode_checked(values)

    assert from_arrow(of, to_arrow(of, values)) == values
    assert durable.decode(written) == values
    assert serializer_from_spec(durable.spec).decode(written) == values
    assert serializer_from_spec(durable.spec).type == of
    assert cloudpickle.loads(cloudpickle.dumps(of)) == of


@settings(deadline=None)
@given(st.data())
def test_keys_keep_their_group_and_bytes_through_arrow(data: st.DataObject) -> None:
    hint, of_hint = data.draw(_keys)
    keys = data.draw(st.lists(of_hint, max_size=8))
    of = type_info(hint)

    back = from_arrow(of, to_arrow(of, keys))

    assert key_groups(back, of, 128).tolist() == key_groups(keys, of, 128).tolist()
    assert [key_hasher(of)(key) % 128 for key in keys] == key_groups(keys, of, 128).tolist()
    assert serializer(of).encode_keys(back) == serializer(of).encode_keys(keys)
