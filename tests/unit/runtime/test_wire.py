from __future__ import annotations

from typing import Any

import pyarrow as pa

from checkdam.graph.levels import Edge, Partitioning
from checkdam.graph.operators import KeySelector
from checkdam.runtime.wire import Wire
from checkdam.state.rows import from_arrow, to_arrow
from checkdam.state.types import type_info

PAIR = type_info(tuple[str, int])
TEXT = type_info(str)


def edge(number: int, of: Any, key: KeySelector | None = None) -> Edge:
    partitioning = Partitioning.KEYED if key else Partitioning.REBALANCE
    return Edge(number, number, 9, 1, partitioning, 2, of, key)


def test_one_edge_travels_as_its_own_columns_without_a_tag() -> None:
    only = edge(3, PAIR)
    wire = Wire([only])
    rows = to_arrow(PAIR, [("a", 1), ("b", 2)])

    packed = wire.pack(only, rows)

    assert packed.num_columns == 2
    assert [(e, from_arrow(PAIR, r)) for e, r in wire.unpack(packed)] == [(only, [("a", 1), ("b", 2)])]


def test_rows_of_several_edges_come_out_by_edge_with_their_own_columns_and_keys() -> None:
    keyed = edge(1, TEXT, KeySelector(type_info(int), len))
    plain = edge(2, PAIR)
    wire = Wire([keyed, plain])
    packed = [
        wire.pack(keyed, to_arrow(TEXT, ["x", None, "zz"]), to_arrow(type_info(int), [1, 0, 2])),
        wire.pack(plain, to_arrow(PAIR, [("a", 1)])),
    ]

    unpacked = list(wire.unpack(pa.concat_batches(packed)))

    assert [each.id for each, _ in unpacked] == [1, 2]
    assert [column.to_pylist() for column in unpacked[0][1].columns] == [["x", None, "zz"], [1, 0, 2]]
    assert from_arrow(PAIR, unpacked[1][1]) == [("a", 1)]


def test_a_key_that_is_a_column_of_the_value_does_not_travel_twice() -> None:
    keyed = edge(1, PAIR, KeySelector(TEXT, None, (0,)))

    assert Wire([keyed]).schema.names == ["e1_0", "e1_1"]


def test_an_empty_batch_brings_nothing() -> None:
    wire = Wire([edge(1, TEXT), edge(2, TEXT)])

    assert list(wire.unpack(pa.RecordBatch.from_pylist([], schema=wire.schema))) == []
