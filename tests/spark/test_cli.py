"""The `checkdam` command as a process of its own, with Spark under it."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from checkdam.cli.demo import demo_processes
from checkdam.cli.demo.child import ChildJob

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

WORD_COUNT = """
import sys
from checkdam import StreamExecutionEnvironment
from beside import as_line, words

env = StreamExecutionEnvironment.get_execution_environment()
lines = (
    env.read_text(sys.argv[1], max_files_per_epoch=1)
    .flat_map(words, output_type=str)
    .map(lambda word: (word, 1), output_type=tuple[str, int])
    .key_by(lambda pair: pair[0], key_type=str)
    .sum(1)
    .uid("count")
    .map(as_line, output_type=str)
)
lines.print()
lines.sink_to_files(sys.argv[1] + "-counted", "text").uid("out")
env.execute("word count")
"""

BESIDE = """
def words(line):
    return line.split()

def as_line(pair):
    return f"{pair[0]}={pair[1]}"
"""

SOCKET = """
import sys
from checkdam import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.socket_text_stream("localhost", int(sys.argv[1])).map(lambda line: (line, 1), output_type=tuple[str, int]).key_by(
    lambda pair: pair[0], key_type=str
).sum(1).uid("sum").print()
env.execute("lines")
"""

REJECTS = """
import sys
from checkdam import StreamExecutionEnvironment

def parse(line: str) -> int:
    print("parsing", line, file=sys.stderr)
    return int(line)

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection(["1", "x"]).key_by(lambda line: line, key_type=str).map(parse).name("parse").print()
env.execute("rejects")
"""


def _checkdam(*arguments: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "checkdam.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **(environ or {})},
    )


def _counts(output: str) -> list[str]:
    return sorted(line.partition("> ")[2] for line in output.splitlines())


def _line(output: str, pattern: str) -> str:
    (found,) = [line for line in output.splitlines() if re.search(pattern, line)]
    return found


def _run(job: Path, options: Sequence[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return _checkdam("run", "--master", "local[2]", "-p", "2", *options, str(job), "--", *arguments)


def test_a_word_count_runs_and_resumes_past_a_damaged_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text(BESIDE)  # called in Spark's workers and in slots
    job, texts, checkpoints = tmp_path / "job.py", tmp_path / "texts", tmp_path / "ck"
    job.write_text(WORD_COUNT)
    texts.mkdir()
    for number, line in enumerate(("to be or not", "to be")):
        (texts / f"{number}.txt").write_text(line)
        os.utime(texts / f"{number}.txt", (1000 + number, 1000 + number))
    options = [f"-Dstate.checkpoints.dir={checkpoints}", "-Dexecution.checkpointing.interval=0"]
    options += [
        "-Dstate.checkpoints.num-retained=5",
        "-Dexecution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION",
    ]

    first = _run(job, options, str(texts))

    assert first.returncode == 0, first.stderr
    assert _counts(first.stdout) == ["be=1", "be=2", "not=1", "or=1", "to=1", "to=2"]
    lines = first.stderr.splitlines()
    known = re.compile(r"\S+Z (web|job|checkpoint|resume)")  # nothing of the JVM's
    assert all(map(known.match, lines)), first.stderr
    assert shlex.split(lines[-1])[-3].endswith("/chk-2")
    newest = Path(shlex.split(lines[-1])[-3].removeprefix("file://"))
    assert _checkdam("inspect", str(newest)).returncode == 0

    metadata = newest / "_metadata"
    metadata.write_bytes(metadata.read_bytes()[:-1])
    second = _run(job, [*options, "--resume", "latest"], str(texts))

    assert second.returncode == 0, second.stderr
    assert _counts(second.stdout) == ["be=2", "to=2"]  # from the first checkpoint on
    parts = [part.read_text().split() for part in (tmp_path / "texts-counted").glob("part-*")]
    assert sorted(line for lines in parts for line in lines) == ["be=1", "be=2", "not=1", "or=1", "to=1", "to=2"]
    assert ".checkdam-withdrawn" in _line(second.stderr, "WARNING: sink")
    warning = _line(second.stderr, "WARNING: checkpoint")
    assert str(newest) in warning
    assert "is damaged: " in warning


def test_a_rejected_record_shows_traceback_operator_and_record_and_no_java(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(REJECTS)

    ended = _run(job, [])

    assert ended.returncode == 1
    assert "return int(line)" in ended.stderr
    assert ended.stderr.splitlines()[-1] == (
        "error: operator \"parse\" failed on record 'x': ValueError: invalid literal for int() with base 10: 'x'"
    )
    assert "parsing x" in ended.stderr  # what a function prints in its slot reaches the user
    assert "org.apache.spark" not in ended.stderr
    assert "\tat " not in ended.stderr


def test_storage_that_cannot_be_written_is_told_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    job = tmp_path / "job.py"
    job.write_text(REJECTS)

    ended = _run(job, [f"-Dstate.checkpoints.dir={tmp_path}/file/checkpoints"])

    assert ended.returncode == 1
    assert ended.stderr.startswith("error: ")
    assert f"{tmp_path}/file/checkpoints" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert ended.stdout == ""


def test_ctrl_c_cancels_in_order_and_leaves_no_process(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(SOCKET)
    with socket.create_server(("localhost", 0)) as server:
        options = ["-p", "1", "--master", "local[2]", f"-Dstate.checkpoints.dir={tmp_path}/ck"]
        options += ["-Dexecution.checkpointing.interval=100 ms"]
        options += ["-Dexecution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION"]
        child = ChildJob([*options, str(job), "--", str(server.getsockname()[1])], mark="ctrl-c")
        try:
            server.settimeout(120)
            line, _ = server.accept()
            line.sendall(b"one line\n")
            child.wait_for("checkpoint 1 completed", seconds=120)
            child.process.send_signal(signal.SIGINT)
            child.wait_for("job cancelled", seconds=60)
            child.wait_for("resume with: .*chk-", seconds=10)

            assert child.wait(seconds=60) == 130
            line.close()
        finally:
            child.kill()
    assert demo_processes.wait_until_gone("ctrl-c", 15.0) == []


def test_a_master_that_does_not_exist_is_told_on_one_line(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(REJECTS)

    ended = _checkdam("run", "--master", "nowhere", str(job))

    assert ended.returncode == 2
    assert ended.stderr.startswith('error: Spark does not start on "nowhere": ')
    assert ended.stderr.count("\n") == 1


def test_the_demo_counts_right_after_both_kills_and_leaves_nothing(tmp_path: Path) -> None:
    ended = _checkdam("demo", environ={"TMPDIR": str(tmp_path)})

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("kill -9") == 2
    assert "exactly once" in ended.stdout
    assert list(tmp_path.glob("checkdam-demo*")) == []
