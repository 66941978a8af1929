"""Types that sample values show."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, IntEnum
from typing import Any, NamedTuple, TypedDict

import pytest

from checkdam.types.inference import infer_type
from checkdam.types.rows import from_arrow, to_arrow
from checkdam.types.type_info import row_dict_of, type_info


class Pair(NamedTuple):
    word: str
    times: int


@dataclass(frozen=True)
class Item:
    colour: str


class Colour(Enum):
    RED = object()


class Number(IntEnum):
    ONE = 1


class Row(TypedDict):
    name: str
    count: int | None


NAIVE = datetime(2024, 5, 1)  # noqa: DTZ001  meant to be naive


@pytest.mark.parametrize(
    ("values", "hint"),
    [
        ([1], int),
        ([True], bool),
        (["a", None, "b"], str | None),
        ([("a", (1, 2.5))], tuple[str, tuple[int, float]]),
        ([("a", None), ("b", 1)], tuple[str, int | None]),
        ([[1, 2], []], list[int]),
        ([[1, None]], list[int | None]),
        ([{"a": [1]}, {}], dict[str, list[int]]),
        ([{"a": 1}, {"b": None}], dict[str, int | None]),
        ([Item("red"), None], Item | None),
        ([Pair("a", 1)], Pair),
        ([Colour.RED], Colour),
        ([Number.ONE], Number),
        ([NAIVE, NAIVE.replace(tzinfo=UTC)], datetime),
    ],
)
def test_samples_show_the_type_they_have_in_common(values: list[Any], hint: Any) -> None:
    of = infer_type(values)

    assert of == type_info(hint)
    assert of is not None
    assert type_info(of.hint) == of
    assert from_arrow(of, to_arrow(of, values)) == values


@pytest.mark.parametrize(
    "values",
    [[], [None], [()], [("a", None)], [("a",), ("a", 1)], [[]], [1, "a"], [[1, "a"]], [{}], [object()], [{1}]],
)
def test_samples_that_do_not_tell_have_no_type(values: list[Any]) -> None:
    assert infer_type(values) is None


def test_dicts_with_the_same_keys_and_values_of_different_types_are_rows() -> None:
    rows = [{"name": "a", "count": 1}, {"count": None, "name": "b"}]

    of = infer_type(rows)

    assert of == row_dict_of([("name", type_info(str)), ("count", type_info(int | None))])
    assert [column.name for column in of.columns] == ["name", "count"]
    assert from_arrow(of, to_arrow(of, rows)) == rows
    assert from_arrow(type_info(Row), to_arrow(type_info(Row), rows)) == rows


@pytest.mark.parametrize("rows", [[{"a": 1, "b": "x"}, {"a": 1}], [{1: 1, 2: "x"}], [{"a": 1, 2: "x"}]])
def test_other_dicts_have_no_type(rows: list[Any]) -> None:
    assert infer_type(rows) is None
