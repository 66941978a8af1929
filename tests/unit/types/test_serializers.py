"""Serializers: the durable form of values."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, make_dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple, TypedDict

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest

from checkdam.errors import JobGraphError, StateNotRestorableError
from checkdam.types.serializers import serializer, serializer_from_spec
from checkdam.types.type_info import named_tuple_type, type_info


@dataclass(frozen=True)
class Point:
    x: int
    label: str | None = None


class Shape(NamedTuple):
    kind: str
    points: list[Point]


MOMENT = datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC)
ROW = named_tuple_type(
    pa.schema(
        [
            ("a", pa.int32()),
            ("class", pa.decimal128(10, 2)),
            ("t", pa.timestamp("us", tz="Europe/Paris")),
            ("f", pa.float32()),
        ]
    )
)
POINT_SPEC = '{"dataclass":"Point","fields":[["x","int"],["label",{"optional":"str"}]]}'
VALUES: list[tuple[Any, list[Any], str]] = [
    (int, [1, -(2**63), 2**63 - 1], '"int"'),
    (str, ["a", "", "naïve"], '"str"'),
    (bytes, [b"", b"\xff"], '"bytes"'),
    (float, [1.5, -0.0, float("inf")], '"float"'),
    (bool, [True, False], '"bool"'),
    (datetime, [MOMENT, MOMENT.replace(tzinfo=None)], '"datetime"'),
    (date, [date(2024, 2, 29)], '"date"'),
    (Decimal, [Decimal("1.50"), Decimal("1e40")], '"Decimal"'),
    (None, [None], '"None"'),
    (str | None, ["a", None], '{"optional":"str"}'),
    (list[int], [[1, 2], []], '{"list":"int"}'),
    (dict[tuple[str, int], int], [{("b", 1): 1, ("a", 1): 2}], '{"map":[{"tuple":["str","int"]},"int"]}'),
    (tuple[str, tuple[int, str]], [("a", (1, "b"))], '{"tuple":["str",{"tuple":["int","str"]}]}'),
    (Point, [Point(1), Point(2, "b")], POINT_SPEC),
    (Point | None, [None, Point(1)], f'{{"optional":{POINT_SPEC}}}'),
    (
        Shape,
        [Shape("line", [Point(1)])],
        f'{{"named tuple":"Shape","fields":[["kind","str"],["points",{{"list":{POINT_SPEC}}}]]}}',
    ),
    (
        ROW,
        [ROW.hint(1, Decimal("1.50"), MOMENT, 0.5), ROW.hint(None, None, None, None)],
        '{"named tuple":"Row","fields":[["a",{"optional":{"arrow":"int32"}}],'
        '["class",{"optional":{"arrow":"decimal128(10, 2)"}}],'
        '["t",{"optional":{"arrow":"timestamp[us, tz=Europe/Paris]"}}],["f",{"optional":{"arrow":"float32"}}]]}',
    ),
]
IDS = [type_info(hint).name for hint, _, _ in VALUES]


@pytest.mark.parametrize(("hint", "values", "spec"), VALUES, ids=IDS)
def test_values_come_back_as_they_were(hint: Any, values: list[Any], spec: str) -> None:
    of = serializer(type_info(hint))

    back = of.decode(of.encode_checked(values))

    assert repr(back) == repr(values)  # 1.50 and 1.5, 0.0 and -0.0 are equal, but not the same
    assert [of.decode_one(of.encode_one(value)) for value in values] == values
    assert of.decode(of.encode([])) == []


@pytest.mark.parametrize(("hint", "values", "spec"), VALUES, ids=IDS)
def test_the_spec_of_a_type_is_fixed_and_describes_it_whole(hint: Any, values: list[Any], spec: str) -> None:
    of = type_info(hint)

    read = serializer_from_spec(serializer(of).spec)

    assert serializer(of).spec == spec
    assert read.type == of
    assert read.spec == spec


def test_without_the_code_dataclasses_are_dicts_and_named_tuples_are_tuples() -> None:
    written = serializer(type_info(Shape))
    data = written.encode([Shape("line", [Point(1)])])

    assert serializer_from_spec(written.spec).decode(data) == [("line", [{"x": 1, "label": None}])]


def test_fields_may_come_and_go() -> None:
    data = serializer(type_info(Point)).encode([Point(1, "a")])
    grown = make_dataclass("Point", [("x", int), ("label", str), ("weight", float, 1.0)])
    shrunk = make_dataclass("Point", [("x", int)])

    assert serializer(type_info(grown)).decode(data) == [grown(1, "a", 1.0)]
    assert serializer(type_info(shrunk)).decode(data) == [shrunk(1)]


def test_a_dict_keeps_its_order() -> None:
    of = serializer(type_info(dict[str, int]))

    assert list(of.decode_one(of.encode_one({"b": 1, "a": 2}))) == ["b", "a"]


@pytest.mark.parametrize(
    ("hint", "values", "offender"),
    [
        (int, [1, "a"], "'a'"),
        (int, [2**63], str(2**63)),
        (int, [-(2**64)], str(2**64)),
        (int, [True], "True"),
        (int, [None], "None"),
        (str, [b"a"], "b'a'"),
        (str, ["\ud800"], "ud800"),
        (str, [object()], "object object"),
        (bool, [1], "1"),
        (date, ["2024-02-29"], "2024"),
        (datetime, ["2024-02-29T00:00:00"], "2024"),
        (Decimal, ["1.5"], "'1.5'"),
        (Decimal, [1.5], "1.5"),
        (tuple[int, date], [(1, "2024-02-29")], "2024"),
        (dict[str, list[date]], [{"a": ["2024-02-29"]}], "2024"),
        (tuple[str, int], [("a",)], "('a',)"),
        (list[int], [3], "3"),
        (Point, [Point("a")], "Point(x='a'"),  # type: ignore[arg-type]
        (Point, [Point(2**63)], str(2**63)),
        (Point, [{"x": 1}], "{'x': 1}"),
    ],
)
def test_a_value_that_is_not_of_its_type_is_named(hint: Any, values: list[Any], offender: str) -> None:
    of = type_info(hint)

    with pytest.raises(JobGraphError, match="does not fit the declared type") as caught:
        serializer(of).encode_checked(values)

    assert offender in caught.value.message
    assert of.name in caught.value.message


@pytest.mark.parametrize(
    ("hint", "one", "other"),
    [
        (float, 0.0, -0.0),
        (float, 1, 1.0),
        (Decimal, Decimal("1.5"), Decimal("1.50")),
        (Decimal, Decimal("0"), Decimal("-0.00")),
        (datetime, MOMENT, MOMENT.astimezone(timezone(timedelta(hours=2)))),
        (tuple[str, float | None], ("a", 0.0), ("a", -0.0)),
        (int, 3, np.int64(3)),
        (Point, Point(1, "a"), Point(1, "a")),
    ],
)
def test_equal_keys_have_equal_bytes(hint: Any, one: Any, other: Any) -> None:
    assert one == other
    of = serializer(type_info(hint))

    assert of.encode_key(one) == of.encode_key(other)
    assert of.encode_keys([one]) == of.encode_keys([other])
    assert of.decode_one(of.encode_key(other)) == one
    assert of.decode(of.encode_keys([other])) == [one]


def test_dataclass_keys_have_equal_bytes_also_where_their_fields_have_several_forms() -> None:
    of = serializer(type_info(make_dataclass("Key", [("at", float), ("name", str)], frozen=True)))
    key = of.type.maker

    assert of.encode_key(key(0.0, "a")) == of.encode_key(key(-0.0, "a"))
    assert of.decode_one(of.encode_key(key(-0.0, "a"))) == key(0.0, "a")


def test_a_key_of_another_type_is_refused_also_while_it_is_brought_into_form() -> None:
    with pytest.raises(JobGraphError, match="value 'a' does not fit the declared type float"):
        serializer(type_info(float)).encode_key("a")


@pytest.mark.parametrize("hint", [object, tuple[str, list[object]], dict[Point, int], pa.duration("us")])
def test_a_type_without_a_durable_form_is_refused(hint: Any) -> None:
    assert not type_info(hint).is_durable

    with pytest.raises(JobGraphError, match="has no durable form"):
        serializer(type_info(hint))


@pytest.mark.parametrize("data", [b"", b"\x91", b"\x91\xa1a", b"\x01"])
def test_bytes_of_another_type_are_not_restorable(data: bytes) -> None:
    with pytest.raises(StateNotRestorableError, match="not of type int"):
        serializer(type_info(int)).decode(data)


@pytest.mark.parametrize("spec", ["", "{}", '"number"', '{"arrow":"int1024"}', "[]", '{"set":"int"}'])
def test_an_unknown_spec_is_refused(spec: str) -> None:
    with pytest.raises(StateNotRestorableError, match="not understood"):
        serializer_from_spec(spec)


def test_a_class_can_still_be_pickled_by_value_once_it_has_a_serializer() -> None:
    local = make_dataclass("Local", [("x", int), ("inner", Point)])
    of = serializer(type_info(local))

    again = cloudpickle.loads(cloudpickle.dumps((of, local)))[0]

    assert again.spec == of.spec
    assert json.loads(of.spec)["dataclass"] == "Local"
    assert of.decode(again.encode([local(1, Point(2))])) == [local(1, Point(2))]


_IN_THREADS = """
from __future__ import annotations
import threading
from dataclasses import dataclass
from checkdam.types.serializers import Serializer
from checkdam.types.type_info import type_info

