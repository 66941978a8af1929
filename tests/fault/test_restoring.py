"""From which checkpoint a job goes on, what stays after its end, and what is never touched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.word_count import UID, WordCount

from checkdam import MapFunction, RuntimeContext, StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.checkpoint.settings import CheckpointRetention, JobEnd
from checkdam.errors import (
    CheckdamError,
    CheckpointDamagedError,
    EngineLostError,
    JobFailedError,
    StateNotRestorableError,
    UserFunctionError,
)
from checkdam.ids import JobId
from checkdam.runtime.restart import NoRestart
from checkdam.storage import Storage, open_storage
from checkdam.testing import MemoryStorage
from checkdam.testing.local_engine import LocalEngine
from checkdam.testing.local_job import EVERY_EPOCH, JOB_ID, LocalJob
from checkdam.testing.trouble import DriverKilled, Moment, Step, Trouble, kill_driver, kill_slot, refuse

WORDS = [f"word{n}" for n in range(40)]
EPOCHS = [WORDS, ["a", *WORDS[:3]], ["a", *WORDS[5:9]], ["b", *WORDS], ["a", "b"]]
KEEP_THREE = replace(EVERY_EPOCH, num_retained=3)
OTHER = JobId("0" * 32)

Damage = Callable[[Storage, str], None]


def truncate(storage: Storage, path: str) -> None:
    storage.write(path, storage.read(path)[:-3])


def flip(storage: Storage, path: str) -> None:
    data = bytearray(storage.read(path))
    data[len(data) // 2] ^= 4
    storage.write(path, bytes(data))


def remove(storage: Storage, path: str) -> None:
    storage.delete(path)


def killed_before_epoch_5(words: WordCount) -> LocalJob:
    job = words.job(checkpoints=KEEP_THREE, troubles=[Trouble(Step.BEFORE_EPOCH, kill_driver, number=5)])
    with pytest.raises(DriverKilled):
        job.run()
    return job


@pytest.mark.parametrize(
    ("what", "damage"),
    [("metadata", truncate), ("metadata", flip), ("file", truncate), ("file", flip), ("file", remove)],
)
def test_a_damaged_newest_checkpoint_gives_way_to_the_next_older_with_a_warning(what: str, damage: Damage) -> None:
    words = WordCount(EPOCHS)
    store = CheckpointStore(words.storage, JOB_ID)
    killed_before_epoch_5(words)
    only_newest = store.load(store.completed()[-1]).files() - store.load(store.completed()[-2]).files()
    path = f"{JOB_ID}/chk-4/_metadata" if what == "metadata" else f"{JOB_ID}/{min(f.path for f in only_newest)}"
    damage(words.storage, path)

    job = words.run(checkpoints=KEEP_THREE)

    assert {skipped.rpartition("/")[2] for skipped, _ in job.heard.skipped} == {"chk-4"}
    assert all(isinstance(reason, CheckpointDamagedError) for _, reason in job.heard.skipped)
    assert all(path.rpartition("/")[2] in str(reason) for _, reason in job.heard.skipped)
    assert [epoch for _, epoch in job.heard.restored_from][-1] == 3
    assert job.state(UID) == words.expected_state()
    assert words.output() == words.expected_output()  # what the fourth had published is withdrawn


def test_when_every_checkpoint_is_damaged_the_job_refuses_to_begin_anew() -> None:
    words = WordCount(EPOCHS)
    killed_before_epoch_5(words)
    for each in words.storage.list(JOB_ID):
        truncate(words.storage, each.path)

    with pytest.raises(CheckdamError):
        words.job(checkpoints=KEEP_THREE).run()

    assert len(CheckpointStore(words.storage, JOB_ID).completed()) == 3


@pytest.mark.parametrize("retained", [1, 2, 4])
def test_as_many_checkpoints_stay_as_asked_for(retained: int) -> None:
    words = WordCount(EPOCHS)

    words.run(checkpoints=replace(EVERY_EPOCH, num_retained=retained))

    assert CheckpointStore(words.storage, JOB_ID).completed() == [1, 2, 3, 4, 5][-retained:]
    assert words.leftovers() == []


KEPT = {
    (CheckpointRetention.RETAIN_ON_CANCELLATION, JobEnd.FINISHED): True,
    (CheckpointRetention.RETAIN_ON_CANCELLATION, JobEnd.CANCELLED): True,
    (CheckpointRetention.RETAIN_ON_CANCELLATION, JobEnd.FAILED): True,
    (CheckpointRetention.DELETE_ON_CANCELLATION, JobEnd.FINISHED): False,
    (CheckpointRetention.DELETE_ON_CANCELLATION, JobEnd.CANCELLED): False,
    (CheckpointRetention.DELETE_ON_CANCELLATION, JobEnd.FAILED): True,
    (CheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS, JobEnd.FINISHED): False,
    (CheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS, JobEnd.CANCELLED): False,
    (CheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS, JobEnd.FAILED): False,
}


def test_a_job_that_keeps_no_checkpoint_leaves_no_directory(tmp_path: Path) -> None:
    words = WordCount(EPOCHS, storage=open_storage(str(tmp_path)))

    words.job(checkpoints=replace(EVERY_EPOCH, retention=CheckpointRetention.DELETE_ON_CANCELLATION)).run()

    assert list(tmp_path.iterdir()) == []


def test_the_directory_taskowned_is_there_from_the_start_and_goes_with_the_last_checkpoint(tmp_path: Path) -> None:
    place, seen = tmp_path / JOB_ID / "taskowned", []
    words = WordCount(EPOCHS, storage=open_storage(str(tmp_path)))
    look = Trouble(Step.BEFORE_EPOCH, lambda engine, moment: seen.append(place.is_dir()), number=1)

    words.job(checkpoints=EVERY_EPOCH, troubles=[look]).run()
    assert (seen, place.is_dir()) == ([True], True)

    words.job(checkpoints=replace(EVERY_EPOCH, retention=CheckpointRetention.DELETE_ON_CANCELLATION)).run()
    assert not place.exists()


@pytest.mark.parametrize(("retention", "end"), KEPT)
def test_what_stays_after_each_end_is_what_retention_says_and_nothing_half(
    retention: CheckpointRetention, end: JobEnd
) -> None:
    words = WordCount(EPOCHS)
    job: LocalJob

    def end_it(engine: LocalEngine, moment: Moment) -> None:
        if end is JobEnd.CANCELLED:
            job.cancel()
        elif end is JobEnd.FAILED:
            kill_slot(0)(engine, moment)

    job = words.job(
        checkpoints=replace(EVERY_EPOCH, retention=retention),
        restart=NoRestart(),
        troubles=[Trouble(Step.BEFORE_EPOCH, end_it, number=4)],
    )
    try:
        job.run()
    except JobFailedError:
        assert end is JobEnd.FAILED

    assert job.heard.end is end
    kept = CheckpointStore(words.storage, JOB_ID).completed()
    assert len(kept) == (1 if KEPT[retention, end] else 0)
    assert job.heard.last_checkpoint == (f"{job.uri}/chk-{kept[0]}" if kept else None)
    assert [path for path in words.leftovers() if "part-" not in path] == []


NEVER_KEPT = replace(EVERY_EPOCH, retention=CheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS)


def test_a_job_that_loses_its_jvm_keeps_its_checkpoints_whatever_the_retention() -> None:
    def lose_jvm(engine: LocalEngine, moment: Moment) -> None:
        raise EngineLostError("the JVM has ended")

    words = WordCount(EPOCHS)
    job = words.job(checkpoints=NEVER_KEPT, troubles=[Trouble(Step.BEFORE_EPOCH, lose_jvm, number=4)])
    with pytest.raises(EngineLostError):
        job.run()

    assert job.heard.last_checkpoint == f"{job.uri}/chk-3"
    words.job(checkpoints=NEVER_KEPT).run()
    assert words.output() == words.expected_output()
    assert words.leftovers() == []


class _Fails(MapFunction):
    def open(self, ctx: RuntimeContext) -> None:
        raise ConnectionError("the service is down")

    def map(self, value: object) -> object:
        return value


def _with_another_type(stream: DataStream[Any]) -> DataStream[Any]:
    return stream.map(lambda word: (word, "1"), output_type=tuple[str, str]).key_by(0, key_type=str).max(1).uid(UID)


def _with_a_service(stream: DataStream[Any]) -> DataStream[Any]:
    counts = stream.map(lambda word: (word, 1), output_type=tuple[str, int]).key_by(0, key_type=str).sum(1).uid(UID)
    return counts.map(_Fails(), output_type=tuple[str, int])


@pytest.mark.parametrize(
    ("change", "reason"), [(_with_another_type, StateNotRestorableError), (_with_a_service, UserFunctionError)]
)
def test_a_job_that_cannot_start_from_its_checkpoint_keeps_it_whatever_the_retention(
    change: Callable[[DataStream[Any]], DataStream[Any]], reason: type[CheckdamError]
) -> None:
    words = WordCount(EPOCHS)
    with pytest.raises(DriverKilled):
        words.job(checkpoints=NEVER_KEPT, troubles=[Trouble(Step.BEFORE_EPOCH, kill_driver, number=4)]).run()

    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        change(stream).sink_to_files(words._sink_uri).uid("out")

    changed = LocalJob(build, EPOCHS, words.storage, record_type=str, checkpoints=NEVER_KEPT, restart=NoRestart())
    with pytest.raises(reason):
        changed.run()

    words.job(checkpoints=NEVER_KEPT).run()
    assert words.output() == words.expected_output()


def test_a_cancelled_job_keeps_no_more_checkpoints_than_asked_for() -> None:
    words = WordCount(EPOCHS)
    killed_before_epoch_5(words)  # leaves three
    job: LocalJob
    cancel = Trouble(Step.BEFORE_EPOCH, lambda engine, moment: job.cancel())
    job = words.job(checkpoints=EVERY_EPOCH, troubles=[cancel])

    heard = job.run()

    assert heard.end is JobEnd.CANCELLED
    assert CheckpointStore(words.storage, JOB_ID).completed() == [4]
    assert words.leftovers() == []


def test_output_that_a_completed_checkpoint_covers_is_published_although_the_job_is_cancelled_meanwhile() -> None:
    words = WordCount(EPOCHS)
    job: LocalJob
    troubles = [
        Trouble(Step.METADATA_WRITTEN, lambda engine, moment: job.cancel(), number=2),
        Trouble(Step.COMMITTING, refuse, number=2),
    ]
    job = words.job(troubles=troubles)

    job.run()

    assert job.heard.end is JobEnd.CANCELLED
    assert sum(words.output().values()) == len(EPOCHS[0]) + len(EPOCHS[1])
    words.run()
    assert words.output() == words.expected_output()
    assert words.leftovers() == []


def test_rescaling_from_one_to_three_to_two_slots_keeps_every_key() -> None:
    words = WordCount(EPOCHS)
    for parallelism, epoch in ((1, 2), (3, 4)):
        killed = words.job(
            parallelism=parallelism, troubles=[Trouble(Step.BEFORE_EPOCH, kill_driver, number=epoch + 1)]
        )
        with pytest.raises(DriverKilled):
            killed.run()
        assert len({w for e in EPOCHS[:epoch] for w in e}) == len(killed.state(UID))

    job = words.run(parallelism=2)

    assert job.heard.epochs[-1].held.keys == len(words.expected_state())
    assert job.state(UID) == words.expected_state()
    assert words.output() == words.expected_output()
    assert words.leftovers() == []


@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_job_started_from_anothers_checkpoint_leaves_it_untouched_and_soon_needs_none_of_it(parallelism: int) -> None:
    words = WordCount(EPOCHS)
    killed = killed_before_epoch_5(words)
    theirs = {each.path: words.storage.read(each.path) for each in words.storage.list("")}
    other = words.job(job_id=OTHER, checkpoints=EVERY_EPOCH, parallelism=parallelism)

    heard = other.run(restore=f"{killed.uri}/chk-4")

    assert [epoch for _, epoch in heard.restored_from] == [4]
    assert {path: words.storage.read(path) for path in theirs} == theirs
    assert {each.path for each in words.storage.list(JOB_ID)} == set(theirs)
    checkpoint = other.checkpoint()
    assert all(words.storage.status(f"{OTHER}/{file.path}") for file in checkpoint.files())
    assert other.state(UID) == words.expected_state()


def test_after_a_restart_with_the_same_slots_the_first_checkpoint_builds_on_the_last() -> None:
    words = WordCount(EPOCHS)
    killed = killed_before_epoch_5(words)
    before = killed.checkpoint().files()

    job = words.run()

    assert before & job.checkpoint().files()
    assert job.heard.completed[0].new_bytes < job.heard.completed[0].state_bytes / 2


def test_a_failover_before_the_first_own_checkpoint_goes_back_to_the_one_given() -> None:
    words = WordCount(EPOCHS)
    killed = killed_before_epoch_5(words)
    other = words.job(job_id=OTHER, troubles=[Trouble(Step.BEFORE_SNAPSHOT, kill_slot(1))])

    heard = other.run(restore=f"{killed.uri}/chk-3")

    assert [path.rpartition("/")[2] for path, _ in heard.restored_from] == ["chk-3", "chk-3"]
    assert other.state(UID) == words.expected_state()


def test_state_that_the_job_has_no_place_for_is_refused_before_anything_runs() -> None:
    words = WordCount(EPOCHS)
    killed = killed_before_epoch_5(words)
    changed = LocalJob(
        lambda env, stream: stream.key_by(lambda word: word, key_type=str).reduce(max).uid("other"),
        EPOCHS,
        MemoryStorage(),
        job_id=OTHER,
    )

    with pytest.raises(StateNotRestorableError, match='holds state of operator "count"'):
        changed.run(restore=f"{killed.uri}/chk-4")

    assert changed.heard.epochs == []
    assert changed.run(restore=f"{killed.uri}/chk-4", allow_non_restored_state=True).end is JobEnd.FINISHED
