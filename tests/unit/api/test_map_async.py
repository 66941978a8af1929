"""map_async on streams: the types it finds, where it runs, and what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from checkdam import (
    AsyncFunction,
    AsyncRetry,
    CheckpointedFunction,
    DataStream,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    JobGraphError,
    ListStateDescriptor,
    WatermarkStrategy,
)
from checkdam.graph.levels import plan_job
from checkdam.graph.operators import AsyncMapKind
from checkdam.testing import FunctionHarness, local_environment


async def length(word: str) -> int:
    await asyncio.sleep(0)
    return len(word)


async def lengths(words: list[str]) -> list[int]:
    return [len(word) for word in words]


async def untyped(word):  # type: ignore[no-untyped-def]  # what a user may write
    return word


class Length(AsyncFunction[str, int]):
    async def async_invoke(self, value):  # type: ignore[no-untyped-def]  # the class names the types
        return len(value)


class Lengths(AsyncFunction[list[str], list[int]]):
    async def async_invoke(self, values):  # type: ignore[no-untyped-def]  # the class names the types
        return [len(value) for value in values]


class Called:
    async def __call__(self, word: str) -> int:
        return len(word)


def words() -> DataStream[str]:
    return local_environment().from_collection(["to", "be", "or"], str)


@pytest.mark.parametrize("function", [length, Length(), Called(), Called().__call__, partial(length)])
def test_the_type_comes_from_the_annotation_or_the_class(function: Any) -> None:
    assert words().map_async(function).type.name == "int"


@pytest.mark.parametrize("function", [lengths, Lengths()])
def test_the_type_of_batches_is_that_of_the_elements(function: Any) -> None:
    assert words().map_async(function, batch_size=2).type.name == "int"


def test_output_type_says_what_is_not_annotated() -> None:
    assert words().map_async(untyped, output_type=str).type.name == "str"


def test_results_of_a_whole_program_on_streams_with_and_without_keys() -> None:
    with words().map_async(length).execute_and_collect() as results:
        assert list(results) == [2, 2, 2]
    with words().key_by(lambda word: word, key_type=str).map_async(length).execute_and_collect() as results:
        assert list(results) == [2, 2, 2]


def test_two_in_a_chain_work_together() -> None:
    async def double(number: int) -> int:
        return number * 2

    with words().map_async(length).map_async(double).map_async(double).execute_and_collect() as results:
        assert list(results) == [8, 8, 8]


@pytest.mark.parametrize("is_keyed", [True, False])
def test_it_runs_in_a_slot_and_needs_no_uid(is_keyed: bool) -> None:
    stream: Any = words().key_by(lambda word: word, key_type=str) if is_keyed else words()
    stream.map_async(Length()).print()

    plan = plan_job("it", stream._environment._operators, parallelism=2, max_parallelism=None)

    assert [type(op.kind) for op in plan.levels[0].operators][:1] == [AsyncMapKind]
    assert not any(op.is_stateful for op in plan.operators if isinstance(op.kind, AsyncMapKind))


def test_event_time_passes_through() -> None:
    stamped = words().assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps(lambda _: 7))

    with stamped.map_async(length).execute_and_collect() as results:
        assert list(results) == [2, 2, 2]


class Counting(AsyncFunction[str, int], CheckpointedFunction):
    def initialize_state(self, ctx: FunctionInitializationContext) -> None:
        self.state = ctx.operator_state_store.get_list_state(ListStateDescriptor("count", int))
        self.count = sum(self.state.get())

    async def async_invoke(self, value: str) -> int:
        self.count += 1
        return self.count

    def snapshot_state(self, ctx: FunctionSnapshotContext) -> None:
        self.state.update([self.count])


def test_operator_state_is_kept_as_in_any_function() -> None:
    with FunctionHarness(Counting(), str) as harness:
        assert harness.send("a", "b") == [1, 2]
        with harness.restored(harness.snapshot()) as restored:
            assert restored.send("c") == [3]


def test_the_harness_passes_options_on() -> None:
    with FunctionHarness(lengths, str, async_options={"batch_size": 2, "ordered": False}) as harness:
        assert harness.send("a", "bb", "c") == [1, 2, 1]


# -- refused ----------------------------------------------------------------------------------------------------------


def plain(word: str) -> int:
    return len(word)


async def two(one: str, other: str) -> str:
    return one + other


async def yields(word: str) -> Any:
    yield word


class Plain(AsyncFunction):
    def async_invoke(self, value: str) -> int:  # type: ignore[override]  # the mistake
        return len(value)


SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"function": plain}, "map_async takes a coroutine function, and plain is not one"),
        ({"function": lambda word: length(word)}, "takes a coroutine function, and .*<lambda> is not one"),
        ({"function": Plain()}, r"takes a coroutine function, and Plain\.async_invoke is not one"),
        ({"function": two}, r"the function of map_async\(\) takes \(one, other\) and is called with \(value\)"),
        ({"function": yields}, "yields yields, and must return one record"),
        ({"function": Length}, "takes an instance, not the class Length itself"),
        ({"function": 7}, "takes a coroutine function or an AsyncFunction, not 7"),
        ({"capacity": 0}, "capacity must be a whole number from 1, not 0"),
        ({"capacity": 1.5}, "capacity must be a whole number from 1, not 1.5"),
        ({"capacity": True}, "capacity must be a whole number from 1, not True"),
        ({"timeout": timedelta(0)}, "timeout must be a timedelta of more than zero"),
        ({"timeout": 5}, "timeout must be a timedelta of more than zero, not 5"),
        ({"ordered": "no"}, "ordered must be True or False, not 'no'"),
        ({"retry": 3}, "retry must be an AsyncRetry, not 3"),
        ({"on_timeout": plain}, "on_timeout without a timeout is never called"),
        ({"on_timeout": length, "timeout": SECOND}, "on_timeout must be a plain function"),
        ({"on_timeout": 7, "timeout": SECOND}, "on_timeout must be a plain function"),
        ({"batch_size": 0}, "batch_size must be a whole number from 1, not 0"),
        ({"max_delay": SECOND}, "max_delay is how long a batch waits until it is full, and there is no batch_size"),
        ({"batch_size": 2, "max_delay": -SECOND}, "max_delay must be a timedelta of more than zero"),
    ],
)
def test_wrong_arguments_are_refused_when_the_job_is_built(arguments: dict[str, Any], message: str) -> None:
    stream: Any = words()

    with pytest.raises(JobGraphError, match=message):
        stream.map_async(**{"function": length, **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"attempts": 0}, "attempts must be a whole number from 1, not 0"),
        ({"delay": -SECOND}, "delay must be a timedelta of zero or more"),
        ({"delay": 1}, "delay must be a timedelta of zero or more, not 1"),
        ({"factor": 0.5}, "factor must be a number from 1, not 0.5"),
        ({"factor": float("inf")}, "factor must be a number from 1, not inf"),
        ({"max_delay": timedelta(0)}, "max_delay must be a timedelta of at least delay"),
        ({"if_exception": OSError()}, "if_exception must be a function"),
        ({"if_result": 3}, "if_result must be a function, not 3"),
    ],
)
def test_wrong_retries_are_refused(arguments: dict[str, Any], message: str) -> None:
    make: Callable[..., AsyncRetry] = AsyncRetry

    with pytest.raises(JobGraphError, match=message):
        make(**arguments)


@pytest.mark.parametrize("call", ["map", "flat_map", "filter"])
@pytest.mark.parametrize("function", [length, Length()])
def test_other_calls_refuse_coroutine_functions(call: str, function: Any) -> None:
    with pytest.raises(JobGraphError, match=rf"{call}\(\) calls a plain function, and .* is a coroutine function"):
        getattr(words(), call)(function)


def test_a_client_that_cannot_be_pickled_is_named() -> None:
    class WithLoop(AsyncFunction):
        def __init__(self) -> None:
            self.loop = asyncio.new_event_loop()
            self.loop.close()

        async def async_invoke(self, value: str) -> str:
            return value

    stream = words().map_async(WithLoop(), output_type=str)
    stream.print()

    with pytest.raises(JobGraphError, match=r"WithLoop.*cannot be pickled"):
        stream._environment.execute()
