"""Which threads stand still, for how long, and where."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from checkdam.graph.operators import MapKind, Operator
from checkdam.runtime.slot.level import RunningOperator
from checkdam.runtime.slot.process import Process
from checkdam.runtime.stalls import StackWatch
from checkdam.testing.manual_clock import ManualClock
from checkdam.types.type_info import type_info

LOOK = timedelta(seconds=10)


@contextmanager
def watched(work: Callable[[], object], clock: ManualClock) -> Iterator[StackWatch]:
    """A thread that works, and the watch over it."""
    watches: list[StackWatch] = []
    begun = threading.Event()

    def run() -> None:
        watches.append(StackWatch(clock, LOOK))
        begun.set()
        work()

    thread = threading.Thread(target=run)
    thread.start()
    assert begun.wait(10)
    yield watches[0]
    thread.join(10)


def wait_for_it(gate: threading.Event) -> None:
    assert gate.wait(30)


def settled(watch: StackWatch, clock: ManualClock) -> None:
    """Wait until the thread stands still."""
    for _ in range(10_000):
        clock.advance(0.001)
        if watch.seconds_still() > 0.1:
            return
        threading.Event().wait(0.001)
    raise AssertionError("it always moves")


def test_a_thread_that_waits_stands_still_and_its_stack_is_told() -> None:
    clock, gate = ManualClock(), threading.Event()

    with watched(lambda: wait_for_it(gate), clock) as watch:
        settled(watch, clock)
        before = watch.seconds_still()
        clock.advance(5)
        after = watch.seconds_still()
        stall = watch.stall("the work")
        gate.set()

    assert after - before == 5
    assert stall.work == "the work"
    assert stall.seconds == after
    assert "in wait_for_it\n    assert gate.wait(30)" in stall.stack


@pytest.mark.slow
def test_a_loop_over_records_moves_though_it_is_always_in_the_same_call() -> None:
    clock, records = ManualClock(), [object() for _ in range(5)]
    arrived, go_on = threading.Semaphore(0), threading.Semaphore(0)

    def each(record: object) -> bool:
        arrived.release()
        return go_on.acquire(timeout=30)

    with watched(lambda: [each(record) for record in records], clock) as watch:
        still = []
        for _ in records:
            assert arrived.acquire(timeout=30)
            settled(watch, clock)
            clock.advance(5)
            still.append(watch.seconds_still())
            go_on.release()

    assert max(still) < 10  # begins anew with each record


def test_a_thread_that_computes_does_not_stand_still() -> None:
    clock, done = ManualClock(), threading.Event()

    def compute() -> None:
        hashlib.pbkdf2_hmac("sha256", b"", b"", 1_000_000)
        done.set()

    with watched(compute, clock) as watch:
        looks = []
        while not done.wait(0.01):
            clock.advance(0.001)
            looks.append(watch.seconds_still())

    assert 0.0 in looks[5:]  # by then it is in that one call


def test_time_in_which_the_whole_process_was_stopped_does_not_count() -> None:
    clock, gate = ManualClock(), threading.Event()

    with watched(lambda: wait_for_it(gate), clock) as watch:
        settled(watch, clock)
        before = watch.seconds_still()
        clock.advance(1_000_000)
        after = watch.seconds_still()
        gate.set()

    assert after - before == LOOK.total_seconds()


def test_the_operator_is_told_and_frames_of_the_runtime_are_not() -> None:
    clock, gate = ManualClock(), threading.Event()
    operator = Operator(1, "enrich", MapKind(len), (0,), type_info(int))
    running = RunningOperator(operator, Process())

    with watched(lambda: running.work(wait_for_it, gate), clock) as watch:
        settled(watch, clock)
        stall = watch.stall("level 1 of epoch 7")
        gate.set()

    assert stall.work == 'operator "enrich" in level 1 of epoch 7'
    assert "in wait_for_it" in stall.stack
    assert "level.py" not in stall.stack
