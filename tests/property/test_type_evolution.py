"""For any type and any change of it that state survives: every value comes out as the change says."""

from __future__ import annotations

import dataclasses
import types
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from checkdam.types.evolution import Compatibility, compare
from checkdam.types.hints import Alias
from checkdam.types.serializers import serializer, serializer_from_spec
from checkdam.types.type_info import type_info


@dataclass(frozen=True)
class Change:
    """A type before and after; `values` are pairs of a value before and what it is after."""

    old: Any
    new: Any
    values: st.SearchStrategy[tuple[Any, Any]]


_SCALARS = [
    (int, st.integers(-(2**63), 2**63 - 1)),
    (str, st.text(max_size=5)),
    (float, st.floats(allow_nan=False)),
    (bool, st.booleans()),
    (bytes, st.binary(max_size=5)),
]
_scalars = st.sampled_from([Change(hint, hint, values.map(lambda value: (value, value))) for hint, values in _SCALARS])


def _list_of(inner: Change) -> Change:
    values = st.lists(inner.values, max_size=3).map(lambda pairs: ([o for o, _ in pairs], [n for _, n in pairs]))
    return Change(list[inner.old], list[inner.new], values)  # type: ignore[name-defined]


def _dict_of(inner: Change) -> Change:
    values = st.dictionaries(st.text(max_size=3), inner.values, max_size=3).map(
        lambda pairs: ({k: o for k, (o, _) in pairs.items()}, {k: n for k, (_, n) in pairs.items()})
    )
    return Change(dict[str, inner.old], dict[str, inner.new], values)  # type: ignore[name-defined]


def _tuple_of(inner: list[Change]) -> Change:
    values = st.tuples(*(each.values for each in inner)).map(
        lambda pairs: (tuple(o for o, _ in pairs), tuple(n for _, n in pairs))
    )
    old, new = tuple(each.old for each in inner), tuple(each.new for each in inner)
    return Change(tuple[old], tuple[new], values)  # type: ignore[valid-type]


def _optional(inner: Change) -> Change:
    """Optional before and after."""
    return Change(inner.old | None, inner.new | None, st.none().map(lambda _: (None, None)) | inner.values)


def _made_optional(inner: Change) -> Change:
    return Change(inner.old, inner.new | None, inner.values)


@st.composite
def _class_of(draw: st.DrawFn, inner: st.SearchStrategy[Change]) -> Change:
    """A dataclass or NamedTuple of which fields were kept, renamed, removed, added and put in another order."""
    held = draw(st.lists(inner, min_size=1, max_size=4))
    before = {f"a{i}": change.old for i, change in enumerate(held)}
    fates = [draw(st.sampled_from(["kept", "kept", "renamed", "removed"])) for _ in held]
    after: dict[str, tuple[Any, int]] = {}
    for place in draw(st.permutations(range(len(held)))):
        if fates[place] == "kept":
            after[f"a{place}"] = held[place].new, place
        elif fates[place] == "renamed":
            after[f"b{place}"] = Annotated[held[place].new, Alias("never", f"a{place}")], place
    added = draw(st.integers(0 if after else 1, 2))
    old_kind, new_kind = (draw(st.sampled_from([_dataclass, _named_tuple])) for _ in range(2))
    old_class = old_kind("Before", before, 0)
    new_class = new_kind("After", {name: hint for name, (hint, _) in after.items()}, added)

    def pair(values: tuple[tuple[Any, Any], ...]) -> tuple[Any, Any]:
        fields = {f"a{i}": value for i, (value, _) in enumerate(values)}
        return old_class(**fields), new_class(**{name: values[place][1] for name, (_, place) in after.items()})

    return Change(old_class, new_class, st.tuples(*(change.values for change in held)).map(pair))


def _dataclass(name: str, fields: dict[str, Any], added: int) -> Any:
    more = [(f"c{i}", int, dataclasses.field(default=i)) for i in range(added)]
    return dataclasses.make_dataclass(name, [*fields.items(), *more], kw_only=True)


def _named_tuple(name: str, fields: dict[str, Any], added: int) -> Any:
    defaults = {f"c{i}": i for i in range(added)}
    body = {"__module__": __name__, "__annotations__": {**fields, **dict.fromkeys(defaults, int)}, **defaults}
    return types.new_class(name, (NamedTuple,), exec_body=lambda namespace: namespace.update(body))


_changes = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        inner.map(_list_of),
        inner.map(_dict_of),
        inner.map(_optional),
        inner.map(_made_optional),
        st.lists(inner, min_size=1, max_size=3).map(_tuple_of),
        _class_of(inner),
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(st.data())
def test_every_value_survives_every_change_that_is_allowed(data: st.DataObject) -> None:
    change = data.draw(_changes)
    pairs = data.draw(st.lists(change.values, max_size=4))
    before, after = serializer(type_info(change.old)), serializer(type_info(change.new))
    written = before.encode_checked([old for old, _ in pairs])

    verdict = compare(before.spec, after.type)

    assert verdict.kind is not Compatibility.INCOMPATIBLE, verdict
    if verdict.convert is None:
        read = after.decode(written)
    else:
        read = list(map(verdict.convert, serializer_from_spec(before.spec).decode(written)))
    expected = [new for _, new in pairs]
    assert read == expected
    assert repr(read) == repr(expected)  # of the same classes, too
    assert after.decode(after.encode_checked(read)) == expected
    assert compare(after.spec, after.type).kind is Compatibility.AS_IS


@settings(deadline=None)
@given(st.data())
def test_whatever_two_types_are_their_verdict_holds(data: st.DataObject) -> None:
    one, other = data.draw(_changes), data.draw(_changes)
    values = [old for old, _ in data.draw(st.lists(one.values, max_size=4))]
    before, after = serializer(type_info(one.old)), serializer(type_info(other.new))
    written = before.encode_checked(values)

    verdict = compare(before.spec, after.type)

    if verdict.kind is Compatibility.AS_IS:
        assert after.encode_checked(after.decode(written)) == written
    elif verdict.kind is Compatibility.MIGRATES:
        assert verdict.convert is not None
        converted = list(map(verdict.convert, serializer_from_spec(before.spec).decode(written)))
        assert after.decode(after.encode_checked(converted)) == converted
    else:
        assert verdict.reason
        assert verdict.convert is None
