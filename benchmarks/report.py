"""The measured figures, as a table for people and as JSON for programs."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tools.flink_java import java_tool

FLINK = "2.3.0"
"""The version of Flink that `tools/flink.sh` and `tools/pyflink.sh` install unless told otherwise."""


@dataclass(frozen=True)
class Figure:
    """One measured value; without a bar it explains the others."""

    name: str
    value: float
    unit: str = "×"
    at_least: float | None = None
    at_most: float | None = None
    core_us: float | None = None
    """Processor microseconds a record, of all processes on all cores."""

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
    table = Table(title="Checkdam beside its peers", title_justify="left", caption=conditions(), expand=False)
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
            cost = "" if figure.core_us is None else f"{_readable(figure.core_us)} core-µs"
            table.add_row(figure.name, figure.shown(), cost, style="dim")
    console.print(table)


def conditions() -> str:
    """Return when, on how many cores and with which versions the figures were measured."""
    packages = (f"{name} {version(name)}" for name in ("checkdam", "pyspark", "pyarrow"))
    parts = [
        f"{datetime.now(UTC):%Y-%m-%d}",
        f"{os.cpu_count()} cores",
        f"Python {platform.python_version()}",
        *packages,
    ]
    return ", ".join([*parts, _java(), f"Flink {FLINK}"])


def _java() -> str:
    """Return the version of Java as it calls itself, such as "openjdk 17.0.15"."""
    said = subprocess.run([java_tool("java"), "-version"], capture_output=True, text=True).stderr
    words = said.split()
    return f"{words[0]} {words[2].strip(chr(34))}" if len(words) > 2 else "Java of unknown version"


def write_json(figures: Sequence[Figure], path: Path) -> None:
    """Write the figures that have a bar, in their order."""
    rows = [
        {"name": figure.name, "value": round(figure.value, 4), "bar": figure.bar, "pass": figure.passes}
        for figure in figures
        if figure.bar is not None
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
