"""Error messages: one line with the problem and the remedy; a traceback of the user's frames if their code raised."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

import checkdam
from checkdam.errors import CheckdamError, UserFunctionError
from checkdam.runtime.logs.line_stream import beneath

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_CANCELLED = 130
EXIT_TERMINATED = 143

_OWN_PACKAGE = str(Path(checkdam.__file__).parent)
_QUOTED = "Traceback (most recent call last):"
_FOREIGN_PACKAGES = ("pyspark", "py4j")


def say(line: str) -> None:
    """Print a line on standard error; not to a log file, where the job's events are anyway."""
    print(line, file=beneath(sys.stderr), flush=True)


@contextmanager
def errors_printed(*, verbose: bool, as_json: bool = False) -> Iterator[None]:
    """Turn Checkdam's errors into a line, or Flink's JSON form, and an exit code; `verbose` adds the whole stack."""
    try:
        yield
    except CheckdamError as error:
        if verbose:
            say("".join(traceback.format_exception(error)).rstrip())
        if as_json:
            click.echo(errors_as_json(str(error)))
        else:
            say(rendered(error))
        raise click.exceptions.Exit(error.exit_code) from None


def errors_as_json(message: str) -> str:
    """Return Flink's error form, for scripts."""
    return msgspec.json.encode({"errors": [_on_one_line(message)]}).decode()


def rendered(error: CheckdamError) -> str:
    """Return the error as one line, preceded by the user's own frames if their code raised it."""
    line = f"error: {_on_one_line(str(error))}"
    if isinstance(error, UserFunctionError):
        return f"{error.user_traceback.rstrip()}\n{line}"
    return line


def user_traceback(error: BaseException) -> str:
    """Return the traceback as Python prints it, with the frames of the user's code only."""
    shown = traceback.TracebackException.from_exception(error)
    link: traceback.TracebackException | None = shown
    while link is not None:
        link.stack = traceback.StackSummary.from_list([frame for frame in link.stack if not _is_foreign(frame)])
        link = link.__cause__ or link.__context__
    if type(error).__module__.startswith(_FOREIGN_PACKAGES):
        return f"{_frames(shown.stack)}{headline(error)}"  # its text continues with the JVM's stack
    return "".join(shown.format()).rstrip()


def headline(error: BaseException) -> str:
    """Return name and first line of an exception; for one that quotes a Python traceback, the last line of that."""
    lines = str(error).strip().splitlines()
    if _QUOTED in map(str.strip, lines):
        quoted = lines[[line.strip() for line in lines].index(_QUOTED) + 1 :]
        lines = [line for line in quoted if line and not line[0].isspace()] or lines
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _frames(stack: traceback.StackSummary) -> str:
    return f"Traceback (most recent call last):\n{''.join(stack.format())}" if stack else ""


def _is_foreign(frame: traceback.FrameSummary) -> bool:
    """Return whether a frame belongs to what runs the user's code, not to their code or a library they chose."""
    name = frame.filename
    if name.startswith(("<frozen ", _OWN_PACKAGE)) or name.endswith("runpy.py"):
        return True
    return any(f"/site-packages/{package}/" in name.replace("\\", "/") for package in _FOREIGN_PACKAGES)


def _on_one_line(text: str) -> str:
    return " ".join(part.strip() for part in text.splitlines() if part.strip())
