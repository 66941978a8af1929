"""map_async with calls that complete in any order: nothing is lost, repeated or, if ordered, out of place."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.support.virtual_time import VirtualTimeLoop

from checkdam.graph.operators import AsyncMapKind, Operator
from checkdam.runtime.slot.async_functions import AsyncProcess
from checkdam.types.batch import Batch
from checkdam.types.type_info import type_info

PAIR = type_info(tuple[int, int])

batches = st.lists(st.integers(0, 9), max_size=12)  # the duration of each call
epochs = st.lists(st.lists(batches, max_size=3), min_size=1, max_size=3)


async def wait(value: tuple[int, int]) -> tuple[int, int]:
    if value[1]:
        await asyncio.sleep(value[1])
    return value


async def wait_for_all(values: list[tuple[int, int]]) -> list[tuple[int, int]]:
    await asyncio.sleep(max(duration for _, duration in values))
    return values


@given(epochs, st.integers(1, 5), st.booleans(), st.none() | st.integers(1, 4))
def test_every_record_has_its_result_and_timestamp_in_its_own_epoch(
    durations: list[list[list[int]]], capacity: int, is_ordered: bool, batch_size: int | None
) -> None:
    function = wait if batch_size is None else wait_for_all
    kind = AsyncMapKind(function, capacity, is_ordered=is_ordered, batch_size=batch_size)
    process = AsyncProcess(Operator(1, "it", kind, (0,), PAIR), make_loop=VirtualTimeLoop)
    number = 0
    try:
        for epoch in durations:
            sent: list[tuple[Any, int]] = []
            came: list[tuple[Any, int]] = []
            for batch in epoch:
                rows = [(number + at, duration) for at, duration in enumerate(batch)]
                number += len(batch)
                sent += [(row, row[0]) for row in rows]
                came += stamped(process(Batch(PAIR, rows=rows, timestamps=[row[0] for row in rows]), None))
            came += stamped(process.flush())

            if is_ordered:
                assert came == sent
            else:
                assert Counter(came) == Counter(sent)
    finally:
        process.close()


@given(st.lists(st.integers(0, 9), max_size=12))
def test_unordered_results_come_in_the_order_of_completion(durations: list[int]) -> None:
    kind = AsyncMapKind(wait, len(durations) + 1, is_ordered=False)
    process = AsyncProcess(Operator(1, "it", kind, (0,), PAIR), make_loop=VirtualTimeLoop)
    try:
        out = process(Batch(PAIR, rows=list(enumerate(durations))), None), process.flush()
    finally:
        process.close()

    rows = [row for batch in out if batch is not None for row in batch.rows]
    assert [duration for _, duration in rows] == sorted(durations)


def stamped(batch: Batch | None) -> list[tuple[Any, Any]]:
    return [] if batch is None else list(zip(batch.rows, batch.timestamps or (), strict=True))
