"""Stop with savepoint: nothing comes behind it, everything before it is published, and a new job goes on exactly."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.programs import alarms, shown
from tests.support.savepoint_places import SavepointPlace
from tests.support.word_count import UID, WordCount

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.checkpoint.checkpoint_store import load_checkpoint
from checkdam.checkpoint.settings import CheckpointConfig, JobEnd
from checkdam.errors import CheckdamError, JobControlError
from checkdam.graph.functions import CheckpointedFunction, SourceFunction
from checkdam.ids import JobId
from checkdam.runtime.job_control import SavepointFormat
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_records import SnapshotKind
from checkdam.state.descriptors import ListStateDescriptor
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.testing.gate import Gate
from checkdam.testing.local_job import EVERY_EPOCH, LocalJob
from checkdam.testing.trouble import Step, Trouble, ask, refuse, wait_for

EPOCHS = [["a", "b", "a"], ["c", "a"], ["b", "d"], ["a", "e"]]
ON_REQUEST = replace(EVERY_EPOCH, interval=None)
ANOTHER = JobId("d" * 32)
CANONICAL = SavepointFormat.CANONICAL


def stopping(
    words: WordCount, place: SavepointPlace, before: int, **options: Any
) -> tuple[LocalJob, list[Future[str]]]:
    """A job that is stopped when it has planned this epoch and not run it."""
    asked: list[Future[str]] = []
    drain = options.pop("drain", False)
    stop = ask(lambda: job.control.stop_with_savepoint(place.uri, CANONICAL, drain=drain), asked)
    troubles = [Trouble(Step.BEFORE_EPOCH, stop, number=before), *options.pop("troubles", ())]
    job = words.job(troubles=troubles, **options)
    return job, asked


@pytest.mark.parametrize("before", [2, 3, 4])
@pytest.mark.parametrize("checkpoints", [EVERY_EPOCH, ON_REQUEST], ids=["every epoch", "on request"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_job_that_goes_on_from_the_savepoint_loses_and_repeats_nothing(
    before: int, checkpoints: CheckpointConfig, parallelism: int
) -> None:
    words, place = WordCount(EPOCHS), SavepointPlace()
    job, asked = stopping(words, place, before, checkpoints=checkpoints)

    heard = job.run()
    path = asked[0].result(0)
    published = sum(words.output().values())
    resumed = words.job(job_id=ANOTHER, parallelism=parallelism)
    resumed.run(restore=path)

    assert heard.end is JobEnd.FINISHED
    assert heard.statuses[-1] is JobStatus.FINISHED
    assert published == sum(len(epoch) for epoch in EPOCHS[: before - 1])  # all of it, with no one's help
    assert [stats.epoch for stats in resumed.heard.epochs] == list(range(before, 5))
    assert resumed.state(UID) == words.expected_state()
    assert words.output() == words.expected_output()


def test_the_newest_checkpoint_of_a_stopped_job_holds_what_the_savepoint_holds() -> None:
    words, place = WordCount(EPOCHS), SavepointPlace()
    job, asked = stopping(words, place, 3, checkpoints=ON_REQUEST)
    job.run()
    savepoint, _ = load_checkpoint(asked[0].result(0))

    resumed = words.job()
    resumed.run()

    assert (savepoint.epoch, savepoint.is_savepoint) == (2, True)
    assert [stats.epoch for stats in resumed.heard.epochs] == [3, 4]
    assert words.output() == words.expected_output()


def test_without_checkpoint_storage_the_output_is_published_too() -> None:
    words, place = WordCount(EPOCHS), SavepointPlace()
    asked: list[Future[str]] = []
    stop = ask(lambda: job.control.stop_with_savepoint(place.uri, CANONICAL, drain=False), asked)
    troubles = [Trouble(Step.BEFORE_EPOCH, stop, number=3)]
    job = LocalJob(words.build, words.epochs, None, record_type=str, checkpoints=CheckpointConfig(), troubles=troubles)

    job.run()
    published = sum(words.output().values())
    words.job(job_id=ANOTHER).run(restore=asked[0].result(0))

    assert published == 5
    assert words.output() == words.expected_output()


def test_two_stops_at_once_are_one_and_a_refusal() -> None:
    written, gate, place = threading.Event(), Gate(), SavepointPlace()
    words = WordCount(EPOCHS)
    troubles = [Trouble(Step.WRITING_SAVEPOINT, wait_for(written))]
    job = words.job(until=gate, checkpoints=ON_REQUEST, troubles=troubles)
    control = job.start()
    first = control.stop_with_savepoint(place.uri, CANONICAL, drain=False)

    failures = [
        control.stop_with_savepoint(place.uri, CANONICAL, drain=True).exception(60),
        control.rescale(3).exception(60),
    ]
    written.set()

    assert [str(each).partition(". ")[0] for each in failures] == [
        "the job is being stopped with a savepoint already"
    ] * 2
    assert [first.result(60)] == place.complete()
    job.join()


@pytest.mark.parametrize("step", [Step.WRITING_SAVEPOINT, Step.BEFORE_SAVEPOINT_METADATA])
def test_when_the_savepoint_fails_the_job_goes_on_and_can_be_stopped_again(step: Step) -> None:
    words, place = WordCount(EPOCHS), SavepointPlace()
    asked: list[Future[str]] = []
    stop = ask(lambda: job.control.stop_with_savepoint(place.uri, CANONICAL, drain=False), asked)
    job = words.job(
        troubles=[
            Trouble(step, refuse),
            Trouble(Step.BEFORE_EPOCH, stop, number=2),
            Trouble(Step.BEFORE_EPOCH, stop, number=4),
        ]
    )

    job.run()

    failure = asked[0].exception(0)
    assert isinstance(failure, JobControlError)
    assert "the job was not stopped: savepoint" in str(failure)
    assert job.heard.restarts == []
    assert [asked[1].result(0)] == place.complete()
    assert [stats.epoch for stats in job.heard.epochs] == [1, 2, 3]


def test_a_savepoint_that_hangs_is_given_up_though_nothing_else_happens() -> None:
    words, place, written = WordCount(EPOCHS), SavepointPlace(), threading.Event()
    checkpoints = replace(ON_REQUEST, timeout=timedelta(milliseconds=200))
    hang = Trouble(Step.WRITING_SAVEPOINT, wait_for(written))
    job, asked = stopping(words, place, 2, checkpoints=checkpoints, parallelism=1, troubles=[hang])
    job.start()
    assert hang.happened.wait(60)

    failure = asked[0].exception(60)

    written.set()
    job.join()
    assert "timed out" in str(failure)
    assert words.output() == words.expected_output()
    assert place.files() == []


def test_a_job_that_ends_by_itself_cannot_be_stopped_any_more(tmp_path: Path) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hold(engine: Any, moment: Any) -> None:
        reached.set()
        assert go_on.wait(60)

    words = WordCount(EPOCHS)
    job = words.job(checkpoints=ON_REQUEST, troubles=[Trouble(Step.BEFORE_METADATA, hold)])  # of the final checkpoint
    control = job.start()
    assert reached.wait(60)

    failure = control.stop_with_savepoint(str(tmp_path), CANONICAL, drain=False).exception(60)

    assert "used up its input" in str(failure)
    go_on.set()
    assert job.join().end is JobEnd.FINISHED
    assert list(tmp_path.iterdir()) == []


def test_a_failure_behind_the_savepoint_names_it_and_the_job_fails_over_from_its_last_checkpoint() -> None:
    words, place = WordCount(EPOCHS), SavepointPlace()
    final = Trouble(Step.BEFORE_METADATA, refuse, number=2)  # 1 is the savepoint
    job, asked = stopping(words, place, 3, troubles=[final], checkpoints=ON_REQUEST)

    job.run()

    failure = asked[0].exception(0)
    assert isinstance(failure, CheckdamError)
    assert place.complete()[0] in str(failure)
    assert words.output() == words.expected_output()


def test_a_cancel_that_comes_with_the_end_does_not_change_what_the_end_was() -> None:
    words = WordCount(EPOCHS)
    job = words.job()
    told = job.heard.status_changed

    def cancel_late(status: JobStatus) -> None:
        told(status)
        if status is JobStatus.FINISHED:
            job.control._enter(JobStatus.CANCELLING)  # type: ignore[attr-defined]  # of a cancel that began before

    job.heard.status_changed = cancel_late  # type: ignore[method-assign]

    heard = job.run()

    assert heard.end is JobEnd.FINISHED
    assert heard.statuses[-1] is JobStatus.FINISHED


def test_a_listener_that_fails_at_the_end_leaves_nobody_waiting() -> None:
    words, place = WordCount(EPOCHS), SavepointPlace()
    job, asked = stopping(words, place, 3)

    def fail(end: Any, last_checkpoint: Any) -> None:
        raise BrokenPipeError("nobody reads what is printed")

    job.heard.job_ended = fail  # type: ignore[method-assign]

    with pytest.raises(BrokenPipeError):
        job.run()

    assert [asked[0].result(0)] == place.complete()


# Time and sources of one's own


@pytest.mark.parametrize("drain", [True, False])
def test_with_drain_every_timer_fires_and_without_they_are_kept(drain: bool) -> None:
    place = SavepointPlace()
    asked: list[Future[str]] = []
    stop = ask(lambda: job.control.stop_with_savepoint(place.uri, CANONICAL, drain=drain), asked)
    job = LocalJob(
        alarms,
        [[("a", 1), ("b", 2)], [("c", 3)], [("d", 9000)]],
        MemoryStorage(),
        checkpoints=ON_REQUEST,
        record_type=tuple[str, int],
        troubles=[Trouble(Step.BEFORE_EPOCH, stop, number=3)],
    )
    job.run()
    checkpoint, _ = load_checkpoint(asked[0].result(0))

    assert checkpoint.epoch == (3 if drain else 2)
    assert shown(job) == (Counter(["a@1001", "b@1002", "c@1003"]) if drain else Counter())
    if not drain:
        resumed = LocalJob(
            alarms, [[], [], [("d", 9000)]], MemoryStorage(), job_id=ANOTHER, record_type=tuple[str, int]
        )
        resumed.run(restore=asked[0].result(0))
        assert shown(resumed) == Counter(["a@1001", "b@1002", "c@1003", "d@10000"])


def test_when_a_savepoint_fails_after_a_drain_the_job_starts_again_from_before_it() -> None:
    place = SavepointPlace()
    asked: list[Future[str]] = []
    stop = ask(lambda: job.control.stop_with_savepoint(place.uri, CANONICAL, drain=True), asked)
    job = LocalJob(
        alarms,
        [[("a", 1)], [("b", 2)], [("c", 9000)]],
        MemoryStorage(),
        record_type=tuple[str, int],
        troubles=[
            Trouble(Step.BEFORE_SAVEPOINT_METADATA, refuse),
            Trouble(Step.BEFORE_EPOCH, stop, number=3),
        ],
    )

    job.run()

    assert "the job was not stopped" in str(asked[0].exception(0))
    [restart] = job.heard.restarts
    assert "after event time had ended" in str(restart)
    assert job.heard.restored_from == [(f"{job.uri}/chk-2", 2)]
    assert set(shown(job)) == {"a@1001", "b@1002", "c@10000"}


def test_after_a_drain_that_failed_no_checkpoint_is_taken_although_one_is_due() -> None:
    """It would hold the end of event time, and the job would go on from there: all that comes would be late."""
    place = SavepointPlace()

    def stop(engine: Any, moment: Any) -> None:
        failed = job.control.stop_with_savepoint(place.uri, CANONICAL, drain=True)
        assert failed.exception(60)

    job = LocalJob(
        alarms,
        [[("a", 1)], [("b", 2)], [("c", 9000)]],
        MemoryStorage(),
        record_type=tuple[str, int],
        checkpoints=replace(EVERY_EPOCH, interval=timedelta(milliseconds=1)),
        lockstep=False,
        troubles=[Trouble(Step.BEFORE_SAVEPOINT_METADATA, refuse), Trouble(Step.BEFORE_EPOCH, stop, number=3)],
    )

    job.run()

    assert all(epoch <= 2 for _, epoch in job.heard.restored_from)
    assert set(shown(job)) == {"a@1001", "b@1002", "c@10000"}


class Numbers(SourceFunction, CheckpointedFunction):
    """Never ends; what comes next is kept."""

    def initialize_state(self, ctx: Any) -> None:
        self.kept = ctx.operator_state_store.get_list_state(ListStateDescriptor("next", int))
        self.following = next(iter(self.kept.get()), 0)

    def snapshot_state(self, ctx: Any) -> None:
        self.kept.update([self.following])

    def run(self, ctx: Any) -> Iterator[int]:
        while True:
            self.following += 1
            yield self.following - 1


def numbers(environment: StreamExecutionEnvironment, _: DataStream[Any]) -> None:
    environment.add_source(Numbers(), output_type=int).uid("numbers").print()


@pytest.mark.slow
@pytest.mark.parametrize("drain", [True, False])
def test_a_source_function_stops_where_it_is_and_goes_on_from_there(drain: bool) -> None:
    place, storage = SavepointPlace(), MemoryStorage()

    def run_until_stopped(job_id: JobId, restore: str | None) -> tuple[str, list[int]]:
        job = LocalJob(numbers, [], storage, parallelism=1, job_id=job_id, record_type=str, checkpoints=ON_REQUEST)
        control = job.start(restore=restore)
        job.heard.wait_for_epoch(3 if restore is None else job.heard.restored_from[0][1] + 2)
        path = control.stop_with_savepoint(place.uri, CANONICAL, drain=drain).result(60)
        job.join()
        assert not drain or job.heard.epochs[-1].records == 0  # nothing comes behind the end of time
        return path, sorted(int(line) for line in shown(job))

    path, first = run_until_stopped(JobId("1" * 32), None)
    _, second = run_until_stopped(JobId("2" * 32), path)

    assert first + second == list(range(len(first) + len(second)))


def test_a_stop_is_told_of_as_such() -> None:
    words, place = WordCount(EPOCHS), SavepointPlace()
    job, _ = stopping(words, place, 3, checkpoints=ON_REQUEST)

    job.run()

    assert [(each.kind, each.epoch) for each in job.heard.triggered] == [
        (SnapshotKind.SYNC_SAVEPOINT, 2),
        (SnapshotKind.CHECKPOINT, 2),
    ]
    assert job.heard.statuses == [
        JobStatus.INITIALIZING,
        JobStatus.CREATED,
        JobStatus.RUNNING,
        JobStatus.FINISHED,
    ]


class FailsToClose(SourceFunction):
    def run(self, ctx: Any) -> Iterator[int]:
        yield 1
        threading.Event().wait()

    def close(self) -> None:
        raise OSError("no way out")


def test_who_asked_for_a_stop_hears_of_a_function_that_fails_to_close() -> None:
    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        environment.add_source(FailsToClose(), output_type=int).uid("it").print()

    job, place = LocalJob(build, [], MemoryStorage(), record_type=str, checkpoints=ON_REQUEST), SavepointPlace()
    stopped = job.start().stop_with_savepoint(place.uri, CANONICAL, drain=False)

    with pytest.raises(CheckdamError, match="no way out"):
        job.join()
    with pytest.raises(JobControlError, match=r"(?s)is complete and all output published; then:.*no way out"):
        stopped.result(30)
    assert len(place.complete()) == 1
