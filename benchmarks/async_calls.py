"""Asynchronous calls in one subtask: how close `map_async` comes to what capacity and latency allow."""

from __future__ import annotations

import statistics

from benchmarks.processes import Sides
from benchmarks.report import Figure
from benchmarks.sizes import Sizes

CAPACITY = 1_000
LATENCY_SECONDS = 0.01
IDEAL = CAPACITY / LATENCY_SECONDS
WAYS = {"ordered": "in order", "unordered": "as they complete", "timeout": "in order, with a timeout"}


class AsyncCalls:
    def __init__(self, sides: Sides, sizes: Sizes) -> None:
        self._sides = sides
        self._sizes = sizes

    def calls(self) -> list[Figure]:
        """Compare the calls a second with the ideal of capacity / latency."""
        measured = self._sides.run(
            "async_calls",
            f"map_async with calls of {LATENCY_SECONDS * 1000:g} ms, capacity {CAPACITY}",
            capacity=CAPACITY,
            latency=LATENCY_SECONDS,
            calls=self._sizes.async_calls,
            epochs=self._sizes.async_epochs,
        )
        speeds = {way: self._sizes.async_calls / statistics.median(measured[way]["seconds"]) for way in WAYS}
        what = f"map_async, calls of {LATENCY_SECONDS * 1000:g} ms, capacity {CAPACITY}"
        figures = [Figure(f"{what}, against capacity / latency", speeds["ordered"] / IDEAL, at_least=0.8)]
        figures += [Figure(f"{what}: {told}", speeds[way], "calls/s") for way, told in WAYS.items()]
        processor = statistics.median(measured["ordered"]["processor"]) / self._sizes.async_calls
        return [*figures, Figure(f"{what}: processor time of a call, with its asyncio.sleep", processor * 1e6, "µs")]
