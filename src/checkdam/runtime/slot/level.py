"""One level of one subtask: batches come in by edge, run through the chain, and leave by edge."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from checkdam.errors import JobGraphError
from checkdam.graph.functions import callable_of
from checkdam.graph.levels import Edge, JobPlan, Level
from checkdam.graph.operators import ConnectKind, KeySelector, Operator, SideOutputKind, SourceFunctionKind
from checkdam.runtime.current_operator import CURRENT, label_of
from checkdam.runtime.exchange_rows import EdgeRows, Wire, has_own_key, wire_before
from checkdam.runtime.failures import user_error
from checkdam.runtime.slot.event_time import EventTime, SeenTimestamps
from checkdam.runtime.slot.messages import EdgeCounts, OperatorCounts
from checkdam.runtime.slot.process import Process
from checkdam.runtime.slot.record_check import check_keys, check_text, refused_none
from checkdam.state.state_count import StateCount
from checkdam.types.batch import Batch
from checkdam.types.output_columns import spark_columns
from checkdam.types.record_copies import copier
from checkdam.types.rows import column_to_list, to_arrow

T = TypeVar("T")

NO_OUTPUT = pa.schema([pa.field("none", pa.int8())])
"""The schema of a level without output; a stream must have one."""


@dataclass
class RunningOperator:
    operator: Operator
    process: Process
    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    busy_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.label = label_of(self.operator)

    def work(self, step: Callable[..., T], *arguments: Any) -> T:
        """Run a step of the operator and count its time; once per batch, so that counting costs nothing."""
        began = time.perf_counter()
        before = CURRENT.set(self.label)
        try:
            return step(*arguments)
        finally:
            CURRENT.reset(before)
            self.busy_seconds += time.perf_counter() - began

    @property
    def has_ended(self) -> bool:
        """Whether it is a source function without more records."""
        return isinstance(self.operator.kind, SourceFunctionKind) and self.process.is_finished

    def take_counts(self, held: StateCount | None = None) -> OperatorCounts:
        counts = OperatorCounts(
            self.records_in,
            self.records_out,
            self.bytes_in,
            self.bytes_out,
            self.busy_seconds,
            held or StateCount(),
            self.process.late_records_dropped,
        )
        if self.process.late_records_dropped:
            self.process.late_records_dropped = 0
        self.records_in = self.records_out = self.bytes_in = self.bytes_out = 0
        self.busy_seconds = 0.0
        return counts


@dataclass(frozen=True)
class _HeldBatch:
    """Records held back until all broadcast records of the epoch have arrived."""

    batch: Batch
    keys: Batch | None


@dataclass
class RunningLevel:
    """The chain of a level. Also serves the source side, whose records come straight from a source."""

    operators: dict[int, RunningOperator]
    outputs: tuple[Edge, ...]
    wire_in: Wire | None
    wire_out: Wire | None
    carried: frozenset[int] = frozenset()
    event_time: SeenTimestamps | EventTime | None = None
    behind: int = 0  # partitions of the next exchange, all of which get control rows
    _downstream: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    _aside: dict[tuple[int, str], int] = field(default_factory=dict)  # operator of a side output, by tag
    _leaving: dict[int, list[tuple[Edge, Callable[[Batch], Iterator[pa.RecordBatch]]]]] = field(default_factory=dict)
    _held: dict[int, list[_HeldBatch]] = field(default_factory=dict)
    _received: dict[int, EdgeCounts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for op_id, running in self.operators.items():
            operator = running.operator
            if isinstance(operator.kind, SideOutputKind):
                for upstream in operator.inputs:
                    self._aside[upstream, operator.kind.tag] = op_id
                continue
            for upstream in operator.inputs:
                self._downstream.setdefault(upstream, []).append((op_id, 0))
            if isinstance(operator.kind, ConnectKind) and operator.kind.broadcast:
                self._held[op_id] = []
        for edge in self.outputs:
            assert self.wire_out is not None
            self._leaving.setdefault(edge.source, []).append((edge, _packer(edge, self.wire_out)))

    @property
    def output_schema(self) -> pa.Schema:
        return NO_OUTPUT if self.wire_out is None else self.wire_out.schema

    def receive(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Process one Arrow batch of the exchange upstream of the level."""
        assert self.wire_in is not None
        for control in self.wire_in.unpack_control(batch):
            assert self.event_time is not None
            self.event_time.merge_control(control)
        for rows in self.wire_in.unpack(batch):
            edge = rows.edge
            if edge.id in self.carried:
                assert self.wire_out is not None
                packed = self.wire_out.pack(edge, rows.values, rows.keys, rows.timestamps)
                yield from self.wire_out.address(edge, packed)
            else:
                assert edge.target is not None
                self._count(rows)
                if edge.unread_source is not None:
                    check_text(edge.unread_source, edge.type, rows.values)
                values, keys = records_and_keys(rows)
                if keys is not None:
                    check_keys(values, keys, self.operators[edge.target].operator)
                yield from self.run(edge.target, values, keys, edge.side)

    def bring(self, source: int, batch: Batch) -> Iterator[pa.RecordBatch]:
        """Process records read by a source at the head of the chain."""
        self.operators[source].records_out += len(batch)
        yield from self.pass_on(source, batch)

    def take_received(self) -> dict[int, EdgeCounts]:
        """Return the counts of received records since the last call, by edge."""
        received, self._received = self._received, {}
        return received

    def _count(self, rows: EdgeRows) -> None:
        """Count rows and bytes. Arrow knows the size of a batch without reading its rows."""
        edge = rows.edge
        assert edge.target is not None
        size = rows.values.nbytes + (rows.keys.nbytes if rows.keys is not None else 0)
        before = self._received.get(edge.id, EdgeCounts())
        self._received[edge.id] = EdgeCounts(before.records + rows.num_rows, before.bytes + size)
        self.operators[edge.target].bytes_in += size

    def run(self, operator: int, batch: Batch, keys: Batch | None, side: int = 0) -> Iterator[pa.RecordBatch]:
        """Push records into one operator, and its output down the chain.

        If the other side is broadcast, the records are held back until all broadcast records of this epoch have
        arrived.
        """
        running = self.operators[operator]
        running.records_in += len(batch)
        if side == 0 and operator in self._held:
            self._held[operator].append(_HeldBatch(batch, keys))
        else:
            yield from self._given(operator, running.work(running.process, batch, keys, side))

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Finish the epoch after its last record: drive each operator to its end, in order, then emit control rows."""
        for op, running in self.operators.items():
            process = running.process
            for held in self._take_held(op):
                yield from self._given(op, running.work(process, held.batch, held.keys, 0))
            yield from self._given(op, running.work(process.pull))
            if isinstance(self.event_time, EventTime) and running.has_ended:
                self.event_time.end_source(op)
            yield from self._given(op, running.work(process.flush))
            if isinstance(self.event_time, EventTime):
                yield from self._given(op, running.work(process.advance, self.event_time.watermark_of(op)))
        if self.event_time is not None and self.wire_out is not None and self.wire_out.controlled:
            control = self.event_time.control()
            if control:
                yield self.wire_out.pack_control(control, self.behind)

    def _take_held(self, operator: int) -> list[_HeldBatch]:
        held = self._held.get(operator)
        if not held:
            return []
        self._held[operator] = []
        return held

    def _given(self, operator: int, produced: Batch | None) -> Iterator[pa.RecordBatch]:
        """Pass on an operator's output and side outputs."""
        running = self.operators[operator]
        aside = running.process.take_side_outputs()
        if produced is not None and len(produced):
            running.records_out += len(produced)
            yield from self.pass_on(operator, produced)
        for tag, batch in aside.items():
            target = self._aside[operator, tag]
            self.operators[target].records_in += len(batch)
            self.operators[target].records_out += len(batch)
            yield from self.pass_on(target, batch)

    def pass_on(self, operator: int, produced: Batch) -> Iterator[pa.RecordBatch]:
        """Pass an operator's output to everything downstream, to each in its own form."""
        targets, leaving = self._downstream.get(operator, ()), self._leaving.get(operator, ())
        own = produced.copies(len(targets) + (1 if leaving else 0))
        for target, side in targets:
            yield from self.run(target, next(own), None, side)
        if not leaving:
            return
        running, batch = self.operators.get(operator), next(own)
        for _, pack in leaving:
            if running is None:
                yield from pack(batch)
                continue
            for packed in running.work(pack, batch):
                running.bytes_out += packed.nbytes
                yield packed


