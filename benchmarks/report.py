"""The measured figures, as a table for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One measured value; without a bar it explains the others."""

    name: str
    value: float
    unit: str = "×"
    at_least: float | None = None
    at_most: float | None = None

    @property
    def bar(self) -> float | None:
        return self.at_most if self.at_least is None else self.at_least

    @property
    def passes(self) -> bool:
        """Whether the measured value, before rounding, meets the bar."""
        enough = self.at_least is None or self.value >= self.at_least
        return enough and (self.at_most is None or self.value <= self.at_most)

    def shown(self) -> str:
        return f"{_readable(self.value)} {self.unit}"

    def shown_bar(self) -> str:
        if self.bar is None:
            return ""
        return f"{'≥' if self.at_most is None else '≤'} {_readable(self.bar)} {self.unit}"


def _readable(value: float) -> str:
    if abs(value) >= 1_000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.0f}" if value == int(value) else f"{value:.3g}"


def print_table(figures: Sequence[Figure]) -> None:
    console = Console(width=None if Console().is_terminal else 130)
    table = Table(title="Checkdam beside Spark, 2 cores", title_justify="left", expand=False)
    table.add_column("what")
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("bar", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for figure in figures:
        if figure.bar is not None:
            table.add_row(figure.name, figure.shown(), figure.shown_bar(), "ok" if figure.passes else "FALLS SHORT")
    table.add_section()
    for figure in figures:
        if figure.bar is None:
            table.add_row(figure.name, figure.shown(), style="dim")
    console.print(table)


def write_json(figures: Sequence[Figure], path: Path) -> None:
    """Write the figures that have a bar, in their order."""
    rows = [
        {"name": figure.name, "value": round(figure.value, 4), "bar": figure.bar, "pass": figure.passes}
        for figure in figures
        if figure.bar is not None
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
