from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from checkdam.graph.operators import AggregateKind, KeySelector, Operator
from checkdam.runtime.slot.aggregate import VectorisedSum, record_combiner, running_sums
from checkdam.runtime.slot.context import FunctionContext
from checkdam.runtime.slot.operators import make_process
from checkdam.state.batch import Batch
from checkdam.state.rows import to_arrow
from checkdam.state.types import TypeInfo, type_info

PAIR = type_info(tuple[str, int])
SWAPPED = type_info(tuple[int, str])


class Table:
    def __init__(self) -> None:
        self.entries: dict[Any, Any] = {}

    def put_all(self, values: Any) -> None:
        self.entries.update(values)


class Store:
    """As much of a store as an aggregate uses."""

    def __init__(self) -> None:
        self.table = Table()

    def value_table(self, descriptor: Any) -> Table:
        return self.table


def summed(batches: list[list[Any]], of: TypeInfo, field: int) -> tuple[list[Any], dict[Any, Any]]:
    """What the operator gives and keeps, batch after batch, with its key in the other field."""
    store, key = Store(), 1 - field
    operator = Operator(
        1, "sum", AggregateKind("sum", field), (0,), of, key=KeySelector(of.field_type(key), None, (key,))
    )
    process: Any = make_process(
        operator,
        context=FunctionContext("sum", 0, 1, None),
        store=store,  # type: ignore[arg-type]  # as much of a store as an aggregate uses
        writer=None,
    )
    produced: list[Any] = []
    for records in batches:
        columns = to_arrow(of, records)
        keys = Batch(of.field_type(key), columns=columns.select([key]))
        for given_back in (process(Batch(of, columns=columns), keys), getattr(process, "flush", lambda: None)()):
            produced += given_back.rows if given_back is not None else []
    return produced, store.table.entries


def one_by_one(batches: list[list[Any]], field: int) -> tuple[list[Any], dict[Any, Any]]:
    kept: dict[Any, Any] = {}
    produced = []
    for record in (record for records in batches for record in records):
        key = record[1 - field]
        amount = record[field] + (kept[key][field] if key in kept else 0)
        kept[key] = (key, amount) if field == 1 else (amount, key)
        produced.append(kept[key])
    return produced, kept


amounts = st.one_of(st.integers(-3, 3), st.integers(-(2**59), 2**59))
streams = st.lists(st.lists(st.tuples(st.sampled_from("abcd"), amounts), max_size=12), max_size=4)


@settings(deadline=None)
@given(streams)
@example([[("a", 2**61), ("a", 2**61)], [("a", -(2**62))]])
@example([[("a", 2**62), ("a", 2**62)]])  # more than the column holds: must not wrap around
@example([[("a", -1), ("b", 0), ("a", -(2**59))]])
def test_the_vectorised_sum_gives_and_keeps_what_record_by_record_would(batches: list[list[tuple[str, int]]]) -> None:
    assert summed(batches, PAIR, 1) == one_by_one(batches, 1)


@settings(deadline=None)
@given(streams)
def test_the_vectorised_sum_does_so_with_the_number_in_front(batches: list[list[tuple[str, int]]]) -> None:
    swapped = [[(amount, key) for key, amount in records] for records in batches]

    assert summed(swapped, SWAPPED, 0) == one_by_one(swapped, 0)


def test_a_null_key_is_a_key_like_any_other() -> None:
    records = [(None, 1), ("a", 2), (None, 3)]

    produced, kept = summed([records], type_info(tuple[str | None, int]), 1)

    assert produced == [(None, 1), ("a", 2), (None, 4)]
    assert kept == {None: (None, 4), "a": ("a", 2)}


@pytest.mark.parametrize(
    ("how", "field", "of", "key"),
    [
        ("max", 1, tuple[str, int], (0,)),
        ("sum", None, int, (0,)),
        ("sum", 1, tuple[str, int], None),
        ("sum", 1, tuple[str, int], (1,)),
        ("sum", 1, tuple[str, float], (0,)),
        ("sum", 1, tuple[str, int, int], (0,)),
    ],
)
def test_what_columns_alone_do_not_tell_is_not_vectorised(how: str, field: Any, of: Any, key: Any) -> None:
    assert not VectorisedSum.applies(how, field, type_info(of), key)
    assert VectorisedSum.applies("sum", 1, PAIR, (0,))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-9, 9)), min_size=1, max_size=20))
def test_running_sums_count_each_group_on_its_own(records: list[tuple[int, int]]) -> None:
    groups = {group: place for place, group in enumerate(dict.fromkeys(group for group, _ in records))}
    codes = np.array([groups[group] for group, _ in records])
    before = np.arange(len(groups)) * 100

    running, totals = running_sums(codes, np.array([amount for _, amount in records]), before)

    expected, so_far = [], before.tolist()
    for code, (_, amount) in zip(codes.tolist(), records, strict=True):
        so_far[code] += amount
        expected.append(so_far[code])
    assert running.tolist() == expected
    assert totals.tolist() == so_far


class Sale(NamedTuple):
    shop: str
    amount: int
    seller: str


@pytest.mark.parametrize(("how", "amount"), [("sum", 7), ("min", 2), ("max", 5)])
def test_all_fields_but_the_aggregated_one_stay_those_of_the_first_record(how: str, amount: int) -> None:
    combine = record_combiner(how, 1, type_info(Sale))

    assert combine(Sale("x", 5, "ann"), Sale("x", 2, "bob")) == Sale("x", amount, "ann")


def test_a_record_that_is_a_number_is_combined_as_it_is() -> None:
    assert record_combiner("max", None, type_info(int))(3, 5) == 5
