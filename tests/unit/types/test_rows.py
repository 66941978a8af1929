"""Rows: records become Arrow columns and come back as they were."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from checkdam.errors import JobGraphError
from checkdam.types.rows import column_to_list, from_arrow, to_arrow
from checkdam.types.type_info import arrow_type_info, named_tuple_type, type_info


@dataclass
class Point:
    x: int
    label: str | None = None


@dataclass(kw_only=True)
class Named:
    name: str = field()


class Shape(NamedTuple):
    kind: str
    points: list[Point]


class Unknown:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unknown)

    __hash__ = None  # type: ignore[assignment]


MOMENT = datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC)
RECORDS: list[tuple[Any, list[Any]]] = [
    (int, [1, None, -(2**63)]),
    (int, [1, 2**63 - 1]),
    (str, ["a", None, "naïve", ""]),
    (bytes, [b"a", None, b""]),
    (float, [1.5, None, float("inf")]),
    (bool, [True, None, False]),
    (datetime, [MOMENT, None]),
    (datetime, [MOMENT, MOMENT]),
    (date, [MOMENT.date(), None]),
    (Decimal, [Decimal("1.5"), None]),
    (None, [None, None]),
    (list[int], [[1, 2], [], None, [3]]),
    (dict[str, Point], [{"a": Point(1), "b": Point(2, "x")}, {}, None]),
    (tuple[str, int], [("a", 1), ("b", None), (None, None)]),
    (tuple[str], [("a",), ("b",)]),
    (tuple[str, int, float], [("a", 1, 2.0), ("b", 2, 3.0)]),
    (tuple[str, tuple[int, str]], [("a", (1, "x")), ("b", None)]),
    (tuple[int, str] | None, [(1, "a"), None]),
    (list[list[tuple[int, str]]], [[[(1, "a")], []], [], None]),
    (Point, [Point(1), Point(2, "b")]),
    (Point | None, [None, Point(1)]),
    (Named, [Named(name="a"), Named(name="b")]),
    (Shape, [Shape("line", [Point(1), Point(2)]), Shape("none", [])]),
    (object, [Unknown(), None, {1: "a"}]),
    (tuple[str, object], [("a", Unknown()), ("b", 1)]),
    (list[object], [[Unknown(), 1], []]),
]


@pytest.mark.parametrize(("hint", "records"), RECORDS, ids=[type_info(hint).name for hint, _ in RECORDS])
def test_records_come_back_as_they_were(hint: Any, records: list[Any]) -> None:
    of = type_info(hint)

    batch = to_arrow(of, records)
    batch.validate(full=True)
    back = from_arrow(of, batch)

    assert batch.schema == of.arrow_schema
    assert back == records
    assert list(map(type, back)) == list(map(type, records))
    assert from_arrow(of, batch.slice(1)) == records[1:]
    assert from_arrow(of, to_arrow(of, [])) == []


def test_one_object_in_several_records_is_whole_in_each() -> None:
    of, shared = type_info(object), {"a": [1]}

    first, second = to_arrow(of, [shared, shared]).column(0).to_pylist()

    assert pickle.loads(second) == pickle.loads(first) == shared


def test_columns_are_found_by_position() -> None:
    batch = pa.RecordBatch.from_pydict({"some": ["a"], "name": [1]})

    assert from_arrow(type_info(tuple[str, int]), batch) == [("a", 1)]


def test_rows_of_a_frame_come_back_with_their_own_widths() -> None:
    schema = pa.schema(
        [
            ("a", pa.int16()),
            ("b", pa.decimal128(10, 2)),
            ("c", pa.timestamp("us")),
            ("d", pa.struct([("e", pa.float32())])),
        ]
    )
    of = named_tuple_type(schema)
    rows = [
        of.hint(1, Decimal("1.25"), MOMENT.replace(tzinfo=None), of.fields[3][1].maker(1.5)),
        of.hint(None, None, None, None),
    ]

    batch = to_arrow(of, rows)

    assert batch.schema.types == schema.types
    assert from_arrow(of, batch) == rows


def test_instants_come_back_in_utc_and_naive_ones_stay_naive() -> None:
    of = type_info(list[datetime | None])
    elsewhere = MOMENT.astimezone(timezone(timedelta(hours=2)))
    naive = [MOMENT.replace(tzinfo=None), datetime.min, datetime.max]  # noqa: DTZ901  they are meant to have no zone

    [back] = from_arrow(of, to_arrow(of, [[elsewhere, None, *naive]]))

    assert back == [MOMENT, None, *naive]
    assert [moment and moment.tzinfo for moment in back] == [UTC, None, None, None, None]


@pytest.mark.parametrize(
    ("hint", "records", "offender"),
    [
        (int, [1, "a"], "'a'"),
        (int, [2**63], str(2**63)),
        (int, [True], "True"),
        (bool, [1], "1"),
        (str, ["\ud800"], "ud800"),
        (date, ["2024-01-01"], "2024"),
        (tuple[str, int], [("a", 1), ("b", "c")], "('b', 'c')"),
        (tuple[str, int], [("a",)], "('a',)"),
        (tuple[str, int, int], [("a", 1, 2, 3)], "('a', 1, 2, 3)"),
        (tuple[str, str], ["ab"], "'ab'"),
        (tuple[str, int], [5], "5"),
        (list[str], ["abc"], "'abc'"),
        (list[int], [3], "3"),
        (dict[str, int], [[("a", 1)]], "('a', 1)"),
        (Point, [Point("a")], "Point(x='a'"),  # type: ignore[arg-type]
        (Point, [3], "3"),
        (object, [(x for x in "ab")], "generator"),
    ],
)
def test_a_value_that_is_not_of_its_type_is_named(hint: Any, records: list[Any], offender: str) -> None:
    of = type_info(hint)

    with pytest.raises(JobGraphError, match="does not fit the declared type") as caught:
        to_arrow(of, records)

    assert offender in caught.value.message
    assert of.name in caught.value.message


@pytest.mark.parametrize(
    ("values", "arrow_type"),
    [
        ([1, None], pa.int32()),
        (["a", None], pa.large_string()),
        ([{"a": 1}, None], pa.map_(pa.string(), pa.int64())),
        ([[1], None], pa.large_list(pa.int64())),
    ],
)
def test_a_column_and_its_list_are_the_same(values: list[Any], arrow_type: pa.DataType) -> None:
    column = to_arrow(arrow_type_info(arrow_type), values).column(0)

    assert column.type == arrow_type
    assert column_to_list(column) == values
    assert column_to_list(pa.chunked_array([column, column])) == values + values
    assert column_to_list(pa.chunked_array([], type=arrow_type)) == []


def test_a_dictionary_column_gives_its_values() -> None:
    assert column_to_list(pa.array(["a", "b", None, "a"]).dictionary_encode()) == ["a", "b", None, "a"]
    assert from_arrow(type_info(str), pa.record_batch([pa.array(["a", "a"]).dictionary_encode()], ["w"])) == ["a", "a"]


def test_a_column_names_the_value_it_refuses() -> None:
    with pytest.raises(JobGraphError, match="value 300 does not fit the declared type int8"):
        to_arrow(arrow_type_info(pa.int8()), [1, 300])
