"""PickleType, Spark's types as hints, and what is said of types that have no durable form."""

from __future__ import annotations

import enum
import pickle
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

from checkdam.errors import JobGraphError
from checkdam.types.hints import PickleType
from checkdam.types.rows import from_arrow, to_arrow
from checkdam.types.serializers import serializer, serializer_from_spec
from checkdam.types.type_info import named_tuple_type, tuple_of, type_info


class Model:
    """A class without a durable form of its own."""

    def __init__(self, weight: float) -> None:
        self.weight = weight

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and other.weight == self.weight

    __hash__ = None  # type: ignore[assignment]


class Larger(Model):
    pass


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (PickleType(Model), Model(1.5)),
        (PickleType(Model), Larger(1.5)),
        (PickleType(Model) and type_info(list[PickleType(Model)]), [Model(1.0), Model(2.0)]),  # type: ignore[misc]
        (tuple_of([type_info(PickleType(Model)), type_info(int)], tuple), (Model(1.5), 5)),
        (type_info(dict[str, PickleType(Model)]), {"a": Model(1.0)}),  # type: ignore[misc]
        (PickleType(set), {1, 2}),
    ],
)
def test_pickled_values_come_back_one_by_one_and_many_at_once(hint: Any, value: Any) -> None:
    of = serializer(type_info(hint))

    assert of.decode(of.encode_checked([value, value])) == [value, value]
    assert of.decode_one(of.encode_one_checked(value)) == value
    assert of.decode_one(of.encode_one(value)) == value
    assert pickle.loads(pickle.dumps(of)).spec == of.spec


def test_a_pickled_type_is_recorded_as_such_and_its_values_stay_closed_without_the_code() -> None:
    of = serializer(type_info(PickleType(Model)))
    written = of.encode_one(Model(1.5))

    told = serializer_from_spec(of.spec)

    assert of.spec == '{"pickle":"Model"}'
    assert told.type == of.type
    assert isinstance(told.decode_one(written), bytes)
    assert told.encode_one(told.decode_one(written)) == written


def test_a_class_of_the_job_file_itself_can_be_pickled() -> None:
    defined: dict[str, Any] = {"__name__": "__main__"}
    exec("class Own:\n    size = 3\n", defined)
    of = serializer(type_info(PickleType(defined["Own"])))

    assert of.decode(of.encode_checked([defined["Own"]()]))[0].size == 3


def test_a_value_of_another_class_is_refused() -> None:
    of = serializer(type_info(PickleType(Model)))

    with pytest.raises(JobGraphError, match="expected Model, got int"):
        of.encode_checked([Model(1.0), 5])
    with pytest.raises(JobGraphError, match="expected Model, got int"):
        of.encode_one_checked(5)


def test_a_pickled_value_is_no_key() -> None:
    of = serializer(type_info(PickleType(Model)))

    with pytest.raises(JobGraphError, match="cannot be a key"):
        of.encode_key(Model(1.0))
    with pytest.raises(JobGraphError, match="cannot be a key"):
        of.encode_keys([Model(1.0)])
    assert not type_info(dict[PickleType(Model), int]).is_durable  # type: ignore[misc]
    assert not type_info(PickleType(Model)).is_immutable


def test_a_pickled_value_travels_as_a_record() -> None:
    of = type_info(PickleType(Model))

    assert from_arrow(of, to_arrow(of, [Model(1.5)])) == [Model(1.5)]


def test_pickle_needs_a_class() -> None:
    with pytest.raises(JobGraphError, match="needs a class"):
        PickleType("Model")  # type: ignore[arg-type]  # what is refused


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass
class Holder:
    rights: Rights


@pytest.mark.parametrize(
    ("hint", "name", "hinted"),
    [
        (set[int], "set[int]", r"dict\[T, bool\] or list\[T\]"),
        (frozenset[str], "frozenset[str]", r"list\[T\]"),
        (tuple[int, ...], "tuple[int, ...]", r"list\[T\] instead of a tuple of any length"),
        (timedelta, "timedelta", "milliseconds"),
        (Rights, "Rights", "register_type"),
        (Holder, "Holder", "register_type"),
        (list, "list", r"list\[int\]"),
        (dict, "dict", r"dict\[str, int\]"),
        (Model, "Model", r"PickleType\(Model\)"),
        (int | str, "int | str", "Name a type made of"),
    ],
)
def test_a_type_without_durable_form_is_named_with_what_to_write_instead(hint: Any, name: str, hinted: str) -> None:
    with pytest.raises(JobGraphError, match=hinted) as refused:
        serializer(type_info(hint))

    assert f"type {name} has no durable form" in refused.value.message


def test_types_that_only_travel_are_equal_whatever_they_are_called() -> None:
    assert type_info(set[int]) == type_info(Model)
    assert cloudpickle.loads(cloudpickle.dumps(type_info(set[int]))) == type_info(Model)


def test_sparks_types_are_hints() -> None:
    spark = pytest.importorskip("pyspark.sql.types")
    row = spark.StructType([spark.StructField("a", spark.LongType()), spark.StructField("b", spark.StringType())])

    assert type_info(spark.LongType()) == type_info(int)
    assert type_info(spark.StringType()) == type_info(str)
    assert type_info(spark.BinaryType()) == type_info(bytes)
    assert type_info(spark.DoubleType()) == type_info(float)
    assert type_info(spark.BooleanType()) == type_info(bool)
    assert type_info(spark.TimestampType()) == type_info(datetime)
    assert type_info(spark.DateType()) == type_info(date)
    assert type_info(spark.DecimalType(38, 18)) == type_info(Decimal)
    assert type_info(spark.ArrayType(spark.LongType(), containsNull=False)).fields[0][1] == type_info(int)
    assert type_info(row) == named_tuple_type(pa.schema([("a", pa.int64()), ("b", pa.string())]))
    assert serializer(type_info(row)).decode_one(serializer(type_info(row)).encode_one_checked((1, "x"))) == (1, "x")


@pytest.mark.parametrize("value", [(1, 2, 3), (1,), [(1, 2), 3]])
def test_a_tuple_of_another_length_is_refused(value: Any) -> None:
    of = serializer(type_info(tuple[int, int]))

    with pytest.raises(JobGraphError, match="does not fit the declared type"):
        of.encode_one_checked(value)
    with pytest.raises(JobGraphError, match="does not fit the declared type"):
        of.encode_checked([(1, 2), value])
