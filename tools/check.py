"""`python -m tools.check`: all that `make check` checks. What needs no test run is checked beside the fast tests.

The tests show how far they are; each of the others tells its result on one line, with its output below if it failed.
The fast tests try a part of the examples of property tests (`make test` tries all), keep their files in memory where
that is possible, since a disk may be slow to sync, and leave out directories and plugins that only other tests need.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.examples import PART

_PYTHON = [sys.executable, "-m"]
_MYPY = [*_PYTHON, "mypy", "--strict", "--no-error-summary"]

_MEMORY = Path("/dev/shm")
_MEMORY_BYTES = 2 << 30  # free there, or the tests keep their files where others do

_EXAMPLES = [str(path) for path in sorted(Path("examples").glob("*.py"))]
_FRAUD_DETECTION = [str(path) for path in sorted(Path("examples/fraud_detection").glob("*.py"))]

Check = tuple[str, Sequence[str], Mapping[str, str]]
"""Its name, its command, and what it needs in its environment."""

_NO_PLUGINS = ("-p", "no:schemathesis", "-p", "no:anyio")

STATIC_CHECKS: Sequence[Check] = (
    ("format", [*_PYTHON, "ruff", "format", "--quiet", "--check", "."], {}),
    ("lint", [*_PYTHON, "ruff", "check", "--quiet", "."], {}),
    ("layers", [str(Path(sys.executable).with_name("lint-imports")), "--no-logo"], {}),
    ("types", [*_MYPY, "--explicit-package-bases", "src", "tests", "chaos", "benchmarks", "simulation"], {}),
    ("types of examples", [*_MYPY, *_EXAMPLES, *_FRAUD_DETECTION], {"MYPYPATH": "examples/fraud_detection:src"}),
    ("types that users see", [*_PYTHON, "pytest", *_NO_PLUGINS, "tests/typing"], {}),  # with mypy's cache of the above
)
SIMULATION: Check = (
    "simulation",
    [*_PYTHON, "simulation", "--seeds", os.environ.get("SEEDS", "500")],
    {"PYTHONHASHSEED": "0"},
)
_LEFT_OUT = [f"--ignore=tests/{directory}" for directory in ("page", "server", "spark", "typing")]
FAST_TESTS = [
    *_PYTHON,
    "pytest",
    *("-m", "not spark and not slow"),
    *("-n", "2", "--dist", "worksteal"),
    *_NO_PLUGINS,
    *_LEFT_OUT,
    "tests",
]


def main() -> None:
    failed: list[str] = []
    beside = [threading.Thread(target=_run, args=(checks, failed)) for checks in (STATIC_CHECKS, [SIMULATION])]
    for thread in beside:
        thread.start()
    with tempfile.TemporaryDirectory(prefix="checkdam-check-", dir=_quick_directory()) as temporary:
        tests = subprocess.run(FAST_TESTS, env={**os.environ, PART: "4", "TMPDIR": temporary})
    for thread in beside:
        thread.join()
    if tests.returncode != 0:
        failed.append("fast tests")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def _quick_directory() -> Path | None:
    """Return a directory in memory; None if there is none with enough space."""
    if not os.access(_MEMORY, os.W_OK):
        return None
    return _MEMORY if shutil.disk_usage(_MEMORY).free >= _MEMORY_BYTES else None


def _run(checks: Sequence[Check], failed: list[str]) -> None:
    """Run checks one after the other, and add the names of those that fail."""
    for name, command, environment in checks:
        began = time.monotonic()
        ended = subprocess.run(
            command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        verdict = "ok" if ended.returncode == 0 else f"FAILED\n{ended.stdout}"
        sys.stdout.write(f"\n{name}: {verdict} ({time.monotonic() - began:.0f} s)\n")
        sys.stdout.flush()
        if ended.returncode != 0:
            failed.append(name)


if __name__ == "__main__":
    main()
