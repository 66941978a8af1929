"""How records look while they cross an exchange: Arrow batches, each row belonging to one edge.

An exchange with one edge carries just that edge's columns. With several, every edge has columns of its own, empty in
the rows of the others, and a first column names the edge; so columns stay columns whatever the graph looks like.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from checkdam.graph.levels import Edge, Partitioning

EDGE = "edge"


@dataclass(frozen=True)
class EdgeColumns:
    """Where one edge's columns stand in the rows of an exchange."""

    edge: Edge
    values: tuple[int, ...]
    keys: tuple[int, ...]  # empty if the key is among the values, or there is none

    @property
    def all(self) -> tuple[int, ...]:
        return self.values + self.keys


class Wire:
    """The layout of one exchange."""

    def __init__(self, edges: Sequence[Edge]) -> None:
        self.edges = tuple(edges)
        self.tagged = len(self.edges) > 1
        fields = [pa.field(EDGE, pa.int32(), nullable=False)] if self.tagged else []
        self.columns: dict[int, EdgeColumns] = {}
        for edge in self.edges:
            values = tuple(range(len(fields), len(fields) + len(edge.type.columns)))
            fields += [pa.field(f"e{edge.id}_{i}", c.arrow_type) for i, c in enumerate(edge.type.columns)]
            first_key = len(fields)
            if has_own_key(edge) and edge.key is not None:
                fields += [pa.field(f"e{edge.id}_k{i}", c.arrow_type) for i, c in enumerate(edge.key.type.columns)]
            self.columns[edge.id] = EdgeColumns(edge, values, tuple(range(first_key, len(fields))))
        self.schema = pa.schema(fields)

    def pack(self, edge: Edge, values: pa.RecordBatch, keys: pa.RecordBatch | None = None) -> pa.RecordBatch:
        """Rows of one edge as rows of the exchange."""
        own = [*values.columns, *(keys.columns if keys is not None else ())]
        if not self.tagged:
            return pa.RecordBatch.from_arrays(own, schema=self.schema)
        rows = values.num_rows
        place = dict(zip(self.columns[edge.id].all, own, strict=True))
        place[0] = pa.repeat(pa.scalar(edge.id, pa.int32()), rows)
        arrays = [place.get(i) if i in place else pa.nulls(rows, f.type) for i, f in enumerate(self.schema)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def unpack(self, batch: pa.RecordBatch) -> Iterator[tuple[Edge, pa.RecordBatch]]:
        """The rows of each edge, with that edge's value columns and then its key columns."""
        if batch.num_rows == 0:
            return
        if not self.tagged:
            yield self.edges[0], batch
            return
        tags = batch.column(0)
        for edge in self.edges:
            mask = pc.equal(tags, edge.id)
            rows = batch.filter(mask)
            if rows.num_rows:
                yield edge, rows.select(list(self.columns[edge.id].all))


def has_own_key(edge: Edge) -> bool:
    """Whether the key travels in columns of its own, because it is computed by the user's function."""
    return edge.partitioning is Partitioning.KEYED and edge.key is not None and edge.key.columns is None