@dataclass(frozen=True)
class Inner:
    a: int

@dataclass(frozen=True)
class Outer:
    inner: Inner
    b: str

of, value, start = type_info(Outer), Outer(Inner(1), "x"), threading.Barrier(4)

def build():
    start.wait()
    for _ in range(500):
        made = Serializer(of)
        assert made.decode_one(made.encode_one(value)) == value

threads = [threading.Thread(target=build) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.slow
def test_serializers_of_one_class_can_be_built_in_many_threads() -> None:
    ended = subprocess.run([sys.executable, "-X", "faulthandler", "-c", _IN_THREADS], capture_output=True, text=True)

    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    "spec",
    [
        '{"tuple": []}',
        '{"arrow": "time64[us]"}',
        '{"dataclass": 5, "fields": [["a", "int"]]}',
        '{"dataclass": "D", "fields": [["a", "int"], ["a", "int"]]}',
        '{"dataclass": "D", "fields": [["a\\u0000b", "int"]]}',
    ],
)
def test_a_text_that_describes_no_type_is_refused(spec: str) -> None:
    with pytest.raises(StateNotRestorableError):
        serializer_from_spec(spec)


class Colour(Enum):
    RED = 1


class Plain(TypedDict):
    number: int


class Coloured(TypedDict):
    colour: Colour


@pytest.mark.parametrize(("of", "value"), [(Plain, {"number": 1}), (Coloured, {"colour": Colour.RED})])
def test_a_dict_with_a_key_that_its_type_does_not_have_is_refused(of: Any, value: dict[str, Any]) -> None:
    by_type = serializer(type_info(of))

    assert by_type.decode_one(by_type.encode_one_checked(value)) == value
    with pytest.raises(JobGraphError, match="does not fit the declared type"):
        by_type.check.check_one({**value, "more": 1})
