"""Running aggregates: record by record, and sums of integers in whole batches with the same output."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from itertools import repeat
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa

from checkdam.backends.contract import KeyedStateStore, ValueTable
from checkdam.errors import StateAccessError
from checkdam.graph.functions import callable_of
from checkdam.graph.operators import OP_STATE, AggregateFunctionKind, AggregateKind, Operator, ReduceKind
from checkdam.runtime.failures import user_error
from checkdam.runtime.slot.process import Process
from checkdam.state.handle_checks import Fit
from checkdam.state.spec import StateKind, StateSpec
from checkdam.types.batch import Batch
from checkdam.types.record_copies import copier
from checkdam.types.rows import column_to_list
from checkdam.types.type_info import TypeInfo

_FIT_HINT = "Make the function return the type of its records, or of the accumulator; or declare another."
_INT64_SAFE = 2**62
_ROUND = 262_144
"""Records in a round: enough that most keys of a busy stream occur more than once, at some ten megabytes."""


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
    if not isinstance(kind, AggregateKind):
        return _Combining(operator, table, callable_of(operator.function))
    one_by_one = _Combining(operator, table, record_combiner(kind.how, kind.field, kept))
    columns = operator.key.columns if operator.key is not None else None
    if kind.field is None or not VectorisedSum.applies(kind.how, kind.field, kept, columns):
        return one_by_one
    assert columns is not None
    return _GatheringSum(VectorisedSum(kind.field, kept, table), one_by_one, operator, columns[0])


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


class VectorisedSum:
    """Sums an integer column per key for many records at once, with the same output as record by record.

    The state is accessed once per key and round, so records are gathered until there are enough for a round.
    """

    def __init__(self, field: int, type: TypeInfo, table: ValueTable) -> None:
        self._field = field
        self._type = type
        self._table = table
        self._names = [column.name for column in type.columns]
        self._gathered: list[Batch] = []
        self._rows = 0

    @staticmethod
    def applies(how: str, field: int | None, type: TypeInfo, key_columns: Sequence[int] | None) -> bool:
        """Return whether the record consists of the key and an integer to sum, so that columns are enough."""
        if how != "sum" or field is None or key_columns is None or len(key_columns) != 1:
            return False
        columns = type.columns
        return (
            getattr(type.hint, "__origin__", None) is tuple
            and len(columns) == 2
            and {field, key_columns[0]} == {0, 1}
            and bool(pa.types.is_int64(columns[field].arrow_type))
        )

    def gather(self, batch: Batch) -> bool:
        """Add records. Return True when it is time for a round."""
        self._gathered.append(batch)
        self._rows += len(batch)
        return self._rows >= _ROUND

    def take(self) -> Batch | None:
        """Return the records gathered so far as one batch; None if there are none."""
        gathered, self._gathered, self._rows = self._gathered, [], 0
        if not gathered:
            return None
        columns = [batch.columns.rename_columns(self._names) for batch in gathered]  # each edge has its own names
        stamps = None
        if any(batch.timestamps is not None for batch in gathered):
            stamps = [stamp for batch in gathered for stamp in batch.timestamps or repeat(None, len(batch))]
        return Batch(self._type, columns=pa.concat_batches(columns), timestamps=stamps)

    def process(self, batch: Batch) -> Batch | None:
        """Return the output batch; None if this batch must be processed record by record (nulls, huge numbers)."""
        columns = batch.columns
        amounts_column, keys_column = columns.column(self._field), columns.column(1 - self._field)
        if amounts_column.null_count or not len(batch):
            return None
        amounts = amounts_column.to_numpy(zero_copy_only=False)
        encoded = keys_column.dictionary_encode()
        keys = column_to_list(encoded.dictionary)
        field = self._field
        before = [0 if entry is None else entry[field] for entry in self._table.get_all(keys)]
        largest = max(max(before), -min(before), int(amounts.max()), -int(amounts.min()))
        if largest * (len(batch) + 1) >= _INT64_SAFE:
            return None

        running, last = running_sums(encoded.indices.to_numpy(), amounts, np.array(before, dtype=np.int64))
        totals = last.tolist()
        pairs = zip(keys, totals, strict=True) if field == 1 else zip(totals, keys, strict=True)
        self._table.put_all(dict(zip(keys, pairs, strict=True)))
        summed = columns.set_column(field, columns.schema.field(field), pa.array(running))
        return Batch(self._type, columns=summed, timestamps=batch.timestamps)


class _GatheringSum(Process):
    """A vectorised sum as a process: gathers records, and emits when there are enough or the level ends."""

    def __init__(self, vectorised: VectorisedSum, one_by_one: Process, operator: Operator, key_column: int) -> None:
        self._vectorised = vectorised
        self._one_by_one = one_by_one
        self._operator = operator
        self._key_column = key_column

    def __call__(self, batch: Batch, keys: Batch | None, side: int = 0) -> Batch | None:
        return self.flush() if self._vectorised.gather(batch) else None

    def flush(self) -> Batch | None:
        batch = self._vectorised.take()
        if batch is None:
            return None
        summed = self._vectorised.process(batch)
        if summed is not None:
            return summed
        assert self._operator.key is not None
        keys = Batch(self._operator.key.type, columns=batch.columns.select([self._key_column]))
        return self._one_by_one(batch, keys)


def running_sums(codes: Any, amounts: Any, before: Any) -> tuple[Any, Any]:
    """Return the running sum of its group for each record, in the records' order, and each group's total.

    `codes` number the groups of the records from 0 without gaps; `before` has the initial sum of each group.
    """
    order = np.argsort(codes, kind="stable")
    grouped = amounts[order]
    sums = np.cumsum(grouped)
    sizes = np.bincount(codes, minlength=len(before))
    ends = np.cumsum(sizes)
    starts = ends - sizes
    offset = before - (sums[starts] - grouped[starts])
    sums += np.repeat(offset, sizes)
    running = np.empty_like(sums)
    running[order] = sums
    return running, sums[ends - 1]
