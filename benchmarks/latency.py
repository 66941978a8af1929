"""Everyday latency: from a record's arrival at a socket to its visible output, at a light load."""

from __future__ import annotations

import statistics

from benchmarks.processes import Sides
from benchmarks.report import Figure
from benchmarks.sizes import Sizes

SINKS = {
    "print": "print",
    "spark": "sink_to_spark",
    "files": "files, with a checkpoint after every epoch",
}


class Latency:
    """Sends a few records a second to a small job, once for each kind of sink."""

    def __init__(self, sides: Sides, sizes: Sizes) -> None:
        self._sides = sides
        self._sizes = sizes

    def latency(self) -> list[Figure]:
        figures = []
        for sink, name in SINKS.items():
            seconds = sorted(self._measured(sink, name))
            figures += [
                Figure(f"from record to {name}: median", 1e3 * statistics.median(seconds), "ms"),
                Figure(f"from record to {name}: 99th percentile", 1e3 * seconds[int(0.99 * len(seconds))], "ms"),
            ]
        return figures

    def _measured(self, sink: str, name: str) -> list[float]:
        sizes = self._sizes
        measured: list[float] = self._sides.run(
            "latency",
            f"latency to {name}",
            sink=sink,
            records=sizes.latency_first_records + sizes.latency_records,
            first=sizes.latency_first_records,
            seconds_between=sizes.latency_seconds_between,
        )
        return measured
