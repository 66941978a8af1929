"""Checkpoints and savepoints that somebody asks a running job for."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.support.savepoint_places import SavepointPlace
from tests.support.waiting import poll
from tests.support.word_count import UID, WordCount

from checkdam.checkpoint.checkpoint_store import load_checkpoint
from checkdam.checkpoint.ownership import PROMISED
from checkdam.checkpoint.settings import CheckpointConfig, CheckpointRetention, JobEnd, RestoreMode
from checkdam.checkpoint.terms import TERMS, TermFile
from checkdam.connectors.file_sink import STAGING
from checkdam.errors import CheckdamError, JobControlError, RestoreError, SavepointError, UsageError
from checkdam.ids import JobId
from checkdam.processes import Owner, this_process
from checkdam.runtime.job_control import SavepointFormat
from checkdam.runtime.monitor.job_records import SnapshotKind
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.testing.gate import Gate
from checkdam.testing.local_engine import LocalEngine
from checkdam.testing.local_job import EVERY_EPOCH, JOB_ID, LocalJob
from checkdam.testing.manual_clock import ManualClock
from checkdam.testing.trouble import DriverKilled, Moment, Step, Trouble, ask, kill_driver, kill_slot, refuse, wait_for

EPOCHS = [["a", "b", "a"], ["c", "a"], ["b", "d"]]
ON_REQUEST = replace(EVERY_EPOCH, interval=None)
ANOTHER = JobId("d" * 32)
CANONICAL = SavepointFormat.CANONICAL


class Held:
    """A word count that has run its script and idles until the gate opens."""

    def __init__(self, troubles: Any = (), epochs: Any = EPOCHS, **options: Any) -> None:
        self.words = WordCount(epochs)
        self.gate = Gate()
        options.setdefault("checkpoints", ON_REQUEST)
        self.job = self.words.job(until=self.gate, troubles=troubles, **options)
        self.control = self.job.start()
        self.job.heard.wait_for_epoch(len(epochs))
        self.place = SavepointPlace()

    def savepoint(self) -> str:
        return self.control.trigger_savepoint(self.place.uri, CANONICAL).result(60)

    def finish(self) -> None:
        self.gate.open()
        self.job.join()


def refusal(future: Any) -> CheckdamError:
    failure = future.exception(60)
    assert isinstance(failure, CheckdamError)
    return failure


# Checkpoints


def test_a_checkpoint_that_was_asked_for_is_complete_when_it_is_answered() -> None:
    held = Held()

    answer = held.control.trigger_checkpoint().result(60)

    assert held.job.checkpoint().checkpoint_id == answer
    assert held.words.output() == held.words.expected_output()  # published with it
    [stats] = held.job.heard.completed
    [metadata] = [each for each in held.words.storage.list("") if each.path.endswith("/_metadata")]
    assert (stats.kind, stats.metadata_bytes) == (SnapshotKind.CHECKPOINT, metadata.size)
    held.finish()


def test_a_full_checkpoint_refers_to_no_file_of_an_earlier_one() -> None:
    held = Held()
    held.control.trigger_checkpoint().result(60)
    before = held.job.checkpoint().files()
    assert before

    held.control.trigger_checkpoint().result(60)
    incremental = held.job.checkpoint().files()
    held.control.trigger_checkpoint(full=True).result(60)

    assert incremental == before  # nothing has changed, so it is the same files
    assert held.job.checkpoint().files().isdisjoint(before)
    held.finish()


def test_without_storage_a_checkpoint_is_refused_and_the_job_goes_on() -> None:
    gate = Gate()
    words = WordCount(EPOCHS)
    job = LocalJob(words.build, words.epochs, None, record_type=str, until=gate, checkpoints=CheckpointConfig())
    control = job.start()

    failure = refusal(control.trigger_checkpoint())

    assert isinstance(failure, UsageError)
    assert "state.checkpoints.dir" in str(failure)
    gate.open()
    job.join()
    assert words.output() == words.expected_output()


def test_no_more_checkpoints_than_allowed_are_in_progress_and_the_rest_waits() -> None:
    written = threading.Event()
    held = Held([Trouble(Step.SNAPSHOT_TAKEN, wait_for(written), number=1)])
    first, second = held.control.trigger_checkpoint(), held.control.trigger_checkpoint()
    held.savepoint()  # a barrier later than both requests, so the second could have been cut by now

    assert [each.kind for each in held.job.heard.triggered] == [SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT]
    assert not second.done()

    written.set()
    assert first.result(60) < second.result(60)
    held.finish()


def test_a_checkpoint_that_is_declined_says_so_and_counts_as_failed() -> None:
    checkpoints = replace(ON_REQUEST, tolerable_failures=1)
    held = Held([Trouble(Step.WRITING, refuse), Trouble(Step.WRITING, refuse)], checkpoints=checkpoints)

    tolerated = refusal(held.control.trigger_checkpoint())
    failed_over = refusal(held.control.trigger_checkpoint())

    assert isinstance(tolerated, JobControlError)
    assert "checkpoint 1 failed: subtask" in str(tolerated)
    assert "checkpoint 2 failed: subtask" in str(failed_over)
    held.finish()
    [restart] = held.job.heard.restarts
    assert "failed in a row: 2, tolerated: 1" in str(restart)
    assert held.words.output() == held.words.expected_output()


def test_a_checkpoint_that_takes_too_long_is_given_up() -> None:
    clock, written = ManualClock(), threading.Event()
    checkpoints = replace(ON_REQUEST, timeout=timedelta(seconds=5), tolerable_failures=9)
    held = Held([Trouble(Step.SNAPSHOT_TAKEN, wait_for(written), number=1)], checkpoints=checkpoints, clock=clock)
    answer = held.control.trigger_checkpoint()
    held.savepoint()  # by now the checkpoint has been cut

    clock.advance(6)

    assert "timed out" in str(refusal(answer))
    written.set()
    held.finish()


@pytest.mark.parametrize("verb", ["checkpoint", "savepoint"])
def test_when_the_job_fails_over_what_was_asked_for_fails_and_the_job_goes_on(verb: str) -> None:
    held = Held([Trouble(Step.SNAPSHOT_TAKEN, kill_slot(1), number=1)])

    if verb == "checkpoint":
        failure = refusal(held.control.trigger_checkpoint())
    else:
        failure = refusal(held.control.trigger_savepoint(held.place.uri, CANONICAL))

    assert isinstance(failure, JobControlError)
    assert "the job fails over" in str(failure)
    held.finish()
    assert held.words.output() == held.words.expected_output()
    assert held.place.files() == []


def test_of_a_job_that_has_ended_nothing_can_be_asked() -> None:
    held = Held()
    held.finish()

    failures = [
        refusal(held.control.trigger_checkpoint()),
        refusal(held.control.trigger_savepoint(held.place.uri, CANONICAL)),
        refusal(held.control.stop_with_savepoint(held.place.uri, CANONICAL, drain=False)),
        refusal(held.control.rescale(1)),
    ]

    assert {str(failure) for failure in failures} == {'job "local job" is FINISHED'}


def test_what_waits_when_the_job_is_cancelled_is_told_so() -> None:
    written = threading.Event()
    held = Held([Trouble(Step.SNAPSHOT_TAKEN, wait_for(written), number=1)])
    answers = [held.control.trigger_checkpoint(), held.control.trigger_checkpoint()]

    held.control.cancel()
    written.set()
    held.job.join()

    assert all("the job was cancelled" in str(refusal(answer)) for answer in answers)


# Savepoints


def test_a_savepoint_lets_a_new_job_go_on_exactly_where_it_was_taken() -> None:
    asked: list[Any] = []
    words, place = WordCount(EPOCHS), SavepointPlace()
    job = words.job(
        checkpoints=ON_REQUEST,
        troubles=[
            Trouble(Step.BEFORE_EPOCH, ask(lambda: job.control.trigger_savepoint(place.uri, CANONICAL), asked), 3)
        ],
    )
    job.run()
    again = WordCount(EPOCHS)
    restored = again.job(job_id=ANOTHER)

    restored.run(restore=asked[0].result())

    assert [stats.epoch for stats in restored.heard.epochs] == [3]
    assert restored.state(UID) == words.expected_state()


def test_a_savepoint_publishes_nothing_and_the_next_checkpoint_does() -> None:
    held = Held()

    held.savepoint()
    after_savepoint = held.words.output()
    held.control.trigger_checkpoint().result(60)

    assert not after_savepoint
    assert held.words.output() == held.words.expected_output()
    held.finish()
    assert held.words.output() == held.words.expected_output()


def test_output_between_the_last_checkpoint_and_a_savepoint_is_published_by_who_restores_it() -> None:
    held = Held()
    savepoint = held.savepoint()

    held.control.cancel()
    held.job.join()
    before = held.words.output()
    held.words.job(job_id=ANOTHER).run(restore=savepoint)

    assert not before
    assert held.words.output() == held.words.expected_output()


def killed_behind_a_savepoint(words: WordCount, place: SavepointPlace, *before: Trouble) -> str:
    """A job with a savepoint of two epochs, whose driver died then."""
    save = ask(lambda: job.control.trigger_savepoint(place.uri, CANONICAL))
    troubles = [*before, Trouble(Step.BEFORE_EPOCH, save, 3), Trouble(Step.EPOCH_DONE, kill_driver, 3)]
    job = words.job(troubles=troubles, checkpoints=ON_REQUEST)
    for each in before:
        each.do = ask(lambda: job.control.trigger_checkpoint())
    with pytest.raises(DriverKilled):
        job.run()
    [path] = place.complete()
    return path


def test_output_that_only_a_savepoint_holds_outlives_a_job_that_died_without_a_checkpoint() -> None:
    words, place = WordCount(EPOCHS), SavepointPlace()
    path = killed_behind_a_savepoint(words, place)
    dead = Owner(this_process().machine, 2**30, "1")
    [term] = words.storage.list(f"{JOB_ID}/{TERMS}")
    words.storage.write(term.path, msgspec.json.encode(TermFile(dead)))

    words.job(job_id=ANOTHER).run(restore=path)

    assert words.output() == words.expected_output()


@pytest.mark.parametrize("end", [JobEnd.CANCELLED, JobEnd.FINISHED])
def test_output_that_only_a_savepoint_holds_outlives_the_next_driver_of_its_job(end: JobEnd) -> None:
    words, place = WordCount(EPOCHS), SavepointPlace()
    path = killed_behind_a_savepoint(words, place, Trouble(Step.BEFORE_EPOCH, kill_driver, 2))

    def end_it(engine: LocalEngine, moment: Moment) -> None:
        if end is JobEnd.CANCELLED:
            resumed.cancel()
        else:
            ask(lambda: resumed.control.stop_with_savepoint(place.uri, CANONICAL, drain=False))(engine, moment)

    resumed = words.job(checkpoints=ON_REQUEST, troubles=[Trouble(Step.BEFORE_EPOCH, end_it, 2)])
    resumed.run()
    before = sum(words.output().values())

    restored = words.job(job_id=ANOTHER)
    restored.run(restore=path)

    assert resumed.heard.end is end
    assert before == len(EPOCHS[0])
    assert restored.heard.missing == []
    assert words.output() == words.expected_output()


def test_a_job_that_exhausts_its_input_after_going_back_behind_a_savepoint_leaves_no_output_to_it() -> None:
    words, place = WordCount(EPOCHS), SavepointPlace()
    killed_behind_a_savepoint(words, place, Trouble(Step.BEFORE_EPOCH, kill_driver, 2))

    words.job(checkpoints=ON_REQUEST).run()

    assert words.output() == words.expected_output()
    assert words.leftovers() == []  # every record is published: the savepoint's copy would repeat some


@pytest.mark.parametrize("content", [b"{half", b'{"version":2,"committables":{}}'])
def test_promises_that_cannot_be_read_are_not_taken_for_none(content: bytes) -> None:
    words, place = WordCount(EPOCHS), SavepointPlace()
    killed_behind_a_savepoint(words, place)
    [promised] = [each.path for each in words.storage.list(JOB_ID) if PROMISED in each.path]
    staged = [each.path for each in words.sink.list("")]
    words.storage.write(promised, content)

    with pytest.raises(RestoreError, match=PROMISED):
        words.job().run()

    assert [each.path for each in words.sink.list("")] == staged


def test_a_savepoint_needs_no_checkpoint_storage_and_disturbs_no_output() -> None:
    gate, place = Gate(), SavepointPlace()
    words = WordCount(EPOCHS)
    job = LocalJob(words.build, words.epochs, None, record_type=str, until=gate, checkpoints=CheckpointConfig())
    control = job.start()
    job.heard.wait_for_epoch(3)

    path = control.trigger_savepoint(place.uri, CANONICAL).result(60)
    gate.open()
    job.join()

    assert words.output() == words.expected_output()
    again = WordCount(EPOCHS)
    restored = again.job(job_id=ANOTHER)
    restored.run(restore=path)
    assert restored.state(UID) == words.expected_state()


def test_savepoints_are_taken_one_after_the_other() -> None:
    written = threading.Event()
    held = Held([Trouble(Step.WRITING_SAVEPOINT, wait_for(written))])

    answers = [held.control.trigger_savepoint(held.place.uri, CANONICAL) for _ in range(3)]
    held.control.trigger_checkpoint(full=True).result(60)  # time in which a second one could begin
    begun = [each for each in held.job.heard.triggered if each.kind is SnapshotKind.SAVEPOINT]
    written.set()

    assert len(begun) <= 1
    paths = [answer.result(60) for answer in answers]
    assert sorted(paths) == sorted(held.place.complete())
    assert len({load_checkpoint(path)[0].checkpoint_id for path in paths}) == 3
    held.finish()


@pytest.mark.parametrize("step", [Step.WRITING_SAVEPOINT, Step.BEFORE_SAVEPOINT_METADATA])
def test_a_savepoint_that_fails_leaves_nothing_and_counts_for_nothing(step: Step) -> None:
    held = Held([Trouble(step, refuse)], checkpoints=replace(ON_REQUEST, tolerable_failures=0))

    failure = refusal(held.control.trigger_savepoint(held.place.uri, CANONICAL))

    assert "savepoint 1 failed" in str(failure)
    assert held.place.files() == []
    assert held.savepoint() in held.place.complete()  # the job goes on, and the next one succeeds
    held.finish()
    assert held.job.heard.restarts == []


def test_a_place_where_no_savepoint_can_be_is_refused_before_anything_happens() -> None:
    held = Held()

    failure = refusal(held.control.trigger_savepoint(held.job.uri, CANONICAL))

    assert isinstance(failure, SavepointError)
    assert held.job.heard.triggered == []
    held.finish()


def test_a_checkpoint_that_completes_meanwhile_does_not_abort_a_savepoint_nor_take_its_ground() -> None:
    written = threading.Event()
    held = Held([Trouble(Step.WRITING_SAVEPOINT, wait_for(written))], checkpoints=replace(ON_REQUEST, num_retained=1))
    held.control.trigger_checkpoint().result(60)
    savepoint = held.control.trigger_savepoint(held.place.uri, SavepointFormat.NATIVE)

    for _ in range(2):
        held.control.trigger_checkpoint(full=True).result(60)
    written.set()

    path = savepoint.result(60)
    assert held.job.heard.failed_checkpoints == []
    held.finish()
    restored = WordCount(EPOCHS).job(job_id=ANOTHER)
    restored.run(restore=path)
    assert restored.state(UID) == held.words.expected_state()


def test_a_savepoint_is_told_of_as_one_with_its_progress() -> None:
    held = Held()

    path = held.savepoint()

    [trigger] = held.job.heard.triggered
    [stats] = held.job.heard.completed
    assert (trigger.kind, trigger.savepoint_format, trigger.epoch) == (SnapshotKind.SAVEPOINT, "CANONICAL", 3)
    assert (stats.kind, stats.path) == (SnapshotKind.SAVEPOINT, path)
    assert stats.metadata_bytes > 0
    assert held.job.heard.progress == [*(f"savepoint 1: {slots} of 2 slots" for slots in range(3)), None]
    assert sorted(each.subtask for each in held.job.heard.acknowledged) == [0, 1]
    held.finish()


def test_retention_never_touches_a_savepoint() -> None:
    held = Held(checkpoints=replace(ON_REQUEST, retention=CheckpointRetention.RETAIN_ON_FAILURE, num_retained=1))
    path = held.savepoint()
    before = held.place.files()

    for _ in range(3):
        held.control.trigger_checkpoint().result(60)
    held.finish()

    assert held.place.files() == before
    assert load_checkpoint(path)[0].is_savepoint
    assert not [each.path for each in held.words.storage.list("") if each.path.endswith("_metadata")]


def test_a_request_waits_for_the_epoch_that_runs_and_then_goes_first() -> None:
    """Not in the middle of an epoch, and before the next: the savepoint is of the epoch under way."""
    in_epoch, go_on = threading.Event(), threading.Event()
    place = SavepointPlace()

    def hold(engine: Any, moment: Any) -> None:
        in_epoch.set()
        assert go_on.wait(60)

    words = WordCount([[word] for word in "abcdef"])
    job = words.job(checkpoints=ON_REQUEST, troubles=[Trouble(Step.BEFORE_LEVEL, hold, number=2)])
    control = job.start()
    assert in_epoch.wait(60)
    answer = control.trigger_savepoint(place.uri, CANONICAL)
    attempt = job._master._running if job._master is not None else None
    assert attempt is not None
    poll(lambda: any(attempt._server._orders.values()))  # the savepoint has a place, and waits for the slots

    go_on.set()

    checkpoint, _ = load_checkpoint(answer.result(60))
    assert checkpoint.epoch == 2
    job.join()


# Restored savepoints


@pytest.mark.parametrize("mode", RestoreMode)
def test_a_claimed_savepoint_goes_with_the_first_checkpoint_and_any_other_stays(mode: RestoreMode) -> None:
    held = Held()
    path = held.savepoint()
    held.finish()
    gate = Gate()
    job = held.words.job(job_id=ANOTHER, checkpoints=ON_REQUEST, until=gate)
    control = job.start(restore=path, mode=mode)

    assert held.place.complete() == [path]  # until then it is all there is
    control.trigger_checkpoint().result(60)
    control.trigger_savepoint(SavepointPlace().uri, CANONICAL).exception(60)  # the committer has come to what is behind

    assert held.place.complete() == ([] if mode is RestoreMode.CLAIM else [path])
    gate.open()
    job.join()
    assert job.heard.left == []
    assert job.state(UID) == held.words.expected_state()


# Places that take long


def test_a_slow_place_of_a_savepoint_does_not_hold_up_checkpoints() -> None:
    writing, written = threading.Event(), threading.Event()

    def hold(engine: Any, moment: Any) -> None:
        writing.set()
        assert written.wait(60)

    held = Held([Trouble(Step.BEFORE_SAVEPOINT_METADATA, hold)])
    savepoint = held.control.trigger_savepoint(held.place.uri, CANONICAL)
    assert writing.wait(60)

    held.control.trigger_checkpoint().result(60)

    assert not savepoint.done()
    written.set()
    assert [savepoint.result(60)] == held.place.complete()
    held.finish()


class Hanging(MemoryStorage):
    """Answers nothing until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.may_answer = threading.Event(), threading.Event()

    def list(self, directory: str) -> Any:
        self.asked.set()
        assert self.may_answer.wait(60)
        return super().list(directory)


