from __future__ import annotations

import io
import os
import sys
import threading

from checkdam.runtime.logs.line_stream import LONGEST_LINE, Echo, LineStream, beneath


def test_lines_are_passed_on_whole() -> None:
    lines: list[str] = []
    stream = LineStream(io.StringIO(), lines.append, passes_on=False)

    print("a", 1, file=stream)
    print("b", end="", file=stream)
    print("c\n\nd", file=stream)

    assert lines == ["a 1", "bc", "", "d"]


def test_lines_of_threads_do_not_mix() -> None:
    lines: list[str] = []
    stream = LineStream(io.StringIO(), lines.append, passes_on=False)

    stream.write("begun ")
    other = threading.Thread(target=lambda: stream.write("of another\n"))
    other.start()
    other.join()
    stream.write("ended\n")

    assert lines == ["of another", "begun ended"]


def test_what_has_no_end_does_not_fill_the_memory() -> None:
    lines: list[str] = []
    stream = LineStream(io.StringIO(), lines.append, passes_on=False)

    for _ in range(3):
        stream.write("x" * LONGEST_LINE)
    stream.write("y" * (LONGEST_LINE + 1) + "\n")

    assert [len(line) for line in lines] == [LONGEST_LINE] * 4 + [1]


def test_a_line_that_was_begun_is_passed_on_at_the_end() -> None:
    lines: list[str] = []
    stream = LineStream(io.StringIO(), lines.append, passes_on=False)

    stream.write("begun")
    stream.end_lines()
    stream.end_lines()

    assert lines == ["begun"]


def test_the_terminal_gets_the_text_as_it_comes() -> None:
    terminal = io.StringIO()
    stream = LineStream(terminal, lambda line: None, passes_on=True)

    stream.write("50 %")

    assert terminal.getvalue() == "50 %"
    assert beneath(stream) is terminal  # type: ignore[arg-type]
    assert beneath(sys.stderr) is sys.stderr


def test_a_paused_terminal_stops_nobody_and_what_it_missed_is_counted() -> None:
    read_end, write_end = os.pipe()
    echo = Echo(os.fdopen(write_end, "w"), "!")

    for number in range(5000):
        echo(f"line {number} {'x' * 200}")  # far more than the pipe takes

    with os.fdopen(read_end) as shown:
        lines = iter(shown)
        assert next(lines).startswith("!line 0 ")
        assert next(line for line in lines if "not shown" in line).startswith("!(")


class _Paused(io.StringIO):
    def flush(self) -> None:
        raise AssertionError("waits for a paused terminal")


def test_a_flush_does_not_wait_for_a_terminal_that_gets_nothing_from_this_stream() -> None:
    lines: list[str] = []

    print("a", file=LineStream(_Paused(), lines.append, passes_on=False), flush=True)

    assert lines == ["a"]
