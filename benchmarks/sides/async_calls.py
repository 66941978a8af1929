"""`map_async` in one process, without Spark: records come and go as Arrow columns, as in a slot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa

from benchmarks.sides.stores import as_in_a_slot
from checkdam.graph.operators import AsyncMapKind, Operator
from checkdam.runtime.slot.async_functions import AsyncProcess
from checkdam.types.batch import Batch
from checkdam.types.type_info import type_info

_NUMBER = type_info(int)
_ROWS = 10_000  # of a batch, as Spark sends them


def run(*, capacity: int, latency: float, calls: int, epochs: int) -> dict[str, dict[str, list[float]]]:
    """Return the seconds and the processor seconds of each epoch but the first, for each way to call."""
    as_in_a_slot()

    async def call(value: int) -> int:
        await asyncio.sleep(latency)
        return value

    return {
        "ordered": _measured(call, calls, epochs, capacity=capacity),
        "unordered": _measured(call, calls, epochs, capacity=capacity, is_ordered=False),
        "timeout": _measured(call, calls, epochs, capacity=capacity, timeout=timedelta(minutes=1)),
    }


def _measured(call: Callable[[int], Awaitable[int]], calls: int, epochs: int, **options: Any) -> dict[str, list[float]]:
    process = AsyncProcess(Operator(1, "calls", AsyncMapKind(call, **options), (0,), _NUMBER))
    seconds, processor = [], []
    for _ in range(epochs):
        began, computed = time.perf_counter(), time.process_time()
        _epoch(process, calls)
        seconds.append(time.perf_counter() - began)
        processor.append(time.process_time() - computed)
    process.close()
    return {"seconds": seconds[1:], "processor": processor[1:]}


def _epoch(process: AsyncProcess, calls: int) -> None:
    results = 0
    for start in range(0, calls, _ROWS):
        column = pa.array(range(start, min(start + _ROWS, calls)), pa.int64())
        columns = pa.RecordBatch.from_arrays([column], schema=_NUMBER.arrow_schema)
        results += _sent(process(Batch(_NUMBER, columns=columns), None))
    results += _sent(process.flush())
    assert results == calls


def _sent(batch: Batch | None) -> int:
    return 0 if batch is None else int(batch.columns.num_rows)
