"""Values known by their durable type alone, as Arrow columns."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from checkdam.errors import StateNotRestorableError
from checkdam.state_reader.columns import column
from checkdam.types.serializers import Serializer, serializer
from checkdam.types.type_info import type_info
from checkdam.types.type_text import text_of, type_from_text


@dataclass
class Inner:
    at: datetime
    tags: list[str]


@dataclass
class Outer:
    inner: Inner | None
    by_name: dict[str, int]


class Row(NamedTuple):
    name: str
    amount: Decimal | None


NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("of", "values", "expected"),
    [
        (int, [1, -(2**63)], None),
        (float, [1.5, float("inf")], None),
        (bool, [True, False], None),
        (bytes, [b"", b"\x00\xff"], None),
        (date, [date(2026, 5, 1)], None),
        (datetime, [NOON], None),
        (datetime, [NOON.replace(tzinfo=None)], [NOON]),
        (Decimal, [Decimal("1.50")], [Decimal("1.500000000000000000")]),
        (str | None, ["a", None], None),
        (list[int | None], [[1, None], []], None),
        (list[list[str]], [[["a"], []], []], None),
        (dict[str, list[int]], [{"a": [1]}, {}], [[("a", [1])], []]),
        (tuple[str, int], [("a", 1)], [{"f0": "a", "f1": 1}]),
        (tuple[str, int] | None, [("a", 1), None], [{"f0": "a", "f1": 1}, None]),
        (Row, [Row("a", None)], [{"name": "a", "amount": None}]),
        (Outer, [Outer(None, {"x": 1})], [{"inner": None, "by_name": [("x", 1)]}]),
        (
            Outer,
            [Outer(Inner(NOON, ["t"]), {}), Outer(None, {})],
            [{"inner": {"at": NOON, "tags": ["t"]}, "by_name": []}, {"inner": None, "by_name": []}],
        ),
        (pa.int16(), [7], None),
        (pa.timestamp("ms", tz="UTC"), [NOON], None),
        (None, [None], None),
    ],
)
def test_what_was_kept_is_read_by_its_text_alone_into_a_column_of_its_type(
    of: Any, values: list[Any], expected: list[Any] | None
) -> None:
    kept = serializer(type_info(of)).encode(values)
    known = type_from_text(text_of(type_info(of)))

    read = column(known, Serializer(known).decode(kept), "state")

    assert read.type == known.arrow_type
    assert read.to_pylist() == (values if expected is None else expected)


def test_a_value_without_a_place_in_arrow_is_an_error_that_tells_the_way_out() -> None:
    with pytest.raises(StateNotRestorableError, match="Iterate over the state instead"):
        column(type_info(Decimal), [Decimal(10) ** 60], 'state "sums" of operator "op"')
