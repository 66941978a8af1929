"""Windows against Spark's own and PyFlink's; sessions against transformWithState; sliding ones in simpler ways."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.measuring import Measurements, Side
from benchmarks.processes import Sides
from benchmarks.report import Figure
from benchmarks.sides.flink import PYFLINK
from benchmarks.sides.sliding_windows import BY_RECORD_PART
from benchmarks.sizes import Sizes
from benchmarks.words import Input, timed

SECONDS = 10
"""The size of tumbling windows, and the gap of sessions."""

SIZE, SLIDE = 60, 1
"""Seconds of sliding windows."""

_WITH: dict[str, Any] = {"seconds": SECONDS, "sink": "parquet"}

TUMBLING = Side("tumbling windows, aggregate", "windows", {"assigner": "tumbling", **_WITH})
TUMBLING_ROCKSDB = Side(
    "tumbling windows, aggregate, on rocksdb", "windows", {"assigner": "tumbling", "backend": "rocksdb", **_WITH}
)
SPARK_TUMBLING = Side("Spark's groupBy(window()).count(), append, RocksDB", "spark_tumbling", _WITH)
PYFLINK_TUMBLING = Side(
    "PyFlink's tumbling windows, aggregate, thread mode, text sink",
    "pyflink_tumbling",
    {"seconds": SECONDS, "settings": PYFLINK},
)
SESSIONS = Side("session windows, aggregate", "windows", {"assigner": "session", **_WITH})
SPARK_SESSIONS = Side("sessions by hand in transformWithState", "spark_sessions", _WITH)

WAYS = {
    "sum": "built-in sum",
    "reduce": "reduce, one accumulator per record and window in memory",
    "by_record": "one accumulator per record and window in the state, with a tenth of the records",
}


class Windows:
    """All sides make their state durable with every epoch, PyFlink every second."""

    def __init__(self, measurements: Measurements, sides: Sides, sizes: Sizes) -> None:
        self._taken = measurements
        self._sides = sides
        self._sizes = sizes
        self._is_tumbling_measured = False

    def windows(self) -> list[Figure]:
        return [*self._sliding(), *self._tumbling(), *self._sessions()]

    def on_rocksdb(self) -> list[Figure]:
        self._taken.measure([TUMBLING_ROCKSDB], self._tumbling_input(), first=self._sizes.first_epochs)
        return [self._taken.rate(TUMBLING_ROCKSDB)]

    def against_pyflink(self) -> list[Figure]:
        """Compare with the same keys, and as many records in each window. Not every machine can run PyFlink."""
        sizes, epochs = self._sizes, self._sizes.pyflink_epochs
        full = sum(records == sizes.records for records in epochs)
        source = self._taken.input("pyflink", lambda path: timed(path, epochs, sizes.keys, sizes.window_seconds))
        self._taken.measure([PYFLINK_TUMBLING], source, first=len(epochs) - full)
        pyflink = self._taken.rate(PYFLINK_TUMBLING)  # raises before the rest is measured if PyFlink is not there
        self._measure_tumbling()
        what = f"tumbling windows of {SECONDS} s, aggregate, against PyFlink (thread mode)"
        return [Figure(what, self._taken.speed(TUMBLING, PYFLINK_TUMBLING), at_least=20), pyflink]

    def _tumbling(self) -> list[Figure]:
        speed = self._taken.speed
        self._measure_tumbling()
        what = f"tumbling windows of {SECONDS} s, aggregate"
        return [
            Figure(f"{what}, against Spark's window()", speed(TUMBLING, SPARK_TUMBLING), at_least=1),
            *map(self._taken.rate, (TUMBLING, SPARK_TUMBLING)),
        ]

    def _measure_tumbling(self) -> None:
        """Measure Checkdam's and Spark's tumbling windows, once for all comparisons."""
        if self._is_tumbling_measured:
            return
        self._is_tumbling_measured = True
        sizes, source = self._sizes, self._tumbling_input()
        self._taken.measure([TUMBLING, SPARK_TUMBLING], source, first=sizes.first_epochs, rounds=sizes.rounds)

    def _tumbling_input(self) -> Input:
        sizes = self._sizes
        epochs = [sizes.records] * (sizes.first_epochs + sizes.epochs)
        return self._taken.input("timed", lambda path: timed(path, epochs, sizes.keys, sizes.window_seconds))

    def _sessions(self) -> list[Figure]:
        sizes, many = self._sizes, self._sizes.session_records
        ours = [many] * (sizes.first_epochs + sizes.epochs)
        theirs = [*sizes.session_first_epochs, many]
        source = self._taken.input("sessions", lambda path: timed(path, ours, sizes.keys, sizes.window_seconds))
        self._taken.measure([SESSIONS], source, first=sizes.first_epochs)
        slow = self._taken.input("slow-sessions", lambda path: timed(path, theirs, sizes.keys, sizes.window_seconds))
        self._taken.measure([SPARK_SESSIONS], slow, first=len(sizes.session_first_epochs))
        speed = self._taken.speed(SESSIONS, SPARK_SESSIONS)
        return [
            Figure("session windows, aggregate, against transformWithState", speed, at_least=25),
            *map(self._taken.rate, (SESSIONS, SPARK_SESSIONS)),
        ]

    def _sliding(self) -> list[Figure]:
        sizes = self._sizes
        what = f"sliding windows of {SIZE} s by {SLIDE} s, {sizes.sliding_keys} keys"
        seconds = self._sides.run(
            "sliding_windows",
            what,
            size=SIZE,
            slide=SLIDE,
            keys=sizes.sliding_keys,
            records=sizes.sliding_records,
            epochs=sizes.sliding_epochs,
            seconds=sizes.window_seconds,
        )
        records = {**dict.fromkeys(WAYS, sizes.sliding_records), "by_record": sizes.sliding_records // BY_RECORD_PART}
        rates = {way: records[way] / statistics.median(seconds[way]) for way in WAYS}
        return [
            Figure(
                f"{what}, built-in sum, against one accumulator per record and window",
                rates["sum"] / rates["reduce"],
                at_least=5,
            ),
            Figure(
                f"{what}, built-in sum, against that in the state, with a tenth of the records",
                rates["sum"] / rates["by_record"],
            ),
            *(
                Figure(f"{what}, {told}, one process without Spark", rates[way], "records/s")
                for way, told in WAYS.items()
            ),
        ]
