"""The cost of state queries for a job at full load, and the latency of the queries."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measuring import steady_seconds
from benchmarks.processes import Sides
from benchmarks.report import Figure
from benchmarks.sizes import Sizes
from benchmarks.words import Input, uniform


@dataclass(frozen=True)
class Asking:
    """One query load: queries per second and keys per query, sent by one process to the slots, or over HTTP."""

    name: str
    rate: float
    batch: int
    asks_slots: bool = True


NO_QUESTIONS = Asking("no questions", 0, 1)
SINGLE = Asking("1 000 single keys a second", 1000, 1)
BATCH = Asking("1 000 keys a second in batches of 100", 10, 100)
SINGLE_OVER_HTTP = Asking("1 000 single keys a second over HTTP", 1000, 1, asks_slots=False)


@dataclass
class _Taken:
    seconds: list[float] = field(default_factory=list)  # of each epoch
    latencies: list[float] = field(default_factory=list)  # of each query
    keys: int = 0  # answered in total
    asked_seconds: float = 0.0
    used: dict[str, float] = field(default_factory=dict)  # processor seconds, by process

    @property
    def answered(self) -> float:
        return self.keys / max(self.asked_seconds, 1e-9)


class Queries:
    """Measures the query loads in turns, like comparisons of throughput."""

    def __init__(self, sides: Sides, sizes: Sizes, inputs: Path) -> None:
        self._sides = sides
        self._sizes = sizes
        self._inputs = inputs
        self._source: Input | None = None

    def queries(self) -> list[Figure]:
        asked, bare = self._compare(SINGLE)
        latency = "99th percentile of a single key's answer at full load"
        return [Figure(latency, 1e3 * _p99(asked[SINGLE]), "ms", at_most=25), *_figures(asked, bare)]

    def queries_otherwise(self) -> list[Figure]:
        """Ask for many keys at once, and over HTTP."""
        asked, bare = self._compare(BATCH, SINGLE_OVER_HTTP)
        return [
            Figure("99th percentile of the answer to a batch at full load", 1e3 * _p99(asked[BATCH]), "ms"),
            Figure("99th percentile of a single key's answer over HTTP", 1e3 * _p99(asked[SINGLE_OVER_HTTP]), "ms"),
            *_figures(asked, bare),
        ]

    def _compare(self, *askings: Asking) -> tuple[dict[Asking, _Taken], _Taken]:
        """Measure query loads, and no queries, in turns."""
        sizes = self._sizes
        epochs = [sizes.records] * (sizes.first_epochs + sizes.epochs)
        if self._source is None:
            self._source = uniform(self._inputs / "queried", epochs, sizes.keys)
        taken = {asking: _Taken() for asking in (NO_QUESTIONS, *askings)}
        for turn in range(1, sizes.rounds + 1):
            for asking, each in taken.items():
                self._measure(asking, each, self._source, f"{asking.name}, {turn} of {sizes.rounds}")
        return {asking: taken[asking] for asking in askings}, taken[NO_QUESTIONS]

    def _measure(self, asking: Asking, taken: _Taken, source: Input, what: str) -> None:
        result = self._sides.run(
            "queried",
            what,
            path=source.path,
            files_per_epoch=source.files_per_epoch,
            keys=self._sizes.keys,
            rate=asking.rate,
            batch=asking.batch,
            asks_slots=asking.asks_slots,
            first=self._sizes.first_epochs,
            last=len(source.epochs),
            backend="hashmap",
        )
        taken.seconds += steady_seconds(result["epochs"], source, self._sizes.first_epochs)
        asked = result["asked"]
        for where, seconds in {**result["used"], "the client": asked.get("cpu", 0.0)}.items():
            taken.used[where] = taken.used.get(where, 0.0) + seconds
        if asked:
            taken.latencies += [*asked["latencies"], *[float("inf")] * asked["failures"]]
            taken.keys += len(asked["latencies"]) * asking.batch
            taken.asked_seconds += asked["seconds"]


def _figures(asked: Mapping[Asking, _Taken], bare: _Taken) -> list[Figure]:
    seconds = statistics.median(bare.seconds)
    return [
        *(
            Figure(
                f"throughput while {asking.name} are asked for, against none",
                seconds / statistics.median(each.seconds),
                at_least=0.95 if asking.asks_slots else None,
            )
            for asking, each in asked.items()
        ),
        *(
            Figure(
                f"{asking.name}: answered",
                each.answered,
                "keys/s",
                at_least=0.98 * asking.rate * asking.batch if asking.asks_slots else None,
            )
            for asking, each in asked.items()
        ),
        *(
            Figure(f"{asking.name}: processor time a key in {where}", 1e6 * cost, "µs")
            for asking, each in asked.items()
            for where, cost in _costs(each, bare).items()
        ),
    ]


def _p99(taken: _Taken) -> float:
    return sorted(taken.latencies)[int(len(taken.latencies) * 0.99)] if taken.latencies else float("inf")


def _costs(taken: _Taken, bare: _Taken) -> dict[str, float]:
    """Return the processor seconds per key, beyond the cost of the same records without queries."""
    return {
        where: max(0.0, seconds - bare.used.get(where, 0.0)) / max(1, taken.keys)
        for where, seconds in taken.used.items()
    }
