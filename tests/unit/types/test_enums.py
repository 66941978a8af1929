"""Enums: kept by the names of their members, wherever they stand."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, NamedTuple

import cloudpickle
import pytest

from checkdam.errors import JobGraphError, StateNotRestorableError
from checkdam.state.handle_checks import Fit, KeyFit
from checkdam.state.key_groups import key_group_of
from checkdam.types.evolution import Compatibility, compare
from checkdam.types.rows import from_arrow, to_arrow
from checkdam.types.serializers import serializer, serializer_from_spec
from checkdam.types.type_info import type_info
from checkdam.types.type_text import text_of


class Colour(enum.Enum):
    RED = object()
    BLUE = (1, 2)


class Number(enum.IntEnum):
    ONE = 1
    TWO = 2


class Word(enum.StrEnum):
    YES = "y"
    NO = "n"


class Pair(NamedTuple):
    colour: Colour
    word: Word | None = None


@dataclass(frozen=True)
class Item:
    colour: Colour
    numbers: dict[Number, list[Word]]
    pair: Pair


ITEM = Item(Colour.RED, {Number.ONE: [Word.YES, Word.NO]}, Pair(Colour.BLUE))

VALUES: list[tuple[Any, Any, Any]] = [
    (Colour, Colour.BLUE, "BLUE"),
    (Number, Number.TWO, "TWO"),
    (Word, Word.YES, "YES"),
    (Colour | None, None, None),
    (list[Number], [Number.ONE], ["ONE"]),
    (tuple[Word, int], (Word.NO, 1), ("NO", 1)),
    (dict[Colour, Number], {Colour.RED: Number.TWO}, {"RED": "TWO"}),
    (Pair, Pair(Colour.RED, Word.NO), ("RED", "NO")),
    (Item, ITEM, {"colour": "RED", "numbers": {"ONE": ["YES", "NO"]}, "pair": ("BLUE", None)}),
]


@pytest.mark.parametrize(("hint", "value", "plain"), VALUES)
def test_a_member_is_kept_by_its_name_and_comes_back_as_itself(hint: Any, value: Any, plain: Any) -> None:
    of = type_info(hint)
    by_type = serializer(of)

    data = by_type.encode_checked([value])

    assert by_type.decode(data) == [value]
    assert by_type.decode_one(by_type.encode_one_checked(value)) == value
    assert type(by_type.decode(data)[0]) is type(value)
    assert serializer_from_spec(by_type.spec).decode(data) == [plain]
    assert from_arrow(of, to_arrow(of, [value])) == [value]
    assert compare(by_type.spec, of).kind is Compatibility.AS_IS
    assert cloudpickle.loads(cloudpickle.dumps(of)) == of


@pytest.mark.parametrize("wrong", ["RED", 1, Number.ONE, None])
def test_what_is_no_member_is_refused(wrong: Any) -> None:
    of = type_info(Colour)

    with pytest.raises(JobGraphError, match="does not fit the declared type Colour"):
        serializer(of).encode_checked([wrong])
    with pytest.raises(Exception, match="must be of type Colour"):
        Fit(of, "it", hint="").check(wrong)
    if wrong is not None:
        with pytest.raises(JobGraphError, match="does not fit the declared type Colour"):
            to_arrow(of, [wrong])


def test_members_are_keys() -> None:
    of = type_info(Word)
    keys = serializer(of)

    KeyFit(of, "it", hint="").check(Word.YES)
    assert of.is_immutable
    assert keys.decode(keys.encode_keys([Word.YES])) == [Word.YES]
    assert keys.decode_one(keys.encode_key(Word.NO)) is Word.NO
    assert key_group_of(Word.YES, of, 128) == key_group_of("YES", type_info(str), 128)


def _colour(**members: Any) -> Any:
    return enum.Enum("Colour", members)


OLD = text_of(type_info(_colour(RED=1, BLUE=2)))


def test_members_may_be_added_and_change_their_values_and_order() -> None:
    assert compare(OLD, type_info(_colour(GREEN=0, BLUE="b", RED="r"))).kind is Compatibility.AS_IS


def test_a_member_that_is_gone_is_named() -> None:
    verdict = compare(OLD, type_info(_colour(RED=1)))

    assert verdict.kind is Compatibility.INCOMPATIBLE
    assert "no member BLUE" in verdict.reason
    assert "BLUE = RED" in verdict.hint
    with pytest.raises(StateNotRestorableError, match='no member "BLUE"'):
        serializer(type_info(_colour(RED=1))).decode_one(b"\xa4BLUE")


def test_a_member_is_renamed_by_keeping_its_name_as_an_alias() -> None:
    new = _colour(RED=1, NAVY=2, BLUE=2)

    verdict = compare(OLD, type_info(new))

    assert verdict.kind is Compatibility.MIGRATES
    assert "BLUE becomes NAVY" in verdict.reason
    assert verdict.convert is not None
    assert verdict.convert("BLUE") is new.NAVY


def test_members_that_become_one_are_refused_as_keys_of_a_dict() -> None:
    old = text_of(type_info(dict[_colour(RED=1, BLUE=2), int]))  # type: ignore[misc]

    renamed = compare(old, type_info(dict[_colour(RED=1, NAVY=2, BLUE=2), int]))  # type: ignore[misc]
    merged = compare(old, type_info(dict[_colour(RED=1, BLUE=1), int]))  # type: ignore[misc]

    assert renamed.kind is Compatibility.MIGRATES
    assert merged.kind is Compatibility.INCOMPATIBLE
    assert "BLUE becomes RED" in merged.reason
    assert "Keep the fields and members of keys" in merged.hint


def test_an_enum_may_become_the_text_of_its_names() -> None:
    assert compare(OLD, type_info(str)).kind is Compatibility.MIGRATES
    assert compare(OLD, type_info(int)).kind is Compatibility.INCOMPATIBLE
    assert compare(text_of(type_info(str)), type_info(Colour)).kind is Compatibility.INCOMPATIBLE


@pytest.mark.parametrize(
    "spec",
    ['{"enum":"C","members":[]}', '{"enum":"C","members":["A","A"]}', '{"enum":1,"members":["A"]}', '{"enum":"C"}'],
)
def test_a_crafted_enum_is_refused(spec: str) -> None:
    with pytest.raises(StateNotRestorableError):
        serializer_from_spec(spec)
