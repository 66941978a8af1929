"""Source functions that wait for what a test hands to them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

from tests.unit.runtime.slot.one_operator import OneOperator, restore_point, rows

from checkdam.graph.functions import CheckpointedFunction, SourceFunction
from checkdam.graph.operators import SourceFunctionKind
from checkdam.state.descriptors import ListStateDescriptor

PATIENCE = 30.0


class Supply:
    """Numbers that a test hands to a source function, which waits for each."""

    def __init__(self) -> None:
        self._handed = threading.Semaphore(0)
        self.waiting = threading.Semaphore(0)  # one more each time the source begins to wait
        self.is_over = False

    def hand(self, count: int = 1) -> None:
        for _ in range(count):
            self._handed.release()

    def end(self) -> None:
        self.is_over = True
        self._handed.release()

    def wait(self) -> bool:
        """Wait for the next; False if there is none."""
        self.waiting.release()
        self._handed.acquire()
        return not self.is_over

    def awaited(self, times: int = 1) -> None:
        """Return when the source has begun to wait so many times more."""
        assert all(self.waiting.acquire(timeout=PATIENCE) for _ in range(times))


SUPPLIES = [Supply()]
"""The last is the one in use: functions are copied into their slots, and find it here."""


class Waiting(SourceFunction):
    """Waits for the supply that is in use when it is opened."""

    def open(self, ctx: Any) -> None:
        self.supply = SUPPLIES[-1]

    def cancel(self) -> None:
        self.supply.end()


class Kept(Waiting, CheckpointedFunction):
    """Counts up; `following` is kept."""

    def initialize_state(self, ctx: Any) -> None:
        self.kept = ctx.operator_state_store.get_list_state(ListStateDescriptor("next", int))
        self.following = sum(self.kept.get())

    def snapshot_state(self, ctx: Any) -> None:
        self.kept.update([self.following])


class UpdatesBeforeTheWait(Kept):
    def run(self, ctx: Any) -> Iterator[int]:
        while True:
            self.following += 1
            if not self.supply.wait():
                return
            yield self.following - 1


class UpdatesBehindTheWait(Kept):
    def run(self, ctx: Any) -> Iterator[int]:
        while self.supply.wait():
            self.following += 1
            yield self.following - 1


class UpdatesBehindTheYield(Kept):
    """As a queue without acknowledgement: a record counts when the next is asked for. It is repeated, never lost."""

    def run(self, ctx: Any) -> Iterator[int]:
        while self.supply.wait():
            yield self.following
            self.following += 1


class ChangesItsStateInPlace(Waiting, CheckpointedFunction):
    """Keeps a list in a list state, and changes it while it waits."""

    def initialize_state(self, ctx: Any) -> None:
        self.kept = ctx.operator_state_store.get_list_state(ListStateDescriptor("next", list[int]))
        self.following = next(iter(self.kept.get()), [0])

    def snapshot_state(self, ctx: Any) -> None:
        self.kept.update([self.following])

    def run(self, ctx: Any) -> Iterator[int]:
        while True:
            self.following[0] += 1
            if not self.supply.wait():
                return
            yield self.following[0] - 1


class AddsToItsState(Waiting, CheckpointedFunction):
    """Works on the state itself, half of it before the wait."""

    def initialize_state(self, ctx: Any) -> None:
        self.kept = ctx.operator_state_store.get_list_state(ListStateDescriptor("all", int))

    def snapshot_state(self, ctx: Any) -> None:
        """The state is always up to date."""

    def run(self, ctx: Any) -> Iterator[int]:
        while True:
            self.kept.add(len(self.kept.get()))
            if not self.supply.wait():
                return
            yield len(self.kept.get()) - 1


EXACT = [UpdatesBeforeTheWait, UpdatesBehindTheWait, ChangesItsStateInPlace, AddsToItsState]


def source(function: Any, **options: Any) -> OneOperator:
    return OneOperator(SourceFunctionKind(function), int, **options)


def resumed(before: OneOperator, function: Any) -> OneOperator:
    """Restore what a checkpoint of the source holds now, with a supply of its own; the old one is closed."""
    point = restore_point(before)
    SUPPLIES.append(Supply())
    after = source(function, storage=before.storage, restore=point)
    before.close()
    return after


def take(it: OneOperator, count: int) -> list[int]:
    """Pull until so many records have come."""
    taken: list[int] = []
    until = time.monotonic() + PATIENCE
    while len(taken) < count:
        assert time.monotonic() < until
        taken += rows(it.process.pull())
    return taken
