"""Running counts with epochs of several sizes, beside Flink in Java, PyFlink, and what Spark's transport can carry.

All sides count the same words and discard the counts. One run of a side has epochs of all sizes, the largest first.
Those before them, which are left out, are many small ones and some as large.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from benchmarks.measuring import Measurements, Side, in_words
from benchmarks.report import Figure
from benchmarks.sides.flink import PYFLINK
from benchmarks.sizes import Sizes
from benchmarks.words import uniform

_DISCARD: dict[str, Any] = {"sink": "discard"}
_EVERY_SECOND: dict[str, Any] = {"backend": "rocksdb", "checkpoint_seconds": 1}

PROCESS = Side("KeyedProcessFunction", "checkdam", {"operator": "process", **_DISCARD})
BATCH = Side("process_batch", "checkdam", {"operator": "process_batch", **_DISCARD})
SUM = Side("sum", "checkdam", {"operator": "sum", **_DISCARD})
TRANSPORT = Side(
    "transport limit: read, shuffle, Python that drops everything",
    "limit",
    {"sink": "collect", "drops": True, "planned_once": True},
)
"""As fast as Spark does it: planned once, and with nothing but the words in the shuffle."""
FLINK = Side("Flink Java's KeyedProcessFunction, heap", "flink_java", {"operator": "process", "backend": "hashmap"})
FLINK_SUM = Side("Flink Java's sum, heap", "flink_java", {"operator": "sum", "backend": "hashmap"})
DURABLE = Side(
    "KeyedProcessFunction on rocksdb, a checkpoint every second",
    "checkdam",
    {"operator": "process", "checkpoints": "checkpoints", **_EVERY_SECOND, **_DISCARD},
)
FLINK_DURABLE = Side(
    "Flink Java's KeyedProcessFunction, RocksDB, a checkpoint every second",
    "flink_java",
    {"operator": "process", **_EVERY_SECOND},
)
PYFLINK_COUNT = Side(
    "PyFlink's KeyedProcessFunction, thread mode, heap", "pyflink_count", {"settings": PYFLINK, "backend": "hashmap"}
)

_BY_SIZE = (PROCESS, BATCH, SUM, TRANSPORT)
"""The sides whose epochs have a fixed cost."""


class Counting:
    def __init__(self, measurements: Measurements, sizes: Sizes) -> None:
        self._taken = measurements
        self._sizes = sizes

    def counts(self) -> list[Figure]:
        """Compare counts by epoch size, and with Flink in Java."""
        self._measure()
        largest, speed = self._largest, self._taken.speed
        return [
            Figure("KeyedProcessFunction against Flink Java heap", speed(PROCESS, FLINK, largest), at_least=0.5),
            *(
                Figure(f"{side.name} against Flink Java heap", speed(side, FLINK_SUM, largest), at_least=0.8)
                for side in (SUM, BATCH)
            ),
            *(
                Figure(
                    f"{side.name} against the transport limit, {in_words(largest)} an epoch",
                    speed(side, TRANSPORT, largest),
                    at_least=0.7,
                )
                for side in (SUM, BATCH)
            ),
            Figure(
                f"KeyedProcessFunction, {in_words(self._sizes.records)} an epoch against {in_words(largest)}",
                self._taken.records_a_second(PROCESS, self._sizes.records)
                / self._taken.records_a_second(PROCESS, largest),
                at_least=0.8,
            ),
            *(
                self._taken.rate(side, records)
                for side in _BY_SIZE
                for records in sorted(self._sizes.counted_epochs, reverse=True)
            ),
            *(self._taken.rate(side, largest) for side in (FLINK, FLINK_SUM)),
            *chain.from_iterable(map(self._parts, _BY_SIZE)),
        ]

    def durable(self) -> list[Figure]:
        """Compare with Flink in Java, both with state on RocksDB and a checkpoint every second.

        Checkpoints fall between epochs, so epochs take about as long as the interval.
        """
        sizes = self._sizes
        epochs = [sizes.durable_records] * (sizes.first_epochs + sizes.epochs)
        source = self._taken.input("durable", lambda path: uniform(path, epochs, sizes.keys))
        self._taken.measure([DURABLE, FLINK_DURABLE], source, first=sizes.first_epochs)
        return [
            Figure(
                "KeyedProcessFunction on rocksdb, a checkpoint every second, against Flink Java RocksDB",
                self._taken.speed(DURABLE, FLINK_DURABLE),
                at_least=1.5,
            ),
            *map(self._taken.rate, (DURABLE, FLINK_DURABLE)),
            self._taken.checkpoints(DURABLE),
        ]

    def pyflink(self) -> list[Figure]:
        """Measure PyFlink, which not every machine can run, with fewer records: it is slow."""
        epochs = self._sizes.pyflink_counted
        source = self._taken.input("pyflink-words", lambda path: uniform(path, epochs, self._sizes.keys))
        self._taken.measure([PYFLINK_COUNT], source, first=1)
        return [self._taken.rate(PYFLINK_COUNT)]

    @property
    def _largest(self) -> int:
        return max(self._sizes.counted_epochs)

    def _measure(self) -> None:
        sizes = self._sizes
        by_size = sorted(sizes.counted_epochs.items(), reverse=True)
        first = [*sizes.short_first_epochs, *[self._largest] * sizes.long_first_epochs]
        epochs = [*first, *chain.from_iterable([records] * count for records, count in by_size)]
        source = self._taken.input("counted", lambda path: uniform(path, epochs, sizes.keys))
        sides = [PROCESS, FLINK, BATCH, SUM, FLINK_SUM, TRANSPORT]
        self._taken.measure(sides, source, first=len(first))

    def _parts(self, side: Side) -> list[Figure]:
        """Return the fixed cost of an epoch and the time of a record: a line through the smallest and largest epoch."""
        small, large = min(self._sizes.counted_epochs), self._largest
        at_small, at_large = self._taken.median(side, small), self._taken.median(side, large)
        each = (at_large - at_small) / (large - small)
        return [
            Figure(f"{side.name}: fixed cost of an epoch", 1e3 * (at_small - each * small), "ms"),
            Figure(f"{side.name}: each record, both cores", 1e6 * each, "µs"),
        ]
