"""Sliding windows in one process, without Spark: the cost of the windows themselves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import numpy as np

from benchmarks.sides.stores import BACKENDS, Subtask, as_in_a_slot
from benchmarks.words import SEED, word
from checkdam.graph.operators import KeySelector, Operator, WindowKind
from checkdam.graph.windowing.assigners import SlidingEventTimeWindows
from checkdam.graph.windowing.triggers import EventTimeTrigger
from checkdam.graph.windowing.window_contents import FieldAggregated, Reduced, WindowCalls
from checkdam.ids import OperatorUid
from checkdam.runtime.slot.context import OperatorTime
from checkdam.runtime.slot.process import Process
from checkdam.runtime.slot.side_outputs import SideOutputs
from checkdam.runtime.slot.windows.window_aggregation import window_process
from checkdam.runtime.slot.windows.window_process import WindowProcess
from checkdam.types.batch import Batch
from checkdam.types.type_info import type_info

_RECORD, _KEY = type_info(tuple[str, int]), type_info(str)
_ROWS = 10_000  # of a batch, as Spark sends them
_UID = OperatorUid("sums")

BY_RECORD_PART = 10
"""The slowest way gets one part of so many of the records."""


def run(*, size: int, slide: int, keys: int, records: int, epochs: int, seconds: int) -> dict[str, list[float]]:
    """Return the seconds of each epoch but the first, for each way. They include the checkpoint after each epoch."""
    as_in_a_slot()
    total = FieldAggregated(_RECORD, "sum", 1)
    each = Reduced(_RECORD, lambda one, other: (one[0], one[1] + other[1]))
    taken, results = {}, {}
    for way, contents, part in (("sum", total, 1), ("reduce", each, 1), ("by_record", each, BY_RECORD_PART)):
        kind = WindowKind(
            SlidingEventTimeWindows(timedelta(seconds=size), timedelta(seconds=slide)),
            EventTimeTrigger(),
            contents,
            WindowCalls(),
        )
        of = records // part
        taken[way], results[way] = _measured(way, kind, keys, of, epochs, seconds, is_by_record=way == "by_record")
    assert results["sum"] == results["reduce"], "the ways differ in their results"
    return taken


def _measured(
    way: str, kind: WindowKind, keys: int, records: int, epochs: int, seconds: int, *, is_by_record: bool
) -> tuple[list[float], tuple[int, int]]:
    """Return the seconds of the epochs, and number and sum of all results."""
    subtask, at = Subtask(BACKENDS["hashmap"], f"state-{way}"), OperatorTime()
    operator = Operator(1, "sums", kind, (0,), _RECORD, _UID, 1, key=KeySelector(_KEY, None))
    make = WindowProcess if is_by_record else window_process
    process: Process = make(operator, subtask.store, at, subtask.states, outputs=SideOutputs({}), is_stamped=True)
    taken, emitted, total = [], 0, 0
    for epoch in range(epochs):
        batches = list(_batches(epoch, keys, records, seconds))
        began = time.perf_counter()
        for own_keys, rows in batches:
            process(rows, own_keys)
        process.flush()
        results = process.advance((epoch + 1) * seconds * 1000 - 1)
        subtask.store.end_epoch()
        subtask.checkpoint()
        taken.append(time.perf_counter() - began)
        if results is not None:
            emitted, total = emitted + len(results.rows), total + sum(row[1] for row in results.rows)
    subtask.store.close()
    return taken[1:], (emitted, total)


def _batches(epoch: int, keys: int, records: int, seconds: int) -> Iterator[tuple[Batch, Batch]]:
    rng = np.random.default_rng((SEED, epoch))
    for start in range(0, records, _ROWS):
        number = min(_ROWS, records - start)
        words = [word(key) for key in rng.integers(0, keys, number).tolist()]
        times = rng.integers(epoch * seconds * 1000, (epoch + 1) * seconds * 1000, number).tolist()
        rows = list(zip(words, rng.integers(0, 100, number).tolist(), strict=True))
        yield Batch(_KEY, rows=words), Batch(_RECORD, rows=rows, timestamps=times)
