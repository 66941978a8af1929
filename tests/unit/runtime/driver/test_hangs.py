"""Whole jobs in which something hangs: they fail over, or end, and say where it hung."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.savepoint_places import SavepointPlace
from tests.support.waiting import poll
from tests.support.word_count import UID, WordCount

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.checkpoint.settings import CheckpointConfig, JobEnd
from checkdam.errors import CheckdamError, EngineLostError, GivenUpError, JobControlError, JobFailedError, SlotLostError
from checkdam.graph.functions import MapFunction, SourceFunction
from checkdam.runtime.driver import attempt
from checkdam.runtime.driver.end_watch import EndWatch
from checkdam.runtime.driver.hang_watch import HangWatch
from checkdam.runtime.driver.outputs import Outputs
from checkdam.runtime.heartbeat import Heartbeat
from checkdam.runtime.job_control import SavepointFormat
from checkdam.runtime.restart import NoRestart
from checkdam.runtime.stalls import Stall
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.testing.gate import Gate
from checkdam.testing.local_engine import LocalEngine
from checkdam.testing.local_job import EVERY_EPOCH, Heard, LocalJob
from checkdam.testing.local_slot import LocalSlot
from checkdam.testing.trouble import Moment, Step, Trouble, kill_slot, wait_for

FAST = Heartbeat(timedelta(milliseconds=20), timedelta(seconds=10))
IMPATIENT = replace(EVERY_EPOCH, timeout=timedelta(milliseconds=200), tolerable_failures=100)  # of a busy machine
SOON = timedelta(milliseconds=300)


class Lock:
    """Taken once, by the first record that comes."""

    begun, gate = threading.Event(), threading.Event()

    @classmethod
    def take(cls, word: str) -> str:
        if not cls.begun.is_set():
            cls.begun.set()
            cls.gate.wait(60)
        return word


@pytest.fixture(autouse=True)
def _open() -> Iterator[None]:
    Lock.begun.clear()
    Lock.gate.clear()
    yield
    Lock.gate.set()


def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
    keyed = stream.key_by(lambda word: word, key_type=str)
    ones = keyed.map(Lock.take, output_type=str).name("take").map(lambda word: (word, 1), output_type=tuple[str, int])
    ones.key_by(0, key_type=str).sum(1).uid(UID).print()


class Looks:
    """What the looks at an attempt have found."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: list[CheckdamError | None] = []
        self._looked = threading.Condition()
        look = HangWatch.look

        def see(watch: HangWatch) -> CheckdamError | None:
            with self._looked:
                self.found.append(look(watch))
                self._looked.notify_all()
                return self.found[-1]

        monkeypatch.setattr(HangWatch, "look", see)

    def wait_for_patience(self) -> None:
        """Wait for as many looks as make three times the patience."""
        with self._looked:
            before = len(self.found)
            assert self._looked.wait_for(lambda: len(self.found) - before > 30, 60)


def test_a_deadlock_in_a_function_fails_over_and_shows_its_stack() -> None:
    job = LocalJob(build, [["a", "b"], ["a"]], MemoryStorage(), checkpoints=IMPATIENT, heartbeat=FAST, record_type=str)
    job.start()
    assert Lock.begun.wait(30)
    poll(lambda: job._target.engine is not None and job._target.engine.is_stopped)
    Lock.gate.set()  # a slot of its own process would be killed; this one is let go
    heard = job.join()

    [failure] = heard.restarts
    assert isinstance(failure, SlotLostError)
    assert 'hangs: operator "take" in level 1 of epoch 1 has stood still for' in str(failure)
    assert "in take\n    cls.gate.wait(60)" in str(failure)
    assert job.state(UID) == {"a": ("a", 2), "b": ("b", 1)}


class Polling(SourceFunction):
    """Polls a queue that is empty for a long time."""

    gate, begun = threading.Event(), threading.Event()

    def run(self, ctx: Any) -> Iterator[str]:
        yield "a"
        Polling.begun.set()
        while not Polling.gate.is_set():
            time.sleep(0.05)
        yield "b"


