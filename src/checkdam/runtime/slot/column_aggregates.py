"""Running sums, minima and maxima of integers on whole batches, with the same output as record by record."""

from __future__ import annotations

import builtins
import inspect
import operator as operators
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkdam.backends.columns import ColumnForm, KeyedColumns
from checkdam.backends.contract import KeyedStateStore, ValueTable
from checkdam.graph.keyed_batches import RecordsByKey
from checkdam.graph.operators import OP_STATE, AggregateKind, KeySelector, Operator, ReduceKind
from checkdam.graph.windowing.window_contents import FieldAggregated, Reduced
from checkdam.runtime.slot.process import Process
from checkdam.state.handle_checks import GREATEST_INT, LEAST_INT
from checkdam.types.batch import Batch
from checkdam.types.type_info import Kind, TypeInfo

_INT64_SAFE = 2**62
_START = {"sum": 0, "min": GREATEST_INT, "max": LEAST_INT}
"""The value of a key without records, by aggregate."""


@dataclass(frozen=True)
class ColumnAggregate:
    """What is calculated of which column; without a field the record itself is the number."""

    how: str
    field: int | None

    @classmethod
    def of(cls, operator: Operator) -> ColumnAggregate | None:
        """Return the aggregate of an operator; None if columns are not enough for it.

        They are for a number, and for a pair of a number and the key.
        """
        kind, of = operator.kind, operator.output_type
        if isinstance(kind, AggregateKind):
            return cls(kind.how, kind.field)._if_enough(of, operator.key)
        found = known_reduction(kind.function, of) if isinstance(kind, ReduceKind) else None
        return None if found is None else found._if_enough(of, operator.key)

    @classmethod
    def of_window(cls, contents: FieldAggregated | Reduced, key: KeySelector | None) -> ColumnAggregate | None:
        """Return the aggregate of a window operator; None if columns are not enough for it."""
        of = contents.record
        if isinstance(contents, FieldAggregated):
            return cls(contents.how, contents.field)._if_enough(of, key)
        found = known_reduction(contents.function, of)
        return None if found is None else found._if_enough(of, key)

    def _if_enough(self, of: TypeInfo, key: KeySelector | None) -> ColumnAggregate | None:
        if self.field is None:
            return self if _is_number(of) else None
        is_pair = _is_pair(of) and key is not None and key.columns == (1 - self.field,)
        return self if is_pair and _is_number(of.fields[self.field][1]) else None

    def form(self) -> ColumnForm:
        """Return the form in which numbers are kept, as parts of the records in the state."""
        dtype, start = np.dtype(np.int64), _START[self.how]
        if (field := self.field) is None:
            return ColumnForm(dtype, default=start)
        return ColumnForm(
            dtype,
            default=start,
            from_stored=lambda records: [record[field] for record in records],
            to_stored=lambda keys, numbers: list(zip(*((keys, numbers) if field else (numbers, keys)), strict=True)),
        )

    def records(self, keys: list[Any], numbers: Any) -> list[Any]:
        """Return a record for each key and number."""
        listed = numbers.tolist()
        if self.field is None:
            return list(listed)
        return list(zip(*((keys, listed) if self.field else (listed, keys)), strict=True))

    def combined(self, groups: RecordsByKey, numbers: npt.NDArray[np.int64]) -> Any:
        """Return the result of each key, exact also beyond 64 bits. There is at least one record."""
        if self.how == "min":
            return groups.min(numbers)
        if self.how == "max":
            return groups.max(numbers)
        largest = max(int(numbers.max()), -int(numbers.min()))
        return groups.sum(numbers if largest * len(numbers) < _INT64_SAFE else numbers.astype(object))

    def running(self, groups: RecordsByKey, numbers: npt.NDArray[np.int64], before: npt.NDArray[np.int64]) -> Any:
        """Return the result of each record; None if a sum might exceed 64 bits."""
        if self.how == "min":
            return groups.running_min(numbers, before)
        if self.how == "max":
            return groups.running_max(numbers, before)
        largest = max(int(before.max()), -int(before.min()), int(numbers.max()), -int(numbers.min()))
        return None if largest * (len(numbers) + 1) >= _INT64_SAFE else groups.running_sum(numbers, before)


