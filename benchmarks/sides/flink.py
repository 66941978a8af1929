"""Flink's sides: a job in a cluster of one process, on the input of the other sides.

Flink has no epochs. What is measured instead is the time from one window's last result to the next one's: each epoch of
the input is one window, so between the two the job has read, counted and emitted the records of one epoch. This leaves
out the start, as it does for the other sides. The records of each window are those that the output says.
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
Nothing else was tried, so other settings may be faster.
"""


def pyflink_tumbling(*, seconds: int, settings: dict[str, str], path: str, files_per_epoch: int) -> dict[str, Any]:
    """Count by window in PyFlink, with a sink of text: PyFlink's package has none of Parquet."""
    subtasks = int(settings["parallelism.default"])
    source, output, ended = (Path(name).absolute() for name in ("source", "output", "ended"))
    ended.mkdir()
    join_files(Path(path), source, subtasks)
    python = _interpreter()
    job = {
        "settings": {
            **SETTINGS,
            "execution.checkpointing.dir": Path("checkpoints").absolute().as_uri(),
            "python.executable": python,
            "python.client.executable": python,
            **settings,
        },
        "seconds": seconds,
        "source": source.as_uri(),
        "output": output.as_uri(),
        "ended": str(ended),
    }
    Path("job.json").write_text(json.dumps(job))
    subprocess.run([python, "-m", "benchmarks.sides.pyflink_windows", "job.json"], env=_environment(python), check=True)
    return {"epochs": ended_windows(output, ended)}


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
