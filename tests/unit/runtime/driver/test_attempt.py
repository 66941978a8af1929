"""The loop of an attempt: when it opens, what it does not wait for, and faults of the driver itself."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.word_count import UID, WordCount

from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.checkpoint.settings import CheckpointingMode, JobEnd
from checkdam.ids import CheckpointId, Epoch
from checkdam.runtime.driver import attempt
from checkdam.runtime.driver.attempt import AttemptRun
from checkdam.runtime.driver.epoch_input import OfferedEpoch
from checkdam.runtime.driver.epoch_runner import EpochRunner
from checkdam.runtime.driver.event_loop import EventLoop
from checkdam.runtime.driver.request_server import RequestServer
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.source_position import decode_position
from checkdam.testing.gate import Gate
from checkdam.testing.local_engine import LocalEngine
from checkdam.testing.local_job import EVERY_EPOCH
from checkdam.testing.manual_clock import ManualClock
from checkdam.testing.trouble import Moment, Step, Trouble, signal, wait_for

EPOCHS = [["a"], ["b"], ["c"]]


def test_a_checkpoint_asked_for_while_the_engine_resumes_is_taken_behind_it() -> None:
    """Before it, the checkpoint would hold restored state and no position: the records would come again."""
    is_asked, gate = threading.Event(), Gate()

    class ResumesSlowly(LocalEngine):
        def resume(self, last_epoch: Epoch, position: bytes) -> None:
            assert not position or is_asked.wait(60)
            super().resume(last_epoch, position)

    words = WordCount(EPOCHS)
    words.job(engines=ResumesSlowly).run()
    job = words.job(engines=ResumesSlowly, until=gate)
    asked: list[Future[CheckpointId]] = []

    def ask(slots: Any) -> None:
        asked.append(job.control.trigger_checkpoint())
        is_asked.set()

    job.heard.slots_started = ask  # type: ignore[method-assign]
    job.start()

    asked[0].result(60)
    (held,) = decode_position(job.checkpoint().source_position).held
    assert (held.lines, job.state(UID)) == ([3], words.expected_state())
    gate.open()
    job.join()


def test_a_fault_of_the_driver_while_an_epoch_waits_fails_over_and_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    offered, asked = threading.Event(), list[Future[None]]()
    has, is_first = CheckpointStore.has, [True]

    def has_or_raises(self: CheckpointStore, checkpoint_id: CheckpointId) -> bool:
        if is_first.pop() if is_first else False:
            assert offered.wait(60)
            raise RuntimeError("unforeseen")
        return has(self, checkpoint_id)

    def rescale(engine: LocalEngine, moment: Moment) -> None:
        asked.append(job.control.rescale(1))

    def note_offer(self: EpochRunner, epoch: OfferedEpoch) -> None:
        offer(self, epoch)
        if asked:
            offered.set()

    offer = EpochRunner.epoch_offered
    monkeypatch.setattr(EpochRunner, "epoch_offered", note_offer)
    monkeypatch.setattr(CheckpointStore, "has", has_or_raises)
    words = WordCount([["a"], ["b"], ["c"], ["d"]])
    job = words.job(troubles=[Trouble(Step.BEFORE_EPOCH, rescale, number=3)], lockstep=False)

    assert job.run().end is JobEnd.FINISHED
    assert asked[0].done()
    assert words.output() == words.expected_output()


def test_at_least_once_epochs_do_not_wait_for_a_checkpoint_that_is_being_written() -> None:
    is_written = threading.Event()
    words = WordCount([["a"], ["b"], ["c"]])
    at_least_once = replace(EVERY_EPOCH, mode=CheckpointingMode.AT_LEAST_ONCE)
    slow = Trouble(Step.BEFORE_METADATA, wait_for(is_written), number=1)
    job = words.job(checkpoints=at_least_once, lockstep=False, troubles=[slow])
    job.start()

    job.heard.wait_for_epoch(3)
    is_written.set()

    assert job.join().end is JobEnd.FINISHED


def test_an_interruption_of_the_program_ends_the_attempt_and_its_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no bound on the end of a job, its loop runs in the thread of the program, which Ctrl-C interrupts."""
    in_epoch, following = threading.Event(), EventLoop._next

    def interrupted(self: EventLoop, wait: float | None, end: float | None) -> Any:
        if in_epoch.is_set():
            in_epoch.clear()
            raise KeyboardInterrupt
        return following(self, 0.01 if wait is None else wait, end)

    def until_killed(engine: LocalEngine, moment: Moment) -> None:
        in_epoch.set()
        assert engine.slots[0]._ended.wait(60)

    monkeypatch.setattr(EventLoop, "_next", interrupted)
    monkeypatch.setattr(attempt, "_BREAK_OFF_SECONDS", 0.01)
    words = WordCount([["a"], ["b"]])
    hang = Trouble(Step.BEFORE_LEVEL, until_killed, number=2)
    job = words.job(troubles=[hang], lockstep=False, cancellation_timeout=timedelta(0))

    with pytest.raises(KeyboardInterrupt):
        job.run()