class ColumnAggregateProcess(Process):
    """Calculates with the columns of a batch. Batches with nulls or huge numbers are processed record by record."""

    def __init__(
        self,
        operator: Operator,
        store: KeyedStateStore,
        table: ValueTable,
        aggregate: ColumnAggregate,
        one_by_one: Process,
    ) -> None:
        assert operator.key is not None
        self._type = operator.output_type
        self._aggregate = aggregate
        self._one_by_one = one_by_one
        self._columns = KeyedColumns(store, operator.key.type)
        self._state = self._columns.column(OP_STATE, aggregate.form(), table)

    def __call__(self, batch: Batch, keys: Batch | None, side: int = 0) -> Batch | None:
        assert keys is not None
        columns, field = batch.columns, self._aggregate.field or 0
        column = columns.column(field)
        if not len(column):
            return None
        if column.null_count:
            return self._record_by_record(batch, keys)
        of_keys, _, key_index = self._columns.begin(keys)
        self._state.load()
        groups = RecordsByKey(key_index, len(of_keys))
        running = self._aggregate.running(groups, column.to_numpy(), self._state.values(of_keys))
        if running is None:
            return self._record_by_record(batch, keys)
        self._state.write(of_keys, groups.last(running))
        results = columns.set_column(field, columns.schema.field(field), pa.array(running))
        return Batch(self._type, columns=results, timestamps=batch.timestamps)

    def _record_by_record(self, batch: Batch, keys: Batch) -> Batch | None:
        self._columns.forget()  # the state changes without the columns
        return self._one_by_one(batch, keys)


def known_reduction(function: Any, of: TypeInfo) -> ColumnAggregate | None:
    """Return the aggregate that a function of `reduce` is known to be: a built-in function, or one of a few lambdas."""
    if _is_number(of):
        for built_in, how in _BUILT_IN:
            if function is built_in:
                return ColumnAggregate(how, None)
        known = _OF_NUMBERS
    elif _is_pair(of):
        known = _OF_PAIRS
    else:
        return None
    if not isinstance(function, FunctionType) or any(name in function.__globals__ for name in ("min", "max")):
        return None
    return next((found for lambda_, found in known if _is_same_code(function, lambda_)), None)


_BUILT_IN = ((operators.add, "sum"), (builtins.min, "min"), (builtins.max, "max"))
_SUM, _MIN, _MAX = (ColumnAggregate(how, None) for how in ("sum", "min", "max"))
_Known = list[tuple[Callable[[Any, Any], Any], ColumnAggregate]]
_OF_NUMBERS: _Known = [
    (lambda a, b: a + b, _SUM),
    (lambda a, b: b + a, _SUM),
    (lambda a, b: min(a, b), _MIN),
    (lambda a, b: max(a, b), _MAX),
]
_OF_PAIRS: _Known = [
    (lambda a, b: (a[0], a[1] + b[1]), ColumnAggregate("sum", 1)),
    (lambda a, b: (b[0], a[1] + b[1]), ColumnAggregate("sum", 1)),
    (lambda a, b: (a[0] + b[0], a[1]), ColumnAggregate("sum", 0)),
    (lambda a, b: (a[0] + b[0], b[1]), ColumnAggregate("sum", 0)),
    (lambda a, b: (a[0], min(a[1], b[1])), ColumnAggregate("min", 1)),
    (lambda a, b: (a[0], max(a[1], b[1])), ColumnAggregate("max", 1)),
]


def _is_same_code(one: FunctionType, other: Any) -> bool:
    """Return whether two functions do the same, whatever their parameters are called."""
    if one.__defaults__ or one.__kwdefaults__ or one.__closure__:
        return False
    if (one.__code__.co_flags ^ other.__code__.co_flags) & ~inspect.CO_NESTED:
        return False
    parts = ("co_code", "co_consts", "co_names", "co_argcount", "co_kwonlyargcount")
    return all(getattr(one.__code__, part) == getattr(other.__code__, part) for part in parts)


def _is_number(of: TypeInfo) -> bool:
    return of.kind is Kind.INT and not of.nullable and bool(pa.types.is_int64(of.arrow_type))


def _is_pair(of: TypeInfo) -> bool:
    return of.kind is Kind.TUPLE and of.is_compound and len(of.fields) == 2
