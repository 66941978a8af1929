"""A job in the background: its handle waits, asks and ends as execute() and the command line would."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from checkdam.api.background_jobs import suspend_running_jobs
from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.job_handle import JobHandle
from checkdam.checkpoint.settings import JobEnd
from checkdam.errors import JobControlError, JobGraphError, UsageError, UserFunctionError
from checkdam.graph.contexts import RuntimeContext
from checkdam.graph.functions import MapFunction
from checkdam.graph.operators import OP_STATE
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_events import JobListener
from checkdam.state_reader import Savepoint
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.testing.gate import Gate
from checkdam.testing.local_target import local_environment
from checkdam.testing.mounts import mount

PATIENCE = 60


class EpochWatch(JobListener):
    """Tells when the first epoch has ended."""

    def __init__(self) -> None:
        self.has_ended = threading.Event()

    def epoch_ended(self, stats: Any) -> None:
        self.has_ended.set()


class Background:
    """Counts three words in a job whose input ends when the gate opens."""

    def __init__(self, **settings: object) -> None:
        self.gate = Gate()
        self.storage = MemoryStorage()
        self.uri = mount(self.storage)
        self.epochs = EpochWatch()
        given = {"state.checkpoints.dir": self.uri, **{key.replace("_", "."): value for key, value in settings.items()}}
        self.environment = local_environment(given, until=self.gate, listener=self.epochs)

    def start(self) -> JobHandle:
        count(self.environment)
        return self.environment.execute_async("words")

    def started(self) -> JobHandle:
        """The job, when its first epoch has ended."""
        handle = self.start()
        assert self.epochs.has_ended.wait(PATIENCE)
        return handle


def count(environment: StreamExecutionEnvironment) -> None:
    words = environment.from_collection([("a", 1), ("b", 1), ("a", 1)])
    words.key_by(0).sum(1).uid("count").print()


def counts_in(path: str) -> dict[str, int]:
    return {str(key): value[1] for key, value in Savepoint.load(path).keyed_state("count", OP_STATE)}


def test_wait_returns_how_the_job_ended() -> None:
    job = Background()
    handle = job.start()
    job.gate.open()

    result = handle.wait(PATIENCE)

    assert (result.job_id, result.end) == (handle.job_id, JobEnd.FINISHED)
    assert handle.status is JobStatus.FINISHED


def test_wait_raises_what_execute_would_raise() -> None:
    environment = local_environment()
    environment.from_collection([0]).map(lambda number: 1 // number, output_type=int).print()
    handle = environment.execute_async()

    with pytest.raises(UserFunctionError, match="ZeroDivisionError"):
        handle.wait(PATIENCE)

    assert handle.status is JobStatus.FAILED


def test_a_wait_that_is_over_leaves_the_job_running() -> None:
    job = Background()
    handle = job.started()

    with pytest.raises(TimeoutError):
        handle.wait(0)

    assert handle.status is JobStatus.RUNNING
    job.gate.open()
    assert handle.wait(PATIENCE).end is JobEnd.FINISHED


def test_what_is_wrong_with_the_program_is_raised_at_once() -> None:
    environment = local_environment()
    environment.from_collection([("a", 1)]).key_by(0).sum(1).print()

    with pytest.raises(JobGraphError, match="uid"):
        environment.execute_async()


def test_cancel_ends_the_job() -> None:
    handle = Background().started()

    handle.cancel()

    assert handle.wait(PATIENCE).end is JobEnd.CANCELLED


def test_a_savepoint_and_a_checkpoint_are_taken_while_the_job_runs() -> None:
    job = Background(state_savepoints_dir=mount(saved := MemoryStorage()))
    handle = job.started()

    path = handle.trigger_savepoint().result(PATIENCE)
    checkpoint = handle.trigger_checkpoint().result(PATIENCE)

    assert counts_in(path) == {"a": 2, "b": 1}
    assert counts_in(f"{job.uri}/{handle.job_id}/chk-{checkpoint}") == {"a": 2, "b": 1}
    assert handle.status is JobStatus.RUNNING
    job.gate.open()
    handle.wait(PATIENCE)
    assert saved.list("")


def test_stop_with_savepoint_ends_the_job_as_finished() -> None:
    place = mount(saved := MemoryStorage())
    handle = Background().started()

    path = handle.stop_with_savepoint(place).result(PATIENCE)

    assert handle.wait(PATIENCE).end is JobEnd.FINISHED
    assert counts_in(path) == {"a": 2, "b": 1}
    assert saved.list("")


def test_rescale_goes_on_at_another_parallelism() -> None:
    job = Background()
    handle = job.started()

    handle.rescale(3).result(PATIENCE)
    checkpoint = handle.trigger_checkpoint(full=True).result(PATIENCE)

    path = f"{job.uri}/{handle.job_id}/chk-{checkpoint}"
    assert Savepoint.load(path).parallelism == 3
    assert counts_in(path) == {"a": 2, "b": 1}
    job.gate.open()
    handle.wait(PATIENCE)


_may_open = threading.Event()


class Opens(MapFunction):
    def open(self, ctx: RuntimeContext) -> None:
        assert _may_open.wait(PATIENCE)

    def map(self, value: int) -> int:
        return value


def test_what_is_asked_before_the_job_runs_is_done_when_it_does() -> None:
    _may_open.clear()
    environment = local_environment(
        {"state.checkpoints.dir": mount(storage := MemoryStorage())}, until=(gate := Gate())
    )
    environment.from_collection([1]).rebalance().map(Opens(), output_type=int).print()
    handle = environment.execute_async()

    asked = handle.trigger_checkpoint()
    assert not asked.done()
    _may_open.set()

    assert asked.result(PATIENCE) >= 1
    gate.open()
    handle.wait(PATIENCE)
    assert storage is not None


def test_what_is_asked_of_a_job_that_never_ran_fails_with_it() -> None:
    _may_open.clear()
    environment = local_environment({"state.checkpoints.dir": mount(storage := MemoryStorage())})
    environment.from_collection([1]).rebalance().map(Opens(), output_type=int).print()
    handle = environment.execute_async()
    asked = handle.trigger_checkpoint()

    handle.cancel()
    _may_open.set()

    assert handle.wait(PATIENCE).end is JobEnd.CANCELLED
    with pytest.raises(JobControlError):
        asked.result(PATIENCE)
    assert storage is not None


@pytest.mark.parametrize("asked", ["checkpoint", "savepoint", "rescale"])
def test_a_job_that_has_ended_refuses_what_is_asked(asked: str) -> None:
    job = Background()
    handle = job.start()
    job.gate.open()
    handle.wait(PATIENCE)
    verbs: dict[str, Future[Any]] = {
        "checkpoint": handle.trigger_checkpoint(),
        "savepoint": handle.trigger_savepoint("file:///nowhere"),
        "rescale": handle.rescale(3),
    }

    with pytest.raises(JobControlError, match='job "words" is FINISHED'):
        verbs[asked].result(PATIENCE)


def test_a_savepoint_without_a_directory_is_refused() -> None:
    job = Background()
    handle = job.start()

    with pytest.raises(UsageError, match="no directory is given for the savepoint"):
        handle.trigger_savepoint().result(PATIENCE)

    job.gate.open()
    handle.wait(PATIENCE)


def test_two_jobs_of_one_environment_run_at_the_same_time() -> None:
    job = Background()
    first, second = job.start(), job.start()

    assert first.job_id != second.job_id
    job.gate.open()

    assert [handle.wait(PATIENCE).end for handle in (first, second)] == [JobEnd.FINISHED, JobEnd.FINISHED]


def test_jobs_that_are_left_are_suspended_with_a_last_checkpoint() -> None:
    job = Background()
    handle = job.started()

    suspend_running_jobs()

    result = handle.wait(0)
    assert result.end is JobEnd.SUSPENDED
    assert result.last_checkpoint is not None
    assert counts_in(result.last_checkpoint) == {"a": 2, "b": 1}


PROGRAM = """
import threading, sys
from checkdam.runtime.monitor.job_events import JobListener
from checkdam.testing.gate import Gate
from checkdam.testing.local_target import local_environment

