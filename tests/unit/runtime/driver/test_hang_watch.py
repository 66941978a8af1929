"""When an attempt counts as hung."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from checkdam.errors import CheckdamError, JobFailedError, SlotLostError
from checkdam.ids import SubtaskIndex
from checkdam.runtime.driver.hang_watch import HangWatch
from checkdam.runtime.slot.slot_watch import Beat
from checkdam.runtime.stalls import Stall
from checkdam.testing.manual_clock import ManualClock

PATIENCE = timedelta(minutes=10)
ONE = SubtaskIndex(1)


class Attempt:
    """An attempt that waits for Spark, as far as the watch sees it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.progress: Hashable = None
        self.committer: Stall | None = None
        self.listener_is_slow = False
        self.watch = HangWatch(
            PATIENCE,
            timedelta(seconds=10),
            self.clock,
            lambda: self.progress,
            lambda: self.committer,
            lambda: self.listener_is_slow,
        )

    @contextmanager
    def in_epoch(self, at_least: timedelta = timedelta(0)) -> Iterator[None]:
        begun, gate = threading.Event(), threading.Event()

        def collect() -> None:
            with self.watch.expecting_progress("epoch 3", at_least):
                begun.set()
                gate.wait(60)

        thread = threading.Thread(target=collect)
        thread.start()
        assert begun.wait(30)
        try:
            yield
        finally:
            gate.set()
            thread.join(30)

    def looks(self, count: int) -> CheckdamError | None:
        """Look every ten seconds; return the first reason."""
        for _ in range(count):
            self.clock.advance(10)
            reason = self.watch.look()
            if reason is not None:
                return reason
        return None


def test_an_epoch_in_which_nothing_moves_is_hung_and_says_where_the_driver_waits() -> None:
    attempt = Attempt()

    with attempt.in_epoch():
        assert attempt.looks(50) is None
        reason = attempt.looks(20)

    assert isinstance(reason, JobFailedError)
    assert "epoch 3 hangs: no slot and no Spark task has got anything done for 6" in str(reason)
    assert "in collect" in str(reason)
    assert "execution.checkpointing.timeout" in str(reason)


def test_an_epoch_in_which_a_slot_or_a_spark_task_moves_is_not() -> None:
    attempt = Attempt()

    with attempt.in_epoch():
        for step in range(10):
            assert attempt.looks(30) is None
            attempt.progress = step
            assert attempt.looks(30) is None
            assert attempt.watch.beat(ONE, Beat(step)) is None


def test_of_an_epoch_in_which_nothing_moves_that_is_told_which_does_not() -> None:
    attempt = Attempt()
    attempt.watch.beat(ONE, Beat(1, task_stall=Stall("the source side", 20.0, "at x")))

    with attempt.in_epoch():
        reason = attempt.looks(70)

    assert str(reason).startswith("the source side has stood still for 20 s, at:\nat x\n")


def test_work_that_shows_no_progress_may_take_longer() -> None:
    attempt = Attempt()

    with attempt.in_epoch(at_least=timedelta(minutes=20)):
        assert attempt.looks(110) is None
        assert attempt.looks(20) is not None


def test_the_time_of_a_slow_listener_does_not_count() -> None:
    attempt = Attempt()
    attempt.committer = Stall("writing checkpoints", 600.0, "")
    attempt.listener_is_slow = True

    with attempt.in_epoch():
        assert attempt.looks(1000) is None
        attempt.listener_is_slow, attempt.committer = False, None
        assert attempt.looks(50) is None
        assert attempt.looks(20) is not None


def test_without_an_epoch_nothing_has_to_move() -> None:
    assert Attempt().looks(1000) is None


def test_a_driver_that_was_stopped_itself_does_not_blame_the_epoch() -> None:
    attempt = Attempt()

    with attempt.in_epoch():
        attempt.looks(10)
        attempt.clock.advance(timedelta(hours=1))

        assert attempt.looks(1) is None


def test_a_slot_that_stands_still_for_long_enough_is_hung() -> None:
    watch = Attempt().watch

    assert watch.beat(ONE, Beat(1, Stall("seal", 599.0, "at x"))) is None
    reason = watch.beat(ONE, Beat(1, Stall("seal", 600.0, "at x")))

    assert isinstance(reason, SlotLostError)
    assert str(reason).startswith("slot 1 hangs: seal has stood still for 600 s, at:\nat x\n")


def test_a_slot_that_starts_may_stand_still_for_longer_than_a_checkpoint_may_take() -> None:
    watch = HangWatch(
        timedelta(seconds=5),
        timedelta(seconds=1),
        ManualClock(),
        lambda: None,
        lambda: None,
        longest_start=timedelta(minutes=5),
    )

    assert watch.beat(ONE, Beat(1, Stall("configure", 299.0, "at x"))) is None
    assert watch.beat(ONE, Beat(1, Stall("configure", 300.0, "at x"))) is not None
    watch.begun()
    assert watch.beat(ONE, Beat(1, Stall("seal", 5.0, "at x"))) is not None


def test_a_task_that_stands_still_is_not_the_fault_of_the_slot_that_tells() -> None:
    reason = Attempt().watch.beat(ONE, Beat(1, task_stall=Stall("the source side", 600.0, "at x")))

    assert isinstance(reason, JobFailedError)
    assert not isinstance(reason, SlotLostError)


@pytest.mark.parametrize(("seconds", "is_hung"), [(599.0, False), (600.0, True)])
def test_a_committer_that_stands_still_is_hung_also_between_epochs(seconds: float, is_hung: bool) -> None:
    attempt = Attempt()
    attempt.committer = Stall("writing checkpoints", seconds, "")

    assert (attempt.looks(1) is not None) == is_hung


def test_an_epoch_whose_end_is_noticed_late_does_not_end_the_watch_of_the_next() -> None:
    attempt = Attempt()
    late = attempt.watch.expecting_progress("epoch 2")
    late.__enter__()

    with attempt.in_epoch():
        late.__exit__(None, None, None)
        reason = attempt.looks(70)

    assert isinstance(reason, JobFailedError)
    assert "epoch 3 hangs" in str(reason)
