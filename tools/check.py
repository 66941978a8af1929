"""`python -m tools.check`: all that `make check` checks. What needs no test run is checked beside the fast tests.

The tests show how far they are; each of the others tells its result on one line, with its output below if it failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_PYTHON = [sys.executable, "-m"]
_MYPY = [*_PYTHON, "mypy", "--strict", "--no-error-summary"]

_EXAMPLES = [str(path) for path in sorted(Path("examples").glob("*.py"))]
_FRAUD_DETECTION = [str(path) for path in sorted(Path("examples/fraud_detection").glob("*.py"))]

STATIC_CHECKS: Sequence[tuple[str, Sequence[str], Mapping[str, str]]] = (
    ("format", [*_PYTHON, "ruff", "format", "--quiet", "--check", "."], {}),
    ("lint", [*_PYTHON, "ruff", "check", "--quiet", "."], {}),
    ("layers", [str(Path(sys.executable).with_name("lint-imports")), "--no-logo"], {}),
    ("types", [*_MYPY, "--explicit-package-bases", "src", "tests", "chaos", "benchmarks", "simulation"], {}),
    ("types of examples", [*_MYPY, *_EXAMPLES, *_FRAUD_DETECTION], {"MYPYPATH": "examples/fraud_detection:src"}),
    ("simulation", [*_PYTHON, "simulation", "--seeds", os.environ.get("SEEDS", "500")], {"PYTHONHASHSEED": "0"}),
)
FAST_TESTS = [*_PYTHON, "pytest", "-m", "not spark and not slow", "-n", "2", "--dist", "worksteal", "tests"]


def main() -> None:
    failed: list[str] = []
    static = threading.Thread(target=_check_static, args=(failed,), name="static checks")
    static.start()
    tests = subprocess.run(FAST_TESTS)
    static.join()
    if tests.returncode != 0:
        failed.append("fast tests")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def _check_static(failed: list[str]) -> None:
    for name, command, environment in STATIC_CHECKS:
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
