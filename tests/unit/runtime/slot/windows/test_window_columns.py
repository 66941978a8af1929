"""Built-in sums, minima and maxima of pairs, which windows combine as columns."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from checkdam import (
    DataStream,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    UserFunctionError,
    WatermarkStrategy,
)
from checkdam.graph.keyed_batches import RecordsByKey
from checkdam.runtime.slot.column_aggregates import ColumnAggregate
from checkdam.runtime.slot.windows.window_columns import WindowColumns
from checkdam.testing import local_environment
from checkdam.types.batch import Batch
from checkdam.types.type_info import type_info

PAIR = type_info(tuple[str, int])
TEN = timedelta(milliseconds=10)


def pairs(records: list[tuple[str, int | None]]) -> tuple[Batch, Batch]:
    """Return records and their keys as columns."""
    columns = pa.RecordBatch.from_arrays(
        [pa.array([key for key, _ in records]), pa.array([value for _, value in records], pa.int64())],
        schema=pa.schema([pa.field(*each) for each in zip("ab", (pa.string(), pa.int64()), strict=True)]),
    )
    return Batch(PAIR, columns=columns), Batch(type_info(str), columns=columns.select(["a"]))


@pytest.mark.parametrize(("how", "of_x", "of_y"), [("sum", 9, 5), ("min", 1, 5), ("max", 6, 5)])
def test_records_are_combined_by_window_and_key_in_order_of_arrival(how: str, of_x: int, of_y: int) -> None:
    columns = WindowColumns(ColumnAggregate(how, 1), type_info(str))
    starts = pa.array([10, 0, 0, 0]).to_numpy()

    assert columns.add(*pairs([("x", 7), ("y", 5), ("x", 1), ("x", 2)]), starts)
    assert columns.add(*pairs([("x", 6)]), pa.array([0]).to_numpy())

    assert list(columns.take()) == [(0, ["y", "x"], [("y", of_y), ("x", of_x)]), (10, ["x"], [("x", 7)])]
    assert list(columns.take()) == []


def test_sums_beyond_64_bits_are_exact() -> None:
    columns = WindowColumns(ColumnAggregate("sum", 1), type_info(str))

    columns.add(*pairs([("x", 2**63 - 1), ("x", 2**63 - 1), ("y", 1)]), pa.array([0, 0, 0]).to_numpy())

    assert list(columns.take()) == [(0, ["x", "y"], [("x", 2**64 - 2), ("y", 1)])]


def test_records_with_nulls_and_those_that_are_objects_are_left_to_the_caller() -> None:
    columns = WindowColumns(ColumnAggregate("sum", 1), type_info(str))

    assert not columns.add(*pairs([("x", None)]), pa.array([0]).to_numpy())
    assert not columns.add(Batch(PAIR, rows=[("x", 1)]), Batch(type_info(str), rows=["x"]), pa.array([0]).to_numpy())
    assert list(columns.take()) == []


def windowed(records: list[tuple[str, int]], assigner: Any) -> DataStream[Any]:
    strategy = WatermarkStrategy.for_monotonous_timestamps(lambda pair: abs(pair[1]) % 100)
    pairs = local_environment().from_collection(records).assign_timestamps_and_watermarks(strategy)
    return pairs.key_by(lambda pair: pair[0]).window(assigner).sum(1).uid("sums")


@pytest.mark.parametrize(
    ("assigner", "expected"),
    [
        (TumblingEventTimeWindows(TEN), [("x", 4), ("x", 12), ("y", 2)]),
        (SlidingEventTimeWindows(TEN, TEN / 2), [("x", 4), ("x", 12), ("x", 12), ("x", 4), ("y", 2), ("y", 2)]),
    ],
)
def test_built_in_sums_of_windows_use_the_columns(
    monkeypatch: pytest.MonkeyPatch, assigner: Any, expected: list[Any]
) -> None:
    groups: list[int] = []
    combined = ColumnAggregate.combined

    def counted(self: ColumnAggregate, records: RecordsByKey, numbers: Any) -> Any:
        groups.append(len(records))
        return combined(self, records, numbers)

    monkeypatch.setattr(ColumnAggregate, "combined", counted)

    found = list(windowed([("x", 1), ("x", 3), ("y", 2), ("x", 12)], assigner).execute_and_collect())

    assert sorted(found) == sorted(expected)
    assert sum(groups) == 4


def test_a_sum_that_does_not_fit_is_refused_and_names_its_window() -> None:
    largest = 2**63 - 8  # at 0 ms of 100
    with pytest.raises(
        UserFunctionError, match=r"window TimeWindow\(start=0, end=200\) of key 'x'.*18446744073709551600"
    ):
        list(windowed([("x", largest), ("x", largest)], TumblingEventTimeWindows(TEN * 20)).execute_and_collect())
