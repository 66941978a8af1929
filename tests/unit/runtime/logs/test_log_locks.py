"""Prints at the worst moment: by a finalizer in the middle of another print, and in a forked child."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from checkdam.runtime.logs.line_stream import Echo, LineStream
from checkdam.runtime.logs.rotating_file import RotatingFile


def _at_every_line(of: Callable[[], None], do: Callable[[], None]) -> None:
    """Call `do` before every line of Python that `of` executes, as a finalizer may be. Fail if that never returns."""

    def trace(frame: Any, event: str, argument: Any) -> Any:
        if event == "line":
            do()
        return trace

    def run() -> None:
        sys.settrace(trace)
        try:
            of()
        finally:
            sys.settrace(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()


def test_a_finalizer_may_print_in_the_middle_of_a_print(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "slot-0.out", 100, 20, _no_complaint)
    stream = LineStream(io.StringIO(), lambda line: file.write(f"{line}\n"), passes_on=False)
    finalized = 0

    def finalize() -> None:
        nonlocal finalized
        if finalized < 60:  # each is written in its turn, which takes lines of Python again
            finalized += 1
            stream.write("finalized\n")

    _at_every_line(lambda: _write(stream, "printed\n"), finalize)

    lines = [line for each in tmp_path.iterdir() for line in each.read_text().splitlines()]
    assert sorted(lines) == ["finalized"] * 60 + ["printed"]


def test_a_finalizer_may_show_a_line_in_the_middle_of_another() -> None:
    terminal = io.StringIO()
    echo = Echo(terminal)

    _at_every_line(lambda: echo("printed"), lambda: echo("finalized"))

    echo.settle(5)
    assert {*terminal.getvalue().splitlines()} == {"printed", "finalized"}


def _write(stream: LineStream, text: str) -> None:
    stream.write(text)


def _no_complaint(problem: str) -> None:
    raise AssertionError(problem)


def _ends_in_order(in_child: Callable[[], None]) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of a fork beside threads, which is what this is about
        child = os.fork()
    if child == 0:
        try:
            in_child()
            os._exit(0)
        finally:
            os._exit(1)
    until = time.monotonic() + 5
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status == 0
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def test_a_child_may_print_that_was_forked_in_the_middle_of_a_print(tmp_path: Path) -> None:
    is_writing, can_go_on = threading.Event(), threading.Event()

    def complain(problem: str) -> None:
        is_writing.set()
        can_go_on.wait()

    file = RotatingFile(tmp_path / "nowhere" / "slot-0.out", 100, 2, complain)
    writer = threading.Thread(target=file.write, args=("a\n",))
    writer.start()
    is_writing.wait()
    try:
        assert _ends_in_order(lambda: file.write("b\n"))
    finally:
        can_go_on.set()
        writer.join()


def test_a_child_shows_its_own_lines() -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end) as shown, os.fdopen(write_end, "w") as terminal:
        echo = Echo(terminal)
        echo("of the parent")
        echo.settle(5)

        def in_child() -> None:
            echo("of the child")
            echo.settle(5)

        assert _ends_in_order(in_child)
        assert [next(shown), next(shown)] == ["of the parent\n", "of the child\n"]
