"""Running counts against Flink in Java, on the same words, with sinks that discard."""

from __future__ import annotations

from typing import Any

from benchmarks.measuring import Measurements, Side
from benchmarks.report import Figure
from benchmarks.sizes import Sizes
from benchmarks.words import uniform

_DISCARD: dict[str, Any] = {"sink": "discard"}
_EVERY_SECOND: dict[str, Any] = {"backend": "rocksdb", "checkpoint_seconds": 1}

PROCESS = Side("KeyedProcessFunction, discarding sink", "checkdam", {"operator": "process", **_DISCARD})
SUM = Side("sum, discarding sink", "checkdam", {"operator": "sum", **_DISCARD})
DURABLE = Side(
    "KeyedProcessFunction on rocksdb, a checkpoint every second, discarding sink",
    "checkdam",
    {"operator": "process", "checkpoints": "checkpoints", **_EVERY_SECOND, **_DISCARD},
)
FLINK = Side("Flink Java's KeyedProcessFunction, heap", "flink_java", {"operator": "process", "backend": "hashmap"})
FLINK_SUM = Side("Flink Java's sum, heap", "flink_java", {"operator": "sum", "backend": "hashmap"})
FLINK_DURABLE = Side(
    "Flink Java's KeyedProcessFunction, RocksDB, a checkpoint every second",
    "flink_java",
    {"operator": "process", **_EVERY_SECOND},
)


class FlinkJava:
    """All sides count the same records. Epochs of Checkdam take a second and more."""

    def __init__(self, measurements: Measurements, sizes: Sizes) -> None:
        self._taken = measurements
        self._sizes = sizes

    def counts(self) -> list[Figure]:
        sizes, speed = self._sizes, self._taken.speed
        epochs = [sizes.long_records] * (sizes.long_first_epochs + sizes.long_epochs)
        source = self._taken.input("long", lambda path: uniform(path, epochs, sizes.keys))
        sides = [PROCESS, FLINK, SUM, FLINK_SUM, DURABLE, FLINK_DURABLE]
        self._taken.measure(sides, source, first=sizes.long_first_epochs)
        return [
            Figure("KeyedProcessFunction against Flink Java heap", speed(PROCESS, FLINK), at_least=0.5),
            Figure(
                "the same with a checkpoint every second, RocksDB, against Flink Java RocksDB",
                speed(DURABLE, FLINK_DURABLE),
                at_least=1.5,
            ),
            Figure("sum against Flink Java heap", speed(SUM, FLINK_SUM), at_least=0.8),
            *map(self._taken.rate, sides),
        ]
