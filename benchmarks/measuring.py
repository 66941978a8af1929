"""Seconds of each epoch in steady state, side by side: what comparisons of throughput are made of."""

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
    """What sides have taken so far; why some could not be measured is told by the comparisons that need them."""

    def __init__(self, sides: Sides, inputs: Path) -> None:
        self._sides = sides
        self._directory = inputs
        self._inputs: dict[str, Input] = {}
        self._seconds: dict[str, list[float]] = {}  # of each epoch, by side
        self._records: dict[str, int] = {}  # of each of these epochs
        self._failures: dict[str, SideFailedError] = {}

    def input(self, name: str, make: Callable[[Path], Input]) -> Input:
        """The input of that name, made if there is none yet."""
        if name not in self._inputs:
            self._inputs[name] = make(self._directory / name)
        return self._inputs[name]

    def measure(self, sides: Sequence[Side], source: Input, *, first: int, rounds: int = 1) -> None:
        """Turn by turn, so that what disturbs the machine for a while disturbs every side."""
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
        """How many times as fast. Only epochs of one size can be compared: each has a part that no record causes."""
        taken = self.median(theirs) / self.median(ours)
        sizes = self._records[ours.name], self._records[theirs.name]
        if len(set(sizes)) > 1:
            raise ValueError(f"{ours.name} and {theirs.name} have epochs of {sizes} records")
        return taken

    def rate(self, side: Side) -> Figure:
        seconds = self.median(side)
        return Figure(side.name, self._records[side.name] / seconds, "records/s")


def steady_seconds(epochs: Sequence[dict[str, float]], source: Input, first: int) -> list[float]:
    """From the end of one epoch to the end of the next, without the first ones.

    Raises:
        SideFailedError: the side has not seen the records that the input holds.
    """
    seen = tuple(int(epoch["records"]) for epoch in epochs)
    if seen != source.epochs:
        raise SideFailedError(f"epochs of {seen} records, not {source.epochs}")
    ends = [epoch["ended_at"] for epoch in epochs]
    return [after - before for before, after in pairwise(ends)][first - 1 :]
