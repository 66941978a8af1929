"""The log files of a real job: what its processes print and log, beside its checkpoints and under Flink's paths."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

JOB = """
import logging, os, sys, urllib.request
from checkdam import KeyedProcessFunction, StreamExecutionEnvironment
from checkdam.server.catalog.registry import servers

ONCE = sys.argv[1]

class Count(KeyedProcessFunction):
    def process_element(self, value, ctx):
        print("counting", value)
        print("aside", value, file=sys.stderr)
        logging.getLogger("clicks").warning("of s3://key:secret@bucket/%s", value)
        if value == "c" and not os.path.exists(ONCE):
            open(ONCE, "w").close()
            raise ValueError("not the first time")
        yield value

def trimmed(line):
    print("trimming", line)
    return line.strip()

def kept(frame, epoch):
    print("rows", frame.count())
    [server] = [each for each in servers() if each.owner.pid == os.getpid()]
    with urllib.request.urlopen(server.url + "/taskmanagers") as answer:
        open(ONCE, "w").write(answer.read().decode())
    with urllib.request.urlopen(server.url + "/jobmanager/log") as answer:
        open(ONCE + ".log", "wb").write(answer.read())

env = StreamExecutionEnvironment.get_execution_environment()
lines = env.from_collection(["a ", "b ", "c "]).map(trimmed, output_type=str).uid("trim")
counted = lines.key_by(lambda word: word, key_type=str).process(Count(), output_type=str).uid("counts")
counted.print().uid("out")
counted.sink_to_spark(kept).uid("kept")
env.execute("logged")
"""


def test_all_processes_of_a_job_leave_their_logs_beside_its_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    checkpoints, once = tmp_path / "ck", tmp_path / "once"
    settings = {
        "rest.port": "0",
        "state.checkpoints.dir": str(checkpoints),
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "10 ms",
        "s3.secret-key": "hunter2",
    }
    options = [word for key, value in settings.items() for word in ("-D", f"{key}={value}")]

    ended = subprocess.run(
        [sys.executable, "-m", "checkdam.cli", "run", "-p", "1", *options, str(tmp_path / "job.py"), "--", str(once)],
        capture_output=True,
        text=True,
        timeout=250,
    )

    assert ended.returncode == 0, ended.stderr
    [directory] = (checkpoints / "_logs").iterdir()
    texts = {file.name: file.read_text() for file in directory.iterdir()}
    assert sorted(texts) == ["driver.log", "driver.out", "slot-0.log", "slot-0.out"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in directory.iterdir()} == {0o600}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert (checkpoints / "_jobs" / f"{directory.name}.json").exists()

    printed = texts["slot-0.out"].splitlines()
    for line in ("trim[0]> trimming a ", "counts[0]> counting a", "counts[0]> aside a", "counts[0]> counting c"):
        assert printed.count(line) == 2, line  # in both attempts
    assert "kept> rows 3" in texts["driver.out"]
    assert texts["driver.out"].endswith("\na\nb\nc\n")
    assert "trimming" not in texts["driver.out"]  # it is in the slot's file

    log = texts["slot-0.log"]
    assert log.count("attempt ") == 2
    assert re.search(r"^\S+Z WARN  clicks counts\[0\]: of s3://\*{6}@bucket/a$", log, re.MULTILINE)
    assert re.search(r"^ValueError: not the first time$", log, re.MULTILINE)
    of_driver = texts["driver.log"]
    assert re.search(r"^\S+Z INFO  checkdam\.job: setting s3\.secret-key: \*{6}$", of_driver, re.MULTILINE)
    assert re.search(r"^\S+Z WARN  checkdam\.job: .*restarting in", of_driver, re.MULTILINE)
    assert "hunter2" not in "".join(texts.values())
    assert of_driver.startswith((tmp_path / "once.log").read_text())  # served while it ran

    assert "counts[0]> counting a" in ended.stderr  # and it is still shown
    assert "\x1e" not in ended.stderr + "".join(texts.values())
    assert ended.stdout.endswith("\na\nb\nc\n")
    assert json.loads(once.read_text())["taskmanagers"][0]["subtask"] == 0


def test_a_slot_on_a_cluster_serves_its_log(tmp_path: Path) -> None:
    """The slots of local-cluster have executors of their own; their files are found all the same."""
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "once").touch()
    settings = {"rest.port": "0", "env.log.dir": str(tmp_path / "logs")}
    options = [word for key, value in settings.items() for word in ("-D", f"{key}={value}")]

    ended = subprocess.run(
        [
            *(sys.executable, "-m", "checkdam.cli", "run", "-p", "1", "--master", "local-cluster[1,1,1024]"),
            *(*options, str(tmp_path / "job.py"), "--", str(tmp_path / "once")),
        ],
        capture_output=True,
        text=True,
        timeout=250,
    )

    assert ended.returncode == 0, ended.stderr
    [directory] = (tmp_path / "logs").iterdir()
    assert "counts[0]> counting a" in (directory / "slot-0.out").read_text()
    assert "trim[0]> trimming a" in (directory / "slot-0.out").read_text()
