"""The expected results of the job of `all_states`, in plain Python: without operators, batch by batch of the input."""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Record = tuple[str, int, int]  # key, timestamp, number

RULE = "rule"
BATCH_MILLIS = 1000
DELAY = 700  # of a key's timer after its newest record
MOST_NUMBERS = 6
PARTITIONS = 4
PER_PARTITION = 40

_END_OF_TIME = 2**63 - 1


@dataclass
class Course:
    """The expected output of the job, and its keyed and broadcast state before the first batch and after each one.

    The last stage is the state at the end, when all timers have fired.
    """

    told: Counter[str] = field(default_factory=Counter)
    sums: Counter[tuple[str, int]] = field(default_factory=Counter)
    final_sums: dict[str, int] = field(default_factory=dict)
    records: Counter[Record] = field(default_factory=Counter)
    stages: list[dict[str, Any]] = field(default_factory=list)


def course(batches: Sequence[Sequence[str]]) -> Course:
    """Compute the course of the job over the lines of its input, batch by batch."""
    model, result = _Model(), Course()
    result.stages.append(model.stage())
    for lines in batches:
        records: list[Record] = [(key, int(at), int(number)) for key, at, number in map(str.split, lines)]
        result.records.update(records)
        for key, _, number in records:
            if key == RULE:
                model.rules[number % 8] = number
        for key, at, number in records:
            if key != RULE:
                result.told[model.take(key, at, number)] += 1
        model.watermark = max([model.watermark, *(at - 1 for _, at, _ in records)])
        result.told.update(model.fire())
        result.stages.append(model.stage())
    model.watermark = _END_OF_TIME
    result.told.update(model.fire())
    result.stages.append(model.stage())
    addends = model.fourths + Counter({f"partition {p}": PER_PARTITION for p in range(PARTITIONS)})
    result.final_sums = dict(addends)
    result.sums = Counter({(key, n + 1): 1 for key, count in addends.items() for n in range(count)})
    return result


class _Model:
    def __init__(self) -> None:
        self.watermark = -1
        self.rules: dict[int, int] = {}
        self.fourths: Counter[str] = Counter()
        self.added: dict[str, list[int]] = defaultdict(list)
        self.numbers: dict[str, list[int]] = defaultdict(list)
        self.rests: dict[str, dict[int, int]] = defaultdict(dict)
        self.latest: dict[str, dict[int, int]] = defaultdict(dict)
        self.due: dict[str, int] = {}

    def take(self, key: str, at: int, number: int) -> str:
        self.added[key].append(number)
        self.numbers[key].append(number)
        if len(self.numbers[key]) > MOST_NUMBERS:
            self.numbers[key] = self.numbers[key][-2:]
        rest = number % 5
        if number % 7:
            self.rests[key][rest] = self.rests[key].get(rest, 0) + 1
        else:
            self.rests[key].pop(rest, None)
        self.latest[key][number % 3] = at
        self.due[key] = at + DELAY
        if number % 4 == 0:
            self.fourths[f"rest {number % 10}"] += 1
        return f"{self._held(key)} rules {sorted(self.rules.items())}"

    def fire(self) -> list[str]:
        """Fire the timers that the watermark has reached."""
        told = []
        for key, timestamp in list(self.due.items()):
            if timestamp <= self.watermark:
                told.append(f"{self._held(key)} timer {timestamp}")
                del self.numbers[key], self.due[key]
        return told

    def stage(self) -> dict[str, Any]:
        stage = {
            "count": {key: len(added) for key, added in self.added.items()},
            "due": self.due,
            "numbers": {key: numbers for key, numbers in self.numbers.items() if numbers},
            "total": {key: sum(added) for key, added in self.added.items()},
            "mean": {key: (sum(added), len(added)) for key, added in self.added.items()},
            "rests": {(key, rest): count for key, rests in self.rests.items() for rest, count in rests.items()},
            "latest": {(key, rest): at for key, latest in self.latest.items() for rest, at in latest.items()},
            "timers": self.due,
            "rules": self.rules,
        }
        return copy.deepcopy(stage)

    def _held(self, key: str) -> str:
        added = self.added[key]
        maps = f"{sorted(self.rests[key].items())} {sorted(self.latest[key].items())}"
        return f"{key} #{len(added)}: {self.numbers[key]} {sum(added)} {sum(added) // len(added)} {maps}"