def running_level(
    plan: JobPlan, level: Level, operators: dict[int, RunningOperator], event_time: EventTime
) -> RunningLevel:
    is_last = level.index == len(plan.levels)
    return RunningLevel(
        operators=operators,
        outputs=level.outputs,
        wire_in=wire_before(plan, level.index),
        wire_out=wire_before(plan, level.index + 1),
        carried=frozenset(edge.id for edge in level.carried),
        event_time=event_time,
        behind=0 if is_last else plan.levels[level.index].parallelism,
    )


def records_and_keys(rows: EdgeRows) -> tuple[Batch, Batch | None]:
    """Return the records of an edge and their keys; strings shared by both are made once."""
    values, keys = _split_key(rows)
    if rows.timestamps is not None and rows.timestamps.null_count < rows.num_rows:
        values.timestamps = rows.timestamps.to_pylist()
    return values, keys


def _split_key(rows: EdgeRows) -> tuple[Batch, Batch | None]:
    edge, key = rows.edge, rows.edge.key
    if key is None:
        return Batch(edge.type, columns=rows.values), None
    if rows.keys is not None:
        return Batch(edge.type, columns=rows.values), Batch(key.type, columns=rows.keys)
    return _with_key_columns(edge, key, rows.values)


def _with_key_columns(edge: Edge, key: KeySelector, values: pa.RecordBatch) -> tuple[Batch, Batch]:
    assert key.columns is not None
    batch = Batch(edge.type, columns=values)
    if len(key.columns) == 1 and not key.is_tuple and key.type.is_compound:
        parts = values.column(key.columns[0]).flatten()
        return batch, Batch(key.type, columns=pa.RecordBatch.from_arrays(parts, schema=key.type.arrow_schema))
    if len(key.columns) == 1 and not key.is_tuple and key.type.is_immutable:
        if edge.type == key.type:
            return batch, batch
        if getattr(edge.type.hint, "__origin__", None) is tuple:
            return _LazyPair(edge, key.columns[0], values).batches()
    return batch, Batch(key.type, columns=values.select(list(key.columns)))


