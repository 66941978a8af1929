"""Starting from a checkpoint: with more input, other parallelism, another graph, or a damaged file in the way."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from checkdam.errors import CheckpointDamagedError, JobGraphError, StateNotRestorableError

if TYPE_CHECKING:
    from tests.spark.conftest import Jobs

pytestmark = pytest.mark.spark

WORDS = "stream dam barrier key slot epoch level"


def _path(checkpoint: str | None) -> Path:
    assert checkpoint is not None
    return Path(checkpoint.removeprefix("file://"))


def _tree(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_counts_move_from_one_to_two_to_three_subtasks(jobs: Jobs) -> None:
    texts = jobs.texts(WORDS)
    first = jobs.word_count(jobs.environment(1, jobs.checkpoints()), texts)
    files_of_first = _tree(jobs.tmp_path / "ck" / first.job_id)

    jobs.texts(WORDS, first=1)
    second = jobs.word_count(jobs.environment(2, jobs.checkpoints(), restore=first.last_checkpoint), texts)

    assert dict(jobs.watcher.values) == dict.fromkeys(WORDS.split(), 2)
    assert len(jobs.watcher.values) == 7  # the first file was not read again
    assert second.job_id != first.job_id
    assert _tree(jobs.tmp_path / "ck" / first.job_id) == files_of_first  # restoring only reads

    jobs.texts(WORDS, first=2)
    jobs.word_count(jobs.environment(3, jobs.checkpoints(), restore=second.last_checkpoint), texts)

    assert dict(jobs.watcher.values) == dict.fromkeys(WORDS.split(), 3)
    assert len(jobs.watcher.values) == 7
    assert len(jobs.watcher.attempts[0]) == 3


def test_resume_latest_goes_on_with_files_that_came_since_as_the_same_job(jobs: Jobs) -> None:
    texts = jobs.texts("a b", "b")
    first = jobs.word_count(jobs.environment(checkpoints=jobs.checkpoints()), texts)

    jobs.texts("b c", first=2)
    second = jobs.word_count(jobs.environment(checkpoints=jobs.checkpoints(), resume=True), texts)

    assert Counter(jobs.watcher.values) == Counter([("b", 3), ("c", 1)])
    assert jobs.watcher.restored_from == [first.last_checkpoint]
    assert second.job_id == first.job_id
    assert _path(second.last_checkpoint).name == "chk-3"


def test_state_of_an_unknown_uid_is_refused_unless_it_may_be_dropped(jobs: Jobs) -> None:
    texts = jobs.texts("a b")
    first = jobs.word_count(jobs.environment(checkpoints=jobs.checkpoints()), texts)
    jobs.texts("a", first=1)

    with pytest.raises(StateNotRestorableError, match='state of operator "count", which the job does not have'):
        jobs.word_count(jobs.environment(restore=first.last_checkpoint), texts, uid="renamed")
    jobs.word_count(
        jobs.environment(restore=first.last_checkpoint, allow_non_restored_state=True), texts, uid="renamed"
    )

    assert jobs.watcher.values == [("a", 1)]


@pytest.mark.parametrize("harm", ["metadata cut short", "state file altered"])
def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before_with_a_warning(jobs: Jobs, harm: str) -> None:
    texts = jobs.texts("a b", "b", "b c")
    first = jobs.word_count(jobs.environment(checkpoints=jobs.checkpoints(num_retained=3)), texts)
    newest = _path(first.last_checkpoint)
    if harm == "metadata cut short":
        damaged = newest / "_metadata"
        damaged.write_bytes(damaged.read_bytes()[:-1])
    else:
        damaged = max((newest.parent / "shared").iterdir(), key=lambda file: file.stat().st_mtime_ns)
        damaged.write_bytes(damaged.read_bytes()[:-3])

    jobs.word_count(jobs.environment(checkpoints=jobs.checkpoints(num_retained=3), resume=True), texts)

    assert Counter(jobs.watcher.values) == Counter([("b", 3), ("c", 1)])  # the third file, read again
    assert {_path(path).name for path, _ in jobs.watcher.skipped} == {"chk-3"}
    assert all(isinstance(reason, CheckpointDamagedError) for _, reason in jobs.watcher.skipped)
    assert _path(jobs.watcher.restored_from[0]).name == "chk-2"


def test_a_checkpoint_named_by_path_must_be_whole(jobs: Jobs) -> None:
    texts = jobs.texts("a b")
    first = jobs.word_count(jobs.environment(checkpoints=jobs.checkpoints()), texts)
    metadata = _path(first.last_checkpoint) / "_metadata"
    content = bytearray(metadata.read_bytes())
    content[len(content) // 2] ^= 1
    metadata.write_bytes(content)

    with pytest.raises(CheckpointDamagedError, match="chk-1"):
        jobs.word_count(jobs.environment(restore=first.last_checkpoint), texts)

    assert jobs.watcher.attempts == []


def test_max_parallelism_is_fixed_by_the_first_checkpoint(jobs: Jobs) -> None:
    texts = jobs.texts("a b")
    first = jobs.word_count(jobs.environment(1, jobs.checkpoints(), settings={"pipeline.max-parallelism": 4}), texts)

    with pytest.raises(StateNotRestorableError, match=r'max parallelism 4 for operator "[^"]+", the job 8'):
        jobs.word_count(
            jobs.environment(1, restore=first.last_checkpoint, settings={"pipeline.max-parallelism": 8}), texts
        )
    with pytest.raises(JobGraphError, match="parallelism 5 is above the max parallelism 4"):
        jobs.word_count(jobs.environment(5, restore=first.last_checkpoint), texts)


def test_two_streaming_sources_both_resume_where_they_stood(jobs: Jobs) -> None:
    left, right = jobs.texts("a", "b", directory="left"), jobs.texts("x", directory="right")

    def run(*, resume: bool) -> None:
        env = jobs.environment(checkpoints=jobs.checkpoints(), resume=resume)
        lines = env.read_text(left, max_files_per_epoch=1).union(env.read_text(right, max_files_per_epoch=1))
        pairs = lines.map(lambda word: (word, 1), output_type=tuple[str, int])
        pairs.key_by(0).sum(1).uid("count").print()
        env.execute("two sources")

    run(resume=False)
    assert Counter(jobs.watcher.values) == Counter([("a", 1), ("b", 1), ("x", 1)])

    jobs.texts("a", first=2, directory="left")
    jobs.texts("x", "y", first=1, directory="right")
    run(resume=True)

    assert Counter(jobs.watcher.values) == Counter([("a", 2), ("x", 2), ("y", 1)])


def test_a_finished_collection_is_not_read_again(jobs: Jobs) -> None:
    def run(*, resume: bool) -> None:
        env = jobs.environment(checkpoints=jobs.checkpoints(), resume=resume)
        lines = env.from_collection(["a", "a"]).union(env.read_text(jobs.texts(), max_files_per_epoch=1))
        lines.map(lambda word: (word, 1), output_type=tuple[str, int]).key_by(0).sum(1).uid("count").print()
        env.execute("collection and files")

    jobs.texts("b")
    run(resume=False)
    assert Counter(jobs.watcher.values) == Counter([("a", 1), ("a", 2), ("b", 1)])

    jobs.texts("a", first=1)
    run(resume=True)

    assert jobs.watcher.values == [("a", 3)]