def test_a_slow_listener_gets_slots_started_before_the_status_running() -> None:
    in_epoch, order = threading.Event(), list[str]()

    def slots_started(slots: Any) -> None:
        assert in_epoch.wait(60)
        order.append("slots started")

    words = WordCount(EPOCHS)
    job = words.job(troubles=[Trouble(Step.BEFORE_LEVEL, signal(in_epoch), number=1)], lockstep=False)
    job.heard.slots_started = slots_started  # type: ignore[method-assign]
    job.heard.status_changed = order.append  # type: ignore[method-assign, assignment]

    job.run()

    assert order.index("slots started") < order.index(JobStatus.RUNNING)


def test_a_cancel_neither_waits_for_a_slow_listener_nor_overtakes_earlier_events() -> None:
    is_cancelled, order = threading.Event(), list[str]()

    def slots_started(slots: Any) -> None:
        assert is_cancelled.wait(60)
        order.append("slots started")

    def cancel(engine: LocalEngine, moment: Moment) -> None:
        job.cancel()
        is_cancelled.set()

    job = WordCount(EPOCHS).job(troubles=[Trouble(Step.BEFORE_LEVEL, cancel, number=1)], lockstep=False)
    job.heard.slots_started = slots_started  # type: ignore[method-assign]
    job.heard.status_changed = order.append  # type: ignore[method-assign, assignment]

    assert job.run().end is JobEnd.CANCELLED
    assert order[-4:] == ["slots started", JobStatus.RUNNING, JobStatus.CANCELLING, JobStatus.CANCELED]


def test_a_deadline_that_passes_while_the_loop_begins_things_is_not_overlooked(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, is_written, is_armed, waits = ManualClock(), threading.Event(), threading.Event(), list[float | None]()
    advance, look = AttemptRun._advance, RequestServer.look_for_places

    def advance_and_note(self: AttemptRun) -> float | None:
        if self.coordinator.in_progress and not waits:
            is_armed.set()
        wait = advance(self)
        if is_armed.is_set():
            is_armed.clear()
            waits.append(wait)
        return wait

    def look_while_time_passes(self: RequestServer) -> None:
        look(self)
        if is_armed.is_set():
            clock.advance(EVERY_EPOCH.timeout)
            is_written.set()

    monkeypatch.setattr(AttemptRun, "_advance", advance_and_note)
    monkeypatch.setattr(RequestServer, "look_for_places", look_while_time_passes)
    slow = Trouble(Step.WRITING, wait_for(is_written), number=1)
    checkpoints = replace(EVERY_EPOCH, tolerable_failures=100)
    WordCount(EPOCHS).job(checkpoints=checkpoints, troubles=[slow], clock=clock, lockstep=False).run()

    assert waits[0] is not None
