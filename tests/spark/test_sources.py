"""Sources: DataFrames and Spark's streaming formats become records, and their columns become keys."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from checkdam.checkpoint.settings import JobEnd
from checkdam.connectors.sources import CollectionSource
from checkdam.errors import JobGraphError
from checkdam.types.type_info import type_info

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.spark.conftest import Jobs

pytestmark = pytest.mark.spark


def test_rows_of_a_dataframe_arrive_as_named_tuples(jobs: Jobs, spark: SparkSession) -> None:
    sales = spark.createDataFrame([("x", 3), ("y", 5), ("x", 7)], "shop string, amount bigint")
    env = jobs.environment()
    rows = env.from_dataframe(sales)
    rows.map(lambda row: f"{row.shop}={row.amount}", output_type=str).print("text")
    rows.key_by("shop").sum("amount").uid("sum").map(lambda row: (row.shop, row[1]), output_type=tuple[str, int]).print(
        "sum"
    )

    env.execute()

    shown = Counter(line.partition("> ")[2] for line in jobs.watcher.lines)
    assert shown == Counter(["x=3", "y=5", "x=7", "('x', 3)", "('y', 5)", "('x', 10)"]) or shown == Counter(
        ["x=3", "y=5", "x=7", "('x', 7)", "('y', 5)", "('x', 10)"]  # a DataFrame has no order of its own
    )


def test_a_collection_is_one_partition_because_only_that_keeps_its_order(spark: SparkSession) -> None:
    from checkdam.runtime.spark.source_frames import open_source

    numbers = list(range(1000))

    frame = open_source(spark, CollectionSource(tuple(numbers)), type_info(int))

    assert frame.rdd.glom().map(lambda rows: [row[0] for row in rows]).collect() == [numbers]


def test_a_streaming_dataframe_is_followed_until_cancelled(jobs: Jobs, spark: SparkSession) -> None:
    env = jobs.environment()
    ticks = spark.readStream.format("rate").option("rowsPerSecond", "50").load()
    env.from_dataframe(ticks).map(lambda row: row.value, output_type=int).print()
    jobs.watcher.on_printed = lambda lines: jobs.cancel() if len(jobs.watcher.lines) >= 20 else None

    result = env.execute()

    assert result.end is JobEnd.CANCELLED
    values = sorted(jobs.watcher.values)
    assert values == list(range(len(values)))  # each once, none left out
    assert len(values) >= 20


def _json_lines(jobs: Jobs, number: int, *rows: dict[str, Any]) -> str:
    return jobs.texts("\n".join(map(json.dumps, rows)), first=number, directory="json")


def test_json_files_with_a_schema_are_followed_until_cancelled(jobs: Jobs) -> None:
    path = _json_lines(jobs, 0, {"shop": "x", "amount": 3}, {"shop": "y", "amount": 5})
    env = jobs.environment()
    rows = env.read_stream("json", schema="shop string, amount bigint", path=path)
    rows.key_by(lambda row: row.shop).sum("amount").uid("sum").map(tuple, output_type=tuple[str, int]).print()

    def follow(lines: list[str]) -> None:
        if len(jobs.watcher.lines) == 2:
            _json_lines(jobs, 1, {"shop": "x", "amount": 4})  # arrives while the job runs
        else:
            jobs.cancel()

    jobs.watcher.on_printed = follow

    result = env.execute()

    assert result.end is JobEnd.CANCELLED
    assert Counter(jobs.watcher.values) == Counter([("x", 3), ("y", 5), ("x", 7)])


def test_a_format_that_cannot_be_opened_is_told_when_the_job_is_built(jobs: Jobs) -> None:
    with pytest.raises(JobGraphError, match='source "nonsense" cannot be opened'):
        jobs.environment().read_stream("nonsense")


def test_text_that_is_not_there_is_told_when_the_job_is_built(jobs: Jobs) -> None:
    with pytest.raises(JobGraphError, match="does not exist"):
        jobs.environment().read_text(str(jobs.tmp_path / "nowhere"))


def test_a_column_that_is_not_there_is_told_with_those_that_are(jobs: Jobs, spark: SparkSession) -> None:
    rows = jobs.environment().from_dataframe(spark.createDataFrame([("x", 3)], "shop string, amount bigint"))

    with pytest.raises(JobGraphError, match="The columns are shop, amount"):
        rows.key_by("town")
