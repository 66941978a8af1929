from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkdam.graph.keyed_batches import KeyedBatch

Records = list[tuple[str, int]]
RECORDS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-(2**40), 2**40)), max_size=30)


def batch_of(records: Records) -> KeyedBatch:
    distinct = list(dict.fromkeys(key for key, _ in records))
    columns = {
        "key": pa.array([key for key, _ in records], pa.string()),
        "amount": pa.array([amount for _, amount in records], pa.int64()),
    }
    keys = pa.record_batch({"value": pa.array(distinct, pa.string())})
    key_index = np.array([distinct.index(key) for key, _ in records], np.intp)
    return KeyedBatch(pa.record_batch(columns), keys, key_index)


def by_key(records: Records) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for key, amount in records:
        groups.setdefault(key, []).append(amount)
    return groups


def running(records: Records, combine: Callable[[int, int], int]) -> list[int]:
    results = {key: iter(list(accumulate(values, combine))) for key, values in by_key(records).items()}
    return [next(results[key]) for key, _ in records]


@settings(deadline=None)
@given(RECORDS)
def test_reductions_have_one_result_per_key(records: Records) -> None:
    batch = batch_of(records)
    amounts, groups = batch.column("amount"), by_key(records).values()

    def expected(of: Callable[[list[int]], int]) -> list[int]:
        return [of(group) for group in groups]

    assert batch.keys.to_pylist() == list(by_key(records))
    assert batch.count().tolist() == expected(len)
    assert batch.sum(amounts).tolist() == expected(sum)
    assert batch.min(amounts).tolist() == expected(min)
    assert batch.max(amounts).tolist() == expected(max)
    assert batch.first(amounts).tolist() == expected(lambda group: group[0])
    assert batch.last(amounts).tolist() == expected(lambda group: group[-1])


@settings(deadline=None)
@given(RECORDS)
def test_running_results_are_those_of_record_by_record(records: Records) -> None:
    batch = batch_of(records)
    amounts = batch.column("amount")

    assert batch.running_count().tolist() == running([(key, 1) for key, _ in records], int.__add__)
    assert batch.running_sum(amounts).tolist() == running(records, int.__add__)
    assert batch.running_min(amounts).tolist() == running(records, min)
    assert batch.running_max(amounts).tolist() == running(records, max)
    assert batch.running_sum(amounts / 2.0).tolist() == pytest.approx(batch.running_sum(amounts) / 2)


@settings(deadline=None)
@given(RECORDS)
def test_running_results_continue_from_what_was_before(records: Records) -> None:
    batch = batch_of(records)
    amounts, before = batch.column("amount"), np.arange(batch.num_keys) * 10
    of_record = before[batch.key_index]

    assert (batch.running_sum(amounts, before) == batch.running_sum(amounts) + of_record).all()
    assert (batch.running_count(before) == batch.running_count() + of_record).all()
    assert (batch.running_min(amounts, before) == np.minimum(batch.running_min(amounts), of_record)).all()
    assert (batch.running_max(amounts, before) == np.maximum(batch.running_max(amounts), of_record)).all()
    assert (batch.running_count(5) == batch.running_count() + 5).all()


@settings(deadline=None)
@given(RECORDS)
def test_steps_visit_every_record_once_and_each_key_in_order(records: Records) -> None:
    batch = batch_of(records)
    steps = list(batch.steps())

    visited: dict[int, list[int]] = {}
    for rows in steps:
        keys = batch.key_index[rows]
        assert len(set(keys.tolist())) == len(keys)
        for row, key in zip(rows.tolist(), keys.tolist(), strict=True):
            visited.setdefault(key, []).append(row)

    assert visited == {key: np.flatnonzero(batch.key_index == key).tolist() for key in range(batch.num_keys)}


def test_vectors_are_reduced_element_by_element() -> None:
    batch = batch_of([("a", 1), ("b", 2), ("a", 3)])
    vectors = np.array([[1, 2], [3, 4], [5, 6]])

    assert batch.sum(vectors).tolist() == [[6, 8], [3, 4]]
    assert batch.last(vectors).tolist() == [[5, 6], [3, 4]]
    assert batch.running_sum(vectors, np.zeros((2, 2), int)).tolist() == [[1, 2], [3, 4], [6, 8]]


def test_nothing_of_a_batch_can_be_overwritten() -> None:
    batch = batch_of([("a", 1), ("b", 2)])

    arrays: Iterable[Any] = (batch.key_index, batch.column("amount"), batch.column("key"))
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5


def test_a_key_of_several_columns_has_no_single_column() -> None:
    keys = pa.record_batch({"f0": pa.array(["a"]), "f1": pa.array([1])})
    batch = KeyedBatch(pa.record_batch({"value": pa.array([1])}), keys, np.zeros(1, np.intp))

    with pytest.raises(ValueError, match="several columns"):
        _ = batch.keys
