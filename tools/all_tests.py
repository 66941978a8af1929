"""`python -m tools.all_tests tests`: what `make test` runs. The tests that need no Spark, and then those on Spark.

They do not run beside each other: two JVMs and two processes that compute are too much for two cores, and tests that
depend on heartbeats then fail.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import click

_PYTEST = (sys.executable, "-m", "pytest")
_SPARK = (*_PYTEST, "-m", "spark", "-n", "2", "--dist", "load", "--maxschedchunk", "1")  # the longest first
_OTHERS = (*_PYTEST, "-n", "2", "--dist", "worksteal", "-m")
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
    others = subprocess.run([*_OTHERS, _UNCHECKED if checked else "not spark", *tests])
    spark = subprocess.run([*_SPARK, *tests])
    sys.exit(any(code not in (0, _NO_TESTS) for code in (spark.returncode, others.returncode)))


if __name__ == "__main__":
    main()
