"""Values of state as JSON, and keys as people write them."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pytest

from checkdam.errors import UsageError
from checkdam.types.json_values import key_from_json, key_from_text, to_json
from checkdam.types.type_info import type_info
from checkdam.types.type_text import text_of, type_from_text


class Place(NamedTuple):
    street: str
    number: int


@dataclass(frozen=True)
class Person:
    name: str
    home: Place


HOME = Place("Main", 5)
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


class Number(enum.IntEnum):
    ONE = 1


class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


class Odd:
    def __repr__(self) -> str:
        return "odd" * 1000


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (1.5, 1.5),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (b"\x00\xff", {"base64": "AP8="}),
        (HOME, {"street": "Main", "number": 5}),
        (Person("Ann", HOME), {"name": "Ann", "home": {"street": "Main", "number": 5}}),
        ((1, (2, b"")), [1, [2, {"base64": ""}]]),
        (NOON, "2024-05-01T12:00:00+00:00"),
        (date(2024, 5, 1), "2024-05-01"),
        (Decimal("1.50"), "1.50"),
        ({"a": {"b": Decimal(1)}}, {"a": {"b": "1"}}),
        ({1: "x", (2, 3): None}, [[1, "x"], [[2, 3], None]]),
        ([np.int64(7)], [7]),
        ((Colour.RED, Number.ONE), ["RED", "ONE"]),
        (Odd(), {"repr": ("odd" * 1000)[:200]}),
    ],
)
def test_every_value_has_a_form(value: Any, expected: Any) -> None:
    assert to_json(value) == expected
    assert json.loads(json.dumps(to_json(value), allow_nan=False)) == expected


def test_a_named_tuple_read_without_its_class_is_an_object_too() -> None:
    told = type_from_text(text_of(type_info(dict[int, list[Place]])))

    assert to_json({1: [("Main", 5)]}, told) == [[1, [{"street": "Main", "number": 5}]]]


@pytest.mark.parametrize(
    "key", ["word", "", '"quoted"', 12, -(2**63), True, 2.5, b"\x00", NOON, date(2024, 5, 1), Decimal("1.5"), HOME]
)
def test_a_key_comes_back_from_its_form(key: Any) -> None:
    of = type_info(type(key))

    assert key_from_json(to_json(key), of) == key
    assert key_from_text(json.dumps(to_json(key)), of) == key
    assert type(key_from_json(to_json(key), of)) is type(key)


def test_compound_keys_are_built_of_the_classes_they_have() -> None:
    assert key_from_text('{"name": "Ann", "home": ["Main", 5]}', type_info(Person)) == Person("Ann", HOME)
    assert key_from_text('["a", [1, null]]', type_info(tuple[str, tuple[int, int | None]])) == ("a", (1, None))


@pytest.mark.parametrize(
    ("text", "of", "key"),
    [
        ("word", str, "word"),
        ("12", str, "12"),
        ("true", str, "true"),
        ('"12"', str, "12"),
        ("null", str, "null"),
        ("null", str | None, None),
        ("2024-05-01", date, date(2024, 5, 1)),
        ("2024-05-01T12:00Z", datetime, NOON),
        ("2024-05-01T12:00", datetime, NOON.replace(tzinfo=None)),
        ("RED", Colour, Colour.RED),
        ("1.5", Decimal, Decimal("1.5")),
        ("Infinity", float, float("inf")),
        ("3", float, 3.0),
    ],
)
def test_a_bare_word_will_do_where_there_is_no_doubt(text: str, of: Any, key: Any) -> None:
    assert key_from_text(text, type_info(of)) == key


def test_an_int_shows_as_such_also_where_a_member_of_an_enum_was_kept() -> None:
    assert to_json(Number.ONE, type_info(int)) == 1


@pytest.mark.parametrize(
    ("text", "of", "example"),
    [
        ("GREEN", Colour, '"RED"'),
        ("word", int, "42"),
        ("1.5", int, "42"),
        ("true", int, "42"),
        (str(2**63), int, "42"),
        ("1", bool, "true"),
        ("word", bytes, '{"base64": "AAEC"}'),
        ('{"base64": "!"}', bytes, '{"base64": "AAEC"}'),
        ('{"base64": "AAEC", "more": 1}', bytes, '{"base64": "AAEC"}'),
        ("NaN", float, "1.5"),
        ("yesterday", date, '"2024-05-01"'),
        ("1" + 400 * "0", float, "1.5"),
        ("NaN", Decimal, '"1.50"'),
        (100_000 * "[", tuple[int, int], "[42, 42]"),
        ("[1]", tuple[int, int], "[42, 42]"),
        ('{"street": "Main"}', Place, '["word", 42]'),
        ('{"street": "Main", "number": "5"}', Place, '["word", 42]'),
        ("null", int, "42"),
    ],
)
def test_what_is_no_key_is_told_with_an_example(text: str, of: Any, example: str) -> None:
    with pytest.raises(UsageError) as refused:
        key_from_text(text, type_info(of))

    assert f"is not a key of type {type_info(of).name}" in str(refused.value)
    assert str(refused.value).endswith(f"Write it as JSON, like {example}.")
