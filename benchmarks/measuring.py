"""Seconds of each epoch in steady state, by side and size of the epoch: the basis of throughput comparisons."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.processes import SideFailedError, Sides
from benchmarks.processor_time import ProcessorTime
from benchmarks.report import Figure
from benchmarks.words import Input


@dataclass(frozen=True)
class Side:
    """One way to do the work, with one kind of sink."""

    name: str
    function: str
    arguments: dict[str, Any] = field(default_factory=dict, hash=False)


@dataclass
class _Epochs:
    """The measured epochs of one side that have one size."""

    seconds: list[float] = field(default_factory=list)
    processor_seconds: float = 0.0


class Measurements:
    """The measurements of the sides so far. Comparisons that need a failed side report its failure."""

    def __init__(self, sides: Sides, inputs: Path) -> None:
        self._sides = sides
        self._directory = inputs
        self._inputs: dict[str, Input] = {}
        self._epochs: dict[Side, dict[int, _Epochs]] = {}  # by side and records of an epoch
        self._failures: dict[Side, SideFailedError] = {}
        self._checkpoints: dict[Side, float] = {}  # for each epoch, by side

    def input(self, name: str, make: Callable[[Path], Input]) -> Input:
        """Return the input of that name, creating it if there is none yet."""
        if name not in self._inputs:
            self._inputs[name] = make(self._directory / name)
        return self._inputs[name]

    def measure(self, sides: Sequence[Side], source: Input, *, first: int, rounds: int = 1) -> None:
        """Measure the sides in turns, so that a disturbance of the machine affects every side.

        The first epochs are left out.
        """
        for turn in range(1, rounds + 1):
            for side in sides:
                what = side.name if rounds == 1 else f"{side.name}, {turn} of {rounds}"
                try:
                    result, processor = self._sides.measured(
                        side.function, what, path=source.path, files_per_epoch=source.files_per_epoch, **side.arguments
                    )
                    ends = epoch_ends(result["epochs"], source)
                except SideFailedError as failure:
                    self._failures[side] = failure
                else:
                    self._add(side, source, ends, first, processor)
                    self._checkpoints[side] = len(result.get("checkpoints", ())) / len(ends)

    def _add(self, side: Side, source: Input, ends: Sequence[float], first: int, processor: ProcessorTime) -> None:
        of_side = self._epochs.setdefault(side, {})
        spans = list(pairwise(ends))[first - 1 :]
        for records, (began, ended) in zip(source.epochs[first:], spans, strict=True):
            epochs = of_side.setdefault(records, _Epochs())
            epochs.seconds.append(ended - began)
            epochs.processor_seconds += processor.at(ended) - processor.at(began)

    def median(self, side: Side, records: int | None = None) -> float:
        """Return the seconds of an epoch with these records; they may be left out if all epochs have one size."""
        return statistics.median(self._of(side, records).seconds)

    def speed(self, ours: Side, theirs: Side, records: int | None = None) -> float:
        """Return how many times as fast ours is. Epochs must have one size, since each has a fixed cost."""
        if records is None:
            sizes = self._size(ours), self._size(theirs)
            if len(set(sizes)) > 1:
                raise ValueError(f"{ours.name} and {theirs.name} have epochs of {sizes} records")
        return self.median(theirs, records) / self.median(ours, records)

    def records_a_second(self, side: Side, records: int | None = None) -> float:
        return (records or self._size(side)) / self.median(side, records)

    def rate(self, side: Side, records: int | None = None) -> Figure:
        """Return the figure of a side's speed; its name has the size of the epochs if it is given."""
        size, epochs = records or self._size(side), self._of(side, records)
        return Figure(
            side.name if records is None else f"{side.name}, {in_words(records)} an epoch",
            self.records_a_second(side, records),
            "records/s",
            core_us=1e6 * epochs.processor_seconds / (size * len(epochs.seconds)) or None,
        )

    def checkpoints(self, side: Side) -> Figure:
        """Return how many checkpoints each epoch had, for a side that tells them."""
        return Figure(f"{side.name}: checkpoints for each epoch", self._checkpoints[side], "")

    def _of(self, side: Side, records: int | None) -> _Epochs:
        if side in self._failures:
            raise self._failures[side]
        return self._epochs[side][self._size(side) if records is None else records]

    def _size(self, side: Side) -> int:
        if side in self._failures:
            raise self._failures[side]
        sizes = tuple(self._epochs[side])
        if len(sizes) > 1:
            raise ValueError(f"{side.name} has epochs of {sizes} records: say which are meant")
        return sizes[0]


def in_words(records: int) -> str:
    """Return a number of records as people read it, such as "0.5 million"."""
    return f"{records / 1e6:g} million" if records >= 100_000 else str(records)


def epoch_ends(epochs: Sequence[dict[str, float]], source: Input) -> list[float]:
    """Return when each epoch ended.

    Raises:
        SideFailedError: the side has not seen the records of the input.
    """
    seen = tuple(int(epoch["records"]) for epoch in epochs)
    if seen != source.epochs:
        raise SideFailedError(f"epochs of {seen} records, not {source.epochs}")
    return [epoch["ended_at"] for epoch in epochs]


def steady_seconds(epochs: Sequence[dict[str, float]], source: Input, first: int) -> list[float]:
    """Return the time from the end of one epoch to the end of the next, without the first ones.

    Raises:
        SideFailedError: the side has not seen the records of the input.
    """
    return [after - before for before, after in pairwise(epoch_ends(epochs, source))][first - 1 :]
