"""Sources that are reordered, added, removed or moved between a checkpoint and the run that starts from it."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from checkdam import CheckpointRetention
from checkdam.checkpoint.checkpoint_store import load_checkpoint
from checkdam.checkpoint.metadata_file import to_metadata
from checkdam.checkpoint.settings import JobEnd
from checkdam.errors import StateNotRestorableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.spark.conftest import Jobs

    from checkdam import DataStream, StreamExecutionEnvironment
    from checkdam.runtime.job_result import JobResult

pytestmark = pytest.mark.spark

FIXTURE = Path(__file__).parents[1] / "compat" / "data" / "sources-by-order" / "66bc8edddb2d6891f192693a15d8fa51"


def _count(env: StreamExecutionEnvironment, *sources: DataStream[Any]) -> JobResult:
    """Count the words of all sources together; prints the running counts."""
    words = sources[0].union(*sources[1:]).flat_map(str.split, output_type=str)
    pairs = words.map(lambda word: (word, 1), output_type=tuple[str, int])
    pairs.key_by(lambda pair: pair[0], key_type=str).sum(1).uid("count").print()
    return env.execute("word count")


def test_positions_follow_their_sources_whatever_becomes_of_the_others(jobs: Jobs) -> None:
    def read(env: StreamExecutionEnvironment, name: str) -> DataStream[Any]:
        return env.read_text(str(jobs.tmp_path / name), max_files_per_epoch=2)  # how much at once is not what is read

    jobs.texts("a x", "a", directory="a")
    jobs.texts("b x", directory="b")
    env = jobs.environment(checkpoints=jobs.checkpoints())
    a = env.read_text(str(jobs.tmp_path / "a"), max_files_per_epoch=1)
    first = _count(env, a, read(env, "b").uid("b"), env.from_collection(["s"]).uid("seed"))
    assert dict(jobs.watcher.values) == {"a": 2, "b": 1, "s": 1, "x": 2}

    # Swapped, one file more in each, and two sources more.
    jobs.texts("a", first=2, directory="a")
    jobs.texts("b b", first=1, directory="b")
    jobs.texts("c x", directory="c")
    env = jobs.environment(checkpoints=jobs.checkpoints(), restore=first.last_checkpoint)
    second = _count(
        env,
        read(env, "c"),
        read(env, "b").uid("b"),
        env.from_collection(["m", "x"]).uid("more"),
        env.from_collection(["s"]).uid("seed"),
        read(env, "a"),
    )
    assert Counter(jobs.watcher.values) == Counter(
        [("m", 1), ("x", 3), ("c", 1), ("x", 4), ("b", 2), ("b", 3), ("a", 3)]
    )

    # One removed, and another place under a known uid: both are told at once.
    jobs.texts("d", directory="d")

    def third(**options: Any) -> JobResult:
        env = jobs.environment(checkpoints=jobs.checkpoints(), restore=second.last_checkpoint, **options)
        collections = [env.from_collection(["s"]).uid("seed"), env.from_collection(["m", "x"]).uid("more")]
        return _count(env, *collections, read(env, "d").uid("b"), read(env, "a"))

    with pytest.raises(
        StateNotRestorableError, match=r'source "b": it was text\(.*/b\) .* is text\(.*/d\) in'
    ) as moved:
        third()
    assert "--source-position b=earliest" in (moved.value.hint or "")
    with pytest.raises(StateNotRestorableError, match=r"/c\)\": the checkpoint has its position, and the job has no"):
        third(source_positions={"b": "earliest"})
    assert jobs.watcher.attempts == []
    assert jobs.watcher.failures == []
    third(source_positions={"b": "earliest"}, allow_non_restored_state=True)
    assert jobs.watcher.values == [("d", 1)]


def test_streaming_dataframes_swap_though_they_are_read_twice_or_made_of_several(
    jobs: Jobs, spark: SparkSession
) -> None:
    places = {name: jobs.texts(f"{name} x", directory=name) for name in "abc"}
    retained = jobs.checkpoints(retention=CheckpointRetention.RETAIN_ON_CANCELLATION)

    def text(name: str) -> Any:
        return spark.readStream.format("text").load(places[name])

    def run(env: StreamExecutionEnvironment, frames: list[Any], expected: int) -> JobResult:
        jobs.watcher.on_checkpoint = lambda _: jobs.cancel() if len(jobs.watcher.lines) >= expected else None
        rows = [env.from_dataframe(frame).map(lambda row: row.value, output_type=str) for frame in frames]
        return _count(env, *rows)

    twice = text("c")
    first = run(jobs.environment(checkpoints=retained), [text("a").unionAll(text("b")), twice, twice], 8)
    assert first.end is JobEnd.CANCELLED
    assert dict(jobs.watcher.values)["x"] == 4

    for name in places:
        jobs.texts(f"{name} y", first=1, directory=name)
    twice = text("c")
    env = jobs.environment(checkpoints=retained, restore=first.last_checkpoint)
    run(env, [twice, twice, text("a").unionAll(text("b"))], 8)

    counts = {word: max(n for w, n in jobs.watcher.values if w == word) for word, _ in jobs.watcher.values}
    assert counts == {"a": 2, "b": 2, "c": 4, "y": 4}


class _Position(msgspec.Struct):
    """A source position as it was before sources had uids."""

    batch: int
    files: dict[str, bytes]
    sources: list[str]


def _moved_fixture(jobs: Jobs) -> str:
    """The checkpoint of a job over /tmp/data, as if the files had always been in the test's directory."""
    place = jobs.tmp_path / "old" / FIXTURE.name
    shutil.copytree(FIXTURE, place)
    checkpoint, _ = load_checkpoint(str(place / "chk-3"))
    position = msgspec.msgpack.decode(checkpoint.source_position, type=_Position)
    moved = {name: data.replace(b"/tmp/data", str(jobs.tmp_path).encode()) for name, data in position.files.items()}
    assert any(moved[name] != position.files[name] for name in moved)
    packed = msgspec.msgpack.encode(_Position(position.batch, moved, position.sources))
    (place / "chk-3" / "_metadata").write_bytes(to_metadata(replace(checkpoint, source_position=packed)))
    return str(place / "chk-3")


def test_a_checkpoint_without_uids_of_sources_restores_by_their_order(jobs: Jobs) -> None:
    old = _moved_fixture(jobs)
    for name, contents in {"a": ("a x", "a"), "b": ("b x",)}.items():
        jobs.texts(*contents, directory=name)

    def run(*order: str) -> None:
        env = jobs.environment(1, jobs.checkpoints(), restore=old)
        texts = [env.read_text(str(jobs.tmp_path / name)) for name in order]
        _count(env, *texts, env.from_collection(["c", "x"]))

    with pytest.raises(StateNotRestorableError, match="no uids of sources, and was written by a job that reads"):
        run("a")
    assert jobs.watcher.attempts == []
    jobs.texts("a", first=2, directory="a")
    run("a", "b")

    assert jobs.watcher.values == [("a", 3)]
