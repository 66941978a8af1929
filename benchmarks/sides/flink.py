"""Flink's sides: a job in a cluster of one process, on the input of the other sides.

Flink has no epochs. What is measured instead is the time in which the job emits as many records as an epoch has. With
windows this is the time from one window's last result to the next one's: each epoch of the input is one window, and the
records of each window are those that the output says. A running count emits one result for each record, so its sink
counts them. Either way the start is left out, as it is for the other sides.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tools.flink_java import compile_program, java_tool, libraries

_REPOSITORY = Path(__file__).resolve().parents[2]

SETTINGS = {
    "execution.checkpointing.interval": "1s",  # state is durable no less often than with epochs
    "state.backend.type": "hashmap",
    "pipeline.object-reuse": "true",
    "restart-strategy.type": "none",
}

PYFLINK = {"python.execution-mode": "thread", "parallelism.default": "1"}
"""Thread mode with one subtask, the better of one and two at full size: 100 000 keys, 500 000 records in a window.

PyFlink 2.3.0 on 2 cores, two runs of each in turns: one subtask counts 13 369 and 13 349 records a second, two count
6 256 and 5 962. Short runs differ: in runs of 50 000 records two subtasks reached 12 208 and 16 581. Process mode was
tried with 150 000 records in a window, bundles of 10 000 and 100 000 and two subtasks: it had not ended after 75 s.
Few settings were tried, so others may be faster.
"""

JAVA_SUBTASKS = 2

JAVA = {
    "parallelism.default": str(JAVA_SUBTASKS),
    "pipeline.object-reuse": "true",
    "restart-strategy.type": "none",
}

_COUNT = Path(__file__).parent / "flink_java" / "RunningCount.java"
_CLASSES = _REPOSITORY / "build" / "flink-benchmarks"


def pyflink_tumbling(*, seconds: int, settings: dict[str, str], path: str, files_per_epoch: int) -> dict[str, Any]:
    """Count by window in PyFlink, with a sink of text: PyFlink's package has none of Parquet."""
    output, ended = Path("output").absolute(), Path("ended").absolute()
    ended.mkdir()
    checkpoints = {"execution.checkpointing.dir": Path("checkpoints").absolute().as_uri()}
    _run_pyflink(
        "pyflink_windows",
        {**SETTINGS, **checkpoints, **settings},
        Path(path),
        {"seconds": seconds, "output": output.as_uri(), "ended": str(ended)},
    )
    return {"epochs": ended_windows(output, ended)}


def pyflink_count(*, settings: dict[str, str], path: str, files_per_epoch: int, backend: str) -> dict[str, Any]:
    """Count the words in `path` in PyFlink, and discard the counts, without checkpoints."""
    times = Path("times").absolute()
    times.mkdir()
    everywhere = {"state.backend.type": backend, "pipeline.object-reuse": "true", "restart-strategy.type": "none"}
    _run_pyflink("pyflink_count", {**everywhere, **settings}, Path(path), {"times": str(times)})
    return {"epochs": emitted_epochs(times, _epochs(Path(path), files_per_epoch))}


def _run_pyflink(program: str, settings: dict[str, str], lines: Path, arguments: dict[str, Any]) -> None:
    """Run one of the programs here in PyFlink's interpreter, over one file of lines for each subtask."""
    source, python = Path("source").absolute(), _interpreter()
    join_files(lines, source, int(settings["parallelism.default"]))
    interpreters = {"python.executable": python, "python.client.executable": python}
    job = {"settings": {**settings, **interpreters}, "source": source.as_uri(), **arguments}
    Path("job.json").write_text(json.dumps(job))
    subprocess.run([python, "-m", f"benchmarks.sides.{program}", "job.json"], env=_environment(python), check=True)


