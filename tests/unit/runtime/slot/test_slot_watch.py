"""What a slot says of itself with each heartbeat."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

from checkdam.runtime.slot.slot_watch import Beat, SlotWatch
from checkdam.runtime.stalls import Stall
from checkdam.testing.manual_clock import ManualClock

INTERVAL = timedelta(seconds=10)


def beats_until(watch: SlotWatch, clock: ManualClock, seconds: float) -> Beat:
    while True:
        clock.advance(10)
        beat = watch.beat()
        if beat.stall is not None and beat.stall.seconds >= seconds:
            return beat


def deadlock(begun: threading.Event, gate: threading.Event) -> None:
    begun.set()
    gate.wait(60)


def test_a_thread_that_hangs_at_work_is_told_with_what_it_works_on() -> None:
    clock = ManualClock()
    watch, begun, gate = SlotWatch(INTERVAL, clock), threading.Event(), threading.Event()

    def work() -> None:
        with watch.working("seal"):
            deadlock(begun, gate)

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(30)
    beat = beats_until(watch, clock, 60)
    gate.set()
    thread.join(30)

    assert beat.stall is not None
    assert beat.stall.work == "seal"
    assert "in deadlock" in beat.stall.stack
    assert watch.beat() == Beat(steps=2)


def test_a_thread_that_waits_for_its_output_to_be_taken_does_not_stand_still() -> None:
    clock, taken, gate = ManualClock(), threading.Event(), threading.Event()
    watch = SlotWatch(INTERVAL, clock)

    def take() -> None:
        for _ in watch.watched("level 1", iter([1, 2])):
            taken.set()
            gate.wait(60)

    thread = threading.Thread(target=take)
    thread.start()
    assert taken.wait(30)
    for _ in range(10):
        clock.advance(100)
        assert watch.beat().stall is None
    gate.set()
    thread.join(30)


def test_steps_grow_with_what_gets_done_also_within_one_long_step() -> None:
    watch = SlotWatch(INTERVAL, ManualClock())
    steps = [watch.beat().steps]

    def produce() -> Iterator[int]:
        for number in range(3):
            steps.append(watch.beat().steps)
            steps.append(watch.beat().steps)  # another place, so the thread has moved
            yield number

    assert list(watch.watched("level 1", produce())) == [0, 1, 2]

    assert steps == sorted(set(steps))


def test_a_task_of_spark_is_told_until_it_moves_or_is_silent() -> None:
    clock = ManualClock()
    watch, stall = SlotWatch(INTERVAL, clock), Stall("the source side", 20.0, "")

    watch.task_reports("7", stall)
    told = watch.beat()
    watch.task_reports("7", None)
    moved = watch.beat()
    watch.task_reports("8", stall)
    clock.advance(31)

    assert told == Beat(0, task_stall=stall)
    assert moved == Beat(1)
    assert watch.beat() == Beat(1)