def test_a_place_that_does_not_answer_keeps_no_job_from_being_cancelled() -> None:
    held, storage = Held(), Hanging()
    answer = held.control.trigger_savepoint(SavepointPlace(storage).uri, CANONICAL)
    assert storage.asked.wait(60)

    held.control.cancel()
    held.job.join()

    assert "the job was cancelled" in str(refusal(answer))
    storage.may_answer.set()


def test_a_savepoint_whose_prepared_output_is_gone_fails_and_nothing_is_left_at_its_place() -> None:
    def lose_output(*_: object) -> None:
        held.words.sink.delete_directory(STAGING)

    held = Held([Trouble(Step.BEFORE_SAVEPOINT_METADATA, lose_output)])

    failure = refusal(held.control.trigger_savepoint(held.place.uri, CANONICAL))

    assert "output that was not yet published is gone" in str(failure)
    assert held.place.complete() == []
    held.finish()
    assert held.words.output() == held.words.expected_output()


def test_a_savepoint_does_not_miss_output_that_was_published_and_read_since_its_barrier() -> None:
    def publish_and_read(*moment: object) -> None:
        for _ in range(2):  # the one behind it must not make the first be forgotten
            held.control.trigger_checkpoint().result(60)
        assert held.words.output() == held.words.expected_output()
        for each in held.words.sink.list(""):
            held.words.sink.delete(each.path)

    held = Held([Trouble(Step.BEFORE_SAVEPOINT_METADATA, publish_and_read)])

    path = held.savepoint()

    assert held.place.complete() == [path]
    held.finish()
