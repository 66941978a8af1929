"""Runs functions on streams without keys, and the operators that have no function."""

from __future__ import annotations

import operator as operators
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa

from checkdam.connectors.contract import SinkWriter
from checkdam.graph.operators import FilterKind, MapKind, Operator
from checkdam.runtime.failures import user_error
from checkdam.runtime.slot.context import OperatorTime
from checkdam.runtime.slot.process import Process
from checkdam.runtime.slot.side_outputs import SideOutputs
from checkdam.runtime.slot.timers import Timers
from checkdam.types.batch import Batch
from checkdam.types.projection import projection_of
from checkdam.types.record_copies import copier, extending
from checkdam.types.type_info import TypeInfo


class PlainProcess(Process):
    """Runs map, flat_map or filter."""

    def __init__(self, operator: Operator, call: Callable[[Any], Any]) -> None:
        self._operator = operator
        self._call = call
        self._is_map = isinstance(operator.kind, MapKind)
        self._results = _results_of(operator, call)

    def __call__(self, batch: Batch, keys: Batch | None, side: int = 0) -> Batch:
        rows, stamps = batch.rows, batch.timestamps
        remaining = iter(rows)
        try:
            if stamps is None or self._is_map:
                produced = self._results(remaining)
            else:
                produced, stamps = self._stamped(remaining, stamps)
        except Exception as cause:
            at = len(rows) - operators.length_hint(remaining) - 1  # exact for a list
            raise user_error(self._operator, rows[at], cause) from cause
        return Batch(self._operator.output_type, rows=produced, timestamps=stamps)

    def _stamped(self, remaining: Iterator[Any], stamps: Sequence[int | None]) -> tuple[list[Any], list[int | None]]:
        """Return the output of each record, with the record's timestamp."""
        produced: list[Any] = []
        given: list[int | None] = []
        for stamp, value in zip(stamps, remaining, strict=True):
            some = self._results((value,))
            produced += some
            given += repeat(stamp, len(some))
        return produced, given


class ColumnMap(PlainProcess):
    """Runs a map that only picks fields: columns stay columns. Records that exist as objects go through the function,
    since they have not been converted to the declared type.
    """

    def __init__(self, operator: Operator, call: Callable[[Any], Any]) -> None:
        super().__init__(operator, call)
        self._for: TypeInfo | None = None
        self._project: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None

    def __call__(self, batch: Batch, keys: Batch | None, side: int = 0) -> Batch:
        if batch.type is not self._for:
            self._for = batch.type
            projection = projection_of(self._call, batch.type)
            self._project = None if projection is None else projection.columns(batch.type, self._operator.output_type)
        if batch.has_rows or self._project is None:
            return super().__call__(batch, keys, side)
        columns = self._project(batch.columns)
        return Batch(self._operator.output_type, columns=columns, timestamps=batch.timestamps)


def _results_of(operator: Operator, call: Callable[[Any], Any]) -> Callable[[Iterable[Any]], list[Any]]:
    """Return a function that computes the output of several records."""
    copied = copier(operator.output_type)
    if isinstance(operator.kind, MapKind):
        if copied is None:
            return lambda rows: [call(value) for value in rows]
        exact, copy = copied.exact, copied.copy
        return lambda rows: [made if type(made := call(value)) is exact else copy(made) for value in rows]
    if isinstance(operator.kind, FilterKind):
        if copied is None:
            return lambda rows: [value for value in rows if call(value)]
        exact, copy = copied.exact, copied.copy
        return lambda rows: [value if type(value) is exact else copy(value) for value in rows if call(value)]

    def flat(rows: Iterable[Any]) -> list[Any]:
        produced: list[Any] = []
        extend = extending(produced, copied)
        for value in rows:
            some = call(value)
            if some is not None:
                extend(some)
        return produced

    return flat


