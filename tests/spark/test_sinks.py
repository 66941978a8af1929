"""Sinks: what is written, in which form, and when it may be seen."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from checkdam import CheckpointingMode
from checkdam.errors import JobGraphError, StorageError

if TYPE_CHECKING:
    from tests.spark.conftest import Jobs

    from checkdam import DataStream, StreamExecutionEnvironment

pytestmark = pytest.mark.spark

FILES = ["a b", "a c", "b a"]
RUNNING = Counter([("a", 1), ("b", 1), ("a", 2), ("c", 1), ("b", 2), ("a", 3)])


def _counts(env: StreamExecutionEnvironment, texts: str) -> DataStream[Any]:
    words = env.read_text(texts, max_files_per_epoch=1).flat_map(str.split, output_type=str)
    return words.map(lambda w: (w, 1), output_type=tuple[str, int]).key_by(0).sum(1).uid("count")


def _visible(directory: Path) -> list[tuple[Any, ...]]:
    files = sorted(directory.glob("*.json"))
    return [tuple(json.loads(line).values()) for file in files for line in file.read_text().splitlines()]


def test_json_parquet_and_text_files_hold_every_record(jobs: Jobs) -> None:
    env = jobs.environment()
    counts = _counts(env, jobs.texts(*FILES))
    out = jobs.tmp_path
    counts.sink_to_files(str(out / "json"), format="json")
    counts.sink_to_files(str(out / "parquet"), format="parquet")
    counts.sink_to_files(str(out / "text"), format="text")

    env.execute()

    objects = [
        json.loads(line) for file in (out / "json").glob("part-*.json") for line in file.read_text().splitlines()
    ]
    assert Counter((each["f0"], each["f1"]) for each in objects) == RUNNING
    rows = pq.read_table(out / "parquet").to_pylist()
    assert Counter((row["f0"], row["f1"]) for row in rows) == RUNNING
    lines = [line for file in (out / "text").glob("part-*.txt") for line in file.read_text().splitlines()]
    assert Counter(lines) == Counter(map(str, RUNNING.elements()))
    assert not list(out.glob("*/.checkdam"))  # nothing of the sinks' own is left


def test_output_stays_invisible_until_the_checkpoint_that_covers_it(jobs: Jobs) -> None:
    out = jobs.tmp_path / "out"
    env = jobs.environment(checkpoints=jobs.checkpoints(interval=None))  # only the final checkpoint
    _counts(env, jobs.texts(*FILES)).sink_to_files(str(out))
    seen: list[list[Any]] = []
    jobs.watcher.on_epoch = lambda stats: seen.append(_visible(out))

    env.execute()

    assert seen == [[], [], []]
    assert len(jobs.watcher.checkpoints) == 1
    assert Counter(_visible(out)) == RUNNING


def test_output_of_a_checkpointed_epoch_is_visible_when_the_checkpoint_is_told(jobs: Jobs) -> None:
    out = jobs.tmp_path / "out"
    env = jobs.environment(checkpoints=jobs.checkpoints())
    _counts(env, jobs.texts(*FILES)).sink_to_files(str(out))
    seen: dict[int, int] = {}
    jobs.watcher.on_checkpoint = lambda stats: seen.update({stats.epoch: len(_visible(out))})

    env.execute()

    assert seen
    assert all(count >= 2 * epoch for epoch, count in seen.items())
    assert Counter(_visible(out)) == RUNNING


def test_at_least_once_publishes_with_the_epoch(jobs: Jobs) -> None:
    out = jobs.tmp_path / "out"
    checkpoints = jobs.checkpoints(interval=None, mode=CheckpointingMode.AT_LEAST_ONCE)
    env = jobs.environment(checkpoints=checkpoints)
    _counts(env, jobs.texts(*FILES)).sink_to_files(str(out))
    seen: list[int] = []
    jobs.watcher.on_epoch = lambda stats: seen.append(len(_visible(out)))

    env.execute()

    assert seen == [2, 4, 6]
    assert Counter(_visible(out)) == RUNNING


def test_a_spark_sink_gets_named_columns_and_may_use_them_more_than_once(jobs: Jobs) -> None:
    env = jobs.environment(checkpoints=jobs.checkpoints())
    calls: list[tuple[int, list[str], int, int]] = []

    def sink(frame: Any, epoch: int) -> None:
        highest = frame.agg({"f1": "max"}).collect()[0][0]
        calls.append((epoch, frame.columns, frame.count(), highest))

    _counts(env, jobs.texts(*FILES)).sink_to_spark(sink)

    env.execute()

    assert calls == [(1, ["f0", "f1"], 2, 1), (2, ["f0", "f1"], 2, 2), (3, ["f0", "f1"], 2, 3)]
    assert [stats.held.keys for stats in jobs.watcher.epochs] == [2, 3, 3]  # several actions counted nothing twice


def test_rows_for_a_spark_sink_are_kept_without_compression_and_the_users_setting_stays(jobs: Jobs) -> None:
    env = jobs.environment()
    kept: list[tuple[int, str]] = []

    def sink(frame: Any, epoch: int) -> None:
        session = frame.sparkSession
        infos = session.sparkContext._jsc.sc().getRDDStorageInfo()
        size = sum(info.memSize() for info in infos)
        kept.append((size, session.conf.get("spark.sql.inMemoryColumnarStorage.compressed")))

    env.from_collection(["x" * 100] * 2_000).sink_to_spark(sink)

    env.execute()

    [(size, setting)] = kept
    assert size > 200_000
    assert setting == "true"


def test_print_tells_the_listener_label_and_subtask(jobs: Jobs) -> None:
    env = jobs.environment()
    env.from_collection(["x"]).print("wide")
    env.from_collection(["x"]).print("narrow").set_parallelism(1)
    env.from_collection(["x"]).print().set_parallelism(1)

    env.execute()

    assert set(jobs.watcher.lines) in ({"wide:1> x", "narrow> x", "x"}, {"wide:2> x", "narrow> x", "x"})


def test_a_stream_of_unknown_type_cannot_go_to_spark_and_says_what_to_add(jobs: Jobs) -> None:
    stream = jobs.environment().from_collection([1]).map(lambda n: object())

    with pytest.raises(JobGraphError, match=r"output_type such as tuple\[str, int\]"):
        stream.sink_to_spark(lambda df, epoch: None)


def test_a_sink_that_cannot_be_written_is_refused_before_anything_runs(jobs: Jobs) -> None:
    (jobs.tmp_path / "file").write_text("not a directory")
    env = jobs.environment()
    env.from_collection([("a", 1)]).sink_to_files(str(jobs.tmp_path / "file" / "out"))

    with pytest.raises(StorageError, match="file/out"):
        env.execute()

    assert jobs.watcher.attempts == []
