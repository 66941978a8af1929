"""Standard output: for people a console, and tables that never cut a word; JSON for programs."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import click
import msgspec
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_PIPE_WIDTH = 160
_FIGURES = frozenset({"added", "changed", "entries", "files", "key group", "removed", "size", "subtask", "unchanged"})
_GAP = 2  # between columns
_LEAST_OF_TEXT = 20  # columns of the terminal for the text beside a label


def console_for_output() -> Console:
    """Return a console on standard output; if it is not a terminal, tables are not folded."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)


def print_json(value: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_whole(console: Console, *parts: RenderableType) -> None:
    """Print without cutting. A word wider than the terminal, such as a path, is left to the terminal to wrap."""
    console.print(Group(*parts), crop=False)  # a group: Text by itself would lose its rules of wrapping


class Words:
    """A line of plain text that folds between words only; it may begin with a name, which stands out."""

    def __init__(self, text: str, *, name: str = "") -> None:
        self._name = name
        self._text = f"{name}  {text}" if name and text else name or text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for place, line in enumerate(_folded(self._text, options.max_width)):
            shown = Text(line, overflow="ignore")
            if place == 0 and line.startswith(self._name):
                shown.stylize("bold", 0, len(self._name))
            yield shown


def _folded(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


class WordTable:
    """A table of plain text that folds between words only.

    On a terminal that is too narrow for the longest words side by side, each row becomes a list of its cells. Figures
    and the columns in `whole` are never folded; a column without any content is left out.
    """

    def __init__(self, *names: str, whole: Collection[str] = (), indent: int = 0) -> None:
        self._names = names
        self._whole = whole
        self._indent = indent
        self._rows: list[tuple[Text, ...]] = []

    def add(self, *cells: str | Text) -> None:
        self._rows.append(tuple(cell if isinstance(cell, Text) else Text(cell) for cell in cells))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width - self._indent
        shown = [column for column in range(len(self._names)) if any(row[column].plain for row in self._rows)]
        if not shown:
            return
        widths = self._widths(shown, width)
        if widths is None:
            yield from self._list(shown, width)
        else:
            yield Padding(self._table(shown, widths), (0, 0, 0, self._indent), expand=False)

    def _table(self, shown: Sequence[int], widths: Sequence[int]) -> Table:
        table = Table(box=None, header_style="dim", padding=(0, _GAP, 0, 0), pad_edge=False)
        for column, width in zip(shown, widths, strict=True):
            name = self._names[column]
            table.add_column(Text(name), justify="right" if name in _FIGURES else "left", width=width, overflow="fold")
        for row in self._rows:
            table.add_row(*(row[column] for column in shown))
        return table

    def _list(self, shown: Sequence[int], width: int) -> RenderResult:
        for number, row in enumerate(self._rows):
            if number:
                yield Text()
            cells = [(self._names[column], row[column]) for column in shown if row[column].plain]
            yield from labelled(cells, width, indent=self._indent)

    def _widths(self, shown: Sequence[int], width: int) -> list[int] | None:
        """Return the width of each column; None if not even the longest words fit."""
        least, most = [], []
        for column in shown:
            cells = [self._names[column], *(row[column].plain for row in self._rows)]
            is_whole = self._names[column] in _FIGURES or self._names[column] in self._whole
            most.append(max(map(cell_len, cells)))
            least.append(
                most[-1] if is_whole else max(cell_len(word) for cell in cells for word in cell.split() or [""])
            )
        spare = width - _GAP * (len(shown) - 1) - sum(least)
        if spare < 0:
            return None
        widths = list(least)
        by_need = sorted(range(len(shown)), key=lambda place: most[place] - least[place])
        for rank, place in enumerate(by_need):
            given = min(most[place] - least[place], spare // (len(by_need) - rank))
            widths[place] += given
            spare -= given
        return widths


def labelled(facts: Iterable[tuple[str, str | Text]], width: int, *, indent: int = 0) -> Iterable[RenderableType]:
    """Return lines with a label each and a text beside it, which is folded between words."""
    known = [(label, text if isinstance(text, Text) else Text(text)) for label, text in facts]
    margin = max((cell_len(label) for label, _ in known), default=0) + _GAP
    room = max(width - margin, _LEAST_OF_TEXT)
    for label, text in known:
        for place, line in enumerate(_folded(text.plain, room)):
            head = label if place == 0 else ""
            yield Text.assemble(" " * indent, (head.ljust(margin), "dim"), (line, text.style), overflow="ignore")


def print_facts(console: Console, facts: Iterable[tuple[str, str]]) -> None:
    """Print labels with a text beside each."""
    print_whole(console, *labelled(facts, console.width))
