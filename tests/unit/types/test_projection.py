"""Projections: only functions that certainly just pick fields are taken for such."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import pyarrow as pa
import pytest

from checkdam.types.projection import Constant, FieldRef, Projection, looked_up_type, projection_of
from checkdam.types.type_info import named_tuple_type, type_info


class Pair(NamedTuple):
    word: str
    times: int


@dataclass(frozen=True, slots=True)
class Item:
    color: str
    size: int


@dataclass
class Loud:
    color: str

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)


class Odd(Pair):
    def __getitem__(self, key: Any) -> Any:
        return "odd"


class Renamed(Pair):
    @property
    def word(self) -> str:
        return "other"


PLAIN = tuple[str, int]
NESTED = tuple[str, tuple[int, str]]
ROWS = named_tuple_type(pa.schema([("count", pa.int32()), ("class", pa.string())]))


def named(pair: Any) -> Any:
    """A docstring changes nothing."""
    return pair[1], "x"


PROJECTIONS: list[tuple[Any, Any, list[Any], Any]] = [  # function, type, parts (columns as ints), result type
    (lambda w: w, str, [0], str),
    (lambda p: p[0], PLAIN, [0], str),
    (lambda p: p[-1], PLAIN, [1], int),
    (lambda p: p.word, Pair, [0], str),
    (lambda p: p[1], Pair, [1], int),
    (lambda i: i.size, Item, [1], int),
    (lambda r: r.count, ROWS, [0], ROWS.field_type(0)),
    (lambda r: r._1, ROWS, [1], ROWS.field_type(1)),
    (lambda w: (w, 1), str, [0, Constant(1)], tuple[str, int]),
    (
        lambda w: (w, 1.5, True, None),
        str,
        [0, Constant(1.5), Constant(True), Constant(None)],
        tuple[str, float, bool, None],
    ),
    (lambda p: (p[1], p[0], "x"), PLAIN, [1, 0, Constant("x")], tuple[int, str, str]),
    (lambda p: (p[0],), PLAIN, [0], tuple[str]),
    (lambda p: (p[1], 1), NESTED, [1, Constant(1)], tuple[tuple[int, str], int]),
    (lambda i: (i.color, i.size), Item, [0, 1], tuple[str, int]),
    (lambda w: (w, w), str, [0, 0], tuple[str, str]),
    (lambda w: "all", str, [Constant("all")], str),
    (named, PLAIN, [1, Constant("x")], tuple[int, str]),
    (operator.itemgetter(1), PLAIN, [1], int),
    (operator.itemgetter(1, 0), Pair, [1, 0], tuple[int, str]),
    (operator.attrgetter("size"), Item, [1], int),
    (operator.attrgetter("times", "word"), Pair, [1, 0], tuple[int, str]),
    (lambda w: (w, 1), object, [0, Constant(1)], tuple[object, int]),
]


@pytest.mark.parametrize(("function", "hint", "parts", "result"), PROJECTIONS)
def test_a_function_that_picks_fields_is_a_projection(function: Any, hint: Any, parts: list[Any], result: Any) -> None:
    of = type_info(hint)

    found = projection_of(function, of)

    assert found is not None
    assert list(found.parts) == [FieldRef(part) if isinstance(part, int) else part for part in parts]
    assert found.result_type(of) == type_info(result)
    assert found.key_columns() == (None if any(isinstance(part, Constant) for part in parts) else tuple(parts))


@pytest.mark.parametrize("hint", [PLAIN, Pair, Item, ROWS])
def test_the_record_itself_is_all_its_columns_and_keeps_its_type(hint: Any) -> None:
    of = type_info(hint)

    found = projection_of(lambda record: record, of)

    assert found == Projection((FieldRef(0), FieldRef(1)), is_tuple=True, is_identity=True)
    assert found.result_type(of) == of


def closure(value: Any) -> Callable[[Any], Any]:
    return lambda p: (p[0], value)


def generator(pair: Any) -> Iterator[Any]:
    yield pair[0]


async def coroutine(pair: Any) -> Any:
    return pair[0]


def late(pair: Any) -> Any:
    other = pair
    del other
    return other  # noqa: F821  # fails when called


def swallowing(pair: Any) -> Any:
    try:
        return pair[0]
    finally:
        print  # noqa: B018


class Functions:
    def method(self, pair: Any) -> Any:
        return pair[0]

    def __call__(self, pair: Any) -> Any:
        return pair[0]


LIMIT = 3


class Trip(TypedDict):
    where: str
    days: int


def test_a_field_that_is_a_tuple_is_one_column() -> None:
    found = projection_of(lambda p: p[1], type_info(NESTED))

    assert found == Projection((FieldRef(1),), is_tuple=False)
    assert found.result_type(type_info(NESTED)) == type_info(tuple[int, str])


@pytest.mark.parametrize("function", [lambda trip: trip["days"], operator.itemgetter("days")])
def test_the_value_of_a_dict_with_fixed_keys_is_a_column(function: Any) -> None:
    assert projection_of(function, type_info(Trip)) == Projection((FieldRef(1),), is_tuple=False)
    assert looked_up_type(function, type_info(dict[str, int])) == type_info(int)
    assert looked_up_type(function, type_info(Trip)) is None
    assert projection_of(lambda trip: trip.days, type_info(Trip)) is None


NOT_PROJECTIONS: list[tuple[Any, Any]] = [
    (lambda p: p[0] if p[0] is not None else "x", PLAIN),
    (lambda p: p[0] or "x", PLAIN),
    (lambda p: len(p), PLAIN),
    (lambda p: p[1] + 1, PLAIN),
    (lambda p: p + 1, PLAIN),
    (lambda p: p * 1, PLAIN),
    (lambda p: -p[1], PLAIN),
    (lambda p: not p[1], PLAIN),
    (lambda p: str(p[0]), PLAIN),
    (lambda p: p[0].lower(), PLAIN),
    (lambda p: p[0] == "a", PLAIN),
    (lambda p: p[0] in "abc", PLAIN),
    (lambda p: f"{p[0]}", PLAIN),
    (lambda p: p[0:1], PLAIN),
    (lambda p: p[:], PLAIN),
    (lambda p: [p[0]], PLAIN),
    (lambda p: {p[0]: 1}, PLAIN),
    (lambda p: (*p, 1), PLAIN),
    (lambda p: ((p[0], 1), 2), PLAIN),
    (lambda p: (p, 1), PLAIN),
    (lambda p: p[0][0], PLAIN),
    (lambda p: p[1][0], NESTED),
    (lambda p: p[2], PLAIN),
    (lambda p: p[-3], PLAIN),
    (lambda p: p[True], PLAIN),
    (lambda p: p["f0"], PLAIN),
    (lambda p: p.f0, PLAIN),
    (lambda p: p.count, PLAIN),
    (lambda p: p.index, Pair),
    (lambda p: (p[0], LIMIT), PLAIN),
    (lambda p: (p[0], b"x"), PLAIN),
    (lambda p: (p[0], 2**63), PLAIN),
    (lambda p: (p[0], "\ud800"), PLAIN),
    (lambda p: (p[0], ("a", 1)), PLAIN),
    (lambda p: (), PLAIN),
    (lambda p: (yield), PLAIN),
    (lambda p, q=1: p[0], PLAIN),
    (lambda p=None: p[0], PLAIN),
    (lambda *p: p[0], PLAIN),
    (lambda p, **more: p[0], PLAIN),
    (lambda p, *, more=1: p[0], PLAIN),
    (lambda: 1, PLAIN),
    (lambda p, q: p[0], PLAIN),
    (lambda p: (q := p[0], q), PLAIN),
    (lambda p: lambda: p[0], PLAIN),
    (closure(1), PLAIN),
    (closure([]), PLAIN),
    (generator, PLAIN),
    (coroutine, PLAIN),
    (late, PLAIN),
    (swallowing, PLAIN),
    (Functions().method, PLAIN),
    (Functions(), PLAIN),
    (str, str),
    (len, str),
    (lambda w: w[0], str),
    (lambda w: w.upper, str),
    (lambda w: w[0], list[str]),
    (lambda w: w.color, object),
    (lambda i: i[0], Item),
    (lambda i: i.__class__, Item),
    (lambda i: i.color, Loud),
    (lambda i: i[0], Odd),
    (lambda i: i.word, Renamed),
    (lambda p: p[0], tuple[str, int] | None),
    (operator.itemgetter("f0"), PLAIN),
    (operator.itemgetter(slice(1)), PLAIN),
    (operator.itemgetter(5), PLAIN),
    (operator.attrgetter("color.real"), Item),
    (operator.attrgetter("other"), Item),
    (operator.methodcaller("lower"), str),
]


@pytest.mark.parametrize(("function", "hint"), NOT_PROJECTIONS)
def test_a_function_that_does_anything_else_is_not(function: Any, hint: Any) -> None:
    assert projection_of(function, type_info(hint)) is None
