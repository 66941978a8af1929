"""Running aggregates, record by record; those of integers work on columns where that is possible."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import add
from typing import Any

from checkdam.backends.contract import KeyedStateStore, ValueTable
from checkdam.errors import StateAccessError
from checkdam.graph.functions import callable_of
from checkdam.graph.operators import OP_STATE, AggregateFunctionKind, AggregateKind, Operator, ReduceKind
from checkdam.runtime.failures import user_error
from checkdam.runtime.slot.column_aggregates import ColumnAggregate, ColumnAggregateProcess
from checkdam.runtime.slot.process import Process
from checkdam.state.handle_checks import Fit
from checkdam.state.spec import StateKind, StateSpec
from checkdam.types.batch import Batch
from checkdam.types.record_copies import copier
from checkdam.types.type_info import TypeInfo

_FIT_HINT = "Make the function return the type of its records, or of the accumulator; or declare another."


def aggregate_state(operator: Operator) -> StateSpec | None:
    """Return the state of sum, min, max, reduce or aggregate; None for any other operator."""
    if isinstance(operator.kind, AggregateFunctionKind):
        return StateSpec(OP_STATE, StateKind.AGGREGATING, operator.kind.accumulator)
    if isinstance(operator.kind, AggregateKind | ReduceKind):
        return StateSpec(OP_STATE, StateKind.VALUE, operator.output_type)
    return None


def aggregate_process(operator: Operator, store: KeyedStateStore) -> Process:
    """Return the process of sum, min, max, reduce or aggregate, which keep one record or accumulator per key."""
    kind, kept, spec = operator.kind, operator.output_type, aggregate_state(operator)
    assert spec is not None
    table = store.table(spec)
    if isinstance(kind, AggregateFunctionKind):
        return _Gathering(operator, table, kind.function)
    if isinstance(kind, AggregateKind):
        one_by_one = _Combining(operator, table, record_combiner(kind.how, kind.field, kept))
    else:
        one_by_one = _Combining(operator, table, callable_of(operator.function))
    on_columns = ColumnAggregate.of(operator)
    return one_by_one if on_columns is None else ColumnAggregateProcess(operator, store, table, on_columns, one_by_one)


class _PerKey(Process):
    """Updates the state of a record's key with each record; emits a result for each.

    The state is accessed once per key and batch. What is emitted is a copy of the state if that is mutable.
    """

    def __init__(self, operator: Operator, table: ValueTable) -> None:
        spec = aggregate_state(operator)
        assert spec is not None
        self._operator = operator
        self._table = table
        self._fit = Fit(spec.value, f"what operator {operator.title} keeps", hint=_FIT_HINT)
        made_here = isinstance(operator.kind, AggregateKind) and operator.output_type.is_immutable
        self._copier = None if made_here else copier(operator.output_type)

    def __call__(self, batch: Batch, keys: Batch | None, side: int = 0) -> Batch:
        assert keys is not None
        kept: dict[Any, Any] = dict.fromkeys(keys.rows)
        distinct = list(kept)
        kept.update(zip(distinct, self._table.get_all(distinct), strict=True))
        produced: list[Any] = []
        self._run(keys.rows, batch.rows, kept, self._emit(produced))
        self._check(kept, keys.rows, batch.rows)
        self._table.put_all(kept)
        return Batch(self._operator.output_type, rows=produced, timestamps=batch.timestamps)

    def _emit(self, produced: list[Any]) -> Callable[[Any], None]:
        append = produced.append
        if self._copier is None:
            return append
        exact, copy = self._copier.exact, self._copier.copy
        return lambda result: append(result if type(result) is exact else copy(result))

    def _check(self, kept: dict[Any, Any], keys: list[Any], rows: list[Any]) -> None:
        """Refuse values that are not of the state's type, naming the last record of the key."""
        try:
            self._fit.check_all(list(kept.values()))
        except StateAccessError:
            latest = dict(zip(keys, rows, strict=True))
            for key, value in kept.items():
                try:
                    self._fit.check(value)
                except StateAccessError as cause:
                    raise user_error(self._operator, latest[key], cause) from cause

    def _run(self, keys: list[Any], rows: list[Any], kept: dict[Any, Any], emit: Callable[[Any], None]) -> None:
        raise NotImplementedError


class _Combining(_PerKey):
    """Runs sum, min, max and reduce: record and result have one type."""

    def __init__(self, operator: Operator, table: ValueTable, combine: Callable[[Any, Any], Any]) -> None:
        super().__init__(operator, table)
        self._combine = combine

    def _run(self, keys: list[Any], rows: list[Any], kept: dict[Any, Any], emit: Callable[[Any], None]) -> None:
        combine = self._combine
        value = None
        try:
            for key, value in zip(keys, rows, strict=True):
                before = kept[key]
                kept[key] = result = value if before is None else combine(before, value)
                if result is None:
                    raise TypeError("two records were combined into None, which is no record")
                emit(result)
        except Exception as cause:
            raise user_error(self._operator, value, cause) from cause


class _Gathering(_PerKey):
    """Runs aggregate: the accumulator has a type of its own."""

    def __init__(self, operator: Operator, table: ValueTable, function: Any) -> None:
        super().__init__(operator, table)
        self._function = function

    def _run(self, keys: list[Any], rows: list[Any], kept: dict[Any, Any], emit: Callable[[Any], None]) -> None:
        function = self._function
        create, add, get_result = function.create_accumulator, function.add, function.get_result
        value = None
        try:
            for key, value in zip(keys, rows, strict=True):
                before = kept[key]
                kept[key] = accumulator = add(value, create() if before is None else before)
                if accumulator is None:
                    raise TypeError("add(value, accumulator) returned None: it must return the accumulator")
                emit(get_result(accumulator))
        except Exception as cause:
            raise user_error(self._operator, value, cause) from cause


def record_combiner(how: str, field: int | None, type: TypeInfo) -> Callable[[Any, Any], Any]:
    """Return a function that combines the kept record with a new one: only the aggregated field changes."""
    choose: dict[str, Callable[[Any, Any], Any]] = {"sum": add, "min": min, "max": max}
    combine = choose[how]
    if field is None:
        return combine
    position: int = field
    if dataclasses.is_dataclass(type.hint):
        name = type.columns[position].name

        def combine_attribute(kept: Any, new: Any) -> Any:
            return dataclasses.replace(kept, **{name: combine(getattr(kept, name), getattr(new, name))})

        return combine_attribute
    after = position + 1

    def combine_field(kept: Any, new: Any) -> Any:
        return *kept[:position], combine(kept[position], new[position]), *kept[after:]

    if hasattr(type.hint, "_make"):
        make: Callable[[Any], Any] = type.hint._make
        return lambda kept, new: make(combine_field(kept, new))
    if position == 1 and len(type.columns) == 2:  # most records to sum: a key and a number
        return lambda kept, new: (kept[0], combine(kept[1], new[1]))
    return combine_field
