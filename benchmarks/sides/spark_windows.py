"""Spark's own ways to count by window, with the source, watermark and sink of Checkdam's job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's convention
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.sides.spark import ROCKSDB, as_it_is, run_query, session_with, words_in

# Without it a batch without records follows the last one, and only ends windows: the input has none for it.
_NO_MORE = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}


def tumbling(*, seconds: int, sink: str, path: str, files_per_epoch: int) -> dict[str, Any]:
    """Run Spark's own aggregation, all of it in the JVM; each window is emitted once, when it has ended."""
    session = session_with({**ROCKSDB, **_NO_MORE})
    grouped = _timed(session, path, files_per_epoch).groupBy("word", F.window("at", f"{seconds} seconds"))
    counts = grouped.count().select("word", F.unix_millis("window.start").alias("start"), "count")
    return run_query(session, counts, as_it_is, sink, "append")


def sessions(*, seconds: int, sink: str, path: str, files_per_epoch: int) -> dict[str, Any]:
    """Run sessions in PySpark's row API, written by hand."""
    session = session_with({**ROCKSDB, **_NO_MORE})
    timed = _timed(session, path, files_per_epoch).withColumn("milliseconds", F.unix_millis("at"))
    counts = timed.groupBy("word").transformWithState(
        Sessions(seconds * 1000), "word string, start long, count long", "Append", "EventTime"
    )
    return run_query(session, counts, as_it_is, sink, "append")


class Sessions(StatefulProcessor):  # type: ignore[misc]  # mypy does not follow pyspark
    """Keeps the open sessions of a key in one list: read and written once for all its records of a batch."""

    def __init__(self, gap: int) -> None:
        self.gap = gap

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.open = handle.getListState("sessions", "start long, end long, count long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        before = [tuple(each) for each in self.open.get()]
        merged: list[tuple[int, int, int]] = []
        added = [(row.milliseconds, row.milliseconds + self.gap, 1) for row in rows]
        for start, end, count in sorted(before + added):
            if merged and start <= merged[-1][1]:
                first, last, total = merged[-1]
                merged[-1] = first, max(last, end), total + count
            else:
                merged.append((start, end, count))
        self.open.put(merged)
        known, wanted = {end for _, end, _ in before}, {end for _, end, _ in merged}
        for end in known - wanted:
            self.handle.deleteTimer(end)
        for end in wanted - known:
            self.handle.registerTimer(end)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        at, remaining = expiredTimerInfo.getExpiryTimeInMs(), []
        for start, end, count in map(tuple, self.open.get()):
            if end <= at:
                yield Row(word=key[0], start=start, count=count)
            else:
                remaining.append((start, end, count))
        if remaining:
            self.open.put(remaining)
        else:
            self.open.clear()

    def close(self) -> None:
        pass


def _timed(session: SparkSession, path: str, files_per_epoch: int) -> DataFrame:
    parts = F.split("value", " ")
    at = F.timestamp_millis(parts[1].cast("long")).alias("at")
    return words_in(session, path, files_per_epoch).select(parts[0].alias("word"), at).withWatermark("at", "1 second")
