"""Source functions that wait inside: what went on, which state belongs to it, and how the wait ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.runtime.slot.one_operator import restore_point, rows
from tests.unit.runtime.slot.waiting_functions import (
    EXACT,
    PATIENCE,
    SUPPLIES,
    Kept,
    Supply,
    UpdatesBehindTheWait,
    UpdatesBehindTheYield,
    Waiting,
    resumed,
    source,
    take,
)

from checkdam.errors import JobGraphError, UserFunctionError
from checkdam.graph.functions import SourceFunction
from checkdam.runtime.slot import generator_thread
from checkdam.runtime.slot.generator_thread import MOST_RECORDS
from checkdam.runtime.slot.source_functions import SourceProcess
from checkdam.testing import ManualClock, MemoryStorage


@pytest.fixture(autouse=True)
def fresh_supply(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(generator_thread, "MOST_SECONDS", 0.02)
    SUPPLIES[:] = [Supply()]
    yield
    for each in SUPPLIES:
        each.end()


def test_what_was_yielded_before_a_wait_goes_on() -> None:
    it = source(UpdatesBehindTheWait())
    SUPPLIES[-1].hand(3)

    assert take(it, 3) == [0, 1, 2]

    SUPPLIES[-1].awaited(4)
    assert rows(it.process.pull()) == []
    assert not it.process.is_finished
    assert not it.process.has_records


def test_a_record_that_comes_later_is_signalled_once_and_goes_on() -> None:
    came = threading.Semaphore(0)
    it = source(UpdatesBehindTheWait(), records_came=came.release)
    assert rows(it.process.pull()) == []

    SUPPLIES[-1].hand(2)
    SUPPLIES[-1].awaited(3)

    assert came.acquire(timeout=PATIENCE)
    assert it.process.has_records
    assert rows(it.process.pull()) == [0, 1]
    assert not came.acquire(blocking=False)


@pytest.mark.parametrize("function", EXACT)
@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_checkpoint_while_the_source_waits_holds_the_state_of_the_last_record(function: Any, count: int) -> None:
    before = source(function())
    SUPPLIES[-1].hand(count)
    taken = rows(before.process.pull())
    SUPPLIES[-1].awaited(count + 1)
    taken += rows(before.process.pull())

    after = resumed(before, function())
    SUPPLIES[-1].hand(2)

    assert taken + take(after, 2) == list(range(count + 2))


@pytest.mark.parametrize("function", EXACT)
def test_records_that_no_epoch_has_taken_are_no_part_of_a_checkpoint(function: Any) -> None:
    before = source(function())
    SUPPLIES[-1].hand(1)
    assert take(before, 1) == [0]
    SUPPLIES[-1].hand(2)
    SUPPLIES[-1].awaited(4)  # it has yielded three, and waits for the fourth

    after = resumed(before, function())
    SUPPLIES[-1].hand(2)

    assert take(after, 2) == [1, 2]


def test_an_update_behind_the_yield_repeats_the_record_as_it_would_while_parked_there() -> None:
    before = source(UpdatesBehindTheYield())
    SUPPLIES[-1].hand(1)
    assert take(before, 1) == [0]
    SUPPLIES[-1].awaited(2)

    after = resumed(before, UpdatesBehindTheYield())
    SUPPLIES[-1].hand(1)

    assert take(after, 1) == [0]


class SlowToSnapshot(UpdatesBehindTheWait):
    begun, gate = threading.Event(), threading.Event()

    def snapshot_state(self, ctx: Any) -> None:
        if self.following == 2:
            SlowToSnapshot.begun.set()
            SlowToSnapshot.gate.wait(PATIENCE)
        super().snapshot_state(ctx)


def test_a_record_goes_on_when_its_state_is_captured_and_not_before() -> None:
    storage = MemoryStorage()
    it = source(SlowToSnapshot(), storage=storage)
    SUPPLIES[-1].hand(2)
    taken = rows(it.process.pull())
    assert SlowToSnapshot.begun.wait(PATIENCE)
    taken += rows(it.process.pull())
    assert taken == [0]

    point = restore_point(it)
    SlowToSnapshot.gate.set()

    assert take(it, 1) == [1]
    SUPPLIES.append(Supply())
    after = source(UpdatesBehindTheWait(), storage=storage, restore=point)
    SUPPLIES[-1].hand(1)
    assert take(after, 1) == [1]


class WrongState(Kept):
    """Its state is wrong between its second and its third record."""

    def snapshot_state(self, ctx: Any) -> None:
        self.kept.update(["two" if self.following == 2 else self.following])

    run = UpdatesBehindTheWait.run


def test_a_state_that_cannot_be_kept_costs_only_the_checkpoints_that_need_it() -> None:
    it = source(WrongState())
    for number in range(3):
        SUPPLIES[-1].hand(1)
        assert take(it, 1) == [number]
        if number == 1:
            with pytest.raises(JobGraphError, match='operator state "next"'):
                it.snapshot()
        else:
            assert it.snapshot()[1] is not None
    it.close()


class Fails(Waiting):
    def run(self, ctx: Any) -> Iterator[int]:
        self.supply.wait()
        yield 1
        self.supply.wait()
        raise ValueError("dry")


def test_a_failure_behind_a_wait_is_signalled_and_fails_the_next_epoch() -> None:
    came = threading.Semaphore(0)
    it = source(Fails(), records_came=came.release)
    SUPPLIES[-1].hand(1)
    assert take(it, 1) == [1]
    while came.acquire(blocking=False):
        pass

    SUPPLIES[-1].hand(1)
    assert came.acquire(timeout=PATIENCE)

    with pytest.raises(UserFunctionError, match=r"(?s)in run.*ValueError: dry"):
        it.process.pull()


def test_an_end_behind_a_wait_is_signalled_and_finishes_the_source() -> None:
    came = threading.Semaphore(0)
    it = source(UpdatesBehindTheWait(), records_came=came.release)
    assert rows(it.process.pull()) == []

    SUPPLIES[-1].end()
    assert came.acquire(timeout=PATIENCE)

    assert it.process.has_records
    assert not it.process.is_finished
    assert rows(it.process.pull()) == []
    assert it.process.is_finished


class ForgetsAtTheEnd(Kept):
    def run(self, ctx: Any) -> Iterator[int]:
        for number in range(self.following, 2):
            self.following += 1
            yield number
        self.supply.wait()
        self.following = 0


def test_what_changes_behind_the_last_record_belongs_to_the_end() -> None:
    it = source(ForgetsAtTheEnd())
    assert take(it, 2) == [0, 1]
    SUPPLIES[-1].awaited(1)
    it.process.pull()

    after = resumed(it, ForgetsAtTheEnd())

    assert rows(after.process.pull()) == []
    assert not after.process.is_finished


def test_the_state_at_the_end_is_the_one_behind_the_last_record() -> None:
    it = source(ForgetsAtTheEnd())
    assert take(it, 2) == [0, 1]
    SUPPLIES[-1].hand()
    while not it.process.is_finished:
        it.process.pull()

    after = resumed(it, ForgetsAtTheEnd())

    assert take(after, 2) == [0, 1]  # of a source that was rescaled; else it would stay ended


class TellsCheckpoints(UpdatesBehindTheWait):
    def snapshot_state(self, ctx: Any) -> None:
        self.expected = ctx.checkpoint_id
        super().snapshot_state(ctx)


def test_a_state_is_captured_for_the_checkpoint_that_comes_next() -> None:
    it = source(TellsCheckpoints())
    SUPPLIES[-1].hand()
    take(it, 1)
    assert it.function.expected == 1

    it.snapshot(7)
    SUPPLIES[-1].hand()
    take(it, 1)

    assert it.function.expected == 8
    it.close()


class Burst(Waiting):
    """Waits once, and then has more than two epochs take."""

    def run(self, ctx: Any) -> Iterator[int]:
        yield -1
        self.supply.wait()
        yield from range(2 * MOST_RECORDS + 5)


def test_a_source_runs_ahead_by_no_more_than_an_epoch_takes() -> None:
    it = source(Burst())
    assert take(it, 1) == [-1]
    SUPPLIES[-1].hand(1)

    taken: list[int] = []
    while not it.process.is_finished:
        batch = rows(it.process.pull())
        assert len(batch) <= MOST_RECORDS
        taken += batch

    assert taken == list(range(2 * MOST_RECORDS + 5))


class Ends(SourceFunction):
    """Waits in one of several ways, and tells how it ended."""

    def __init__(self, wait: str) -> None:
        self.wait = wait
        self.ends: list[str] = []
        self.cancelled = threading.Event()

    def __getstate__(self) -> dict[str, Any]:
        return {"wait": self.wait}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["wait"])  # type: ignore[misc]

    def run(self, ctx: Any) -> Iterator[int]:
        try:
            yield 1
            SUPPLIES[-1].waiting.release()
            if self.wait == "until cancelled":
                self.cancelled.wait()
            elif self.wait == "polling":
                while True:
                    time.sleep(0.001)
            elif self.wait == "in C":
                SUPPLIES[-1]._handed.acquire()
            yield from range(MOST_RECORDS * 2)
        finally:
            self.ends.append("run")

    def cancel(self) -> None:
        self.cancelled.set()

    def close(self) -> None:
        self.ends.append("close")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("wait", "ends"),
    [
        ("not at all", ["run", "close"]),
        ("until cancelled", ["run", "close"]),
        ("polling", ["run", "close"]),
        ("in C", ["close"]),
    ],
)
def test_closing_ends_the_wait_or_leaves_it_behind(wait: str, ends: list[str]) -> None:
    it = source(Ends(wait))
    it.process.pull()
    SUPPLIES[-1].awaited()

    it.close()

    assert it.function.ends == ends
    assert all(thread.daemon for thread in threading.enumerate() if thread.name.startswith("source-"))


class FailsWhenCancelled(Waiting):
    """Waits for a connection that `cancel` cuts."""

    def run(self, ctx: Any) -> Iterator[int]:
        yield 1
        self.supply.wait()
        raise OSError("the connection was closed")

    def cancel(self) -> None:
        self.supply.hand()  # lets it go on


def test_what_a_cancelled_wait_raises_is_no_failure() -> None:
    it = source(FailsWhenCancelled())
    take(it, 1)
    SUPPLIES[-1].awaited()

    it.close()


def test_a_slow_source_runs_ahead_for_no_longer_than_an_epoch_takes() -> None:
    clock = ManualClock()
    it = source(UpdatesBehindTheWait(), clock=clock)
    assert rows(it.process.pull()) == []
    SUPPLIES[-1].hand()
    SUPPLIES[-1].awaited(2)

    clock.advance(generator_thread.MOST_SECONDS)
    SUPPLIES[-1].hand(2)

    assert isinstance(it.process, SourceProcess)
    generator = it.process._generator
    with generator._changed:
        assert generator._changed.wait_for(lambda: generator._is_parked, PATIENCE)
    assert rows(it.process.pull()) == [0, 1]
    assert take(it, 1) == [2]
