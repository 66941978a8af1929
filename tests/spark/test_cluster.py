"""The same word count on several executors, in a JVM of its own."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PROGRAM = """
import json, sys
from pathlib import Path
from checkdam import StreamExecutionEnvironment
from checkdam.runtime.spark import spark_engine

texts, report = sys.argv[1:]
started = []
start_slots = spark_engine.start_slots


def watched(*arguments):
    addresses = start_slots(*arguments)
    for address in addresses:
        orders = Path(f"/proc/{address.pid}/environ").read_bytes().decode()
        executor = next(value for value in orders.split(chr(0)) if value.startswith("SPARK_EXECUTOR_DIRS="))
        started.append({"location": address.location, "executor": executor, "pid": address.pid})
    return addresses


spark_engine.start_slots = watched

env = StreamExecutionEnvironment.get_execution_environment()
(
    env.read_text(texts, max_files_per_epoch=1)
    .flat_map(str.split, output_type=str)
    .map(lambda word: (word, 1), output_type=tuple[str, int])
    .key_by(lambda pair: pair[0], key_type=str)
    .sum(1)
    .uid("count")
    .print()
)
env.execute("word count")
Path(report).write_text(json.dumps(started))
"""


def test_slots_on_two_executors_count_right_over_tcp(tmp_path: Path) -> None:
    program, texts, report = tmp_path / "job.py", tmp_path / "texts", tmp_path / "report.json"
    program.write_text(PROGRAM)
    texts.mkdir()
    lines = ["my name is stream", "my name is dam", "is it"]
    for number, line in enumerate(lines):
        (texts / f"{number}.txt").write_text(line)

    options = ["--master", "local-cluster[2,1,1024]", "-p", "2", "-Dexecution.checkpointing.interval=0"]
    options += [f"-Dstate.checkpoints.dir={tmp_path / 'ck'}"]
    options += ["-Dexecution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION"]

    ended = subprocess.run(
        [sys.executable, "-m", "checkdam.cli", "run", *options, str(program), "--", str(texts), str(report)],
        capture_output=True,
        text=True,
        timeout=240,
    )

    assert ended.returncode == 0, ended.stderr
    counts = dict(ast.literal_eval(line.partition("> ")[2]) for line in ended.stdout.splitlines())
    assert counts == Counter(" ".join(lines).split())
    slots = json.loads(report.read_text())
    assert len({slot["executor"] for slot in slots}) == 2
    assert all(slot["location"].startswith("grpc+tcp://") for slot in slots)
    assert [path.name for path in (tmp_path / "ck").glob("*/chk-*")] == ["chk-3"]
