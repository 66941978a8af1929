"""Runs a user's job file as a program inside this process."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from checkdam.api.launch import Launch, set_launch
from checkdam.cli.error_messages import headline, say, user_traceback
from checkdam.errors import CheckdamError, JobFileError


def run_job_file(path: Path, arguments: Sequence[str]) -> None:
    """Run the file as `__main__`. Its exceptions pass through, except those that prevent it from being loaded.

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


def run_printing_errors(path: Path, arguments: Sequence[str], launch: Launch, *, verbose: bool) -> bool:
    """Run the file under this launch. Return False if the program itself raised, after printing the error.

    Raises:
        CheckdamError: the job, or its file, is at fault.
    """
    set_launch(launch)
    try:
        run_job_file(path, arguments)
    except JobFileError as error:
        if error.__cause__ is not None:
            say(user_traceback(error.__cause__))
        raise
    except CheckdamError:
        raise
    except Exception as error:  # noqa: BLE001  print any exception of the user's program
        say("".join(traceback.format_exception(error)).rstrip() if verbose else user_traceback(error))
        return False
    finally:
        set_launch(None)
    return True


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
