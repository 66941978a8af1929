from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from checkdam.graph.levels import Edge, Partitioning
from checkdam.graph.operators import KeySelector
from checkdam.runtime.exchange_rows import CONTROL, EDGE, NO_EDGE, TO, Wire
from checkdam.types.rows import from_arrow, to_arrow
from checkdam.types.type_info import type_info

PAIR = type_info(tuple[str, int])
TEXT = type_info(str)
NUMBER = type_info(int)


def edge(number: int, of: Any, key: KeySelector | None = None) -> Edge:
    partitioning = Partitioning.KEYED if key else Partitioning.ORIGIN
    return Edge(number, number, 9, 1, partitioning, 2, of, key)


def test_one_edge_travels_as_its_own_columns_without_a_tag() -> None:
    only = edge(3, PAIR)
    wire = Wire([only])
    rows = to_arrow(PAIR, [("a", 1), ("b", 2)])

    packed = wire.pack(only, rows)

    assert packed.num_columns == 2
    assert [(r.edge, from_arrow(PAIR, r.values)) for r in wire.unpack(packed)] == [(only, [("a", 1), ("b", 2)])]
    assert list(wire.address(only, packed)) == [packed]
    assert wire.unpack_control(packed) == []


def test_rows_of_several_edges_come_out_by_edge_with_their_own_columns_and_keys() -> None:
    keyed = edge(1, TEXT, KeySelector(NUMBER, len))
    plain = edge(2, PAIR)
    wire = Wire([keyed, plain])
    packed = [
        wire.pack(keyed, to_arrow(TEXT, ["x", None, "zz"]), to_arrow(NUMBER, [1, 0, 2])),
        wire.pack(plain, to_arrow(PAIR, [("a", 1)])),
    ]

    first, second = wire.unpack(pa.concat_batches(packed))

    assert (first.edge, second.edge) == (keyed, plain)
    assert from_arrow(TEXT, first.values) == ["x", None, "zz"]
    assert from_arrow(NUMBER, first.keys) == [1, 0, 2]
    assert from_arrow(PAIR, second.values) == [("a", 1)]
    assert second.keys is None


def test_a_key_that_is_a_column_of_the_value_does_not_travel_twice() -> None:
    keyed = edge(1, PAIR, KeySelector(TEXT, None, (0,)))

    assert Wire([keyed]).schema.names == ["e1_0", "e1_1"]


def test_without_control_rows_there_are_no_columns_for_them() -> None:
    timed = replace(edge(1, TEXT), has_timestamps=True)

    assert Wire([timed]).schema.names == ["e1_0"]  # the way back to Spark, which has no use for event time
    assert Wire([timed, edge(2, TEXT)]).schema.names == [EDGE, "e1_0", "e2_0"]


def test_an_empty_batch_brings_nothing() -> None:
    wire = Wire([edge(1, TEXT), edge(2, TEXT)])

    assert list(wire.unpack(pa.RecordBatch.from_pylist([], schema=wire.schema))) == []


def test_an_exchange_without_edges_still_has_a_column() -> None:
    assert Wire([]).schema.names == [EDGE]
    assert Wire([], controlled=True).schema.names == [EDGE, TO, CONTROL]


def test_timestamps_travel_beside_values_and_keys_and_may_be_missing() -> None:
    timed = replace(edge(1, TEXT, KeySelector(NUMBER, len)), has_timestamps=True)
    wire = Wire([timed], level=1, controlled=True)
    values, keys = to_arrow(TEXT, ["x", "yy"]), to_arrow(NUMBER, [1, 2])

    [stamped] = wire.unpack(wire.pack(timed, values, keys, [7, -8]))
    [unstamped] = wire.unpack(wire.pack(timed, values, keys))

    assert stamped.timestamps is not None
    assert stamped.timestamps.to_pylist() == [7, -8]
    assert from_arrow(NUMBER, stamped.keys) == [1, 2]
    assert unstamped.timestamps is not None
    assert unstamped.timestamps.null_count == 2


def test_a_control_row_reaches_every_partition_and_no_edge() -> None:
    wire = Wire([edge(1, TEXT)], level=1, controlled=True)

    rows = wire.pack_control(b"said", 3)

    assert rows.column(0).to_pylist() == [NO_EDGE] * 3
    assert rows.column(1).to_pylist() == [0, 1, 2]
    assert wire.unpack_control(rows) == [b"said"] * 3
    assert list(wire.unpack(rows)) == []


def test_records_and_control_rows_in_one_batch_come_out_apart() -> None:
    plain = edge(1, TEXT)
    wire = Wire([plain], level=1, controlled=True)
    batch = pa.concat_batches([wire.pack(plain, to_arrow(TEXT, ["a"])), wire.pack_control(b"said", 1)])

    [rows] = wire.unpack(batch)

    assert from_arrow(TEXT, rows.values) == ["a"]
    assert wire.unpack_control(batch) == [b"said"]


def test_broadcast_records_are_addressed_to_each_subtask_by_the_last_exchange_only() -> None:
    broadcast = replace(edge(1, TEXT), partitioning=Partitioning.BROADCAST, parallelism=3, level=2)
    values = to_arrow(TEXT, ["a", "b"])
    on_the_way, last = (Wire([broadcast], level=level, controlled=True) for level in (1, 2))

    passing = list(on_the_way.address(broadcast, on_the_way.pack(broadcast, values)))
    copied = list(last.address(broadcast, last.pack(broadcast, values)))

    assert [batch.column(1).to_pylist() for batch in passing] == [[None, None]]
    assert [batch.column(1).to_pylist() for batch in copied] == [[0, 0], [1, 1], [2, 2]]
    assert all(from_arrow(TEXT, rows.values) == ["a", "b"] for batch in copied for rows in last.unpack(batch))
