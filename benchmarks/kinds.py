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

    def maps(self) -> list[Figure]:
        """Compare maps; all sides make their state durable with every epoch."""
        sizes = self._sizes
        epochs = [sizes.kind_records] * (sizes.first_epochs + sizes.epochs)
        source = self._taken.input("pairs", lambda path: pairs(path, epochs, *self._shape))
        slow = self._taken.input("slow-pairs", lambda path: pairs(path, sizes.slow_kind_epochs, *self._shape))
        self._taken.measure([MAP, MAP_ROCKSDB], source, first=sizes.first_epochs)
        self._taken.measure([TRANSFORM_MAP], slow, first=len(sizes.slow_kind_epochs) - 1)
        speed, what = self._taken.speed, f"{sizes.entries} entries a key, against transformWithState"
        return [
            Figure(f"MapState on hashmap, {what}", speed(MAP, TRANSFORM_MAP), at_least=25),
            Figure(f"MapState on rocksdb, {what}", speed(MAP_ROCKSDB, TRANSFORM_MAP), at_least=8),
            *map(self._taken.rate, (MAP, MAP_ROCKSDB, TRANSFORM_MAP)),
        ]

    def alone(self) -> list[Figure]:
        """Measure each kind in one process, and the lists of `transformWithState`, on Spark, for comparison."""
        sizes = self._sizes
        figures = []
        for backend in BACKENDS:
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
            figures += [
                Figure(
                    f"{what}, on {backend}: one process without Spark",
                    sizes.kind_records / statistics.median(seconds[kind]),
                    "records/s",
                )
                for kind, what in ALONE.items()
            ]
        slow = self._taken.input("slow-kinds", lambda path: uniform(path, sizes.slow_kind_epochs, sizes.keys))
        self._taken.measure([TRANSFORM_LIST], slow, first=len(sizes.slow_kind_epochs) - 1)
        return [*figures, self._taken.rate(TRANSFORM_LIST)]

    @property
    def _shape(self) -> tuple[int, int]:
        return self._sizes.maps, self._sizes.entries
