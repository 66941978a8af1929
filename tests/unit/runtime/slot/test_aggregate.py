from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from checkdam.backends import HashMapStateBackend
from checkdam.backends.contract import StoreOwner
from checkdam.errors import UserFunctionError
from checkdam.graph.functions import AggregateFunction
from checkdam.graph.operators import (
    OP_STATE,
    AggregateFunctionKind,
    AggregateKind,
    KeySelector,
    Kind,
    Operator,
    ReduceKind,
)
from checkdam.ids import Attempt, CheckpointId, OperatorUid, SubtaskIndex
from checkdam.runtime.slot.aggregate import record_combiner
from checkdam.runtime.slot.context import FunctionContext
from checkdam.runtime.slot.operator_processes import make_process
from checkdam.state.key_groups import KeyGroupRange
from checkdam.types.batch import Batch
from checkdam.types.rows import to_arrow
from checkdam.types.type_info import TypeInfo, type_info


@dataclass
class Price:
    shop: str
    amount: int


PAIR = type_info(tuple[str, int])
SWAPPED = type_info(tuple[int, str])


def aggregated(
    kind: Kind, batches: list[list[Any]], of: TypeInfo, key: int, timestamps: list[int] | None = None
) -> tuple[list[Batch], dict[Any, Any]]:
    """What an operator gives and keeps, batch after batch, with its key in one of the columns."""
    key_type = of.field_type(key) if of.is_compound else of
    owner = StoreOwner(
        OperatorUid("it"), SubtaskIndex(0), Attempt("try"), KeyGroupRange(0, 127), 128, key_type=key_type
    )
    store = HashMapStateBackend().open(owner, (), None, claim=True)
    operator = Operator(1, "it", kind, (0,), of, key=KeySelector(key_type, None, (key,)))
    process = make_process(operator, context=FunctionContext("it", 0, 1), store=store)
    produced: list[Batch] = []
    for records in batches:
        columns = to_arrow(of, records)
        keys = Batch(key_type, columns=columns.select([key]))
        given = (process(Batch(of, columns=columns, timestamps=timestamps), keys), process.flush())
        produced += [batch for batch in given if batch is not None]
    assert store.count().entries == len(
        {record[key] if of.is_compound else record for records in batches for record in records}
    )
    store.snapshot(CheckpointId(1))  # what is held back is written back
    table: Any = store
    return produced, dict(table._states[OP_STATE].state.all())


def summed(batches: list[list[Any]], of: TypeInfo, field: int) -> tuple[list[Any], dict[Any, Any]]:
    produced, kept = aggregated(AggregateKind("sum", field), batches, of, 1 - field)
    return [record for batch in produced for record in batch.rows], kept


def one_by_one(batches: list[list[Any]], field: int) -> tuple[list[Any], dict[Any, Any]]:
    kept: dict[Any, Any] = {}
    produced = []
    for record in (record for records in batches for record in records):
        key = record[1 - field]
        amount = record[field] + (kept[key][field] if key in kept else 0)
        kept[key] = (key, amount) if field == 1 else (amount, key)
        produced.append(kept[key])
    return produced, kept


amounts = st.one_of(st.integers(-3, 3), st.integers(-(2**57), 2**57))  # no sum of them exceeds 64 bits
streams = st.lists(st.lists(st.tuples(st.sampled_from("abcd"), amounts), max_size=12), max_size=4)


@settings(deadline=None)
@given(streams)
@example([[("a", 2**61), ("a", 2**61)], [("a", -(2**62))]])
@example([[("a", 2**62), ("a", 2**62), ("a", -(2**62))]])  # more than the column holds: must not wrap around
@example([[("a", -1), ("b", 0), ("a", -(2**59))]])
def test_the_vectorised_sum_gives_and_keeps_what_record_by_record_would(batches: list[list[tuple[str, int]]]) -> None:
    assert summed(batches, PAIR, 1) == one_by_one(batches, 1)


