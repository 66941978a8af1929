"""Every kind of state on every backend: maps compared with `transformWithState`, and each kind without Spark.

Values are compared with `transformWithState` in `throughput`, since both have epochs of full size.
"""

from __future__ import annotations

import statistics

from benchmarks.measuring import Measurements, Side
from benchmarks.processes import Sides
from benchmarks.report import Figure
from benchmarks.sizes import Sizes
from benchmarks.throughput import CHECKPOINTS, PARQUET
from benchmarks.words import pairs, uniform

_JOB = {"operator": "map", **PARQUET, **CHECKPOINTS}
MAP = Side("MapState on hashmap, one entry read and written a record", "checkdam", _JOB)
MAP_ROCKSDB = Side(
    "MapState on rocksdb, one entry read and written a record", "checkdam", {**_JOB, "backend": "rocksdb"}
)
TRANSFORM_MAP = Side(
    "transformWithState, getValue and updateValue of a MapState", "transform_with_state", {"kind": "map", **PARQUET}
)
TRANSFORM_LIST = Side(
    "transformWithState, appendValue of a ListState", "transform_with_state", {"kind": "list", **PARQUET}
)

BACKENDS = ("hashmap", "rocksdb")
ALONE = {
    "value": "value state read and updated",
    "list": "list state appended to",
    "reducing": "reducing state added to",
    "aggregating": "aggregating state added to",
    "map": "map state, one entry read and written",
    "timers": "timers registered and fired",
}
"""The operation on each kind for every record, in its own process."""


class Kinds:
    def __init__(self, measurements: Measurements, sides: Sides, sizes: Sizes) -> None:
        self._taken = measurements
        self._sides = sides
        self._sizes = sizes
        self._alone: dict[str, dict[str, float]] = {}  # records a second by backend and kind
        self._is_peer_measured = False

    def maps(self) -> list[Figure]:
        """Compare maps; all sides make their state durable with every epoch."""
        self._measure_maps(MAP)
        return [
            Figure(f"MapState on hashmap, {self._what}", self._taken.speed(MAP, TRANSFORM_MAP), at_least=40),
            *map(self._taken.rate, (MAP, TRANSFORM_MAP)),
        ]

    def maps_on_rocksdb(self) -> list[Figure]:
        """Compare with the same peer."""
        self._measure_maps(MAP_ROCKSDB)
        return [
            Figure(f"MapState on rocksdb, {self._what}", self._taken.speed(MAP_ROCKSDB, TRANSFORM_MAP), at_least=8),
            self._taken.rate(MAP_ROCKSDB),
        ]

    def timers(self) -> list[Figure]:
        """Compare timers with value state, in one process."""
        rates = self._rates("hashmap")
        return [
            Figure(
                f"{ALONE['timers']}, against {ALONE['value']}, one process without Spark",
                rates["timers"] / rates["value"],
                at_least=0.3,
            ),
            *self._alone_on("hashmap"),
        ]

    def alone(self) -> list[Figure]:
        """Measure each kind in one process, and the lists of `transformWithState`, on Spark, for comparison."""
        slow = self._taken.input(
            "slow-kinds", lambda path: uniform(path, self._sizes.slow_kind_epochs, self._sizes.keys)
        )
        self._taken.measure([TRANSFORM_LIST], slow, first=len(self._sizes.slow_kind_epochs) - 1)
        return [*self._alone_on("rocksdb"), self._taken.rate(TRANSFORM_LIST)]

    def _alone_on(self, backend: str) -> list[Figure]:
        return [
            Figure(f"{ALONE[kind]}, on {backend}: one process without Spark", rate, "records/s")
            for kind, rate in self._rates(backend).items()
        ]

    def _rates(self, backend: str) -> dict[str, float]:
        """Return the records a second of each kind, in one process."""
        sizes = self._sizes
        if backend not in self._alone:
            seconds = self._sides.run(
                "kinds",
                f"every kind of state on {backend}, without Spark",
                backend=backend,
                keys=sizes.keys,
                maps=sizes.maps,
                entries=sizes.entries,
                records=sizes.kind_records,
                epochs=sizes.alone_epochs,
            )
            self._alone[backend] = {kind: sizes.kind_records / statistics.median(seconds[kind]) for kind in ALONE}
        return self._alone[backend]

    def _measure_maps(self, side: Side) -> None:
        """Measure a side, and the peer once for all."""
        epochs = [self._sizes.kind_records] * (self._sizes.first_epochs + self._sizes.epochs)
        source = self._taken.input("pairs", lambda path: pairs(path, epochs, *self._shape))
        self._taken.measure([side], source, first=self._sizes.first_epochs)
        if not self._is_peer_measured:
            self._is_peer_measured = True
            few = self._sizes.slow_kind_epochs
            slow = self._taken.input("slow-pairs", lambda path: pairs(path, few, *self._shape))
            self._taken.measure([TRANSFORM_MAP], slow, first=len(few) - 1)

    @property
    def _what(self) -> str:
        return f"{self._sizes.entries} entries a key, against transformWithState"

    @property
    def _shape(self) -> tuple[int, int]:
        return self._sizes.maps, self._sizes.entries
