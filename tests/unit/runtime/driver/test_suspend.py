"""A job that is told to go: its state is saved and kept, whatever it was doing, and the next driver goes on exactly."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.programs import Numbers, alarms, shown
from tests.support.savepoint_places import SavepointPlace
from tests.support.word_count import UID, WordCount

from checkdam.api import signals
from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.launch import Launch
from checkdam.api.streams import DataStream
from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.checkpoint.savepoints import SavepointDirectory
from checkdam.checkpoint.settings import (
    CheckpointConfig,
    CheckpointingMode,
    CheckpointRetention,
    JobEnd,
    keeps_checkpoints,
)
from checkdam.config import Configuration
from checkdam.errors import CheckdamError, StorageError
from checkdam.ids import JobId
from checkdam.runtime.driver.final_checkpoint import FinalCheckpoint
from checkdam.runtime.job_control import RunningJob, SavepointFormat
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_records import CheckpointStatus
from checkdam.runtime.restart import FixedDelayRestart, NoRestart
from checkdam.runtime.slot import generator_thread
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.testing.gate import Gate
from checkdam.testing.local_engine import LocalEngine
from checkdam.testing.local_job import EVERY_EPOCH, JOB_ID, LocalJob
from checkdam.testing.local_slot import LocalSlot
from checkdam.testing.trouble import Deed, Step, Trouble, kill_slot, refuse, wait_for

EPOCHS = [["a", "b", "a"], ["c", "a"], ["b", "d"], ["a", "e"]]
ON_REQUEST = replace(EVERY_EPOCH, interval=None)
DEFAULT = replace(EVERY_EPOCH, retention=CheckpointRetention.DELETE_ON_CANCELLATION)
CANONICAL = SavepointFormat.CANONICAL
SHORT = timedelta(milliseconds=50)
NEVER: Future[Any] = Future()


class Host:
    job: RunningJob | None = None

    def job_started(self, job: RunningJob) -> None:
        self.job = job

    def job_ended(self, job_id: JobId) -> None: ...


def until_stopped(engine: LocalEngine, moment: Any) -> None:
    """The step hangs until the attempt is told to end."""
    engine.wait_for(NEVER)


def suspend(job: Callable[[], LocalJob], *options: timedelta) -> Deed:
    """SIGTERM comes, and the step goes on when the attempt was told to end."""

    def do(engine: LocalEngine, moment: Any) -> None:
        job().suspend(*options)
        engine.wait_for(NEVER)

    return do


def suspended(words: WordCount, before: int, **options: Any) -> LocalJob:
    """A job that was suspended when it had planned this epoch and not run it."""
    troubles = [*options.pop("troubles", ()), Trouble(Step.BEFORE_EPOCH, suspend(lambda: job), number=before)]
    job = words.job(troubles=troubles, **options)
    job.run()
    assert job.heard.end is JobEnd.SUSPENDED
    return job


def completed(words: WordCount) -> list[int]:
    return list(CheckpointStore(words.storage, JOB_ID).completed())


KINDS = {
    "every epoch": EVERY_EPOCH,
    "no interval": ON_REQUEST,
    "at least once": replace(EVERY_EPOCH, mode=CheckpointingMode.AT_LEAST_ONCE),
    "at least once, no interval": replace(ON_REQUEST, mode=CheckpointingMode.AT_LEAST_ONCE),
    "delete on cancellation": DEFAULT,
    "delete on cancellation, no interval": replace(DEFAULT, interval=None),
    "never kept": replace(EVERY_EPOCH, retention=CheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS, num_retained=2),
}


@pytest.mark.parametrize("before", [1, 2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_the_next_driver_loses_and_repeats_nothing(kind: str, before: int) -> None:
    words, checkpoints = WordCount(EPOCHS), KINDS[kind]

    first = suspended(words, before, checkpoints=checkpoints)
    published, kept = sum(words.output().values()), completed(words)
    second = words.job(checkpoints=checkpoints)
    second.run()

    assert first.heard.statuses[-1] is JobStatus.SUSPENDED
    assert (first.heard.missed, first.heard.deleted) == ([], [])
    assert published == sum(len(epoch) for epoch in EPOCHS[: before - 1])
    assert first.heard.last_checkpoint == f"{first.uri}/chk-{kept[-1]}"
    assert len(kept) == min(checkpoints.num_retained, first.heard.completed[-1].checkpoint_id)
    assert [stats.epoch for stats in second.heard.epochs] == list(range(before, 5))  # none of them twice
    assert second.heard.statuses[-1] is JobStatus.FINISHED
    assert words.output() == words.expected_output()
    if keeps_checkpoints(checkpoints.retention, JobEnd.FINISHED):
        assert second.state(UID) == words.expected_state()


def test_suspended_again_and_again_it_gets_there() -> None:
    words = WordCount(EPOCHS)
    for before in (2, 3, 3, 4):
        suspended(words, before, checkpoints=DEFAULT)

    job = words.job(checkpoints=EVERY_EPOCH, parallelism=3)
    job.run()

    assert job.state(UID) == words.expected_state()
    assert words.output() == words.expected_output()
    assert words.leftovers() == []


def test_a_job_without_end_that_waits_for_records_is_suspended_at_once() -> None:
    words, gate = WordCount(EPOCHS), Gate()
    job = words.job(until=gate, checkpoints=replace(DEFAULT, interval=timedelta(hours=1)))
    job.start()
    job.heard.wait_for_epoch(4)

    job.suspend()

    heard = job.join()
    assert heard.end is JobEnd.SUSPENDED
    assert words.output() == words.expected_output()  # published with the last checkpoint
    assert job.state(UID) == words.expected_state()
    assert heard.progress == ["suspending: a last checkpoint, within 60 s"]


# Time and sources of one's own


def test_timers_that_were_not_due_fire_once_in_the_next_run() -> None:
    storage = MemoryStorage()
    epochs = [[("a", 1), ("b", 2)], [("c", 1500)], [("d", 9000)]]
    stop = Trouble(Step.BEFORE_EPOCH, suspend(lambda: first), number=3)
    options: dict[str, Any] = {"checkpoints": ON_REQUEST, "record_type": tuple[str, int]}
    first = LocalJob(alarms, epochs, storage, troubles=[stop], **options)
    first.run()
    second = LocalJob(alarms, epochs, storage, **options)

    assert first.heard.end is JobEnd.SUSPENDED
    assert shown(first) == Counter(["a@1001", "b@1002"])  # event time has not ended: the others are kept
    second.run()
    assert shown(first, second) == Counter(["a@1001", "b@1002", "c@2500", "d@10000"])


def numbers(environment: StreamExecutionEnvironment, _: DataStream[Any]) -> None:
    made = environment.add_source(Numbers(1000), output_type=tuple[str, int]).uid("numbers")
    made.key_by(0, key_type=str).sum(1).uid("sum").print()


@pytest.mark.parametrize("checkpoints", [DEFAULT, replace(DEFAULT, interval=None)], ids=["every epoch", "no interval"])
def test_source_functions_go_on_where_they_were(checkpoints: CheckpointConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator_thread, "MOST_RECORDS", 100)  # of each subtask in an epoch
    storage = MemoryStorage()
    stop = Trouble(Step.BEFORE_EPOCH, lambda engine, moment: first.suspend(), number=3)
    options: dict[str, Any] = {"checkpoints": checkpoints, "record_type": str}
    first = LocalJob(numbers, [], storage, troubles=[stop], **options)
    first.run()
    second = LocalJob(numbers, [], storage, **options)
    made_first = len(first.heard.printed_lines)
    second.run()

    assert first.heard.end is JobEnd.SUSPENDED
    assert shown(first, second) == Counter(f"('{n}', 1)" for n in range(1000))
    assert 0 < made_first < 1000


# No time for a last checkpoint, or nothing to take one of


def test_an_epoch_that_outlasts_the_grace_period_is_broken_off_and_repeated_by_the_next_driver() -> None:
    words = WordCount(EPOCHS)
    hang = Trouble(Step.AFTER_LEVEL, until_stopped, number=3)
    job = words.job(checkpoints=DEFAULT, troubles=[hang])
    job.start()
    assert hang.happened.wait(60)

    job.suspend(SHORT)

    heard = job.join()
    assert heard.end is JobEnd.SUSPENDED
    assert heard.missed == ["it was not complete within 0.05 s (execution.suspend.grace-period)"]
    assert heard.last_checkpoint == f"{job.uri}/chk-2"
    assert sum(words.output().values()) == 5
    words.job(checkpoints=DEFAULT).run()
    assert words.output() == words.expected_output()


def test_with_no_checkpoint_completed_nothing_is_left_and_nothing_was_published() -> None:
    words = WordCount(EPOCHS)
    hang = Trouble(Step.AFTER_LEVEL, until_stopped, number=1)
    job = words.job(checkpoints=DEFAULT, troubles=[hang])
    job.start()
    assert hang.happened.wait(60)

    job.suspend(SHORT)

    heard = job.join()
    assert (heard.end, heard.last_checkpoint) == (JobEnd.SUSPENDED, None)
    assert (completed(words), sum(words.output().values()), words.leftovers()) == ([], 0, [])
    words.job(checkpoints=DEFAULT).run()
    assert words.output() == words.expected_output()


def test_a_checkpoint_that_outlasts_the_grace_period_is_given_up() -> None:
    words = WordCount(EPOCHS)
    hang = Trouble(Step.SNAPSHOT_TAKEN, until_stopped, number=1)
    job = words.job(checkpoints=replace(DEFAULT, interval=None), troubles=[hang], until=Gate())
    job.start()
    job.heard.wait_for_epoch(4)

    job.suspend(SHORT)

    assert job.join().end is JobEnd.SUSPENDED
    assert job.heard.missed == ["it was not complete within 0.05 s (execution.suspend.grace-period)"]
    assert completed(words) == []
    words.job().run()
    assert words.output() == words.expected_output()


def test_without_checkpoints_it_says_that_nothing_is_saved_and_ends() -> None:
    words, gate = WordCount(EPOCHS), Gate()
    job = LocalJob(words.build, words.epochs, None, record_type=str, until=gate, checkpoints=CheckpointConfig())
    job.start()
    job.heard.wait_for_epoch(4)

    job.suspend()

    heard = job.join()
    assert (heard.end, heard.last_checkpoint) == (JobEnd.SUSPENDED, None)
    assert heard.missed == ["the job takes no checkpoints"]
    assert sum(words.output().values()) == 0


@pytest.mark.parametrize("restart", [NoRestart(), FixedDelayRestart(attempts=9, delay=timedelta(hours=1))])
@pytest.mark.parametrize(
    "trouble",
    [
        lambda: Trouble(Step.BEFORE_METADATA, refuse, number=2),
        lambda: Trouble(Step.BEFORE_SNAPSHOT, kill_slot(1), number=2),
        lambda: Trouble(Step.WRITING, refuse, number=2),
    ],
    ids=["metadata refused", "slot lost", "state refused"],
)
def test_a_last_checkpoint_that_fails_ends_the_job_all_the_same(trouble: Callable[[], Trouble], restart: Any) -> None:
    words = WordCount(EPOCHS)
    checkpoints = replace(DEFAULT, interval=None)
    suspended(words, 2, checkpoints=checkpoints)  # leaves the first
    job = suspended(words, 4, checkpoints=checkpoints, troubles=[trouble()], restart=restart)

    assert len(job.heard.missed) == 1
    assert job.heard.restarts == []
    assert completed(words) == [1]
    assert sum(words.output().values()) == 3
    words.job(checkpoints=checkpoints).run()
    assert words.output() == words.expected_output()


def test_a_tolerated_failure_is_told_and_ends_the_job_too() -> None:
    words = WordCount(EPOCHS)
    checkpoints = replace(DEFAULT, interval=None, tolerable_failures=9)
    job = suspended(words, 3, checkpoints=checkpoints, troubles=[Trouble(Step.BEFORE_METADATA, refuse)])

    assert "refused by the test" in job.heard.missed[0]
    words.job().run()
    assert words.output() == words.expected_output()


# While it does not run


def test_a_job_that_waits_for_its_restart_does_not_wait_any_longer() -> None:
    words, restarting = WordCount(EPOCHS), threading.Event()
    job = words.job(
        checkpoints=DEFAULT,
        restart=FixedDelayRestart(attempts=5, delay=timedelta(hours=1)),
        troubles=[Trouble(Step.BEFORE_EPOCH, kill_slot(0), number=3)],
    )
    told = job.heard.status_changed

    def hear(status: JobStatus) -> None:
        told(status)
        if status is JobStatus.RESTARTING:
            restarting.set()

    job.heard.status_changed = hear  # type: ignore[method-assign]
    job.start()
    assert restarting.wait(60)

    job.suspend()

    heard = job.join()
    assert heard.statuses[-2:] == [JobStatus.RESTARTING, JobStatus.SUSPENDED]
    assert heard.last_checkpoint == f"{job.uri}/chk-2"
    words.job(checkpoints=DEFAULT).run()
    assert words.output() == words.expected_output()


@pytest.mark.parametrize("moment", ["start_slots", "resume"])
@pytest.mark.parametrize("before", [None, 3], ids=["new", "resumed"])
def test_a_job_that_has_not_begun_ends_at_once_with_what_it_was_to_start_from(
    moment: str, before: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = WordCount(EPOCHS)
    if before is not None:
        suspended(words, before, checkpoints=DEFAULT)
    kept = completed(words)
    job, do = words.job(checkpoints=DEFAULT), getattr(LocalEngine, moment)

    def suspend_and_do(self: LocalEngine, *arguments: Any) -> Any:
        job.suspend()
        return do(self, *arguments)

    monkeypatch.setattr(LocalEngine, moment, suspend_and_do)
    heard = job.run()
    monkeypatch.undo()

    assert heard.end is JobEnd.SUSPENDED
    assert completed(words) == (kept or ([1] if moment == "resume" else []))  # at "resume" the slots have their state
    words.job(checkpoints=DEFAULT).run()
    assert words.output() == words.expected_output()


def test_a_job_that_is_suspended_before_its_first_attempt_touches_nothing() -> None:
    words = WordCount(EPOCHS)
    suspended(words, 3, checkpoints=DEFAULT)
    kept = completed(words)
    job = words.job(checkpoints=DEFAULT)
    job.heard.job_started = lambda *_: job.suspend()  # type: ignore[method-assign]

    heard = job.run()

    assert heard.statuses == [JobStatus.INITIALIZING, JobStatus.CREATED, JobStatus.SUSPENDED]
    assert completed(words) == kept
    words.job(checkpoints=DEFAULT).run()
    assert words.output() == words.expected_output()


def test_a_job_about_to_end_is_let_end() -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hold(engine: Any, moment: Any) -> None:
        reached.set()
        assert go_on.wait(60)

    words = WordCount(EPOCHS)
    job = words.job(checkpoints=ON_REQUEST, troubles=[Trouble(Step.BEFORE_METADATA, hold)])  # of the final checkpoint
    job.start()
    assert reached.wait(60)

    job.suspend()
    go_on.set()

    assert job.join().end is JobEnd.FINISHED
    assert words.output() == words.expected_output()


# Beside what else is asked


def test_what_waits_is_refused_and_a_savepoint_under_way_holds_up_nothing() -> None:
    words, place, gate = WordCount(EPOCHS), SavepointPlace(), Gate()
    slow = Trouble(Step.WRITING_SAVEPOINT, until_stopped)
    job = words.job(until=gate, checkpoints=replace(DEFAULT, interval=None), troubles=[slow], parallelism=1)
    control = job.start()
    job.heard.wait_for_epoch(4)
    asked: list[Future[Any]] = [control.trigger_savepoint(place.uri, CANONICAL)]
    assert slow.happened.wait(60)
    asked += [control.trigger_savepoint(place.uri, CANONICAL), control.rescale(3)]  # wait for the first

    job.suspend()

    assert job.join().end is JobEnd.SUSPENDED
    assert [str(answer.exception(60)) for answer in asked[1:]] == ["the job was suspended"] * 2
    assert place.complete() == ([asked[0].result(0)] if asked[0].exception(60) is None else [])
    assert (place.files() == []) is (place.complete() == [])
    assert words.output() == words.expected_output()


def test_a_savepoint_whose_place_does_not_answer_keeps_nothing_else_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    words, place, gate, asked = WordCount(EPOCHS), SavepointPlace(), threading.Event(), threading.Event()

    def prepare(*_: object) -> None:
        asked.set()
        gate.wait(60)
        raise StorageError("it never answered")

    monkeypatch.setattr(SavepointDirectory, "prepare", prepare)
    job = words.job(until=Gate(), checkpoints=ON_REQUEST)
    control = job.start()
    job.heard.wait_for_epoch(4)
    savepoint = control.trigger_savepoint(place.uri, CANONICAL)
    assert asked.wait(60)

    assert control.trigger_checkpoint().result(60) == 1
    job.suspend()

    heard = job.join()
    gate.set()
    assert (heard.end, heard.missed) == (JobEnd.SUSPENDED, [])
    assert str(savepoint.exception(60)) == "the job was suspended"
    assert words.output() == words.expected_output()


@pytest.mark.parametrize("is_late", [False, True], ids=["after the end of the job", "after its own timeout"])
def test_a_place_that_is_made_too_late_for_its_savepoint_does_not_stay(
    is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, asked, go_on, removed = SavepointPlace(), threading.Event(), threading.Event(), threading.Event()
    prepare, abandon = SavepointDirectory.prepare, SavepointDirectory.abandon

    def prepare_late(*arguments: Any) -> SavepointDirectory:
        asked.set()
        assert go_on.wait(60)
        return prepare(*arguments)

    def abandon_and_signal(self: SavepointDirectory) -> None:
        abandon(self)
        removed.set()

    monkeypatch.setattr(SavepointDirectory, "prepare", prepare_late)
    monkeypatch.setattr(SavepointDirectory, "abandon", abandon_and_signal)
    timeout = timedelta(milliseconds=10) if is_late else timedelta(minutes=10)
    job = WordCount(EPOCHS).job(until=Gate(), checkpoints=replace(ON_REQUEST, timeout=timeout))
    savepoint = job.start().trigger_savepoint(place.uri, CANONICAL)
    assert asked.wait(60)
    if is_late:
        assert "has not ended within" in str(savepoint.exception(60))
    job.cancel()
    job.join()

    go_on.set()

    assert removed.wait(60)
    assert place.files() == []
    assert is_late or str(savepoint.exception(60)) == "the job was cancelled"


def test_a_stop_under_way_is_completed_first() -> None:
    words, place, gate, written = WordCount(EPOCHS), SavepointPlace(), Gate(), threading.Event()
    slow = Trouble(Step.WRITING_SAVEPOINT, wait_for(written))
    job = words.job(until=gate, checkpoints=ON_REQUEST, troubles=[slow])
    control = job.start()
    job.heard.wait_for_epoch(4)
    stop = control.stop_with_savepoint(place.uri, CANONICAL, drain=False)
    assert slow.happened.wait(60)

    job.suspend()
    written.set()

    assert [stop.result(60)] == place.complete()
    assert job.join().end is JobEnd.FINISHED


def test_a_stop_that_outlasts_the_grace_period_is_refused() -> None:
    words, place, gate = WordCount(EPOCHS), SavepointPlace(), Gate()
    slow = Trouble(Step.WRITING_SAVEPOINT, until_stopped)
    job = words.job(until=gate, checkpoints=DEFAULT, troubles=[slow], parallelism=1)
    control = job.start()
    job.heard.wait_for_epoch(4)
    stop = control.stop_with_savepoint(place.uri, CANONICAL, drain=True)
    assert slow.happened.wait(60)

    job.suspend(SHORT)

    assert job.join().end is JobEnd.SUSPENDED
    assert isinstance(stop.exception(60), CheckdamError)
    words.job(checkpoints=DEFAULT).run()
    assert words.output() == words.expected_output()


def test_a_rescaling_that_has_cut_its_checkpoint_leaves_the_rest_to_the_next_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words, cover = WordCount(EPOCHS), FinalCheckpoint.cover
    asked: list[Future[Any]] = []

    def cover_and_suspend(self: FinalCheckpoint, then: Any, **options: Any) -> None:
        def covered(failure: BaseException | None) -> None:
            job.suspend()
            then(failure)

        cover(self, covered, **options)

    def rescale(engine: LocalEngine, moment: Any) -> None:
        asked.append(job.control.rescale(3))
        engine.wait_for(NEVER)

    monkeypatch.setattr(FinalCheckpoint, "cover", cover_and_suspend)
    job = words.job(checkpoints=DEFAULT, troubles=[Trouble(Step.BEFORE_EPOCH, rescale, number=3)])
    heard = job.run()
    monkeypatch.undo()

    assert heard.end is JobEnd.SUSPENDED
    assert "suspended before it ran at its new parallelism" in str(asked[0].exception(0))
    words.job(checkpoints=DEFAULT).run()
    assert words.output() == words.expected_output()


def test_a_cancel_hurries_a_suspension_and_deletes_nothing() -> None:
    words = WordCount(EPOCHS)
    hang = Trouble(Step.AFTER_LEVEL, until_stopped, number=3)
    job = words.job(checkpoints=DEFAULT, troubles=[hang])
    job.start()
    assert hang.happened.wait(60)

    job.suspend()
    job.cancel()

    heard = job.join()
    assert heard.end is JobEnd.SUSPENDED
    assert JobStatus.CANCELLING not in heard.statuses
    assert completed(words) != []
    job.cancel()  # of a job that has ended
    assert heard.statuses[-1] is JobStatus.SUSPENDED


def test_a_job_that_is_being_cancelled_stays_so_and_says_what_it_deletes() -> None:
    words = WordCount(EPOCHS)
    hang = Trouble(Step.BEFORE_EPOCH, until_stopped, number=3)
    job = words.job(checkpoints=replace(DEFAULT, num_retained=2), troubles=[hang])
    job.start()
    assert hang.happened.wait(60)

    job.cancel()
    job.suspend()

    heard = job.join()
    assert heard.end is JobEnd.CANCELLED
    assert heard.deleted == [1, 2]
    assert completed(words) == []


def test_its_record_says_so_and_which_checkpoints_are_gone_after_a_cancel() -> None:
    records = {}
    for end in (JobEnd.SUSPENDED, JobEnd.CANCELLED):
        words, host = WordCount(EPOCHS), Host()
        job = words.job(until=Gate(), checkpoints=DEFAULT, host=host)
        job.start()
        job.heard.wait_for_epoch(4)
        job.suspend() if end is JobEnd.SUSPENDED else job.cancel()
        job.join()
        assert host.job is not None
        records[end] = host.job.monitor.record()

    suspended, cancelled = records[JobEnd.SUSPENDED], records[JobEnd.CANCELLED]
    assert (suspended.status, cancelled.status) == (JobStatus.SUSPENDED, JobStatus.CANCELED)
    assert suspended.ended_at >= suspended.started_at > 0
    assert (suspended.progress, suspended.checkpoints[0].is_discarded) == (None, False)
    complete = [each for each in cancelled.checkpoints if each.status is CheckpointStatus.COMPLETED]
    assert complete
    assert all(each.is_discarded for each in complete)


def test_slots_are_killed_together_and_the_attempt_can_be_asked_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    words, killed, kill = WordCount(EPOCHS), threading.Event(), LocalSlot.kill
    begun, free = threading.Semaphore(0), threading.Event()
    hang = Trouble(Step.BEFORE_EPOCH, until_stopped, number=3)
    job = words.job(checkpoints=DEFAULT, troubles=[hang], parallelism=2)
    job.start()
    assert hang.happened.wait(60)
    assert job._master is not None
    running = job._master._running
    assert running is not None

    def kill_slowly(slot: LocalSlot) -> None:
        begun.release()
        killed.wait(60)
        kill(slot)

    def ask() -> None:
        running.settle()  # answered by the loop
        free.set()

    monkeypatch.setattr(LocalSlot, "kill", kill_slowly)
    job.suspend(timedelta(0))
    both_begun = [begun.acquire(timeout=10) for _ in range(2)]
    threading.Thread(target=ask, daemon=True).start()
    is_free = free.wait(10)
    killed.set()

    assert both_begun == [True, True]
    assert is_free
    assert job.join().end is JobEnd.SUSPENDED


# Signals


@pytest.mark.parametrize(
    ("number", "end"), [(signal.SIGTERM, JobEnd.SUSPENDED), (signal.SIGINT, JobEnd.CANCELLED)], ids=["TERM", "INT"]
)
def test_sigterm_suspends_and_ctrl_c_cancels(number: signal.Signals, end: JobEnd) -> None:
    words, before = WordCount(EPOCHS), signal.getsignal(number)
    job = words.job(until=Gate(), checkpoints=DEFAULT)
    job.start()
    job.heard.wait_for_epoch(4)
    assert job._master is not None

    with signals.ended_by_signals(job._master, timedelta(seconds=60)) as came:
        os.kill(os.getpid(), number)
        heard = job.join()
        assert signal.getsignal(number) is signal.SIG_DFL  # a second one ends the process

    assert heard.end is end
    assert came == {number}
    assert signal.getsignal(number) is before


def test_a_program_that_was_told_to_go_begins_no_further_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM came when its first job was about to end, and did."""
    told = threading.Event()
    told.set()
    monkeypatch.setattr(signals, "_is_terminating", told)

    with pytest.raises(SystemExit) as left:
        StreamExecutionEnvironment(Launch(Configuration())).execute("the next")

    assert left.value.code == 128 + signal.SIGTERM