def java_count(
    *, operator: str, path: str, files_per_epoch: int, backend: str, checkpoint_seconds: int | None = None
) -> dict[str, Any]:
    """Count the words in `path` in Flink's Java API, and discard the counts; None takes no checkpoints."""
    source, times = Path("source").absolute(), Path("times").absolute()
    times.mkdir()
    join_files(Path(path), source, JAVA_SUBTASKS)
    settings = {**JAVA, "state.backend.type": backend}
    if checkpoint_seconds is not None:
        settings |= {
            "execution.checkpointing.interval": f"{checkpoint_seconds}s",
            "execution.checkpointing.incremental": "true",
            "execution.checkpointing.dir": Path("checkpoints").absolute().as_uri(),
        }
    Path("settings").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    class_path = libraries()
    compile_program(_COUNT, _CLASSES, class_path)
    command = [java_tool("java"), "-Xmx2g", "-Dlog4j2.level=OFF", "-cp", f"{_CLASSES}{os.pathsep}{class_path}"]
    subprocess.run([*command, _COUNT.stem, operator, str(source), str(times), "settings"], check=True)
    return {"epochs": emitted_epochs(times, _epochs(Path(path), files_per_epoch))}


def emitted_epochs(times: Path, epochs: Sequence[int]) -> list[dict[str, float]]:
    """Return when the subtasks together had emitted the records of each epoch.

    Each file of `times` has pairs of a number of records and the time in nanoseconds at which they had been emitted.
    The last epoch has the records that were in fact emitted, so that a comparison notices if some are missing.
    """
    entries = np.concatenate([np.fromfile(file, dtype=">i8").reshape(-1, 2) for file in sorted(times.iterdir())])
    entries = entries[np.argsort(entries[:, 1], kind="stable")]
    emitted = np.cumsum(entries[:, 0])
    expected = np.cumsum(epochs)
    ends = np.minimum(np.searchsorted(emitted, expected), len(emitted) - 1)
    missing = int(expected[-1] - emitted[-1])
    records = [*epochs[:-1], epochs[-1] - missing]
    return [
        {"ended_at": float(entries[end, 1]) / 1e9, "records": each} for end, each in zip(ends, records, strict=True)
    ]


def _epochs(directory: Path, files_per_epoch: int) -> list[int]:
    lines = [file.read_bytes().count(b"\n") for file in sorted(directory.iterdir())]
    return [sum(lines[first : first + files_per_epoch]) for first in range(0, len(lines), files_per_epoch)]


def join_files(directory: Path, joined: Path, subtasks: int) -> None:
    """Join the files into one for each subtask. Flink reads files in no order: most records would be late."""
    files = sorted(directory.iterdir())
    joined.mkdir()
    for subtask in range(subtasks):
        with (joined / f"{subtask}.txt").open("wb") as whole:
            for file in files[subtask::subtasks]:
                with file.open("rb") as part:
                    shutil.copyfileobj(part, whole)


def ended_windows(output: Path, ended: Path) -> Sequence[dict[str, float]]:
    """Return the windows in their order: the records of each, and when the last of the subtasks emitted it."""
    records: Counter[int] = Counter()
    for file in (path for path in output.rglob("*") if path.is_file()):
        for row in file.read_text().splitlines():
            _, start, count = row.strip("()").split(",")
            records[int(start)] += int(count)
    ends: dict[int, float] = {}
    for file in ended.iterdir():
        for start, at in json.loads(file.read_text()).items():
            ends[int(start)] = max(at, ends.get(int(start), at))
    return [{"ended_at": ends[start], "records": records[start]} for start in sorted(ends)]


def _interpreter() -> str:
    """Return PyFlink's interpreter, or end with what is missing: this is printed in place of the figure."""
    script = _REPOSITORY / "tools" / "pyflink.sh"
    made = subprocess.run(["sh", str(script)], capture_output=True, text=True)
    if made.returncode:
        sys.exit(made.stderr.strip())
    return made.stdout.strip()


def _environment(python: str) -> dict[str, str]:
    """Return an environment in which Python inside of the JVM finds PyFlink: it does not know virtual environments."""
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    return {**os.environ, "PYTHONPATH": os.pathsep.join((packages, str(_REPOSITORY)))}
