"""Records a second in steady state: Checkdam's operators beside Spark's, and a small epoch beside a bare one."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.processes import SideFailedError, Sides
from benchmarks.report import Figure
from benchmarks.sizes import Sizes
from benchmarks.words import Input, uniform


@dataclass(frozen=True)
class Side:
    """One way to do the work, with one kind of sink."""

    name: str
    function: str
    arguments: dict[str, Any] = field(default_factory=dict, hash=False)


PARQUET, NOOP = {"sink": "parquet"}, {"sink": "noop"}
CHECKPOINTS = {"checkpoints": "checkpoints"}

PROCESS = Side("KeyedProcessFunction", "checkdam", {"operator": "process", **PARQUET})
DURABLE = Side(
    "KeyedProcessFunction, a checkpoint after every epoch",
    "checkdam",
    {"operator": "process", **PARQUET, **CHECKPOINTS},
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
"""Which sides each comparison needs with epochs of full size."""


class Throughput:
    """Compares sides; those of full-sized epochs are measured once, for all comparisons that need them."""

    def __init__(self, sides: Sides, sizes: Sizes, inputs: Path) -> None:
        self._sides = sides
        self._sizes = sizes
        self._directory = inputs
        self._inputs: dict[str, Input] = {}
        self._seconds: dict[str, list[float]] = {}  # of each epoch, by side
        self._failures: dict[str, SideFailedError] = {}  # told by the comparisons that need the side

    def prepare(self, comparisons: Sequence[str]) -> None:
        """Measure what these comparisons share; to be called before any of them."""
        needed = {side.name: side for name in comparisons for side in LARGE.get(name, ())}
        if needed:
            self._measure_large(list(needed.values()))

    # -- comparisons --------------------------------------------------------------------------------------------

    def transform_with_state(self) -> list[Figure]:
        """Both make their state durable with every epoch."""
        slow = self._sizes.slow_epochs
        epochs = sum(records == self._sizes.records for records in slow)
        source = self._input("slow", lambda path: uniform(path, slow, self._sizes.keys))
        self._measure([TRANSFORM], source, first=len(slow) - epochs, rounds=1)
        return [
            Figure("KeyedProcessFunction against transformWithState", self._speed(DURABLE, TRANSFORM), at_least=25),
            self._rate(TRANSFORM),
        ]

    def sql(self) -> list[Figure]:
        """Both make their state durable with every epoch."""
        self._measure_large([CHANGELOG], rounds=1)
        return [
            Figure("KeyedProcessFunction against SQL groupBy().count()", self._speed(DURABLE, SQL), at_least=1.2),
            Figure("KeyedProcessFunction without checkpoints against SQL groupBy().count()", self._speed(PROCESS, SQL)),
            Figure(
                "KeyedProcessFunction against SQL groupBy().count() with changelog checkpoints",
                self._speed(DURABLE, CHANGELOG),
            ),
            *map(self._rate, (DURABLE, SQL, CHANGELOG)),
        ]

    def limit(self) -> list[Figure]:
        self._measure_large([LIMIT_NOOP, PROCESS_NOOP, SUM_NOOP], rounds=1)
        return [
            Figure("KeyedProcessFunction against the limit", self._speed(PROCESS, LIMIT), at_least=0.5),
            Figure("sum against the limit", self._speed(SUM, LIMIT), at_least=0.8),
            Figure("KeyedProcessFunction with checkpoints against the limit", self._speed(DURABLE, LIMIT)),
            Figure("KeyedProcessFunction against the limit, noop sinks", self._speed(PROCESS_NOOP, LIMIT_NOOP)),
            Figure("sum against the limit, noop sinks", self._speed(SUM_NOOP, LIMIT_NOOP)),
            *map(self._rate, (PROCESS, SUM, LIMIT, PROCESS_NOOP, SUM_NOOP, LIMIT_NOOP)),
        ]

    def checkpoints(self) -> list[Figure]:
        return [
            Figure(
                "throughput with a checkpoint after every epoch against none",
                self._speed(DURABLE, PROCESS),
                at_least=0.8,
            )
        ]

    def ten_records(self) -> list[Figure]:
        sizes = self._sizes
        epochs = [sizes.small_records] * (sizes.small_first_epochs + sizes.small_epochs)
        source = self._input("small", lambda path: uniform(path, epochs, sizes.keys, files_per_epoch=1))
        self._measure([SMALL, SMALL_BARE], source, first=sizes.small_first_epochs, rounds=sizes.rounds)
        self._measure(
            [SMALL_DURABLE, SMALL_BARE_PARQUET, SMALL_BARE_ONCE], source, first=sizes.small_first_epochs, rounds=1
        )
        bare = self._median(SMALL_BARE)
        return [
            Figure("ten-record epoch against a bare one", self._median(SMALL) / bare, at_most=1.4),
            Figure(
                "ten-record epoch against a bare one planned once and collected",
                self._median(SMALL) / self._median(SMALL_BARE_ONCE),
            ),
            *(
                Figure(side.name, 1e3 * self._median(side), "ms")
                for side in (SMALL, SMALL_DURABLE, SMALL_BARE, SMALL_BARE_PARQUET, SMALL_BARE_ONCE)
            ),
        ]

    # -- measuring ----------------------------------------------------------------------------------------------

    def _measure_large(self, sides: Sequence[Side], rounds: int | None = None) -> None:
        sizes = self._sizes
        epochs = [sizes.records] * (sizes.first_epochs + sizes.epochs)
        source = self._input("large", lambda path: uniform(path, epochs, sizes.keys))
        self._measure(sides, source, first=sizes.first_epochs, rounds=rounds or sizes.rounds)

    def _measure(self, sides: Sequence[Side], source: Input, *, first: int, rounds: int) -> None:
        """Turn by turn, so that what disturbs the machine for a while disturbs every side."""
        for turn in range(1, rounds + 1):
            for side in sides:
                what = side.name if rounds == 1 else f"{side.name}, {turn} of {rounds}"
                try:
                    result = self._sides.run(
                        side.function, what, path=source.path, files_per_epoch=source.files_per_epoch, **side.arguments
                    )
                    seconds = steady_seconds(result["epochs"], source, first)
                except SideFailedError as failure:
                    self._failures[side.name] = failure
                else:
                    self._seconds.setdefault(side.name, []).extend(seconds)

    def _input(self, name: str, make: Any) -> Input:
        if name not in self._inputs:
            self._inputs[name] = make(self._directory / name)
        return self._inputs[name]

    def _median(self, side: Side) -> float:
        if side.name in self._failures:
            raise self._failures[side.name]
        return statistics.median(self._seconds[side.name])

    def _speed(self, ours: Side, theirs: Side) -> float:
        """How many times as fast: the epochs of both have the same size."""
        return self._median(theirs) / self._median(ours)

    def _rate(self, side: Side) -> Figure:
        return Figure(side.name, self._sizes.records / self._median(side), "records/s")


def steady_seconds(epochs: Sequence[dict[str, float]], source: Input, first: int) -> list[float]:
    """From the end of one epoch to the end of the next, without the first ones.

    Raises:
        SideFailedError: the side has not seen the records that the input holds.
    """
    seen = tuple(int(epoch["records"]) for epoch in epochs)
    if seen != source.epochs:
        raise SideFailedError(f"epochs of {seen} records, not {source.epochs}")
    ends = [epoch["ended_at"] for epoch in epochs]
    return [after - before for before, after in pairwise(ends)][first - 1 :]
