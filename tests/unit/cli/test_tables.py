"""Tables on terminals of any width."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from checkdam.cli.tables import WordTable, print_facts, print_whole

LONG = "a-name-that-somebody-has-made-up-and-that-is-far-longer-than-any-terminal-is-wide-these-days"


def _shown(width: int, table: WordTable) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    print_whole(console, table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def _table(name: str = "count") -> WordTable:
    table = WordTable("state", "kind", "why", "entries", whole={"kind"}, indent=2)
    table.add(name, "operator union list", "its type was int and is str, to which no rule leads", "1,234")
    table.add("b", "value", "", "5")
    return table


def test_texts_fold_between_words_and_figures_stand_to_the_right() -> None:
    assert _shown(60, _table()) == [
        "  state  kind                 why                    entries",
        "  count  operator union list  its type was int and     1,234",
        "                              is str, to which no           ",
        "                              rule leads                    ",
        "  b      value                                             5",
    ]


@pytest.mark.parametrize(("name", "width"), [("count", 40), (LONG, 80)])
def test_a_terminal_too_narrow_for_the_words_gets_a_list(name: str, width: int) -> None:
    lines = _shown(width, _table(name))

    assert lines[0] == f"  state    {name}"
    assert lines[1] == "  kind     operator union list"
    assert " ".join(" ".join(lines).split()).count("to which no rule leads") == 1
    assert lines[-3:] == ["  state    b", "  kind     value", "  entries  5"]


@pytest.mark.parametrize("width", range(20, 200, 7))
def test_every_word_is_whole_at_any_width(width: int) -> None:
    words = " ".join(_shown(width, _table(LONG))).split()

    assert {LONG, "operator", "union", "list", "1,234", "type", "leads"} <= set(words)


def test_a_column_without_content_is_left_out() -> None:
    table = WordTable("state", "why")
    table.add("count", "")

    assert _shown(80, table) == ["state", "count"]
    assert _shown(80, WordTable("state")) == []


def test_a_fact_that_is_too_long_is_left_to_the_terminal() -> None:
    console = Console(file=io.StringIO(), width=40, highlight=False)

    print_facts(console, [("path", LONG), ("size", "1.2 MB in 7 files and in the _metadata of it")])

    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == [
        f"path  {LONG}",
        "size  1.2 MB in 7 files and in the",
        "      _metadata of it",
    ]