class _LazyPair:
    """Records and keys that share their Python strings, made only when rows are needed."""

    def __init__(self, edge: Edge, key_column: int, values: pa.RecordBatch) -> None:
        self._edge = edge
        self._key_column = key_column
        self._values = values
        self._lists: list[list[object]] | None = None

    def batches(self) -> tuple[Batch, Batch]:
        assert self._edge.key is not None
        key_type = self._edge.key.type
        keys = self._values.select([self._key_column])
        return (
            Batch(self._edge.type, columns=self._values, make_rows=lambda: list(zip(*self._columns(), strict=True))),
            Batch(key_type, columns=keys, make_rows=lambda: self._columns()[self._key_column]),
        )

    def _columns(self) -> list[list[object]]:
        if self._lists is None:
            self._lists = [column_to_list(column) for column in self._values.columns]
        return self._lists


def _packer(edge: Edge, wire: Wire) -> Callable[[Batch], Iterator[pa.RecordBatch]]:
    """Return a function that turns an edge's output into rows of the exchange, computing keys that no column has."""
    if edge.target is None:
        return lambda batch: wire.address(edge, wire.pack(edge, spark_columns(batch), None, batch.timestamps))
    if not has_own_key(edge):
        return lambda batch: wire.address(edge, wire.pack(edge, batch.columns, None, batch.timestamps))
    assert edge.key is not None
    key, select, copied = edge.key, callable_of(edge.key.function), copier(edge.key.type)

    def pack(batch: Batch) -> Iterator[pa.RecordBatch]:
        keys: list[Any] = []
        add = keys.append if copied is None else lambda key: keys.append(copied.copy(key))
        value = None
        try:
            for value in batch.rows:
                add(select(value))
        except Exception as cause:
            raise user_error("key_by", value, cause) from cause
        try:
            columns = to_arrow(key.type, keys)
        except JobGraphError:
            for value, found in zip(batch.rows, keys, strict=True):
                if found is None:  # a None key that is not compound; the receiver finds the others
                    raise refused_none("key_by", found, value) from None
            raise
        return wire.address(edge, wire.pack(edge, batch.columns, columns, batch.timestamps))

    return pack
