"""Windows in event time as a simple model: plain lists and dicts, one record after the other, nothing lost."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

MAX_TIME = 2**63 - 1
Bounds = tuple[int, int]


@dataclass(frozen=True)
class Windowing:
    """How a program divides records into windows, and when these fire."""

    assigner: Literal["tumbling", "sliding", "session"]
    size: int  # for sessions the gap
    slide: int
    offset: int
    trigger: Literal["event time", "count", "purging count", "continuous"]
    every: int  # of the trigger: records or milliseconds
    lateness: int


@dataclass
class Held:
    """A window of one key."""

    numbers: list[int] = field(default_factory=list)
    count: int = 0
    next_fire: int | None = None
    timers: set[int] = field(default_factory=set)


class WindowModel:
    def __init__(self, windowing: Windowing) -> None:
        self._of = windowing
        self._held: dict[str, dict[Bounds, Held]] = {}
        self._watermark = -(2**63)
        self.fired: list[str] = []
        self.late: list[int] = []

    def run(self, epochs: Iterable[Iterable[tuple[str, int, int]]], delay: int) -> WindowModel:
        """Run a whole program: the watermark follows the largest timestamp at the end of each epoch."""
        largest = None
        for epoch in epochs:
            for key, time, number in epoch:
                self._add(key, time, number)
                largest = time if largest is None else max(largest, time)
            if largest is not None:
                self._advance(max(self._watermark, largest - delay - 1))
        self._advance(MAX_TIME)
        return self

    @property
    def is_empty(self) -> bool:
        return not any(self._held.values())

    def _add(self, key: str, time: int, number: int) -> None:
        of = self._of
        held = self._held.setdefault(key, {})
        is_taken = False
        for bounds in self._assigned(time):
            if of.assigner == "session":
                bounds = self._merged(held, bounds)
            if bounds[1] - 1 + of.lateness <= self._watermark:
                continue
            is_taken = True
            window = held.setdefault(bounds, Held())
            window.numbers.append(number)
            self._decide(key, bounds, window, time)
        if not is_taken and time + of.lateness <= self._watermark:
            self.late.append(number)

    def _assigned(self, time: int) -> list[Bounds]:
        of = self._of
        if of.assigner == "session":
            return [(time, time + of.size)]
        step = of.size if of.assigner == "tumbling" else of.slide
        starts = range(time - of.size + 1, time + 1)
        return [(start, start + of.size) for start in starts if (start - of.offset) % step == 0]

    def _merged(self, held: dict[Bounds, Held], new: Bounds) -> Bounds:
        """Merge a session with those that overlap or touch it."""
        parts = sorted(each for each in held if each[0] <= new[1] and each[1] >= new[0])
        if not parts:
            return new
        whole = (min(new[0], parts[0][0]), max(new[1], *(each[1] for each in parts)))
        if parts == [whole]:
            return whole
        merged = Held()
        for part in parts:
            old = held.pop(part)
            merged.numbers += old.numbers
            merged.count += old.count
            fires = [each for each in (merged.next_fire, old.next_fire) if each is not None]
            merged.next_fire = min(fires, default=None)
        if merged.next_fire is not None:
            merged.timers.add(merged.next_fire)
        held[whole] = merged
        return whole

    def _decide(self, key: str, bounds: Bounds, window: Held, time: int) -> None:
        """Let the trigger look at a record."""
        of, last = self._of, bounds[1] - 1
        if of.trigger in ("count", "purging count"):
            window.count += 1
            if window.count >= of.every:
                window.count = 0
                self._fire(key, bounds, window)
            return
        if last <= self._watermark:
            self._fire(key, bounds, window)
            return
        window.timers.add(last)
        if of.trigger == "continuous" and window.next_fire is None:
            begun = time - math.fmod(time, of.every)  # as in Flink: rounded towards 1970
            window.next_fire = min(int(begun) + of.every, last)
            window.timers.add(window.next_fire)

    def _advance(self, watermark: int) -> None:
        if watermark <= self._watermark:
            return  # a timer that is already due waits until the watermark moves
        self._watermark = watermark
        for key, held in self._held.items():
            for bounds, window in list(held.items()):
                while window.timers and min(window.timers) <= watermark:
                    time = min(window.timers)
                    window.timers.remove(time)
                    self._on_timer(key, bounds, window, time)
                if bounds[1] - 1 + self._of.lateness <= watermark:
                    del held[bounds]

    def _on_timer(self, key: str, bounds: Bounds, window: Held, time: int) -> None:
        last = bounds[1] - 1
        if time == last:
            self._fire(key, bounds, window)
        elif window.next_fire == time:
            window.next_fire = min(time + self._of.every, last)
            window.timers.add(window.next_fire)
            self._fire(key, bounds, window)

    def _fire(self, key: str, bounds: Bounds, window: Held) -> None:
        if window.numbers:
            self.fired.append(shown(key, bounds, window.numbers))
        if self._of.trigger == "purging count":
            window.numbers = []


def shown(key: str, bounds: Bounds, numbers: Iterable[int]) -> str:
    return f"{key} {bounds[0]}-{bounds[1]}: {sorted(numbers)}"
