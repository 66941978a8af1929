from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.runtime.slot.test_aggregate import PAIR, aggregated

from checkdam import ReduceFunction
from checkdam.graph.operators import AggregateKind, KeySelector, Kind, Operator, ReduceKind
from checkdam.runtime.slot.column_aggregates import ColumnAggregate, known_reduction
from checkdam.types.type_info import type_info

NUMBER = type_info(int)
AMOUNTS = st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1))
BATCHES = st.lists(st.lists(st.tuples(st.sampled_from("abcd"), AMOUNTS), max_size=12), max_size=4)


class Named(NamedTuple):
    key: str
    amount: int


def aggregate(kind: Kind, of: Any, columns: tuple[int, ...] | None) -> ColumnAggregate | None:
    key = KeySelector(type_info(str), None, columns)
    return ColumnAggregate.of(Operator(1, "it", kind, (0,), type_info(of), key=key))


@pytest.mark.parametrize("how", ["min", "max"])
@settings(deadline=None)
@given(batches=BATCHES)
@example(batches=[[("a", 2**63 - 1), ("a", -(2**63))], [("a", 0), ("b", -(2**63)), ("b", 2**63 - 1)]])
def test_the_least_and_the_greatest_are_those_of_record_by_record(how: str, batches: list[list[Any]]) -> None:
    choose: Callable[[int, int], int] = {"min": min, "max": max}[how]
    kept: dict[str, int] = {}
    expected = []
    for key, amount in (record for records in batches for record in records):
        kept[key] = choose(kept[key], amount) if key in kept else amount
        expected.append((key, kept[key]))

    produced, state = aggregated(AggregateKind(how, 1), batches, PAIR, 0)

    assert [record for batch in produced for record in batch.rows] == expected
    assert state == {key: (key, amount) for key, amount in kept.items()}


SMALL = st.lists(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-3, 3)), max_size=12), max_size=4)


@pytest.mark.parametrize(
    ("function", "how"),
    [
        (lambda kept, new: (kept[0], kept[1] + new[1]), "sum"),
        (lambda kept, new: (kept[0], min(kept[1], new[1])), "min"),
        (lambda kept, new: (new[0], kept[1] + new[1]), "sum"),
    ],
)
@settings(deadline=None)
@given(batches=SMALL)
def test_a_known_function_of_reduce_gives_what_the_aggregate_gives(
    function: Any, how: str, batches: list[list[Any]]
) -> None:
    assert aggregate(ReduceKind(function), tuple[str, int], (0,)) == ColumnAggregate(how, 1)

    produced, state = aggregated(ReduceKind(function), batches, PAIR, 0)
    expected, expected_state = aggregated(AggregateKind(how, 1), batches, PAIR, 0)

    assert [batch.rows for batch in produced] == [batch.rows for batch in expected]
    assert state == expected_state


def test_numbers_are_aggregated_without_a_pair() -> None:
    produced, state = aggregated(AggregateKind("sum", None), [[5, 3, 5], [3]], NUMBER, 0)

    assert [batch.rows for batch in produced] == [[5, 3, 10], [6]]
    assert state == {5: 10, 3: 6}


@pytest.mark.parametrize(
    ("kind", "of", "key"),
    [
        (AggregateKind("sum", 1), tuple[str, int], None),
        (AggregateKind("sum", 1), tuple[str, int], (1,)),
        (AggregateKind("sum", 1), tuple[str, float], (0,)),
        (AggregateKind("sum", 1), tuple[str, bool], (0,)),
        (AggregateKind("sum", 1), tuple[str, int | None], (0,)),
        (AggregateKind("sum", 1), tuple[str, int, int], (0,)),
        (AggregateKind("sum", 1), Named, (0,)),
        (AggregateKind("sum", None), float, (0,)),
        (ReduceKind(lambda a, b: a - b), int, None),
    ],
)
def test_what_columns_alone_do_not_tell_is_calculated_record_by_record(kind: Kind, of: Any, key: Any) -> None:
    assert aggregate(kind, of, key) is None
    assert aggregate(AggregateKind("sum", 1), tuple[str, int], (0,)) == ColumnAggregate("sum", 1)


class Adds(ReduceFunction[int]):
    def reduce(self, accumulated: int, value: int) -> int:
        return accumulated + value


def test_functions_of_numbers_are_known_by_what_they_do() -> None:
    assert known_reduction(operator.add, NUMBER) == ColumnAggregate("sum", None)
    assert known_reduction(min, NUMBER) == ColumnAggregate("min", None)
    assert known_reduction(max, NUMBER) == ColumnAggregate("max", None)
    assert known_reduction(lambda x, y: x + y, NUMBER) == ColumnAggregate("sum", None)
    assert known_reduction(lambda x, y: max(x, y), NUMBER) == ColumnAggregate("max", None)


def test_functions_that_only_look_alike_are_not_known() -> None:
    one = 1
    own: dict[str, Any] = {}
    exec("min = lambda a, b: 0\nlowest = lambda a, b: min(a, b)", own)

    for function in (
        lambda x, y: x - y,
        lambda x, y: x + y + one,
        lambda x, y, z=1: x + y,
        partial(operator.add),
        own["lowest"],
        Adds(),
        sum,
    ):
        assert known_reduction(function, NUMBER) is None
    assert known_reduction(lambda x, y: x + y, PAIR) is None  # joins two tuples
    assert known_reduction(lambda x, y: (x[0], x[1] + y[0]), PAIR) is None
    assert known_reduction(operator.add, type_info(float)) is None


def test_a_sum_changes_between_columns_and_records_and_stays_exact() -> None:
    batches = [[("a", 2**61), ("b", 1)], [("a", 1), ("a", 2**61)], [("a", -(2**61)), ("b", 1)], [("b", 5), ("a", 1)]]

    produced, state = aggregated(AggregateKind("sum", 1), batches, PAIR, 0)

    assert [batch.rows for batch in produced] == [
        [("a", 2**61), ("b", 1)],
        [("a", 2**61 + 1), ("a", 2**62 + 1)],
        [("a", 2**61 + 1), ("b", 2)],
        [("b", 7), ("a", 2**61 + 2)],
    ]
    assert state == {"a": ("a", 2**61 + 2), "b": ("b", 7)}
