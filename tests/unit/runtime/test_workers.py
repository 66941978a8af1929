"""Threads that may hang without keeping the process."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from checkdam.runtime.workers import Workers, within
from checkdam.testing.manual_clock import ManualClock


def test_one_worker_does_its_work_in_order_and_tells_what_came_of_it() -> None:
    workers = Workers("test")
    done: list[int] = []

    futures = [workers.submit(done.append, number) for number in range(20)]
    failing = workers.submit(int, "x")

    assert workers.join()
    assert done == list(range(20))
    assert [future.result() for future in futures] == [None] * 20
    assert isinstance(failing.exception(), ValueError)
    with pytest.raises(RuntimeError, match="no more work"):
        workers.submit(int)


def test_several_workers_work_at_the_same_time() -> None:
    workers, meeting = Workers("test", 3), threading.Barrier(3)

    futures = [workers.submit(meeting.wait, 30) for _ in range(3)]

    assert sorted(future.result(30) for future in futures) == [0, 1, 2]
    assert workers.join()


def test_a_worker_that_hangs_is_told_and_not_waited_for() -> None:
    clock, gate, begun = ManualClock(), threading.Event(), threading.Event()
    workers = Workers("test", clock=clock)

    def hang() -> None:
        begun.set()
        gate.wait(60)

    workers.submit(hang)
    assert begun.wait(30)
    while (stall := workers.stall("writing")) is None or stall.seconds < 100:
        clock.advance(1)

    assert "in hang" in stall.stack
    assert not workers.join(timeout=0.01)
    gate.set()
    assert workers.join()
    assert workers.stall("writing") is None


@pytest.mark.slow
def test_a_process_ends_though_a_worker_hangs() -> None:
    program = (
        "import threading\n"
        "from checkdam.runtime.workers import Workers\n"
        "begun = threading.Event()\n"
        "Workers('test').submit(lambda: (begun.set(), threading.Event().wait()))\n"
        "assert begun.wait(30)\n"
    )

    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0


def test_work_that_does_not_end_in_time_is_left() -> None:
    gate = threading.Event()

    with pytest.raises(TimeoutError, match=r"looking has not ended within 0\.01 s"):
        within(0.01, "looking", lambda: gate.wait(60))
    gate.set()

    assert within(60, "looking", lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(60, "looking", lambda: 1 // 0)
