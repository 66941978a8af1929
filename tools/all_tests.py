"""`python -m tools.all_tests tests`: what `make test` runs. The tests on Spark, and all others beside them.

Tests on Spark wait much, for JVMs, heartbeats and timeouts; the others mostly compute. So the others run at a lower
priority in the time that is left, and their output is shown when they have ended.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence

import click

_PYTEST = (sys.executable, "-m", "pytest")
_SPARK = (*_PYTEST, "-m", "spark", "-n", "2", "--dist", "load", "--maxschedchunk", "1")  # the longest first
_OTHERS = ("nice", "-n", "10", *_PYTEST, "-n", "2", "--dist", "worksteal", "-m")
_UNCHECKED = "not spark and (slow or hypothesis)"  # `make check` tries a part of the examples

_NO_TESTS = 5
"""Pytest's exit code if there is no test of the kind."""


@click.command()
@click.option("--checked", is_flag=True, help="Leave out tests that make check has run in full.")
@click.option("--only-spark", is_flag=True, help="Run only the tests on Spark.")
@click.argument("tests", nargs=-1, required=True)
def main(tests: Sequence[str], *, checked: bool, only_spark: bool) -> None:
    """Run tests; exit 1 if one fails."""
    if only_spark:
        sys.exit(subprocess.run([*_SPARK, *tests]).returncode)
    with tempfile.TemporaryFile() as output:
        command = [*_OTHERS, _UNCHECKED if checked else "not spark", *tests]
        with subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as others:
            spark = subprocess.run([*_SPARK, *tests])
        output.seek(0)
        sys.stdout.write(f"\nTests that need no Spark:\n{output.read().decode(errors='replace')}")
    sys.exit(any(code not in (0, _NO_TESTS) for code in (spark.returncode, others.returncode)))


if __name__ == "__main__":
    main()
