"""Type information: columns of Python types, and where types are found."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, NamedTuple, NewType, Optional, TypeVar

import cloudpickle
import pyarrow as pa
import pytest

from checkdam.types.inference import infer_type
from checkdam.types.type_info import TypeInfo, named_tuple_type, result_type, type_info

T = TypeVar("T")
Word = NewType("Word", str)


@dataclass(frozen=True)
class Item:
    color: str
    sizes: tuple[int, int]


@dataclass
class Counter:
    word: str
    count: int = 0


@dataclass
class Node:
    children: list[Node]


@dataclass
class Derived:
    word: str
    length: int = field(init=False, default=0)


class Pair(NamedTuple):
    word: str
    times: int | None


SCHEMA = pa.schema(
    [pa.field("id", pa.int32(), nullable=False), ("class", pa.string()), ("count", pa.decimal128(10, 2))]
)


@pytest.mark.parametrize(
    ("hint", "arrow_type", "name"),
    [
        (int, pa.int64(), "int"),
        (str, pa.string(), "str"),
        (bytes, pa.binary(), "bytes"),
        (float, pa.float64(), "float"),
        (bool, pa.bool_(), "bool"),
        (datetime, pa.timestamp("us", tz="UTC"), "datetime"),
        (date, pa.date32(), "date"),
        (Decimal, pa.decimal128(38, 18), "Decimal"),
        (None, pa.null(), "None"),
        (Word, pa.string(), "str"),
        (Annotated[int, "positive"], pa.int64(), "int"),
        (list[int], pa.list_(pa.int64()), "list[int]"),
        (dict[str, int], pa.map_(pa.string(), pa.int64()), "dict[str, int]"),
        (Optional[int], pa.int64(), "int | None"),  # noqa: UP045  # both spellings are in use
        (Optional[tuple[int, str]], pa.struct([("f0", pa.int64()), ("f1", pa.string())]), "tuple[int, str] | None"),  # noqa: UP045
    ],
)
def test_a_type_without_fields_is_one_column_called_value(hint: Any, arrow_type: pa.DataType, name: str) -> None:
    of = type_info(hint)

    assert [(column.name, column.arrow_type) for column in of.columns] == [("value", arrow_type)]
    assert of.arrow_schema == pa.schema([("value", arrow_type)])
    assert of.name == name
    assert of.is_durable


@pytest.mark.parametrize(
    ("hint", "columns"),
    [
        (tuple[str, int], {"f0": pa.string(), "f1": pa.int64()}),
        (tuple[str, tuple[int]], {"f0": pa.string(), "f1": pa.struct([("f0", pa.int64())])}),
        (Pair, {"word": pa.string(), "times": pa.int64()}),
        (Item, {"color": pa.string(), "sizes": pa.struct([("f0", pa.int64()), ("f1", pa.int64())])}),
        (tuple[str, object], {"f0": pa.string(), "f1": pa.binary()}),
    ],
)
def test_a_compound_has_one_column_a_field(hint: Any, columns: dict[str, pa.DataType]) -> None:
    assert type_info(hint).arrow_schema == pa.schema(list(columns.items()))


@pytest.mark.parametrize(
    "hint", [Any, object, list, tuple, tuple[int, ...], int | str, Callable[[], None], Node.__call__, Derived, set[int]]
)
def test_whatever_has_no_columns_is_opaque(hint: Any) -> None:
    of = type_info(hint)

    assert of.is_opaque
    assert not of.is_durable
    assert [(column.name, column.arrow_type) for column in of.columns] == [("value", pa.binary())]


def test_a_class_that_holds_itself_ends_in_an_opaque_field() -> None:
    assert type_info(Node).columns[0].arrow_type == pa.list_(pa.binary())
    assert not type_info(Node).is_durable


@pytest.mark.parametrize("hint", [int, str, None, tuple[str, tuple[int, date]], Item, Pair, str | None])
def test_values_nobody_can_change_may_be_kept_by_reference(hint: Any) -> None:
    assert type_info(hint).is_immutable


@pytest.mark.parametrize("hint", [list[int], dict[str, int], tuple[str, list[int]], Counter, object])
def test_values_that_can_change_may_not(hint: Any) -> None:
    assert not type_info(hint).is_immutable


def test_a_field_is_found_by_position_and_by_name() -> None:
    assert type_info(Pair).field_type(0) == type_info(str)
    assert type_info(Pair).field_type(-1) == type_info(int | None)
    assert type_info(Pair).field_type("times") == type_info(int | None)
    for missing in (2, -3, "other"):
        with pytest.raises(KeyError):
            type_info(Pair).field_type(missing)


def test_types_differ_by_their_fields() -> None:
    assert type_info(tuple[str, int]) == type_info(tuple[str, int])
    assert (
        len({type_info(hint) for hint in (tuple[str, int], tuple[str, int | None], tuple[int, str], Pair, Counter)})
        == 5
    )


@pytest.mark.parametrize("hint", [int, tuple[str, int], Item, Pair, object, dict[str, list[Item]], SCHEMA])
def test_type_information_survives_pickling(hint: Any) -> None:
    of = type_info(hint)

    again = pickle.loads(cloudpickle.dumps(of))

    assert again == of
    assert hash(again) == hash(of)


def test_rows_keep_the_columns_of_their_schema() -> None:
    of = named_tuple_type(SCHEMA)

    assert of.arrow_schema.types == SCHEMA.types
    assert of.arrow_schema.names == ["id", "class", "count"]
    assert of.hint(1, "a", Decimal(2))._1 == "a"  # "class" is no Python name
    assert [each.nullable for _, each in of.fields] == [False, True, True]
    assert named_tuple_type(SCHEMA.with_metadata({"made": "elsewhere"})) == of


def test_a_row_can_be_pickled_although_its_class_cannot_be_imported() -> None:
    row = named_tuple_type(SCHEMA).hint(1, "a", Decimal(2))

    assert pickle.loads(pickle.dumps(row)) == row


@pytest.mark.slow
def test_a_row_type_made_in_another_process_is_equal() -> None:
    made_there = (
        "import sys, cloudpickle, pyarrow as pa; from checkdam.types.type_info import named_tuple_type as t;"
        "of = t(pa.schema([('a', pa.int32()), ('b', pa.struct([('c', pa.string())]))]));"
        "sys.stdout.buffer.write(cloudpickle.dumps((of, of.hint(1, None))))"
    )

    reply = subprocess.run([sys.executable, "-c", made_there], check=True, capture_output=True).stdout
    of, row = pickle.loads(reply)

    assert of == named_tuple_type(pa.schema([("a", pa.int32()), ("b", pa.struct([("c", pa.string())]))]))
    assert (row.a, row.b) == (1, None)
    assert infer_type([row]) == of


class Functions:
    def method(self, line: str) -> int:
        return len(line)

    def __call__(self, line: str) -> tuple[str, int]:
        return line, 1


def same(value: T) -> T:
    return value


def pairs(line: str) -> Iterator[tuple[str, int]]:
    yield line, 1


def untyped(line):  # type: ignore[no-untyped-def]
    return line


def hidden(line: str) -> NotImportedHere:  # type: ignore[name-defined]  # noqa: F821
    return line


def words(line: str) -> list[str]:
    return line.split()


def generated(line: str) -> Generator[str, None, None]:
    yield line


def anything(line: str) -> Iterable[Any]:
    return line


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (Functions().method, int),
        (Functions(), tuple[str, int]),
        (partial(Functions.method, Functions()), int),
        (same, str),
        (int, int),
        (Counter, Counter),
        (words, list[str]),
        (len, None),
        (str.split, None),
        (lambda line: line, None),
        (untyped, None),
        (hidden, None),
    ],
)
def test_a_return_annotation_is_the_result_type(function: Any, expected: Any) -> None:
    found = result_type(function, of=type_info(str), many=False)

    assert found == (None if expected is None else type_info(expected))


@pytest.mark.parametrize(
    ("function", "expected"),
    [(pairs, tuple[str, int]), (words, str), (generated, str), (anything, None), (str.split, None), (untyped, None)],
)
def test_of_many_results_the_type_is_that_of_one(function: Any, expected: Any) -> None:
    found: TypeInfo | None = result_type(function, of=type_info(str), many=True)

    assert found == (None if expected is None else type_info(expected))
