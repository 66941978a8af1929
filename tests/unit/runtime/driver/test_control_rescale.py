"""Another parallelism while the job runs: nothing is lost, repeated or asked for twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.savepoint_places import SavepointPlace
from tests.support.word_count import UID, WordCount

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.checkpoint.settings import CheckpointConfig, JobEnd
from checkdam.errors import JobControlError, JobGraphError, SlotLostError, UsageError
from checkdam.runtime.driver.final_checkpoint import FinalCheckpoint
from checkdam.runtime.job_control import SavepointFormat
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.restart import FixedDelayRestart, NoRestart
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.testing.gate import Gate
from checkdam.testing.local_engine import LocalEngine
from checkdam.testing.local_job import EVERY_EPOCH, LocalJob
from checkdam.testing.trouble import Step, Trouble, ask, refuse, wait_for

EPOCHS = [["a", "b", "a", "c"], ["c", "a", "d"], ["b", "d", "e"], ["a", "f"], ["g", "a"]]
ON_REQUEST = replace(EVERY_EPOCH, interval=None)


def rescaling(words: WordCount, steps: dict[int, int], **options: Any) -> tuple[LocalJob, list[Future[None]]]:
    """A job that before these epochs is asked to go on at these parallelisms."""
    asked: list[Future[None]] = []

    def to(parallelism: int) -> Callable[[], Future[None]]:
        return lambda: job.control.rescale(parallelism)

    troubles = [Trouble(Step.BEFORE_EPOCH, ask(to(n), asked), number=epoch) for epoch, n in steps.items()]
    job = words.job(troubles=[*options.pop("troubles", ()), *troubles], **options)
    return job, asked


@pytest.mark.parametrize("checkpoints", [EVERY_EPOCH, ON_REQUEST], ids=["every epoch", "on request"])
def test_up_and_down_neither_loses_nor_repeats_anything(checkpoints: CheckpointConfig) -> None:
    words = WordCount(EPOCHS)
    job, asked = rescaling(words, {2: 3, 4: 1, 5: 6}, checkpoints=checkpoints)

    heard = job.run()

    assert [answer.exception(0) for answer in asked] == [None, None, None]
    assert heard.rescales == [(3, None), (1, None), (6, None)]
    assert [stats.epoch for stats in heard.epochs] == [1, 2, 3, 4, 5]  # none of them twice
    assert [len(stats.reports) for stats in heard.epochs] == [2, 3, 3, 1, 6]
    assert heard.restarts == []
    assert job.state(UID) == words.expected_state()
    assert words.output() == words.expected_output()
    assert words.leftovers() == []
    assert job.checkpoint().parallelism == 6


def test_the_status_tells_of_it() -> None:
    words = WordCount(EPOCHS)
    job, _ = rescaling(words, {3: 3})

    heard = job.run()

    assert heard.statuses == [
        JobStatus.INITIALIZING,
        JobStatus.CREATED,
        JobStatus.RUNNING,
        JobStatus.RESTARTING,
        JobStatus.RUNNING,
        JobStatus.FINISHED,
    ]
    assert heard.progress == ["rescaling to parallelism 3", "restoring", None, None]


@pytest.mark.parametrize("parallelism", [0, -1, 129, 10_000])
def test_a_parallelism_that_cannot_be_is_refused_before_anything_happens(parallelism: int) -> None:
    words, gate = WordCount(EPOCHS), Gate()
    job = words.job(until=gate)
    control = job.start()

    failure = control.rescale(parallelism).exception(60)

    assert isinstance(failure, JobGraphError)
    assert f"parallelism {parallelism}" in str(failure)
    gate.open()
    assert job.join().rescales == []
    assert words.output() == words.expected_output()


def test_the_parallelism_that_the_job_has_is_no_change() -> None:
    words, gate = WordCount(EPOCHS), Gate()
    job = words.job(until=gate, checkpoints=ON_REQUEST)
    control = job.start()

    assert control.rescale(2).result(0) is None

    gate.open()
    assert job.join().statuses.count(JobStatus.RUNNING) == 1


def test_without_checkpoints_there_is_nothing_to_go_on_from() -> None:
    words, gate = WordCount(EPOCHS), Gate()
    job = LocalJob(words.build, words.epochs, None, record_type=str, until=gate, checkpoints=CheckpointConfig())
    control = job.start()

    failure = control.rescale(3).exception(60)

    assert isinstance(failure, UsageError)
    assert "cannot be rescaled" in str(failure)
    gate.open()
    job.join()


def with_a_fixed_one(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
    counts = stream.map(lambda word: (word, 1), output_type=tuple[str, int]).key_by(0, key_type=str).sum(1).uid("sum")
    fixed = counts.key_by(0, key_type=str).max(1).uid("max")
    fixed.set_parallelism(2)
    fixed.print()


def test_an_operator_with_a_parallelism_of_its_own_keeps_it() -> None:
    gate = Gate()
    job = LocalJob(with_a_fixed_one, EPOCHS, MemoryStorage(), record_type=str, until=gate, parallelism=1)
    control = job.start()

    control.rescale(3).result(60)
    gate.open()
    job.join()

    assert {entry.uid: entry.parallelism for entry in job.checkpoint().operators} == {"sum": 3, "max": 2}


@pytest.mark.parametrize("step", [Step.WRITING, Step.BEFORE_METADATA])
def test_a_failure_before_the_cut_is_durable_leaves_the_job_as_it_was(step: Step) -> None:
    words = WordCount(EPOCHS)
    checkpoints = replace(ON_REQUEST, tolerable_failures=1)
    job, asked = rescaling(words, {3: 3}, checkpoints=checkpoints, troubles=[Trouble(step, refuse)])

    heard = job.run()

    failure = asked[0].exception(0)
    assert isinstance(failure, JobControlError)
    assert "the job was not rescaled: checkpoint 1 failed" in str(failure)
    assert heard.rescales == [(3, failure)]
    assert heard.statuses.count(JobStatus.RUNNING) == 1
    assert [len(stats.reports) for stats in heard.epochs] == [2] * 5
    assert words.output() == words.expected_output()


def _without_room(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    start = LocalEngine.start_slots

    def start_if_few(self: LocalEngine, attempt: Any, count: int) -> Any:
        if count > most:
            raise SlotLostError(f"there is no room for {count} slots")
        return start(self, attempt, count)

    monkeypatch.setattr(LocalEngine, "start_slots", start_if_few)


def test_slots_that_do_not_start_are_a_failure_and_the_job_goes_on_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    _without_room(monkeypatch, 2)
    words = WordCount(EPOCHS)
    job, asked = rescaling(words, {3: 4}, restart=FixedDelayRestart(attempts=1, delay=timedelta(0)))

    heard = job.run()

    assert "did not start at parallelism 4: there is no room" in str(asked[0].exception(0))
    [(parallelism, reason)] = heard.rescales
    assert (parallelism, str(reason)) == (4, str(asked[0].exception(0)))
    assert [str(each) for each in heard.restarts] == ["there is no room for 4 slots"]
    assert [len(stats.reports) for stats in heard.epochs] == [2] * 5
    assert words.output() == words.expected_output()


def test_without_a_restart_strategy_slots_that_do_not_start_end_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    _without_room(monkeypatch, 2)
    words = WordCount(EPOCHS)
    job, asked = rescaling(words, {3: 4}, restart=NoRestart())

    with pytest.raises(SlotLostError, match="no room for 4"):
        job.run()

    assert asked[0].exception(0) is not None
    assert job.heard.end is JobEnd.FAILED
    monkeypatch.undo()
    words.job().run()  # and what it left is enough to go on from
    assert words.output() == words.expected_output()


def test_a_job_cancelled_on_its_way_to_another_parallelism_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    words = WordCount(EPOCHS)
    job, asked = rescaling(words, {3: 4})
    start = LocalEngine.start_slots

    def start_and_cancel(self: LocalEngine, attempt: Any, count: int) -> Any:
        if count == 4:
            job.control.cancel()
        return start(self, attempt, count)

    monkeypatch.setattr(LocalEngine, "start_slots", start_and_cancel)

    heard = job.run()

    assert heard.end is JobEnd.CANCELLED
    assert heard.statuses[-3:] == [JobStatus.RESTARTING, JobStatus.CANCELLING, JobStatus.CANCELED]
    assert "cancelled before it ran at its new parallelism" in str(asked[0].exception(0))


def test_what_was_asked_for_first_is_done_first() -> None:
    written, gate, place = threading.Event(), Gate(), SavepointPlace()
    words = WordCount(EPOCHS)
    slow = Trouble(Step.SNAPSHOT_TAKEN, wait_for(written), number=1)
    job = words.job(until=gate, checkpoints=ON_REQUEST, troubles=[slow])
    control = job.start()
    job.heard.wait_for_epoch(len(EPOCHS))

    asked: list[Future[Any]] = [
        control.trigger_checkpoint(),
        control.trigger_checkpoint(),  # has to wait for the first
        control.trigger_savepoint(place.uri, SavepointFormat.CANONICAL),
        control.rescale(3),  # would take the others' chance
    ]
    written.set()

    assert [answer.exception(60) for answer in asked] == [None, None, None, None]
    gate.open()
    job.join()


def test_cancelling_is_told_of_and_what_is_retained_can_be_resumed() -> None:
    words, gate = WordCount(EPOCHS), Gate()
    job = words.job(until=gate)
    control = job.start()
    job.heard.wait_for_epoch(5)

    control.cancel()
    control.cancel()

    heard = job.join()
    assert heard.end is JobEnd.CANCELLED
    assert heard.statuses[-2:] == [JobStatus.CANCELLING, JobStatus.CANCELED]
    assert heard.statuses.count(JobStatus.CANCELLING) == 1
    words.job().run()
    assert words.output() == words.expected_output()


def test_a_job_that_is_being_cancelled_is_nothing_else_until_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    job = WordCount(EPOCHS).job()
    monkeypatch.setattr(LocalEngine, "resume", lambda *_: job.control.cancel())  # the slots have their state by now

    heard = job.run()

    assert heard.statuses == [
        JobStatus.INITIALIZING,
        JobStatus.CREATED,
        JobStatus.CANCELLING,
        JobStatus.CANCELED,
    ]


def test_a_job_that_fails_for_good_says_so_step_by_step() -> None:
    words = WordCount(EPOCHS)
    job = words.job(restart=NoRestart(), troubles=[Trouble(Step.BEFORE_METADATA, refuse, number=2)])

    with pytest.raises(Exception, match="tolerated: 0"):
        job.run()

    assert job.heard.statuses[-3:] == [JobStatus.RUNNING, JobStatus.FAILING, JobStatus.FAILED]


def test_a_cancel_in_the_moment_of_the_cut_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    cover = FinalCheckpoint.cover

    def cover_and_cancel(self: FinalCheckpoint, then: Any, **options: Any) -> None:
        def covered(failure: BaseException | None) -> None:
            job.cancel()
            self._loop.post(lambda: then(failure))

        cover(self, covered, **options)

    monkeypatch.setattr(FinalCheckpoint, "cover", cover_and_cancel)
    job, asked = rescaling(WordCount(EPOCHS), {3: 3})

    heard = job.run()

    assert heard.end is JobEnd.CANCELLED
    assert "the job was not rescaled: the job was cancelled" in str(asked[0].exception(0))
    assert [parallelism for parallelism, failure in heard.rescales if failure is not None] == [3]


def test_a_job_that_is_cancelled_before_it_runs_again_was_not_rescaled() -> None:
    words = WordCount(EPOCHS)
    job, asked = rescaling(words, {3: 3})
    replanned = job.heard.replanned

    def cancel(plan: Any) -> None:
        replanned(plan)
        job.cancel()

    job.heard.replanned = cancel  # type: ignore[method-assign]

    heard = job.run()

    assert heard.end is JobEnd.CANCELLED
    assert isinstance(asked[0].exception(0), JobControlError)
    assert heard.rescales == [(3, asked[0].exception(0))]


def test_a_listener_that_fails_leaves_nobody_waiting() -> None:
    words = WordCount(EPOCHS)
    job, asked = rescaling(words, {3: 3})
    told = job.heard.rescaled

    def fail_once(parallelism: int, failure: Any) -> None:
        job.heard.rescaled = told  # type: ignore[method-assign]
        raise BrokenPipeError("nobody reads what is printed")

    job.heard.rescaled = fail_once  # type: ignore[method-assign]

    job.run()

    assert asked[0].exception(0) is None
    assert words.output() == words.expected_output()


def test_of_a_job_that_has_ended_not_even_its_own_parallelism_can_be_asked_for() -> None:
    job, _ = rescaling(WordCount(EPOCHS), {})
    job.run()

    assert "FINISHED" in str(job.control.rescale(2).exception(0))
