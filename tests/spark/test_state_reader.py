"""Snapshots as a Spark data source."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.snapshot_files import written

from checkdam.errors import UsageError
from checkdam.state_reader import Savepoint, register
from checkdam.storage.filesystem import open_storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

COUNTS = {f"k{i}": i for i in range(500)}
PLACES = {("north", 1): 1.5, ("south", 2): 2.5}


def _snapshot(directory: Path) -> str:
    return written(
        open_storage(str(directory)),
        {
            "counting": {("count", str, int): COUNTS, ("tags", str, list[str]): {"k1": ["a", "b"]}},
            "places": {("place", tuple[str, int], float): PLACES},
        },
    )


def _read(spark: SparkSession, path: str, **options: str) -> DataFrame:
    return spark.read.format("checkdam").options(**options).load(path)


def test_a_state_is_a_dataframe_with_a_partition_for_each_range_of_key_groups(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = _snapshot(tmp_path)
    register(spark)

    frame = _read(spark, path, uid="counting", state="count")

    assert frame.columns == ["key", "value", "key_group"]
    assert {row.key: row.value for row in frame.collect()} == COUNTS
    assert frame.rdd.getNumPartitions() == 8
    assert _read(spark, path, uid="counting", state="tags").first().value == ["a", "b"]


def test_it_reads_with_this_interpreter_whatever_python_the_session_would_use(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = _snapshot(tmp_path / "snapshot"), _python_without_checkdam(tmp_path)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", other)  # as in an environment that is not activated

    register(spark)

    assert spark.sparkContext.pythonExec == other  # the user's own functions are not concerned
    assert _read(spark, path, uid="counting", state="count").count() == len(COUNTS)


def test_away_from_this_machine_a_python_without_checkdam_is_refused_at_once(tmp_path: Path) -> None:
    other = _python_without_checkdam(tmp_path)
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="spark://far:7077", pythonExec=other))

    with pytest.raises(UsageError, match=f'"{other}", which cannot import checkdam') as refused:
        register(session)

    assert "PYSPARK_PYTHON" in str(refused.value.hint)


def _python_without_checkdam(directory: Path) -> str:
    python = directory / "python3"
    python.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'checkdam'\" >&2\nexit 1\n")
    python.chmod(0o755)
    return str(python)


@pytest.mark.parametrize(
    ("condition", "keys"),
    [("key = 'k7'", {"k7"}), ("key in ('k7', 'k8')", {"k7", "k8"}), ("key = 'k7' and value < 0", set())],
)
def test_a_filter_by_key_reads_only_the_key_groups_of_the_keys(
    spark: SparkSession, tmp_path: Path, condition: str, keys: set[str]
) -> None:
    path = _snapshot(tmp_path)
    register(spark)

    found = _read(spark, path, uid="counting", state="count").where(condition)

    assert {row.key: row.value for row in found.collect()} == {key: COUNTS[key] for key in keys}
    state = Savepoint.load(path).keyed_state("counting", "count")
    named = {key for key in ("k7", "k8") if key in condition}
    assert found.rdd.getNumPartitions() == len({state.key_group_of(key) for key in named})


def test_a_compound_key_is_a_struct_and_all_its_fields_together_prune(spark: SparkSession, tmp_path: Path) -> None:
    path = _snapshot(tmp_path)
    register(spark)

    found = _read(spark, path, uid="places").where("key.f0 = 'north' and key.f1 = 1")

    assert [row.value for row in found.collect()] == [1.5]
    assert found.rdd.getNumPartitions() == 1


def test_what_is_not_chosen_or_not_there_is_an_error_that_lists_what_there_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = _snapshot(tmp_path)
    register(spark)

    for options, told in (
        ({}, '"counting", "places"'),
        ({"uid": "counting"}, '"count", "tags"'),
        ({"uid": "countin", "state": "count"}, 'Did you mean "counting"?'),
    ):
        with pytest.raises(Exception, match="(?s)" + told.replace("?", r"\?")):
            _read(spark, path, **options).collect()


def test_a_session_that_checkdam_made_knows_the_format_already(spark: SparkSession, tmp_path: Path) -> None:
    path = _snapshot(tmp_path)

    assert _read(spark, path, uid="places").count() == 2


def test_to_spark_gives_the_same_rows_as_to_arrow(spark: SparkSession, tmp_path: Path) -> None:
    state = Savepoint.load(_snapshot(tmp_path)).keyed_state("counting", "count")

    frame = state.to_spark(spark)

    assert sorted(map(tuple, frame.collect())) == sorted(tuple(row.values()) for row in state.to_arrow().to_pylist())
