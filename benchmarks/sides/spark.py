"""Spark's own ways, with the same session settings, source, shuffle width and sink as Checkdam's job."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's convention
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from checkdam.runtime.spark.session import spark_session

ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}
_CHANGELOG = {"spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true"}
_KEY_GROUP = "cast((pmod(xxhash64(word), 128L) * 2L) div 128L as int)"

Plan = Callable[[DataFrame], DataFrame]


def limit(
    *, sink: str, path: str, files_per_epoch: int, planned_once: bool = False, drops: bool = False
) -> dict[str, Any]:
    """Run source, shuffle, a Python function that changes nothing, and sink, without state.

    Everything runs in `foreachBatch`, or with `planned_once` as part of the stream. With `drops` the function drops
    every record instead, and the records are words without counts.
    """
    columns = ["value as word"] if drops else ["value as word", "1L as count"]
    function, schema = (_nothing, "word string") if drops else (_identity, "word string, count long")

    def plan(batch: DataFrame) -> DataFrame:
        return batch.selectExpr(*columns).repartitionById(2, F.expr(_KEY_GROUP)).mapInArrow(function, schema)

    session = session_with({})
    words = words_in(session, path, files_per_epoch)
    return run_query(session, plan(words), as_it_is, sink) if planned_once else run_query(session, words, plan, sink)


def sql_count(*, sink: str, path: str, files_per_epoch: int, changelog: bool = False) -> dict[str, Any]:
    """Run Spark's own aggregation, all of it in the JVM."""
    session = session_with({**ROCKSDB, **(_CHANGELOG if changelog else {})})
    counts = words_in(session, path, files_per_epoch).groupBy("value").count()
    return run_query(session, counts, as_it_is, sink)


def transform_with_state(*, sink: str, path: str, files_per_epoch: int, kind: str = "value") -> dict[str, Any]:
    """Run the same function as Checkdam's, in PySpark's row API for it."""
    session = session_with(ROCKSDB)
    words = words_in(session, path, files_per_epoch)
    if kind == "map":
        words = words.withColumn("word", F.substring_index("value", " ", 1))
    counts = words.groupBy("word" if kind == "map" else "value").transformWithState(
        _PROCESSORS[kind](), "word string, count long", "Update", "None"
    )
    return run_query(session, counts, as_it_is, sink)


class CountRows(StatefulProcessor):  # type: ignore[misc]  # mypy does not follow pyspark
    """One read and one write per record."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.count = handle.getValueState("count", "count long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for _ in rows:
            before = self.count.get()
            count = 1 if before is None else before[0] + 1
            self.count.update((count,))
            yield Row(word=key[0], count=count)

    def close(self) -> None:
        pass


class AppendRows(StatefulProcessor):  # type: ignore[misc]  # mypy does not follow pyspark
    """One append per record."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.seen = handle.getListState("seen", "entry string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for row in rows:
            self.seen.appendValue((row.value,))
            yield Row(word=key[0], count=1)

    def close(self) -> None:
        pass


class CountEntries(StatefulProcessor):  # type: ignore[misc]  # mypy does not follow pyspark
    """One map entry read and written per record."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.counts = handle.getMapState("counts", "entry string", "count long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for row in rows:
            entry = (row.value.partition(" ")[2],)
            before = self.counts.getValue(entry)
            count = 1 if before is None else before[0] + 1
            self.counts.updateValue(entry, (count,))
            yield Row(word=row.value, count=count)

    def close(self) -> None:
        pass


_PROCESSORS: dict[str, Callable[[], Any]] = {"value": CountRows, "list": AppendRows, "map": CountEntries}


def as_it_is(batch: DataFrame) -> DataFrame:
    return batch


def _identity(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _nothing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    yield from ()


def session_with(settings: dict[str, str]) -> SparkSession:
    everywhere = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"}
    return spark_session({**everywhere, **settings}, os.path.abspath("spark"))


def words_in(session: SparkSession, path: str, files_per_epoch: int) -> DataFrame:
    return session.readStream.format("text").option("maxFilesPerTrigger", files_per_epoch).load(path)


def run_query(
    session: SparkSession, flow: DataFrame, plan: Plan, sink: str, output_mode: str = "update"
) -> dict[str, Any]:
    epochs: list[dict[str, float]] = []
    output = os.path.abspath("output")

    def on_batch(batch: DataFrame, number: int) -> None:
        rows = plan(batch)
        if sink == "collect":
            rows.collect()
        elif sink == "noop":
            rows.write.format("noop").mode("overwrite").save()
        else:
            rows.write.format(sink).mode("append").save(output)
        epochs.append({"ended_at": time.perf_counter()})

    query = (
        flow.writeStream.outputMode(output_mode)
        .foreachBatch(on_batch)
        .option("checkpointLocation", os.path.abspath("query"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    triggers = [progress for progress in query.recentProgress if progress["numInputRows"]]
    for epoch, progress in zip(epochs, triggers, strict=True):
        epoch["records"] = progress["numInputRows"]
    session.stop()
    return {"epochs": epochs}