class EpochWatch(JobListener):
    ended = threading.Event()
    def epoch_ended(self, stats):
        self.ended.set()

env = local_environment({"state.checkpoints.dir": "checkpoints"}, until=Gate(), listener=EpochWatch())
env.from_collection([("a", 1), ("b", 1), ("a", 1)]).key_by(0).sum(1).uid("count").print()
handle = env.execute_async("left")
EpochWatch.ended.wait(60)
print("leaving", flush=True)
"""

WAIT = """
import os, signal
install = signal.signal

def tell(number, handler):
    before = install(number, handler)
    if number == signal.SIGTERM:
        signal.signal = install
        os.write(1, b"waiting\\n")
    return before

signal.signal = tell  # tells when SIGTERM has its meaning for the job
handle.wait()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("last", "code"),
    [("", 0), ("raise ValueError('oops')", 1), (WAIT, 128 + signal.SIGTERM)],
    ids=["to its end", "by an error", "by SIGTERM"],
)
def test_a_program_that_ends_suspends_its_job_first(last: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM + last)
    with subprocess.Popen(
        [sys.executable, "program.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "leaving\n"
        if last == WAIT:
            assert process.stdout.readline() == "waiting\n"
            process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE)

    assert process.returncode == code, said
    [metadata] = (tmp_path / "checkpoints").glob("*/chk-*/_metadata")
    assert counts_in(str(metadata.parent)) == {"a": 2, "b": 1}
