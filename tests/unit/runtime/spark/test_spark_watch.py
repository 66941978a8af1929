"""The watch over the JVM, with a JVM that answers as the test says."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from checkdam.processes import is_alive
from checkdam.runtime.heartbeat import Heartbeat
from checkdam.runtime.spark import spark_watch
from checkdam.runtime.spark.spark_watch import SparkWatch
from checkdam.runtime.stalls import cpu_seconds
from checkdam.testing.manual_clock import ManualClock

FAST = Heartbeat(timedelta(milliseconds=10), timedelta(seconds=1))
IDLE = "import time; time.sleep(60)"


class NoStages:
    def size(self) -> int:
        return 0


@contextmanager
def process(program: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run another process in the place of a JVM."""
    running = subprocess.Popen([sys.executable, "-c", program])
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def session(pid: int, active_stages: Callable[[], Any]) -> Any:
    handle = SimpleNamespace(pid=lambda: pid)
    store = SimpleNamespace(activeStages=active_stages)
    return SimpleNamespace(
        _jvm=SimpleNamespace(
            java=SimpleNamespace(lang=SimpleNamespace(ProcessHandle=SimpleNamespace(current=lambda: handle)))
        ),
        sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: SimpleNamespace(statusStore=lambda: store))),
    )


class Answers:
    """Raises a number of times, then answers."""

    def __init__(self, error: Exception, times: int) -> None:
        self._error = error
        self._left = times
        self.asked = threading.Semaphore(0)

    def __call__(self) -> NoStages:
        self.asked.release()
        if self._left > 0:
            self._left -= 1
            raise self._error
        return NoStages()

    def wait(self, times: int) -> None:
        for _ in range(times):
            assert self.asked.acquire(timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "times"),
    [(TypeError("unforeseen"), 100), (OSError("too many open files"), 5)],
    ids=["unforeseen", "passing"],
)
def test_trouble_of_the_watch_neither_ends_it_nor_the_jvm(error: Exception, times: int) -> None:
    answers = Answers(error, times)

    with process(IDLE) as jvm:
        watch = SparkWatch(session(jvm.pid, answers), FAST)
        answers.wait(110)
        assert is_alive(jvm.pid)
        assert watch.progress is not None
        assert not watch.is_lost(error if isinstance(error, TypeError) else ValueError())
        watch.stop()


@pytest.mark.slow
def test_a_jvm_that_never_answers_is_killed() -> None:
    with process(IDLE) as jvm:
        watch = SparkWatch(session(jvm.pid, Answers(OSError("no answer"), 10**9)), FAST)
        jvm.wait(60)

        assert "has not answered for 1 s and was killed" in watch.reason


def test_the_watch_ends_with_the_jvm() -> None:
    answers = Answers(OSError("connection refused"), 10**9)
    with process(IDLE) as jvm:
        pass

    watch = SparkWatch(session(jvm.pid, answers), FAST)

    assert watch._stopped.wait(60)
    assert "is gone" in watch.reason


@pytest.mark.parametrize(("share", "moves"), [(0.9, True), (0.02, False)], ids=["computing", "idle"])
def test_a_jvm_that_computes_moves_though_spark_counts_nothing(
    share: float, moves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, rare = ManualClock(), Heartbeat(timedelta(hours=1), timedelta(hours=2))  # looks when the test does
    monkeypatch.setattr(spark_watch, "cpu_seconds", lambda stat: clock.monotonic() * share)
    watch = SparkWatch(session(os.getpid(), NoStages), rare, clock)
    watch._look()
    first = watch._look()

    clock.advance(10)
    second = watch._look()

    watch.stop()
    assert (second != first) == moves


def test_the_processor_time_of_a_process_is_known() -> None:
    assert 0.0 < cpu_seconds(Path(f"/proc/{os.getpid()}/stat")) <= sum(os.times()[:2]) + 0.1
    assert cpu_seconds(Path("/proc/0/stat")) == 0.0
