"""Standard output: for people a console, and tables that fold on a narrow terminal; JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Any

import click
import msgspec
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

_PIPE_WIDTH = 160
_FIGURES = frozenset({"added", "changed", "entries", "files", "key group", "removed", "size", "subtask", "unchanged"})


def console_for_output() -> Console:
    """Return a console on standard output; if it is not a terminal, tables are not folded."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)


def print_json(value: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def table_of(*names: str, whole: Collection[str] = ()) -> Table:
    """Return an empty table that folds texts on a narrow terminal, except figures and the columns in `whole`."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", border_style="dim", padding=(0, 1, 0, 0), pad_edge=False)
    for name in names:
        is_figure = name in _FIGURES
        table.add_column(
            name, justify="right" if is_figure else "left", no_wrap=is_figure or name in whole, overflow="fold"
        )
    return table


def add_row(table: Table, *cells: str) -> None:
    """Add a row of plain text."""
    table.add_row(*map(escape, cells))
