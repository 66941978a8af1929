"""Running a user's job file as the program it is, inside this process."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from checkdam.cli.failures import headline
from checkdam.errors import CheckdamError, JobFileError


def run_job_file(path: Path, arguments: Sequence[str]) -> None:
    """Run the file as `__main__`; what it raises comes out, but for what kept it from being loaded at all.

    Its directory is importable here and in every process that Spark starts, so that functions from modules beside
    it can be called in slots.

    Raises:
        JobFileError: there is no such file, or it or a module it imports cannot be loaded.
    """
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise JobFileError(f'job file "{path}" {what}', hint="Give the path of a Python program.")
    with _importable(path.resolve().parent), _argv([str(path), *arguments]):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except CheckdamError:
            raise
        except (SyntaxError, ImportError) as error:
            raise JobFileError(f'job file "{path}" cannot be loaded: {headline(error)}') from error


@contextmanager
def _importable(directory: Path) -> Iterator[None]:
    before = os.environ.get("PYTHONPATH")
    sys.path.insert(0, str(directory))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(directory), before)))
    try:
        yield
    finally:
        sys.path.remove(str(directory))
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@contextmanager
def _argv(argv: list[str]) -> Iterator[None]:
    before = sys.argv
    sys.argv = argv
    try:
        yield
    finally:
        sys.argv = before
