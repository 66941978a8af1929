"""What hangs, for ever or for long, and what the job makes of it."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.waiting import poll

from checkdam import FixedDelayRestart
from checkdam.checkpoint.settings import JobEnd
from checkdam.cli.demo import demo_processes
from checkdam.cli.demo.child import ChildJob
from checkdam.errors import SlotLostError

if TYPE_CHECKING:
    from tests.spark.conftest import Jobs, LineServer

    from checkdam.runtime.monitor.job_events import CheckpointStats

pytestmark = pytest.mark.spark

AT_ONCE = FixedDelayRestart(attempts=20, delay=timedelta(0))
FAST: dict[str, object] = {"heartbeat.interval": "500 ms", "heartbeat.timeout": "4 s"}


def lines_of(directory: Path) -> Counter[str]:
    return Counter(line for file in directory.glob("part-*") for line in file.read_text().splitlines())


def test_a_slot_that_is_stopped_is_replaced_with_exact_output(jobs: Jobs) -> None:
    env = jobs.environment(checkpoints=jobs.checkpoints(), settings=FAST).set_restart_strategy(AT_ONCE)
    words = env.read_text(jobs.texts("a b", "b c", "a"), max_files_per_epoch=1).flat_map(str.split, output_type=str)
    counts = words.map(lambda w: (w, 1), output_type=tuple[str, int]).key_by(0).sum(1).uid("count")
    counts.sink_to_files(str(jobs.tmp_path / "out"), format="text").uid("out")

    def stop_slot(stats: CheckpointStats) -> None:
        if len(jobs.watcher.checkpoints) == 1:
            os.kill(jobs.watcher.attempts[0][1], signal.SIGSTOP)

    jobs.watcher.on_checkpoint = stop_slot

    result = env.execute()

    assert result.end is JobEnd.FINISHED
    failure = jobs.watcher.failures[0]
    assert isinstance(failure, SlotLostError)
    assert f"(process {jobs.watcher.attempts[0][1]} on " in str(failure)
    assert "has not answered for 4 s" in str(failure)
    expected = Counter(map(str, [("a", 1), ("b", 1), ("b", 2), ("c", 1), ("a", 2)]))
    assert lines_of(jobs.tmp_path / "out") == expected


def deadlock() -> None:
    threading.Event().wait()


def stop_this_process() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.parametrize(
    ("where", "hang", "told"),
    [
        ("slot", deadlock, r'slot \d hangs: operator "hang" in level 1 of epoch 2 has stood still for \d+ s, at:'),
        ("source side", deadlock, r'^operator "hang" in the source side of epoch 2 \(Spark task \d+\) has stood still'),
        ("source side", stop_this_process, r"^epoch 2 hangs: no slot and no Spark task has got anything done"),
    ],
    ids=["slot", "source side", "frozen worker"],
)
def test_a_function_that_hangs_once_fails_over_and_is_shown(
    jobs: Jobs, where: str, hang: Callable[[], None], told: str
) -> None:
    hindrance = jobs.tmp_path / "hindrance"
    hindrance.touch()

    def stumble(word: str) -> str:
        if word == "c" and os.path.exists(hindrance):
            os.remove(hindrance)
            hang()
        return word

    checkpoints = jobs.checkpoints(timeout=timedelta(seconds=5))
    env = jobs.environment(checkpoints=checkpoints, settings={"heartbeat.interval": "500 ms"}).set_restart_strategy(
        AT_ONCE
    )
    words = env.read_text(jobs.texts("a b", "b c", "a"), max_files_per_epoch=1).flat_map(str.split, output_type=str)
    stream: Any = words.key_by(lambda word: word, key_type=str) if where == "slot" else words
    pairs = stream.map(stumble, output_type=str).name("hang").map(lambda w: (w, 1), output_type=tuple[str, int])
    pairs.key_by(0).sum(1).uid("count").sink_to_files(str(jobs.tmp_path / "out"), format="text").uid("out")

    result = env.execute()

    assert result.end is JobEnd.FINISHED
    failures = [str(failure) for failure in jobs.watcher.failures]  # more than one where all is slow
    failure = next((each for each in failures if re.search(told, each)), None)
    assert failure is not None, failures
    if hang is deadlock:
        assert "in deadlock\n    threading.Event().wait()" in failure
    expected = Counter(map(str, [("a", 1), ("b", 1), ("b", 2), ("c", 1), ("a", 2)]))
    assert lines_of(jobs.tmp_path / "out") == expected


def test_a_job_can_be_cancelled_while_a_slot_is_stopped(jobs: Jobs, line_server: LineServer) -> None:
    never: dict[str, object] = {"heartbeat.timeout": "1 h"}  # far longer than this test may take
    with line_server("one line") as port:
        env = jobs.environment(checkpoints=jobs.checkpoints(), settings=never)
        env.socket_text_stream("localhost", port).key_by(lambda line: line).max().uid("max").print()

        def stop_slot_and_cancel(stats: CheckpointStats) -> None:
            os.kill(jobs.watcher.attempts[0][0], signal.SIGSTOP)
            jobs.cancel()

        jobs.watcher.on_checkpoint = stop_slot_and_cancel

        result = env.execute()

    assert result.end is JobEnd.CANCELLED


RATE = """
from checkdam import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
rows = env.read_stream("rate", rowsPerSecond=5).map(lambda row: (row.value % 5, 1), output_type=tuple[int, int])
rows.key_by(lambda pair: pair[0], key_type=int).sum(1).uid("count").print()
env.execute("rate")
"""


def test_slots_end_with_a_driver_that_is_stopped_and_the_job_with_a_jvm_that_is(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(RATE)
    mark = f"hangs-{os.getpid()}"
    settings = {
        "state.checkpoints.dir": tmp_path / "ck",
        "execution.checkpointing.interval": "500 ms",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": 9,
        "heartbeat.interval": "500 ms",
        "heartbeat.timeout": "5 s",
    }
    options = [f"-D{key}={value}" for key, value in settings.items()]
    child = ChildJob(["--master", "local[2]", "-p", "1", "--no-rest", *options, str(tmp_path / "job.py")], mark)
    try:
        child.wait_for("checkpoint 1 completed", seconds=120)
        before = demo_processes.slots(mark)
        os.kill(child.process.pid, signal.SIGSTOP)
        poll(lambda: not set(before) & set(demo_processes.slots(mark)), "the slots outlive a driver that is stopped")
        os.kill(child.process.pid, signal.SIGCONT)
        child.wait_for("restarting", seconds=60)
        child.wait_for(r"checkpoint \d+ completed", seconds=120)  # on its new slots
        [jvm] = [pid for pid, command in demo_processes.marked(mark).items() if b"SparkSubmit" in command]
        os.kill(jvm, signal.SIGSTOP)
        child.wait_for(rf"the JVM of Spark \(process {jvm}\) has not answered for 5 s and was killed", seconds=60)
        assert child.wait(seconds=60) == 1
        assert demo_processes.wait_until_gone(mark, seconds=30) == []
    finally:
        child.kill()
