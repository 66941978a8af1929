"""Source functions: how much an epoch takes, where a barrier can fall, and how the generator ends."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from tests.unit.runtime.slot.one_operator import OneOperator, restore_point, rows

from checkdam.errors import UserFunctionError
from checkdam.graph.contexts import (
    FunctionInitializationContext,
    FunctionSnapshotContext,
    RuntimeContext,
    SourceContext,
)
from checkdam.graph.functions import CheckpointedFunction, SourceFunction
from checkdam.graph.operators import SourceFunctionKind
from checkdam.runtime.slot.generator_thread import MOST_RECORDS
from checkdam.state.descriptors import ListStateDescriptor
from checkdam.testing import ManualClock, MemoryStorage


class Numbers(SourceFunction):
    """0, 1, 2 … before `end`; each takes `seconds` of the clock."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.life: list[str] = []

    def open(self, ctx: RuntimeContext) -> None:
        self.life.append("open")

    def run(self, ctx: SourceContext) -> Iterator[int]:
        self.life.append(f"run {ctx.subtask_index} of {ctx.parallelism}")
        try:
            yield from range(self.end)
        finally:
            self.life.append("stopped")

    def close(self) -> None:
        self.life.append("close")


def source(function: Any, **options: Any) -> OneOperator:
    return OneOperator(SourceFunctionKind(function), int, **options)


def test_a_source_is_opened_run_once_and_closed() -> None:
    it = source(Numbers(3), subtask=1, parallelism=2)

    assert rows(it.process.pull()) == [0, 1, 2]
    assert it.process.pull() is None
    assert it.process.is_finished
    it.close()
    assert it.function.life == ["open", "run 1 of 2", "stopped", "close"]


def test_an_epoch_takes_a_bounded_number_of_records_and_the_next_goes_on() -> None:
    it = source(Numbers(MOST_RECORDS + 2))

    first, second = rows(it.process.pull()), rows(it.process.pull())

    assert len(first) == MOST_RECORDS
    assert second == [MOST_RECORDS, MOST_RECORDS + 1]
    assert it.process.is_finished


class Slow(SourceFunction):
    """Turns the test's clock with each record."""

    clock = ManualClock()

    def run(self, ctx: SourceContext) -> Iterator[int]:
        for number in count():
            Slow.clock.advance(0.09)
            yield number


def test_an_epoch_takes_a_bounded_time() -> None:
    it = source(Slow(), clock=Slow.clock)

    assert [rows(it.process.pull()), rows(it.process.pull())] == [[0, 1, 2], [3, 4, 5]]
    assert not it.process.is_finished


def test_closing_ends_the_generator_where_it_waits_before_the_function_is_closed() -> None:
    it = source(Numbers(MOST_RECORDS + 1))
    it.process.pull()

    it.close()

    assert it.function.life[-2:] == ["stopped", "close"]


class NoGenerator(SourceFunction):
    def run(self, ctx: SourceContext) -> Any:
        return [1, 2]


def test_run_may_return_any_iterable() -> None:
    it = source(NoGenerator())

    assert rows(it.process.pull()) == [1, 2]
    it.close()


class Collecting(SourceFunction):
    def run(self, ctx: SourceContext) -> Any: ...


def test_a_run_that_returns_nothing_is_told_to_yield_its_records() -> None:
    it = source(Collecting())

    with pytest.raises(UserFunctionError, match=r"in run: TypeError: run\(\) returned None; it must yield the records"):
        it.process.pull()


class Failing(SourceFunction):
    def run(self, ctx: SourceContext) -> Iterator[int]:
        yield 1
        raise ValueError("dry")


def test_a_failure_of_the_generator_is_the_users() -> None:
    it = source(Failing())

    with pytest.raises(UserFunctionError, match=r"in run, after 1.*ValueError: dry"):
        it.process.pull()


class Counter(SourceFunction, CheckpointedFunction):
    def initialize_state(self, ctx: FunctionInitializationContext) -> None:
        self.state = ctx.operator_state_store.get_list_state(ListStateDescriptor("offset", int))
        self.offset = sum(self.state.get())

    def snapshot_state(self, ctx: FunctionSnapshotContext) -> None:
        self.state.update([self.offset])

    def run(self, ctx: SourceContext) -> Iterator[int]:
        while True:
            self.offset += 1
            yield self.offset - 1


def test_a_restored_source_goes_on_with_the_record_after_the_barrier() -> None:
    storage = MemoryStorage()
    before = source(Counter(), storage=storage)
    last = rows(before.process.pull())[-1]

    after = source(Counter(), storage=storage, restore=restore_point(before))

    assert rows(after.process.pull())[0] == last + 1
