"""A job that never ends by itself, run by `checkdam run` in a process of its own, and the commands that operate it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from checkdam.cli.demo.child import ChildJob
from checkdam.connectors.file_sink import STAGING

# Spark numbers its rows, so what is lost or counted twice, over any number of restores, shows in the counts.
NUMBERS = """
import sys
from datetime import timedelta
from checkdam import CheckpointConfig, StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(CheckpointConfig(interval=timedelta(seconds=1)))
(
    env.read_stream("rate", rowsPerSecond=20)
    .map(lambda row: (row.value % 5, 1, row.value), output_type=tuple[int, int, int])
    .key_by(lambda each: each[0], key_type=int)
    .reduce(lambda a, b: (a[0], a[1] + b[1], max(a[2], b[2])))
    .uid("count")
    .sink_to_files(sys.argv[1])
    .uid("out")
)
env.execute("numbers")
"""


SETTINGS = """
execution:
  checkpointing:
    interval: 1 h
    externalized-checkpoint-retention: RETAIN_ON_CANCELLATION
    num-retained: 2
"""


class ServedJobs:
    """The runs of one program in one directory, one after the other.

    Of the options for checkpoints its code names the interval, the command line the directory, the file the retention.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "job.py").write_text(NUMBERS)
        (directory / "settings.yaml").write_text(SETTINGS)
        self.environ = {**os.environ, "TMPDIR": str(directory)}  # a registry of its own
        self._runs: list[ChildJob] = []

    def run(self, *options: str) -> tuple[ChildJob, str, str]:
        """A job that has taken a checkpoint behind its first records, its id, and the address of its server."""
        settings = [
            "--config",
            str(self.directory / "settings.yaml"),
            f"-Dstate.checkpoints.dir={self.directory / 'ck'}",
        ]
        arguments = ["--master", "local[2]", "-p", "2", "--port", "0", *settings, *options]
        before = os.environ.get("TMPDIR")
        os.environ["TMPDIR"] = str(self.directory)
        try:
            child = ChildJob([*arguments, str(self.directory / "job.py"), "--", str(self.directory / "out")], "served")
        finally:
            if before is None:
                del os.environ["TMPDIR"]
            else:
                os.environ["TMPDIR"] = before
        self._runs.append(child)
        url = child.wait_for(r"web page and REST: http://(\S+)", seconds=120)[1]
        job_id = child.wait_for(r"started: id (\w+)", seconds=120)[1]
        child.wait_for(r"checkpoint \d+ completed: epoch \d+, [1-9]", seconds=120)  # not before there is state
        return child, job_id, url

    @contextmanager
    def standing(self) -> Iterator[str]:
        """Run `checkdam serve`, and yield its address."""
        command = [sys.executable, "-m", "checkdam.cli", "serve", "--port", "0"]
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=self.environ, cwd=self.directory
        ) as process:
            assert process.stderr is not None
            line = process.stderr.readline()
            try:
                yield re.findall(r"REST: http://(\S+)", line)[0]
            finally:
                process.terminate()

    def checkdam(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "checkdam.cli", *words]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=180, env=self.environ, cwd=self.directory
        )

    def asked(self, *words: str) -> Any:
        """What a command that succeeds tells as JSON, and nothing else."""
        ended = self.checkdam(*words, "--json")
        assert ended.returncode == 0, ended
        return json.loads(ended.stdout)

    def check_output(self) -> int:
        """Every number that came out was counted exactly once; the result is how many there are."""
        counts: dict[int, list[int]] = defaultdict(list)
        largest: dict[int, int] = defaultdict(int)
        for file in (self.directory / "out").rglob("*"):
            if file.is_file() and STAGING not in file.parts:
                for line in file.read_text().splitlines():
                    key, count, number = json.loads(line).values()
                    counts[key].append(count)
                    largest[key] = max(largest[key], number)
        for key, seen in counts.items():
            assert sorted(seen) == list(range(1, len(seen) + 1))
            assert largest[key] == key + 5 * (len(seen) - 1)
        return sum(map(len, counts.values()))

    def close(self) -> None:
        for child in self._runs:
            child.kill()
