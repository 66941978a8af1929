"""The contract of a job in a chaos round: its input, its graph, and the checks of its results."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, Protocol

from chaos.place import Place
from checkdam import DataStream, StreamExecutionEnvironment
from checkdam.state_reader import Savepoint


class ChaosJob(Protocol):
    """A job whose output and state are known exactly for every input, at any parallelism."""

    @property
    def name(self) -> str: ...

    def write_input(self, place: Place, rng: random.Random) -> None: ...

    def build(self, environment: StreamExecutionEnvironment, lines: DataStream[Any], place: Place) -> None:
        """Build the job over the lines of its input."""

    def output_faults(self, place: Place, last: Savepoint) -> Iterator[str]:
        """Compare the published output, and the uncommitted output in `last`, with the expected output."""

    def final_state_faults(self, place: Place, last: Savepoint) -> Iterator[str]:
        """Compare the last checkpoint with the state after all input."""

    def state_faults(self, place: Place, snapshot: Savepoint) -> Iterator[str]:
        """Compare a snapshot from the middle of the job with the expected states after each batch."""


def difference(what: str, found: Counter[Any], expected: Counter[Any]) -> Iterator[str]:
    """Yield how many records are lost and how many are duplicated, with an example of each."""
    if found == expected:
        return
    lost, surplus = expected - found, found - expected
    examples = [f"{word} {next(iter(some))!r}" for word, some in (("lost", lost), ("too many", surplus)) if some]
    yield f"{what}: {lost.total()} records lost, {surplus.total()} too many ({', '.join(examples)})"
