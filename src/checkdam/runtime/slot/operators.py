"""Operators at work: each takes batches, calls the user's function record by record, and passes batches on."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from checkdam.backends.contract import KeyedStateStore, ValueTable
from checkdam.connectors.contract import SinkWriter
from checkdam.errors import CheckdamError
from checkdam.graph.functions import callable_of
from checkdam.graph.operators import (
    OP_STATE,
    AggregateKind,
    FilterKind,
    FlatMapKind,
    MapKind,
    Operator,
    ProcessKind,
    ReduceKind,
    SinkKind,
)
from checkdam.runtime.failures import user_error
from checkdam.runtime.slot.aggregate import VectorisedSum, record_combiner
from checkdam.runtime.slot.context import FunctionContext, KeyedContext
from checkdam.state.batch import Batch
from checkdam.state.descriptors import ValueStateDescriptor

Process = Callable[[Batch, Batch | None], Batch | None]
"""Takes records and, on a keyed stream, their keys; gives what goes on."""


def make_process(
    operator: Operator,
    *,
    context: FunctionContext,
    store: KeyedStateStore | None,
    writer: SinkWriter | None,
) -> Process:
    """The working form of one operator. The user's function is opened here, once."""
    if isinstance(operator.kind, SinkKind):
        return _sink(writer)
    if isinstance(operator.kind, AggregateKind):
        assert store is not None
        return _aggregate(operator, operator.kind, _op_state(operator, store))
    function = operator.rich_function
    if function is not None:
        try:
            function.open(context)
        except CheckdamError:
            raise
        except Exception as cause:
            raise user_error(operator.name, "(none: in open)", cause) from cause
    if isinstance(operator.kind, ReduceKind):
        assert store is not None
        return _reduce(operator, _op_state(operator, store), callable_of(operator.function))
    if isinstance(operator.kind, ProcessKind):
        assert store is not None
        return _keyed_flat(operator, store, callable_of(operator.function), KeyedContext(store))
    call = callable_of(operator.function)
    if store is not None:
        return _keyed_plain(operator, store, call)
    if isinstance(operator.kind, MapKind):
        return _map(operator, call)
    if isinstance(operator.kind, FlatMapKind):
        return _flat_map(operator, call)
    if isinstance(operator.kind, FilterKind):
        return _filter(operator, call)
    raise TypeError(f"no way to run {operator.kind!r}")


def _op_state(operator: Operator, store: KeyedStateStore) -> ValueTable:
    return store.value_table(ValueStateDescriptor(OP_STATE, operator.output_type.hint))


def _map(operator: Operator, call: Callable[[Any], Any]) -> Process:
    def process(batch: Batch, keys: Batch | None) -> Batch:
        produced: list[Any] = []
        append = produced.append
        value = None
        try:
            for value in batch.rows:
                append(call(value))
        except Exception as cause:
            raise user_error(operator.name, value, cause) from cause
        return Batch(operator.output_type, rows=produced)

    return process


def _flat_map(operator: Operator, call: Callable[[Any], Any]) -> Process:
    def process(batch: Batch, keys: Batch | None) -> Batch:
        produced: list[Any] = []
        extend = produced.extend
        value = None
        try:
            for value in batch.rows:
                some = call(value)
                if some is not None:
                    extend(some)
        except Exception as cause:
            raise user_error(operator.name, value, cause) from cause
        return Batch(operator.output_type, rows=produced)

    return process


def _filter(operator: Operator, call: Callable[[Any], Any]) -> Process:
    def process(batch: Batch, keys: Batch | None) -> Batch:
        kept: list[Any] = []
        value = None
        try:
            for value in batch.rows:
                if call(value):
                    kept.append(value)
        except Exception as cause:
            raise user_error(operator.name, value, cause) from cause
        return Batch(operator.output_type, rows=kept)

    return process


def _keyed_flat(operator: Operator, store: KeyedStateStore, call: Callable[..., Any], ctx: KeyedContext) -> Process:
    """process_element: the hottest loop of all."""

    def process(batch: Batch, keys: Batch | None) -> Batch:
        assert keys is not None
        produced: list[Any] = []
        extend = produced.extend
        value = None
        try:
            for store.current_key, value in zip(keys.rows, batch.rows, strict=True):
                some = call(value, ctx)
                if some is not None:
                    extend(some)
        except Exception as cause:
            raise user_error(operator.name, value, cause) from cause
        return Batch(operator.output_type, rows=produced)

    return process


def _keyed_plain(operator: Operator, store: KeyedStateStore, call: Callable[[Any], Any]) -> Process:
    """map, flat_map and filter on a keyed stream, whose function may keep state."""
    if isinstance(operator.kind, MapKind):

        def as_many(value: Any, ctx: KeyedContext) -> Any:
            return (call(value),)
    elif isinstance(operator.kind, FilterKind):

        def as_many(value: Any, ctx: KeyedContext) -> Any:
            return (value,) if call(value) else None
    else:

        def as_many(value: Any, ctx: KeyedContext) -> Any:
            return call(value)

    return _keyed_flat(operator, store, as_many, KeyedContext(store))


def _reduce(operator: Operator, table: ValueTable, combine: Callable[[Any, Any], Any]) -> Process:
    """Combine each record with what its key has so far; emits the result with each record.

    What is emitted must not be what is kept, if somebody downstream could change it.
    """
    entries = table.entries
    detached = None if operator.output_type.is_immutable else copy.deepcopy

    def process(batch: Batch, keys: Batch | None) -> Batch:
        assert keys is not None
        changed: dict[Any, Any] = {}
        produced: list[Any] = []
        value = None
        try:
            for key, value in zip(keys.rows, batch.rows, strict=True):
                kept = changed[key] if key in changed else entries.get(key)
                changed[key] = result = value if kept is None else combine(kept, value)
                produced.append(result if detached is None else detached(result))
        except Exception as cause:
            raise user_error(operator.name, value, cause) from cause
        table.put_all(changed)
        return Batch(operator.output_type, rows=produced)

    return process


def _aggregate(operator: Operator, kind: AggregateKind, table: ValueTable) -> Process:
    one_by_one = _reduce(operator, table, record_combiner(kind.how, kind.field, operator.output_type))
    columns = operator.key.columns if operator.key is not None else None
    if kind.field is None or not VectorisedSum.applies(kind.how, kind.field, operator.output_type, columns):
        return one_by_one
    assert columns is not None
    return _GatheringSum(VectorisedSum(kind.field, operator.output_type, table), one_by_one, operator, columns[0])


class _GatheringSum:
    """A vectorised sum as a process: gathers, and answers when there is enough or the level ends."""

    def __init__(self, vectorised: VectorisedSum, one_by_one: Process, operator: Operator, key_column: int) -> None:
        self._vectorised = vectorised
        self._one_by_one = one_by_one
        self._operator = operator
        self._key_column = key_column

    def __call__(self, batch: Batch, keys: Batch | None) -> Batch | None:
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


def _sink(writer: SinkWriter | None) -> Process:
    def process(batch: Batch, keys: Batch | None) -> Batch | None:
        if writer is None:
            return batch  # a Spark sink: the records leave through its edge
        writer.write(batch)
        return None

    return process
