"""The layout of records that cross an exchange: Arrow batches, in which each row belongs to one edge.

An exchange with one edge carries just that edge's columns. With several, every edge has columns of its own, null in the
rows of the others, and a first column names the edge. So columns stay columns whatever the graph looks like.

A job with event time or broadcast streams has two more leading columns: the target partition of a row, where the record
does not determine it, and the content of control rows, which belong to no edge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from checkdam.graph.levels import Edge, JobPlan, Partitioning

EDGE = "edge"
TO = "to"
CONTROL = "control"
NO_EDGE = -1
"""The edge column of a control row."""

_CONTROLLED = (
    pa.field(EDGE, pa.int32(), nullable=False),
    pa.field(TO, pa.int32()),
    pa.field(CONTROL, pa.binary()),
)


@dataclass(frozen=True)
class EdgeColumns:
    """The positions of one edge's columns in the rows of an exchange."""

    edge: Edge
    values: tuple[int, ...]
    keys: tuple[int, ...]  # empty if the key is among the values, or there is none
    timestamps: int | None = None


@dataclass(frozen=True)
class EdgeRows:
    """Records of one edge as columns, with their keys and timestamps where those have columns of their own."""

    edge: Edge
    values: pa.RecordBatch
    keys: pa.RecordBatch | None = None
    timestamps: pa.Array | None = None

    @property
    def num_rows(self) -> int:
        return int(self.values.num_rows)


class Wire:
    """The layout of one exchange, upstream of a level; `controlled` adds the columns for control rows."""

    def __init__(self, edges: Sequence[Edge], *, level: int | None = None, controlled: bool = False) -> None:
        self.edges = tuple(edges)
        self.level = level
        self.controlled = controlled
        self.tagged = controlled or len(self.edges) != 1  # tagged also without any edge, since a row must have a column
        fields = list(_CONTROLLED if controlled else _CONTROLLED[:1] if self.tagged else ())
        self.columns: dict[int, EdgeColumns] = {}
        for edge in self.edges:
            values = tuple(range(len(fields), len(fields) + len(edge.type.columns)))
            fields += [pa.field(f"e{edge.id}_{i}", c.arrow_type) for i, c in enumerate(edge.type.columns)]
            first_key = len(fields)
            if has_own_key(edge) and edge.key is not None:
                fields += [pa.field(f"e{edge.id}_k{i}", c.arrow_type) for i, c in enumerate(edge.key.type.columns)]
            keys = tuple(range(first_key, len(fields)))
            timestamps = None
            if controlled and edge.has_timestamps:
                timestamps = len(fields)
                fields.append(pa.field(f"e{edge.id}_t", pa.int64()))
            self.columns[edge.id] = EdgeColumns(edge, values, keys, timestamps)
        self.schema = pa.schema(fields)

    def pack(
        self,
        edge: Edge,
        values: pa.RecordBatch,
        keys: pa.RecordBatch | None = None,
        timestamps: Sequence[int | None] | pa.Array | None = None,
    ) -> pa.RecordBatch:
        """Convert rows of one edge to rows of the exchange."""
        own = [*values.columns, *(keys.columns if keys is not None else ())]
        if not self.tagged:
            return pa.RecordBatch.from_arrays(own, schema=self.schema)
        rows = values.num_rows
        at = self.columns[edge.id]
        place = dict(zip(at.values + at.keys, own, strict=True))
        place[0] = pa.repeat(pa.scalar(edge.id, pa.int32()), rows)
        if at.timestamps is not None and timestamps is not None:
            place[at.timestamps] = pa.array(timestamps, pa.int64())
        arrays = [place.get(i) if i in place else pa.nulls(rows, f.type) for i, f in enumerate(self.schema)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def address(self, edge: Edge, packed: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Address packed rows of an edge to partitions: rows of a broadcast stream once for each downstream subtask."""
        if not self.is_copied(edge):
            yield packed
            return
        for partition in range(edge.parallelism):
            yield packed.set_column(1, _CONTROLLED[1], pa.repeat(pa.scalar(partition, pa.int32()), packed.num_rows))

    def is_copied(self, edge: Edge) -> bool:
        """Return whether a broadcast edge is copied here: it travels once, and the last exchange copies it."""
        return self.controlled and edge.partitioning is Partitioning.BROADCAST and edge.level == self.level

    def pack_control(self, content: bytes, partitions: int) -> pa.RecordBatch:
        """Return one control row for each partition."""
        first = [
            pa.repeat(pa.scalar(NO_EDGE, pa.int32()), partitions),
            pa.array(range(partitions), pa.int32()),
            pa.array([content] * partitions, pa.binary()),
        ]
        return pa.RecordBatch.from_arrays(
            first + [pa.nulls(partitions, f.type) for f in list(self.schema)[len(first) :]], schema=self.schema
        )

    def unpack(self, batch: pa.RecordBatch) -> Iterator[EdgeRows]:
        """Yield the rows of each edge; control rows are left out."""
        if batch.num_rows == 0:
            return
        if not self.tagged:
            yield self._rows_of(self.edges[0], batch)
            return
        tags = batch.column(0)
        for edge in self.edges:
            rows = batch.filter(pc.equal(tags, edge.id))
            if rows.num_rows:
                yield self._rows_of(edge, rows)

    def _rows_of(self, edge: Edge, rows: pa.RecordBatch) -> EdgeRows:
        at = self.columns[edge.id]
        if len(at.values) == rows.num_columns:
            return EdgeRows(edge, rows)
        return EdgeRows(
            edge,
            rows.select(list(at.values)),
            rows.select(list(at.keys)) if at.keys else None,
            None if at.timestamps is None else rows.column(at.timestamps),
        )

    def unpack_control(self, batch: pa.RecordBatch) -> list[bytes]:
        """Return the contents of a batch's control rows."""
        if not self.controlled or batch.num_rows == 0:
            return []
        return [bytes(content) for content in batch.column(2).drop_null().to_pylist()]


def wire_before(plan: JobPlan, level: int) -> Wire | None:
    """Return the exchange upstream of a level. The one behind the last level leads back to Spark, or does not exist."""
    edges = plan.wire(level)
    if level > len(plan.levels):
        return Wire(edges, level=level) if edges else None
    return Wire(edges, level=level, controlled=is_controlled(plan))


def is_controlled(plan: JobPlan) -> bool:
    """Return whether the job sends control rows, or records to other partitions than their key's."""
    return plan.has_event_time or any(edge.partitioning is Partitioning.BROADCAST for edge in plan.edges)


def has_own_key(edge: Edge) -> bool:
    """Return whether the key has columns of its own, because a user function computes it."""
    return edge.partitioning is Partitioning.KEYED and edge.key is not None and edge.key.columns is None
