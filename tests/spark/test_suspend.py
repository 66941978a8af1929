"""SIGTERM as supervisors send it, to the driver alone or to every process of a job, and what the next start finds."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.waiting import poll

from checkdam.cli.demo import demo_processes

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FILES = 8
MARK = "suspended"

JOB = """
import sys, time
from checkdam import StreamExecutionEnvironment

def one(row):
    time.sleep(0.2)  # so that a signal finds an epoch under way
    return row[0], 1

env = StreamExecutionEnvironment.get_execution_environment()
counts = (
    env.read_stream("text", path=sys.argv[1], maxFilesPerTrigger=1)
    .map(one, output_type=tuple[str, int])
    .key_by(lambda pair: pair[0], key_type=str)
    .sum(1)
    .uid("count")
)
counts.print()
counts.sink_to_files(sys.argv[2], format="json").uid("out")
env.execute("words")
print("a process that was told to go")
"""


class Run:
    """One start of the job, as its supervisor would do it, and what it says."""

    def __init__(self, directory: Path, name: str) -> None:
        self._said, self._printed = directory / f"{name}.err", directory / f"{name}.out"
        options = ["--resume", "auto", "--no-rest", "-p", "2", "--master", "local[2]"]
        options += [f"-Dstate.checkpoints.dir={directory}/ck", "-Dexecution.checkpointing.interval=1 h"]
        options += ["-Dexecution.suspend.grace-period=60 s"]  # more than enough, however busy the machine is
        arguments = [str(directory / "job.py"), "--", f"{directory}/in", f"{directory}/out"]
        with self._said.open("w") as said, self._printed.open("w") as printed:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "checkdam.cli", "run", *options, *arguments],
                env={**os.environ, demo_processes.MARK: MARK},
                stdout=printed,
                stderr=said,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self._said.read_text()

    @property
    def printed(self) -> list[str]:
        return self._printed.read_text().splitlines()

    def wait_for_records(self, count: int) -> None:
        """Wait until epochs with this many records have ended, which is when their lines are printed."""

        def are_printed() -> bool:
            assert self.process.poll() is None, self.said
            return len(self.printed) >= count

        poll(are_printed, lambda: self.said, seconds=300)


@contextmanager
def running(directory: Path, name: str) -> Iterator[Run]:
    run = Run(directory, name)
    try:
        yield run
    finally:
        if run.process.poll() is None:
            os.killpg(run.process.pid, signal.SIGKILL)
        run.process.wait()
    assert demo_processes.wait_until_gone(MARK, 15.0) == []


def words_of(number: int) -> list[str]:
    return [f"w{(number * 7 + n) % 5}" for n in range(3)]


def published(directory: Path) -> Counter[tuple[str, int]]:
    lines = [line for file in directory.glob("part-*") for line in file.read_text().splitlines()]
    return Counter(tuple(json.loads(line).values()) for line in lines)


def test_each_sigterm_saves_the_state_and_the_output_of_both_runs_is_exact(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        file = tmp_path / "in" / f"{number:02}.txt"
        file.write_text("\n".join(words_of(number)))
        os.utime(file, (1000 + number, 1000 + number))
    totals = Counter(word for number in range(FILES) for word in words_of(number))

    with running(tmp_path, "first") as first:
        first.wait_for_records(3)
        first.process.send_signal(signal.SIGTERM)  # to the driver alone, while epochs are under way
        assert first.process.wait(200) == 143
    done = len(first.printed)
    kept = published(tmp_path / "out").total()

    with running(tmp_path, "second") as second:
        second.wait_for_records(FILES * 3 - done)
        for pid in demo_processes.marked(MARK):  # the JVM, Spark's Python workers and the slots as well
            with suppress(ProcessLookupError):  # a worker may have ended since it was listed
                os.kill(pid, signal.SIGTERM)
        assert second.process.wait(200) == 143

    assert "starting anew" in first.said
    assert "suspending: a last checkpoint, within 60 s" in first.said
    assert "job suspended at checkpoint 1\n" in first.said
    assert re.search("resume with: checkdam run .* --resume latest", first.said)
    assert 3 <= done == kept < FILES * 3
    assert re.search("restored .*chk-1, continuing", second.said)
    assert "job suspended at checkpoint 2\n" in second.said
    assert "WARNING" not in first.said + second.said
    assert "Traceback" not in first.said + second.said  # of PySpark, its workers or the JVM's bridge
    assert published(tmp_path / "out") == Counter((word, n + 1) for word in totals for n in range(totals[word]))
    assert "a process that was told to go" not in first.printed + second.printed


def test_the_jvm_leaves_sigterm_to_its_driver(spark: SparkSession) -> None:
    context = spark.sparkContext
    pid = int(context._jvm.java.lang.ProcessHandle.current().pid())

    ignored = re.search(r"SigIgn:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    os.kill(pid, signal.SIGTERM)

    assert ignored is not None
    assert int(ignored[1], 16) & 1 << (signal.SIGTERM - 1)
    assert spark.range(3).count() == 3