class UnkeyedProcess(Process):
    """Runs a function that takes a context with each record of a stream without keys."""

    def __init__(
        self,
        operator: Operator,
        time: OperatorTime,
        call: Callable[[Any, Any], Iterable[Any] | None],
        ctx: Any,
        outputs: SideOutputs | None = None,
    ) -> None:
        self._operator = operator
        self._time = time
        self._call = call
        self._ctx = ctx
        self._outputs = outputs
        self._copier = copier(operator.output_type)

    def __call__(self, batch: Batch, keys: Batch | None, side: int = 0) -> Batch:
        time, call, ctx = self._time, self._call, self._ctx
        times = batch.timestamps
        produced: list[Any] = []
        extend = extending(produced, self._copier)
        stamps: list[int | None] = []
        value = None
        try:
            if times is None:
                for value in batch.rows:
                    some = call(value, ctx)
                    if some is not None:
                        extend(some)
                return Batch(self._operator.output_type, rows=produced)
            for value, time.timestamp in zip(batch.rows, times, strict=True):
                some = call(value, ctx)
                if some is not None:
                    extend(some)
                    stamps.extend(repeat(time.timestamp, len(produced) - len(stamps)))
        except Exception as cause:
            raise user_error(self._operator, value, cause) from cause
        finally:
            time.timestamp = None
        return Batch(self._operator.output_type, rows=produced, timestamps=stamps)

    def advance(self, watermark: int) -> None:
        self._time.advance(watermark)

    def take_side_outputs(self) -> Mapping[str, Batch]:
        return self._outputs.take() if self._outputs is not None else {}


class SinkFunctionProcess(Process):
    """Runs a sink's function on a stream without keys; what the function returns is ignored."""

    def __init__(self, operator: Operator, time: OperatorTime, invoke: Callable[[Any, Any], Any], ctx: Any) -> None:
        self._operator = operator
        self._time = time
        self._invoke = invoke
        self._ctx = ctx

    def __call__(self, batch: Batch, keys: Batch | None, side: int = 0) -> None:
        time, invoke, ctx = self._time, self._invoke, self._ctx
        times = batch.timestamps
        value = None
        try:
            if times is None:
                for value in batch.rows:
                    invoke(value, ctx)
                return
            for value, time.timestamp in zip(batch.rows, times, strict=True):
                invoke(value, ctx)
        except Exception as cause:
            raise user_error(self._operator, value, cause, where="invoke") from cause
        finally:
            time.timestamp = None

    def advance(self, watermark: int) -> None:
        self._time.advance(watermark)


class DiscardingProcess(Process):
    """Drops all records without looking at them."""

    def __init__(self, time: OperatorTime) -> None:
        self._time = time

    def __call__(self, batch: Batch, keys: Batch | None, side: int = 0) -> None:
        pass

    def advance(self, watermark: int) -> None:
        self._time.advance(watermark)


class BroadcastProcess(Process):
    """Runs an operator whose second side is broadcast: both sides use the same broadcast state."""

    def __init__(self, main: Process, broadcast: Process) -> None:
        self._main = main
        self._broadcast = broadcast

    def __call__(self, batch: Batch, keys: Batch | None, side: int = 0) -> Batch | None:
        return self._broadcast(batch, None) if side else self._main(batch, keys)

    def advance(self, watermark: int) -> Batch | None:
        return self._main.advance(watermark)

    def take_side_outputs(self) -> Mapping[str, Batch]:
        return self._main.take_side_outputs()

    @property
    def next_due(self) -> int | None:
        return self._main.next_due

    @property
    def timers(self) -> Timers | None:
        return self._main.timers


class PassThrough(Process):
    """Passes its input on: a side output, or a sink whose records leave for Spark."""

    def __call__(self, batch: Batch, keys: Batch | None, side: int = 0) -> Batch:
        return batch


class WriterProcess(Process):
    """Runs a sink with a writer in the slot."""

    def __init__(self, writer: SinkWriter) -> None:
        self._writer = writer

    def __call__(self, batch: Batch, keys: Batch | None, side: int = 0) -> None:
        self._writer.write(batch)