@settings(deadline=None)
@given(streams)
def test_the_vectorised_sum_does_so_with_the_number_in_front(batches: list[list[tuple[str, int]]]) -> None:
    swapped = [[(amount, key) for key, amount in records] for records in batches]

    assert summed(swapped, SWAPPED, 0) == one_by_one(swapped, 0)


def test_a_sum_that_the_state_cannot_hold_is_an_error_of_its_record() -> None:
    with pytest.raises(UserFunctionError, match=r"must be of type tuple\[str, int\], but was") as refused:
        summed([[("a", 2**62), ("b", 1)], [("a", 2**62), ("b", 2)]], PAIR, 1)

    assert refused.value.operator == "it"
    assert refused.value.record == repr(("a", 2**62))


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


PAIRS = [("a", 1), ("b", 5), ("a", 2)]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (AggregateKind("sum", 1), [("a", 1), ("b", 5), ("a", 3)]),
        (AggregateKind("max", 1), [("a", 1), ("b", 5), ("a", 2)]),
        (ReduceKind(lambda kept, new: (kept[0], kept[1] * 10 + new[1])), [("a", 1), ("b", 5), ("a", 12)]),
    ],
)
def test_each_result_has_the_timestamp_of_its_record(kind: Kind, expected: list[Any]) -> None:
    [batch], _ = aggregated(kind, [PAIRS], PAIR, 0, [7, 8, 9])

    assert batch.rows == expected
    assert batch.timestamps == [7, 8, 9]


class Mean(AggregateFunction):
    """The accumulator is changed in place, as Flink's functions do."""

    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add(self, value: tuple[str, int], accumulator: list[int]) -> list[int]:
        accumulator[0] += value[1]
        accumulator[1] += 1
        return accumulator

    def get_result(self, accumulator: list[int]) -> tuple[str, int]:
        return "mean", accumulator[0] // accumulator[1]


def test_an_aggregate_function_keeps_its_accumulator_and_emits_its_result() -> None:
    kind = AggregateFunctionKind(Mean(), type_info(list[int]))

    produced, kept = aggregated(kind, [PAIRS, [("a", 6)]], PAIR, 0)

    assert [batch.rows for batch in produced] == [[("mean", 1), ("mean", 5), ("mean", 1)], [("mean", 3)]]
    assert kept == {"a": [9, 3], "b": [5, 1]}


LISTS = type_info(tuple[str, list[int]])


def test_what_is_emitted_is_not_what_is_kept() -> None:
    def extend(kept: tuple[str, list[int]], new: tuple[str, list[int]]) -> tuple[str, list[int]]:
        kept[1].extend(new[1])
        return kept

    [batch], kept = aggregated(ReduceKind(extend), [[("a", [1]), ("a", [2]), ("a", [3])]], LISTS, 0)
    assert batch.rows == [("a", [1]), ("a", [1, 2]), ("a", [1, 2, 3])]
    batch.rows[-1][1].clear()

    assert kept == {"a": ("a", [1, 2, 3])}


class ForgetsToReturn(Mean):
    def add(self, value: Any, accumulator: list[int]) -> Any:
        super().add(value, accumulator)


@pytest.mark.parametrize(
    "kind",
    [ReduceKind(lambda kept, new: None), AggregateFunctionKind(ForgetsToReturn(), type_info(list[int]))],
)
def test_a_function_that_returns_nothing_fails_on_the_record(kind: Kind) -> None:
    with pytest.raises(UserFunctionError, match=r"failed on record \('a', .*TypeError.* None"):
        aggregated(kind, [PAIRS], PAIR, 0)


@pytest.mark.parametrize(("how", "expected"), [("sum", 5), ("min", 2), ("max", 3)])
def test_one_field_of_a_dataclass_is_aggregated(how: str, expected: int) -> None:
    combine = record_combiner(how, 1, type_info(Price))

    assert combine(Price("first", 2), Price("second", 3)) == Price("first", expected)
