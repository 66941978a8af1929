"""One side of a comparison: its own process, with its own JVM, that leaves nothing behind."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.processor_time import MARK, ProcessorTime

_REPOSITORY = Path(__file__).resolve().parent.parent
_GIVEN_UP_AFTER_SECONDS = 900.0
_ENDS_WITHIN_SECONDS = 20.0


class SideFailedError(Exception):
    """One side could not be measured; the text has the reason that the side gave."""


class Sides:
    """Runs sides strictly one after the other, below one temporary directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._started_at = time.monotonic()
        self._count = 0

    def run(self, side: str, what: str, **arguments: Any) -> Any:
        """Run the function of that name in `benchmarks.sides` and return its result, then remove its directory."""
        return self.measured(side, what, **arguments)[0]

    def measured(self, side: str, what: str, **arguments: Any) -> tuple[Any, ProcessorTime]:
        """Run a side as `run` does; return its result and the processor time of all its processes."""
        self._count += 1
        print(f"{time.monotonic() - self._started_at:5.0f} s  {what}", file=sys.stderr, flush=True)
        work = self._root / str(self._count)
        work.mkdir()
        mark = secrets.token_hex(8)
        try:
            with ProcessorTime(mark) as processor:
                return self._run(side, arguments, work, mark), processor
        finally:
            remove(work)

    def _run(self, side: str, arguments: dict[str, Any], work: Path, mark: str) -> Any:
        path = os.pathsep.join(filter(None, (str(_REPOSITORY), os.environ.get("PYTHONPATH"))))
        result, said = work / "result.json", work / "said.txt"
        with said.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.sides", side, json.dumps(arguments), str(result)],
                cwd=work,
                env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(work), MARK: mark},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                code = process.wait(_GIVEN_UP_AFTER_SECONDS)
            except subprocess.TimeoutExpired:
                code = -1
            finally:
                _end_group(process)
        if code or not result.exists():
            raise SideFailedError(f"{side} ended with {code}:\n{said.read_text(errors='replace')[-4000:]}")
        return json.loads(result.read_text())


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Wait for the JVM that the side started, so that the next side has the machine to itself."""
    patience = _ENDS_WITHIN_SECONDS if process.poll() is not None else 0.0
    deadline = time.monotonic() + patience
    while _is_alive(process.pid):
        if time.monotonic() > deadline:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        time.sleep(0.1)


def _is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def remove(directory: Path) -> None:
    """Remove a directory from which ending processes may still remove their own files."""
    deadline = time.monotonic() + _ENDS_WITHIN_SECONDS
    while directory.exists():
        shutil.rmtree(directory, ignore_errors=time.monotonic() < deadline)
        time.sleep(0.05)
