"""Runs job specs on real Flink: compiles java/FlinkJobs.java and starts it once for all of them."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.flink.job_specs import Spec
from tools.flink_java import ROOT, compile_program, java_tool, libraries

SOURCE = Path(__file__).parent / "java" / "FlinkJobs.java"
CLASSES = ROOT / "build" / "flink-jobs"
JOBS_SIDE_BY_SIDE = 4

Answer = dict[str, Any]
"""`results` and `late`, each record with its timestamp; or `error`."""


class FlinkRun:
    """A run of Flink in the background."""

    def __init__(self, process: subprocess.Popen[str], results: Path) -> None:
        self._process = process
        self._results = results

    def answers(self) -> dict[int, Answer]:
        """Wait for the end, and return the answer for each seed."""
        output, _ = self._process.communicate()
        if self._process.returncode != 0:
            raise RuntimeError(f"FlinkJobs ended with {self._process.returncode}:\n{output[-4000:]}")
        read = map(json.loads, self._results.read_text(encoding="utf-8").splitlines())
        return {answer.pop("seed"): answer for answer in read}


@contextmanager
def running_on_flink(specs: Iterable[Spec]) -> Iterator[FlinkRun]:
    """Start the jobs of these specs on Flink. Install and compile what is missing."""
    class_path = libraries()
    compile_program(SOURCE, CLASSES, class_path)
    with tempfile.TemporaryDirectory() as directory:
        jobs, results = Path(directory) / "jobs", Path(directory) / "results"
        jobs.write_text("".join(json.dumps(spec) + "\n" for spec in specs), encoding="utf-8")
        command = [java_tool("java"), "-Xmx1g", "-Dlog4j2.level=OFF", "-cp", f"{CLASSES}:{class_path}", "FlinkJobs"]
        process = subprocess.Popen(
            [*command, str(jobs), str(results), str(JOBS_SIDE_BY_SIDE)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield FlinkRun(process, results)
        finally:
            process.kill()
            process.wait()
