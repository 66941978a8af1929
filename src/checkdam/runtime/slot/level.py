"""One level of one subtask: batches come in by edge, run down the chain, and leave by edge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from checkdam.graph.functions import callable_of
from checkdam.graph.levels import Edge, JobPlan, Level
from checkdam.graph.operators import KeySelector, Operator
from checkdam.runtime.failures import user_error
from checkdam.runtime.slot.messages import OperatorCounts
from checkdam.runtime.slot.operators import Process
from checkdam.runtime.wire import Wire, has_own_key
from checkdam.state.batch import Batch
from checkdam.state.rows import column_to_list, to_arrow

NO_OUTPUT = pa.schema([pa.field("none", pa.int8())])
"""The schema of a level from which nothing goes on; a stream must have one."""


@dataclass
class RunningOperator:
    operator: Operator
    process: Process
    records_in: int = 0
    records_out: int = 0

    def take_counts(self) -> OperatorCounts:
        counts = OperatorCounts(self.records_in, self.records_out)
        self.records_in = self.records_out = 0
        return counts


@dataclass
class RunningLevel:
    """The chain of a level. Also serves the source side, whose records come straight from a source."""

    operators: dict[int, RunningOperator]
    outputs: tuple[Edge, ...]
    wire_in: Wire | None
    wire_out: Wire | None
    carried: frozenset[int] = frozenset()
    _downstream: dict[int, list[int]] = field(default_factory=dict)
    _leaving: dict[int, list[tuple[Edge, Callable[[Batch], pa.RecordBatch]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for running in self.operators.values():
            for upstream in running.operator.inputs:
                self._downstream.setdefault(upstream, []).append(running.operator.id)
        for edge in self.outputs:
            assert self.wire_out is not None
            self._leaving.setdefault(edge.source, []).append((edge, _packer(edge, self.wire_out)))

    @property
    def output_schema(self) -> pa.Schema:
        return NO_OUTPUT if self.wire_out is None or not self.wire_out.edges else self.wire_out.schema

    def receive(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Run what one Arrow batch of the exchange in front of the level brings."""
        assert self.wire_in is not None
        for edge, rows in self.wire_in.unpack(batch):
            if edge.id in self.carried:
                assert self.wire_out is not None
                yield _repack(self.wire_out, edge, rows)
            else:
                assert edge.target is not None
                values, keys = split_key(edge, rows)
                yield from self.run(edge.target, values, keys)

    def run(self, operator: int, batch: Batch, keys: Batch | None) -> Iterator[pa.RecordBatch]:
        """Push records into one operator, and what it gives down the chain."""
        running = self.operators[operator]
        running.records_in += len(batch)
        produced = running.process(batch, keys)
        if produced is None or not len(produced):
            return
        running.records_out += len(produced)
        yield from self.pass_on(operator, produced)

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Let every operator give what it has gathered; no more records come in this epoch."""
        for op, running in self.operators.items():
            gathered = getattr(running.process, "flush", None)
            produced = gathered() if gathered is not None else None
            if produced is not None and len(produced):
                running.records_out += len(produced)
                yield from self.pass_on(op, produced)

    def pass_on(self, operator: int, produced: Batch) -> Iterator[pa.RecordBatch]:
        """Hand what an operator gave to everything behind it."""
        targets, leaving = self._downstream.get(operator, ()), self._leaving.get(operator, ())
        shared = len(targets) + len(leaving) > 1 and not produced.type.is_immutable
        columns = produced.columns if shared else None  # taken before anybody can change a record
        for target in targets:
            own = produced if columns is None else Batch(produced.type, columns=columns)
            yield from self.run(target, own, None)
        for _, pack in leaving:
            yield pack(produced if columns is None else Batch(produced.type, columns=columns))


def running_level(plan: JobPlan, level: Level, operators: dict[int, RunningOperator]) -> RunningLevel:
    following = plan.wire(level.index + 1)
    return RunningLevel(
        operators=operators,
        outputs=level.outputs,
        wire_in=Wire(plan.wire(level.index)),
        wire_out=Wire(following) if following else None,
        carried=frozenset(edge.id for edge in level.carried),
    )


def split_key(edge: Edge, rows: pa.RecordBatch) -> tuple[Batch, Batch | None]:
    """The records of an edge and their keys, out of the edge's columns; strings shared between both are made once."""
    width = len(edge.type.columns)
    values = rows.select(list(range(width))) if rows.num_columns > width else rows
    key = edge.key
    if key is None:
        return Batch(edge.type, columns=values), None
    if has_own_key(edge):
        return Batch(edge.type, columns=values), Batch(
            key.type, columns=rows.select(list(range(width, len(rows.columns))))
        )
    return _with_key_columns(edge, key, values)


def _with_key_columns(edge: Edge, key: KeySelector, values: pa.RecordBatch) -> tuple[Batch, Batch]:
    assert key.columns is not None
    batch = Batch(edge.type, columns=values)
    if len(key.columns) == 1 and not key.is_tuple:
        if edge.type == key.type:
            return batch, batch
        if getattr(edge.type.hint, "__origin__", None) is tuple:
            return _LazyPair(edge, key.columns[0], values).batches()
    return batch, Batch(key.type, columns=values.select(list(key.columns)))


class _LazyPair:
    """Records and keys that share their Python strings, made only if somebody asks for rows."""

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


def _packer(edge: Edge, wire: Wire) -> Callable[[Batch], pa.RecordBatch]:
    """Turns records that leave by an edge into rows of the exchange, computing the key where no column holds it."""
    if not has_own_key(edge):
        return lambda batch: wire.pack(edge, batch.columns)
    assert edge.key is not None
    key, select = edge.key, callable_of(edge.key.function)

    def pack(batch: Batch) -> pa.RecordBatch:
        keys = []
        value = None
        try:
            for value in batch.rows:
                keys.append(select(value))
        except Exception as cause:
            raise user_error("key_by", value, cause) from cause
        return wire.pack(edge, batch.columns, to_arrow(key.type, keys))

    return pack


def _repack(wire: Wire, edge: Edge, rows: pa.RecordBatch) -> pa.RecordBatch:
    width = len(edge.type.columns)
    keys = rows.select(list(range(width, rows.num_columns))) if rows.num_columns > width else None
    return wire.pack(edge, rows.select(list(range(width))), keys)
