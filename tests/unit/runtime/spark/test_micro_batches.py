from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from checkdam.errors import JobFailedError, SlotLostError
from checkdam.ids import Epoch
from checkdam.runtime.spark.micro_batches import MicroBatches

_SECONDS = 20
_NO_FRAME: Any = None


class Driver:
    """Begins each epoch at once, and ends it when the test says so."""

    def __init__(self) -> None:
        self.executed: list[Epoch] = []
        self.seen: list[BaseException] = []
        self.ends: list[Future[None]] = []

    def run_epoch(self, execute: Callable[[Epoch], None]) -> Future[None]:
        epoch = Epoch(len(self.executed) + 1)
        try:
            execute(epoch)
        except BaseException as failure:
            self.seen.append(failure)
            raise
        self.executed.append(epoch)
        self.ends.append(Future())
        return self.ends[-1]

    def end(self, failure: BaseException | None = None) -> None:
        if failure is None:
            self.ends[-1].set_result(None)
        else:
            self.ends[-1].set_exception(failure)


class Records:
    """Records which micro-batches were executed, in which epoch."""

    def __init__(self) -> None:
        self.moved: list[tuple[int, Epoch]] = []

    def execute(self, of_batch: Any, batch: int, epoch: Epoch) -> None:
        self.moved.append((batch, epoch))


def test_a_micro_batch_returns_before_its_epoch_ends_and_the_next_waits_for_that() -> None:
    driver, records = Driver(), Records()
    batches = MicroBatches(driver.run_epoch, records.execute, lambda: False)

    batches.run(_NO_FRAME, 7)
    following = _in_thread(lambda: batches.run(_NO_FRAME, 8))

    assert not following.done()
    assert records.moved == [(7, 1)]
    driver.end()
    following.result(_SECONDS)
    assert records.moved == [(7, 1), (8, 2)]
    driver.end()
    batches.join(_SECONDS)
    assert batches.failure is None


def test_a_skipped_epoch_executes_nothing() -> None:
    records, driver = Records(), Driver()
    skipped: Future[None] = Future()
    skipped.set_result(None)
    MicroBatches(driver.run_epoch, records.execute, lambda: True).run(_NO_FRAME, 0)
    batches = MicroBatches(lambda execute: skipped, records.execute, lambda: False)
    batches.run(_NO_FRAME, 0)

    assert not records.moved
    assert batches.failure is None


def test_records_are_moved_by_the_thread_that_spark_calls() -> None:
    threads: list[int] = []
    batches = MicroBatches(Driver().run_epoch, lambda *_: threads.append(threading.get_ident()), lambda: False)

    batches.run(_NO_FRAME, 0)

    assert threads == [threading.get_ident()]  # its progress is watched, and the local properties of Spark are its own


def test_the_driver_learns_of_a_failed_micro_batch_before_spark() -> None:
    driver = Driver()

    def fail(of_batch: Any, batch: int, epoch: Epoch) -> None:
        raise JobFailedError("the records are bad")

    batches = MicroBatches(driver.run_epoch, fail, lambda: False)

    with pytest.raises(JobFailedError, match="the records are bad"):
        batches.run(_NO_FRAME, 0)
    assert [str(each) for each in driver.seen] == ["the records are bad"]
    assert isinstance(batches.failure, JobFailedError)


def test_a_refused_epoch_executes_nothing_and_raises_the_reason() -> None:
    records = Records()

    def refuse(execute: Callable[[Epoch], None]) -> Future[None]:
        raise SlotLostError("slot 1 is silent")

    batches = MicroBatches(refuse, records.execute, lambda: False)

    with pytest.raises(SlotLostError):
        batches.run(_NO_FRAME, 0)
    assert not records.moved


def test_an_epoch_that_fails_while_it_ends_stops_the_next() -> None:
    driver, records = Driver(), Records()
    batches = MicroBatches(driver.run_epoch, records.execute, lambda: False)
    batches.run(_NO_FRAME, 0)
    driver.end(SlotLostError("slot 1 is silent"))
    batches.join(_SECONDS)

    assert isinstance(batches.failure, SlotLostError)
    with pytest.raises(SlotLostError):
        batches.run(_NO_FRAME, 1)
    assert records.moved == [(0, 1)]


def test_a_query_that_is_being_stopped_does_not_fail_as_well() -> None:
    driver, is_stopping = Driver(), threading.Event()
    batches = MicroBatches(driver.run_epoch, Records().execute, is_stopping.is_set)
    batches.run(_NO_FRAME, 0)
    is_stopping.set()
    driver.end(SlotLostError("slot 1 is silent"))

    batches.run(_NO_FRAME, 1)

    assert isinstance(batches.failure, SlotLostError)


def test_joining_waits_for_the_end_of_an_epoch() -> None:
    driver = Driver()
    batches = MicroBatches(driver.run_epoch, Records().execute, lambda: False)
    batches.run(_NO_FRAME, 0)

    batches.join(0.01)  # returns although the epoch goes on
    joined = _in_thread(batches.join)
    assert not joined.done()
    driver.end()
    joined.result(_SECONDS)


def _in_thread(work: Callable[[], None]) -> Future[None]:
    done: Future[None] = Future()

    def run() -> None:
        try:
            work()
        except BaseException as failure:  # noqa: BLE001  raised by the test
            done.set_exception(failure)
        else:
            done.set_result(None)

    threading.Thread(target=run, daemon=True).start()
    return done
