"""Records per second in steady state: Checkdam's operators compared with Spark's, and a small epoch with a bare one."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.measuring import Measurements, Side
from benchmarks.report import Figure
from benchmarks.sizes import Sizes
from benchmarks.words import Input, uniform

PARQUET, NOOP = {"sink": "parquet"}, {"sink": "noop"}
CHECKPOINTS = {"checkpoints": "checkpoints"}

PROCESS = Side("KeyedProcessFunction", "checkdam", {"operator": "process", **PARQUET})
DURABLE = Side(
    "KeyedProcessFunction, a checkpoint after every epoch",
    "checkdam",
    {"operator": "process", **PARQUET, **CHECKPOINTS},
)
ROCKSDB = Side(
    "KeyedProcessFunction on rocksdb, a checkpoint after every epoch",
    "checkdam",
    {"operator": "process", "backend": "rocksdb", **PARQUET, **CHECKPOINTS},
)
SUM = Side("sum", "checkdam", {"operator": "sum", **PARQUET})
LIMIT = Side("the limit", "limit", PARQUET)
SQL = Side("SQL groupBy().count()", "sql_count", PARQUET)
TRANSFORM = Side("transformWithState", "transform_with_state", PARQUET)

CHANGELOG = Side("SQL groupBy().count() with changelog checkpoints", "sql_count", {**PARQUET, "changelog": True})
LIMIT_NOOP = Side("the limit, noop sink", "limit", NOOP)
PROCESS_NOOP = Side("KeyedProcessFunction, sink_to_spark and noop", "checkdam", {"operator": "process", **NOOP})
SUM_NOOP = Side("sum, sink_to_spark and noop", "checkdam", {"operator": "sum", **NOOP})

SMALL = Side("ten records, KeyedProcessFunction", "checkdam", {"operator": "process", **PARQUET})
SMALL_DURABLE = Side(
    "ten records, KeyedProcessFunction and a checkpoint", "checkdam", {"operator": "process", **PARQUET, **CHECKPOINTS}
)
SMALL_BARE = Side("ten records, bare foreachBatch + shuffle + mapInArrow", "limit", NOOP)
SMALL_BARE_PARQUET = Side("ten records, the bare one with the parquet sink", "limit", PARQUET)
SMALL_BARE_ONCE = Side(
    "ten records, the bare one planned once and collected", "limit", {"sink": "collect", "planned_once": True}
)

LARGE = {
    "transform-with-state": (DURABLE,),
    "sql": (DURABLE, SQL, PROCESS),
    "limit": (PROCESS, LIMIT, SUM, DURABLE),
    "checkpoints": (PROCESS, DURABLE),
}
"""The sides that each comparison needs with epochs of full size."""


class Throughput:
    """Compares sides; those with full-sized epochs are measured once, for all comparisons that need them."""

    def __init__(self, measurements: Measurements, sizes: Sizes) -> None:
        self._taken = measurements
        self._sizes = sizes

    def prepare(self, comparisons: Sequence[str]) -> None:
        """Measure what these comparisons share; must be called before any of them."""
        needed = {side.name: side for name in comparisons for side in LARGE.get(name, ())}
        if needed:
            self._measure_large(list(needed.values()))

    def transform_with_state(self) -> list[Figure]:
        """Compare value state; all sides make their state durable with every epoch."""
        slow = self._sizes.slow_epochs
        epochs = sum(records == self._sizes.records for records in slow)
        source = self._taken.input("slow", lambda path: uniform(path, slow, self._sizes.keys))
        self._taken.measure([TRANSFORM], source, first=len(slow) - epochs)
        self._measure_large([ROCKSDB], rounds=1)
        speed = self._taken.speed
        return [
            Figure("KeyedProcessFunction against transformWithState", speed(DURABLE, TRANSFORM), at_least=25),
            Figure("KeyedProcessFunction on rocksdb against transformWithState", speed(ROCKSDB, TRANSFORM), at_least=8),
            *map(self._taken.rate, (ROCKSDB, TRANSFORM)),
        ]

    def sql(self) -> list[Figure]:
        """Compare with SQL; both sides make their state durable with every epoch."""
        self._measure_large([CHANGELOG], rounds=1)
        speed = self._taken.speed
        return [
            Figure("KeyedProcessFunction against SQL groupBy().count()", speed(DURABLE, SQL), at_least=1.2),
            Figure("KeyedProcessFunction without checkpoints against SQL groupBy().count()", speed(PROCESS, SQL)),
            Figure(
                "KeyedProcessFunction against SQL groupBy().count() with changelog checkpoints",
                speed(DURABLE, CHANGELOG),
            ),
            *map(self._taken.rate, (DURABLE, SQL, CHANGELOG)),
        ]

    def limit(self) -> list[Figure]:
        self._measure_large([LIMIT_NOOP, PROCESS_NOOP, SUM_NOOP], rounds=1)
        speed = self._taken.speed
        return [
            Figure("KeyedProcessFunction against the limit", speed(PROCESS, LIMIT), at_least=0.5),
            Figure("sum against the limit", speed(SUM, LIMIT), at_least=0.8),
            Figure("KeyedProcessFunction with checkpoints against the limit", speed(DURABLE, LIMIT)),
            Figure("KeyedProcessFunction against the limit, noop sinks", speed(PROCESS_NOOP, LIMIT_NOOP)),
            Figure("sum against the limit, noop sinks", speed(SUM_NOOP, LIMIT_NOOP)),
            *map(self._taken.rate, (PROCESS, SUM, LIMIT, PROCESS_NOOP, SUM_NOOP, LIMIT_NOOP)),
        ]

    def checkpoints(self) -> list[Figure]:
        return [
            Figure(
                "throughput with a checkpoint after every epoch against none",
                self._taken.speed(DURABLE, PROCESS),
                at_least=0.9,
            )
        ]

    def ten_records(self) -> list[Figure]:
        sizes, first, median = self._sizes, self._sizes.small_first_epochs, self._taken.median
        self._taken.measure([SMALL, SMALL_BARE], self._small_input(), first=first, rounds=sizes.rounds)
        return [
            Figure("ten-record epoch against a bare one", median(SMALL) / median(SMALL_BARE), at_most=0.6),
            *(Figure(side.name, 1e3 * median(side), "ms") for side in (SMALL, SMALL_BARE)),
        ]

    def ten_records_otherwise(self) -> list[Figure]:
        """Measure small epochs with checkpoints, with another sink, and with a plan that Spark makes once."""
        first = self._sizes.small_first_epochs
        others = (SMALL_DURABLE, SMALL_BARE_PARQUET, SMALL_BARE_ONCE)
        self._taken.measure(others, self._small_input(), first=first)
        return [Figure(side.name, 1e3 * self._taken.median(side), "ms") for side in others]

    def _small_input(self) -> Input:
        sizes = self._sizes
        epochs = [sizes.small_records] * (sizes.small_first_epochs + sizes.small_epochs)
        return self._taken.input("small", lambda path: uniform(path, epochs, sizes.keys, files_per_epoch=1))

    def _measure_large(self, sides: Sequence[Side], rounds: int | None = None) -> None:
        sizes = self._sizes
        epochs = [sizes.records] * (sizes.first_epochs + sizes.epochs)
        source = self._taken.input("large", lambda path: uniform(path, epochs, sizes.keys))
        self._taken.measure(sides, source, first=sizes.first_epochs, rounds=rounds or sizes.rounds)
