"""Seconds of each epoch in steady state, by side: the basis of throughput comparisons."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.processes import SideFailedError, Sides
from benchmarks.report import Figure
from benchmarks.words import Input


@dataclass(frozen=True)
class Side:
    """One way to do the work, with one kind of sink."""

    name: str
    function: str
    arguments: dict[str, Any] = field(default_factory=dict, hash=False)


class Measurements:
    """The measurements of the sides so far. Comparisons that need a failed side report its failure."""

    def __init__(self, sides: Sides, inputs: Path) -> None:
        self._sides = sides
        self._directory = inputs
        self._inputs: dict[str, Input] = {}
        self._seconds: dict[str, list[float]] = {}  # of each epoch, by side
        self._records: dict[str, int] = {}  # of each of these epochs
        self._failures: dict[str, SideFailedError] = {}

    def input(self, name: str, make: Callable[[Path], Input]) -> Input:
        """Return the input of that name, creating it if there is none yet."""
        if name not in self._inputs:
            self._inputs[name] = make(self._directory / name)
        return self._inputs[name]

    def measure(self, sides: Sequence[Side], source: Input, *, first: int, rounds: int = 1) -> None:
        """Measure the sides in turns, so that a disturbance of the machine affects every side."""
        for turn in range(1, rounds + 1):
            for side in sides:
                what = side.name if rounds == 1 else f"{side.name}, {turn} of {rounds}"
                try:
                    result = self._sides.run(
                        side.function, what, path=source.path, files_per_epoch=source.files_per_epoch, **side.arguments
                    )
                    seconds = steady_seconds(result["epochs"], source, first)
                except SideFailedError as failure:
                    self._failures[side.name] = failure
                else:
                    self._seconds.setdefault(side.name, []).extend(seconds)
                    self._records[side.name] = source.epochs[-1]

    def median(self, side: Side) -> float:
        if side.name in self._failures:
            raise self._failures[side.name]
        return statistics.median(self._seconds[side.name])

    def speed(self, ours: Side, theirs: Side) -> float:
        """Return how many times as fast ours is. Epochs must have one size, since each has a fixed cost."""
        taken = self.median(theirs) / self.median(ours)
        sizes = self._records[ours.name], self._records[theirs.name]
        if len(set(sizes)) > 1:
            raise ValueError(f"{ours.name} and {theirs.name} have epochs of {sizes} records")
        return taken

    def rate(self, side: Side) -> Figure:
        seconds = self.median(side)
        return Figure(side.name, self._records[side.name] / seconds, "records/s")


def steady_seconds(epochs: Sequence[dict[str, float]], source: Input, first: int) -> list[float]:
    """Return the time from the end of one epoch to the end of the next, without the first ones.

    Raises:
        SideFailedError: the side has not seen the records of the input.
    """
    seen = tuple(int(epoch["records"]) for epoch in epochs)
    if seen != source.epochs:
        raise SideFailedError(f"epochs of {seen} records, not {source.epochs}")
    ends = [epoch["ended_at"] for epoch in epochs]
    return [after - before for before, after in pairwise(ends)][first - 1 :]
