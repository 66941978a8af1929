"""SIGTERM as supervisors send it, to the driver alone or to every process of a job, and what the next start finds."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from checkdam.cli.demo import processes
from checkdam.cli.demo.child import ChildJob
from checkdam.connectors.files import STAGING

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FILES = 12

JOB = """
import sys, time
from checkdam import StreamExecutionEnvironment

def one(word):
    time.sleep(0.1)  # an epoch under way is likely to be hit
    return word, 1

env = StreamExecutionEnvironment.get_execution_environment()
(
    env.read_text(sys.argv[1], max_files_per_epoch=1)
    .flat_map(str.split, output_type=str)
    .map(one, output_type=tuple[str, int])
    .key_by(lambda pair: pair[0], key_type=str)
    .sum(1)
    .uid("count")
    .sink_to_files(sys.argv[2], format="json")
    .uid("out")
)
env.execute("words")
print("not for a process that was told to go")
"""


def words_of(number: int) -> list[str]:
    return [f"w{(number * 7 + n) % 11}" for n in range(4)]


def published(directory: Path) -> Counter[tuple[str, int]]:
    lines = [line for file in directory.glob("part-*") for line in file.read_text().splitlines()]
    return Counter(tuple(json.loads(line).values()) for line in lines)


def wait_for_staged_output(directory: Path, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not any(file.is_file() for file in (directory / STAGING).rglob("*")):
        assert time.monotonic() < deadline, "no epoch has begun"
        time.sleep(0.05)


def start(tmp_path: Path, interval: str, mark: str) -> ChildJob:
    options = ["--resume", "auto", "--no-rest", "-p", "2", "--master", "local[2]"]
    options += [f"-Dstate.checkpoints.dir={tmp_path}/ck", f"-Dexecution.checkpointing.interval={interval}"]
    options += ["-Dexecution.suspend.grace-period=60 s"]  # more than enough, however busy the machine is
    return ChildJob([*options, str(tmp_path / "job.py"), "--", f"{tmp_path}/in", f"{tmp_path}/out"], mark=mark)


def test_sigterm_to_the_driver_or_to_all_processes_and_the_output_is_exact(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        file = tmp_path / "in" / f"{number:02}.txt"
        file.write_text(" ".join(words_of(number)))
        os.utime(file, (1000 + number, 1000 + number))
    every = [word for number in range(FILES) for word in words_of(number)]
    mark = "suspended"

    first = start(tmp_path, "1 h", mark)  # no checkpoint but the last
    try:
        first.wait_for("starting anew", seconds=120)
        wait_for_staged_output(tmp_path / "out")
        first.process.send_signal(signal.SIGTERM)  # as systemd with KillMode=mixed, and Kubernetes
        first.wait_for("suspending: a last checkpoint, within 60 s", seconds=30)
        first.wait_for("checkpoint 1 completed", seconds=30)
        first.wait_for("job suspended at checkpoint 1", seconds=30)
        first.wait_for("resume with: checkdam run .* --resume latest", seconds=10)
        assert first.wait(seconds=60) == 143
    finally:
        first.kill()
    assert processes.wait_until_gone(mark, 15.0) == []
    assert 0 < published(tmp_path / "out").total() < len(every)

    second = start(tmp_path, "300 ms", mark)
    try:
        second.wait_for("restored .*chk-1", seconds=120)
        second.wait_for(r"checkpoint \d+ completed", seconds=60)
        for pid in processes.marked(mark):  # as systemd with KillMode=control-group: the JVM, workers and slots as well
            os.kill(pid, signal.SIGTERM)
        second.wait_for(r"job suspended at checkpoint \d+", seconds=30)
        assert second.wait(seconds=60) == 143
    finally:
        second.kill()
    assert processes.wait_until_gone(mark, 15.0) == []

    third = start(tmp_path, "1 h", mark)
    try:
        third.wait_for(r"restored .*chk-\d+", seconds=120)
        third.wait_for("job finished", seconds=120)
        assert third.wait(seconds=60) == 0
    finally:
        third.kill()

    totals = Counter(every)
    assert published(tmp_path / "out") == Counter((word, n + 1) for word in totals for n in range(totals[word]))