def polling(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
    words = environment.add_source(Polling(), output_type=str).uid("polling").set_parallelism(1)
    words.map(lambda word: (word, 1), output_type=tuple[str, int]).key_by(0, key_type=str).sum(1).uid(UID).print()


def test_a_source_that_waits_for_records_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch)
    checkpoints = replace(IMPATIENT, tolerable_failures=100)
    options: dict[str, Any] = {"checkpoints": checkpoints, "heartbeat": FAST, "lockstep": False, "restart": NoRestart()}
    job = LocalJob(polling, [[]], MemoryStorage(), record_type=str, **options)
    job.start()
    assert Polling.begun.wait(60)

    looks.wait_for_patience()
    Polling.gate.set()

    assert job.join().end is JobEnd.FINISHED
    assert not any(looks.found)
    assert job.state(UID) == {"a": ("a", 1), "b": ("b", 1)}


class SlowToOpen(MapFunction):
    gate = threading.Event()

    def open(self, ctx: Any) -> None:
        SlowToOpen.gate.wait(60)

    def map(self, value: str) -> str:
        return value


def test_a_function_may_open_for_longer_than_a_checkpoint_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    def build_slow(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        stream.key_by(lambda word: word, key_type=str).map(SlowToOpen(), output_type=str).uid("slow").print()

    looks = Looks(monkeypatch)
    job = LocalJob(build_slow, [["a"]], MemoryStorage(), checkpoints=IMPATIENT, heartbeat=FAST, record_type=str)
    running = threading.Thread(target=job.run, daemon=True)
    running.start()

    looks.wait_for_patience()
    SlowToOpen.gate.set()
    running.join(60)

    assert (job.heard.end, job.heard.restarts) == (JobEnd.FINISHED, [])


@pytest.fixture
def _no_other_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave only `cancellation_timeout` to bound the end of a job, though heartbeats of slots go on."""
    monkeypatch.setattr(attempt, "_BREAK_OFF_SECONDS", 3600.0)
    monkeypatch.setattr(attempt, "_ENDING_SECONDS", 3600.0)


@pytest.mark.usefixtures("_no_other_bound")
def test_a_cancelled_job_ends_though_a_function_never_returns() -> None:
    job = LocalJob(build, [["a"]], MemoryStorage(), heartbeat=FAST, cancellation_timeout=SOON, record_type=str)
    job.start()
    assert Lock.begun.wait(30)

    job.cancel()

    with pytest.raises(GivenUpError, match=r"(?s)does not come to an end: .*in take\n    cls\.gate\.wait\(60\)"):
        job.join()
    assert job.heard.end is JobEnd.FAILED


def test_a_storage_that_hangs_fails_the_job_and_not_only_its_checkpoints() -> None:
    words, gate = WordCount([["a"], ["b"], ["c"]]), threading.Event()
    hang = Trouble(Step.BEFORE_METADATA, wait_for(gate), number=2)
    job = words.job(troubles=[hang], lockstep=False, checkpoints=IMPATIENT, heartbeat=FAST, cancellation_timeout=SOON)
    try:
        with pytest.raises(GivenUpError, match="writing, publishing or removing checkpoints has stood still"):
            job.run()
    finally:
        gate.set()

    assert job.heard.end is JobEnd.FAILED


def test_a_job_that_was_given_up_stays_so_when_the_storage_answers() -> None:
    words, gate = WordCount([["a"], ["b"], ["c"]]), threading.Event()
    hang = Trouble(Step.BEFORE_METADATA, wait_for(gate), number=2)
    job = words.job(troubles=[hang], lockstep=False, checkpoints=IMPATIENT, heartbeat=FAST, cancellation_timeout=SOON)
    before = threading.enumerate()
    with pytest.raises(GivenUpError):
        job.run()
    [thread] = [each for each in threading.enumerate() if each.name == "job" and each not in before]
    heard = list(job.heard.statuses), len(job.heard.completed), len(job.heard.epochs)

    gate.set()
    thread.join(60)

    assert not thread.is_alive()
    assert (job.heard.statuses, len(job.heard.completed), len(job.heard.epochs)) == heard
    assert (job.heard.restarts, job.heard.end) == ([], JobEnd.FAILED)


def test_a_job_that_was_given_up_refuses_the_requests_that_it_serves() -> None:
    words, gate = WordCount([["a"], ["b"], ["c"]]), threading.Event()
    hang = Trouble(Step.BEFORE_METADATA, wait_for(gate), number=1)
    job = words.job(
        troubles=[hang], lockstep=False, checkpoints=CheckpointConfig(), until=Gate(), cancellation_timeout=SOON
    )
    asked = job.start().trigger_checkpoint()
    assert hang.happened.wait(60)

    job.cancel()

    try:
        with pytest.raises(GivenUpError):
            job.join()
        assert isinstance(asked.exception(0), GivenUpError)
    finally:
        gate.set()


def test_a_job_whose_slots_cannot_be_killed_is_given_up_and_names_where_it_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = threading.Event()

    def kill_never(self: LocalSlot) -> None:
        gate.wait(60)

    monkeypatch.setattr(LocalSlot, "kill", kill_never)
    job = WordCount([["a"]]).job(until=Gate(), parallelism=1, cancellation_timeout=SOON)
    job.start()

    job.cancel()

    try:
        with pytest.raises(GivenUpError, match="killing slots has stood still for"):
            job.join()
    finally:
        gate.set()


def test_a_failover_does_not_wait_for_the_watch_of_a_lost_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, ended = threading.Event(), list[bool]()

    def watch(self: LocalSlot, on_beat: object) -> None:
        ended.append(gate.wait(20))

    monkeypatch.setattr(LocalSlot, "hold", watch)
    words = WordCount([["a"], ["b"], ["c"]])

    heard = words.job(troubles=[Trouble(Step.BEFORE_LEVEL, kill_slot(), number=2)]).run()

    assert (len(heard.restarts), heard.end, ended) == (1, JobEnd.FINISHED, [])
    gate.set()


def test_a_cancel_while_slots_start_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, stopped = threading.Event(), threading.Event()

    def start(self: LocalEngine, attempt: object, count: int) -> Any:
        begun.set()
        stopped.wait(60)
        raise JobFailedError("Spark failed: Job 0 cancelled part of cancelled job group checkdam-1")

    monkeypatch.setattr(LocalEngine, "start_slots", start)
    monkeypatch.setattr(LocalEngine, "interrupt", lambda self: stopped.set())
    job = WordCount([["a"]]).job(restart=NoRestart())
    running = threading.Thread(target=job.run, daemon=True)
    running.start()
    assert begun.wait(60)

    job.cancel()
    running.join(60)

    assert job.heard.end is JobEnd.CANCELLED


@pytest.mark.usefixtures("_no_other_bound")
@pytest.mark.parametrize("step", [Step.WRITING_OUTPUT, Step.COMMITTING])
def test_a_job_without_checkpoints_ends_though_its_sink_hangs(step: Step) -> None:
    words, gate = WordCount([["a"], ["b"]]), threading.Event()
    job = LocalJob(
        words.build,
        words.epochs,
        None,
        record_type=str,
        checkpoints=CheckpointConfig(timeout=IMPATIENT.timeout),
        troubles=[Trouble(step, wait_for(gate))],
        heartbeat=FAST,
        cancellation_timeout=SOON,
    )
    job.start()
    try:
        with pytest.raises(GivenUpError):
            job.join()
    finally:
        gate.set()


class Paused(Heard):
    """Prints to a terminal that somebody has paused."""

    def __init__(self, event: str) -> None:
        super().__init__()
        self.gate, self.begun = threading.Event(), threading.Event()
        setattr(self, event, self._show)

    def _show(self, *_: object) -> None:
        self.begun.set()
        self.gate.wait(60)


@pytest.mark.parametrize("event", ["printed", "checkpoint_completed"])
def test_a_terminal_that_is_paused_is_no_hang(event: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Lock.begun.set()
    job = LocalJob(build, [["a"], ["b"]], MemoryStorage(), checkpoints=IMPATIENT, heartbeat=FAST, record_type=str)
    job.heard = paused = Paused(event)
    looks = Looks(monkeypatch)
    running = threading.Thread(target=job.run, daemon=True)
    running.start()
    assert paused.begun.wait(60)

    looks.wait_for_patience()
    paused.gate.set()
    running.join(60)

    assert not any(looks.found)
    assert (job.heard.end, job.heard.restarts) == (JobEnd.FINISHED, [])


@pytest.mark.slow
def test_a_stop_whose_place_hangs_can_be_cancelled() -> None:
    words, place, gate, until = WordCount([["a"]]), SavepointPlace(), threading.Event(), Gate()
    hang = Trouble(Step.BEFORE_SAVEPOINT_METADATA, wait_for(gate))
    job = words.job(troubles=[hang], until=until, heartbeat=FAST, cancellation_timeout=timedelta(seconds=30))
    control = job.start()
    job.heard.wait_for_epoch(1)
    stopping = control.stop_with_savepoint(place.uri, SavepointFormat.CANONICAL, drain=False)
    assert hang.happened.wait(30)

    job.cancel()

    try:
        assert job.join().end is JobEnd.CANCELLED
        assert isinstance(stopping.exception(30), JobControlError)
        assert "does not answer" in str(job.heard.left[0])
    finally:
        gate.set()


def test_a_stop_whose_place_hangs_fails_in_the_time_of_a_checkpoint_and_the_job_goes_on() -> None:
    words, place, gate, until = WordCount([["a"]]), SavepointPlace(), threading.Event(), Gate()
    hang = Trouble(Step.BEFORE_SAVEPOINT_METADATA, wait_for(gate))
    job = words.job(troubles=[hang], until=until, heartbeat=FAST, checkpoints=IMPATIENT)
    control = job.start()
    job.heard.wait_for_epoch(1)

    stopping = control.stop_with_savepoint(place.uri, SavepointFormat.CANONICAL, drain=False)

    try:
        assert "does not answer" in str(stopping.exception(30))
        assert control.trigger_checkpoint().result(30) > 0  # the turn was given back
        until.open()
        assert job.join().end is JobEnd.FINISHED
    finally:
        gate.set()


@pytest.mark.parametrize("hung", ["note", "check_term"])
def test_a_stop_fails_in_time_if_the_storage_of_checkpoints_hangs(hung: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words, place, gate, until = WordCount([["a"]]), SavepointPlace(), threading.Event(), Gate()
    in_time = timedelta(seconds=1)  # for the snapshots, on a busy machine too
    job = words.job(until=until, heartbeat=FAST, checkpoints=replace(IMPATIENT, interval=None, timeout=in_time))
    control = job.start()
    job.heard.wait_for_epoch(1)
    monkeypatch.setattr(Outputs, hung, lambda *_: gate.wait(60))

    stopping = control.stop_with_savepoint(place.uri, SavepointFormat.CANONICAL, drain=False)

    try:
        assert "does not answer" in str(stopping.exception(30))
    finally:
        gate.set()
        monkeypatch.undo()
    until.open()
    assert job.join().end is JobEnd.FINISHED
    assert place.files() == []


def test_a_snapshot_that_hangs_is_not_waited_for_once_its_checkpoint_is_given_up() -> None:
    words, gate = WordCount([["a"], ["b"]]), threading.Event()
    hang = Trouble(Step.WRITING, wait_for(gate), number=1)
    job = words.job(
        troubles=[hang], lockstep=False, checkpoints=replace(IMPATIENT, tolerable_failures=9), until=(until := Gate())
    )
    job.start()
    job.heard.wait_until(lambda: job.heard.failed_checkpoints)
    poll(lambda: not any(thread.name == "snapshot-wait" for thread in threading.enumerate()))
    gate.set()
    until.open()

    assert job.join().end is JobEnd.FINISHED
    assert words.output() == words.expected_output()


def test_an_interruption_never_reaches_the_next_attempt() -> None:
    """It would end it as if its input were used up."""
    words, started, calls = WordCount([["a", "b"], ["a"], ["b"]]), threading.Event(), itertools.count()

    def hold_up(engine: LocalEngine, moment: Moment) -> None:
        interrupt, start_slots = engine.interrupt, engine.start_slots

        def interrupt_late() -> None:
            if next(calls) == 0:
                started.wait(0.3)
            interrupt()

        def start(*arguments: Any) -> Any:
            slots = start_slots(*arguments)
            started.set()
            return slots

        engine.interrupt, engine.start_slots = interrupt_late, start  # type: ignore[method-assign, assignment]

    troubles = [Trouble(Step.BEFORE_EPOCH, hold_up, number=1), Trouble(Step.EPOCH_DONE, kill_slot(), number=2)]
    job = words.job(troubles=troubles)

    job.run()

    assert len(job.heard.restarts) == 1
    assert words.output() == words.expected_output()


def test_what_only_another_process_can_cure_is_not_tried_again() -> None:
    def lose(engine: object, moment: Moment) -> None:
        raise EngineLostError("the JVM of Spark (process 7) has not answered for 50 s and was killed")

    job = WordCount([["a"]]).job(troubles=[Trouble(Step.BEFORE_EPOCH, lose)])

    with pytest.raises(EngineLostError):
        job.run()
    assert job.heard.restarts == []


def test_an_end_that_moves_is_waited_for_however_long_it_takes() -> None:
    watch, stalls = EndWatch(timedelta(milliseconds=100)), [Stall("moving", 0.0, "")]
    watch.begin()

    def end() -> str:
        threading.Event().wait(0.5)
        return "ended"

    assert watch.run(end, lambda: stalls[0], lambda: None) == "ended"
    with pytest.raises(GivenUpError):
        watch.run(end, lambda: None, lambda: None)


def test_a_fault_of_the_watch_over_the_end_does_not_cancel_the_job() -> None:
    watch, faults, cancelled = EndWatch(timedelta(milliseconds=100)), threading.Semaphore(0), threading.Event()

    def others() -> Stall | None:
        faults.release()
        raise RuntimeError("dictionary changed size during iteration")

    assert watch.run(lambda: all(faults.acquire(timeout=30) for _ in range(3)), others, cancelled.set)
    assert not cancelled.is_set()


def test_a_fault_of_the_watch_over_an_attempt_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    faults, until = threading.Semaphore(0), Gate()

    def look(self: HangWatch) -> None:
        faults.release()
        raise RuntimeError("dictionary changed size during iteration")

    monkeypatch.setattr(HangWatch, "look", look)
    job = WordCount([["a"]]).job(heartbeat=FAST, until=until)
    job.start()

    assert all(faults.acquire(timeout=30) for _ in range(3))
    until.open()
    assert (job.join().end, job.heard.restarts) == (JobEnd.FINISHED, [])


def test_whoever_waits_for_a_job_and_is_interrupted_cancels_it() -> None:
    watch, cancelled = EndWatch(timedelta(seconds=1)), threading.Event()

    def others() -> Stall | None:
        if not cancelled.is_set():
            raise KeyboardInterrupt
        return None

    with pytest.raises(KeyboardInterrupt):
        watch.run(lambda: cancelled.wait(30), others, cancelled.set)

    assert cancelled.is_set()
