"""process_batch() against process(): the same records, the same output and state, through snapshots and rescaling."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkdam import (
    BatchContext,
    KeyedBatch,
    KeyedBatchFunction,
    KeyedProcessFunction,
    ProcessContext,
    RuntimeContext,
    ValueState,
    ValueStateDescriptor,
)
from checkdam.testing import FunctionHarness

Record = tuple[str, int]


class Totals(KeyedProcessFunction[str, Record, Record]):
    """Sums up record by record."""

    total: ValueState[int | None]

    def open(self, ctx: RuntimeContext) -> None:
        self.total = ctx.get_state(ValueStateDescriptor("total", int))

    def process_element(self, value: Record, ctx: ProcessContext[str]) -> Iterator[Record]:
        total = (self.total.value() or 0) + value[1]
        self.total.update(total)
        yield value[0], total


class BatchTotals(KeyedBatchFunction[Record]):
    """The same on columns. The state is declared in `open`, so that it can be read before the first batch."""

    def open(self, ctx: RuntimeContext) -> None:
        ctx.get_state(ValueStateDescriptor("total", int))

    def process_batch(self, batch: KeyedBatch, ctx: BatchContext) -> object:
        total = ctx.get_column_state("total", int)
        running = batch.running_sum(batch.column("f1"), before=total.values)
        total.write(batch.last(running))
        return batch.records.column("f0"), running


KEYS = st.sampled_from(["a", "b", "", "ab", "abcdefgh", "abcdefghi", "äöü", "x" * 40, "\0", "\0\0"])
RECORDS = st.lists(st.tuples(KEYS, st.integers(-(2**40), 2**40)), max_size=20)
STEP = st.sampled_from(["process", "process_batch"])


def harness(kind: str, backend: str, parallelism: int, restore: Any) -> FunctionHarness:
    return FunctionHarness(
        Totals() if kind == "process" else BatchTotals(),
        record_type=Record,
        key=lambda record: record[0],
        parallelism=parallelism,
        max_parallelism=8,
        backend=backend,
        restore=restore,
    )


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(STEP, st.sampled_from(["hashmap", "rocksdb"]), st.integers(1, 3), RECORDS), max_size=4))
def test_a_job_changes_between_process_and_process_batch_and_keeps_its_state(
    attempts: list[tuple[str, str, int, list[Record]]],
) -> None:
    snapshot: Any = None
    totals: dict[str, int] = defaultdict(int)
    for kind, backend, parallelism, records in attempts:
        with harness(kind, backend, parallelism, snapshot) as running:
            half = len(records) // 2
            produced = running.send(*records[:half]) + running.send(*records[half:])
            expected = []
            for key, amount in records:
                totals[key] += amount
                expected.append((key, totals[key]))
            for key in totals:
                of_key = [record for record in produced if record[0] == key]
                assert of_key == [record for record in expected if record[0] == key]
            assert running.states("total") == totals
            assert running.state("total", "a") == totals.get("a")
            snapshot = running.snapshot()
            if totals:  # a store that holds nothing writes no file
                assert dict(snapshot.savepoint().keyed_state("function", "total")) == totals


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_state_restored_by_process_batch_is_read_before_the_first_batch(backend: str) -> None:
    with harness("process", backend, 1, None) as first:
        first.send(("a", 1), ("b", 2))
        snapshot = first.snapshot()

    with harness("process_batch", backend, 1, snapshot) as second:
        produced = second.send(("a", 10))
        later = second.snapshot()

    assert produced == [("a", 11)]
    assert dict(later.savepoint().keyed_state("function", "total")) == {"a": 11, "b": 2}
