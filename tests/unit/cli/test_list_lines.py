"""The lines of `checkdam list` on terminals of different widths."""

from __future__ import annotations

from checkdam.cli.list import lines_of

NAMES = ("job", "name", "health", "where")
ROWS = [
    ("4fa1" + "0" * 28, "words", "restarted 40 s ago, 3 checkpoints failed", "http://localhost:8081"),
    ("5fa1" + "0" * 28, "numbers", "ok", "http://localhost:8082"),
]


def _lines(width: int | None) -> list[str]:
    return [line for line, _ in lines_of(NAMES, ROWS, width)]


def test_columns_stay_whole_where_there_is_room_or_no_terminal() -> None:
    head, first, second = _lines(None)

    assert head.split() == list(NAMES)
    assert [first.index(cell) for cell in ROWS[0]] == [second.index(cell) for cell in ROWS[1]]
    assert _lines(len(first)) == [head, first, second]


def test_on_80_columns_each_job_is_a_list_of_its_cells() -> None:
    lines = _lines(80)

    assert max(map(len, lines)) <= 80
    assert lines[:4] == [
        f"job     {ROWS[0][0]}",
        "name    words",
        "health  restarted 40 s ago, 3 checkpoints failed",
        "where   http://localhost:8081",
    ]
    assert lines[4] == ""
    assert lines[5] == f"job     {ROWS[1][0]}"
