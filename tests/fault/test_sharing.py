"""What two operators, two edges or two readers share must not let one change what the other sees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from checkdam import KeyedProcessFunction, MapFunction, ProcessContext, RuntimeContext, ValueStateDescriptor
from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.errors import JobGraphError, UserFunctionError
from checkdam.runtime.restart import FixedDelayRestart
from checkdam.testing import MemoryStorage
from checkdam.testing.local_job import LocalJob

PAIR = tuple[str, int]


class Count(KeyedProcessFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.n = ctx.get_state(ValueStateDescriptor("n", int, default=0))

    def process_element(self, value: Any, ctx: ProcessContext[str]) -> Iterator[tuple[str, int]]:
        self.n.update(self.n.value() + 1)
        yield ctx.current_key, self.n.value()


@dataclass
class Total:
    word: str
    count: int


def printed(build: Any, epochs: list[list[Any]], **options: Any) -> list[str]:
    return sorted(LocalJob(build, epochs, MemoryStorage(), parallelism=1, **options).run().printed_lines)


def test_one_function_object_in_two_operators_keeps_two_states() -> None:
    count = Count()

    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        stream.key_by(0).process(count, output_type=PAIR).uid("a").print("A")
        stream.filter(lambda pair: pair[0] == "a").key_by(0).process(count, output_type=PAIR).uid("b").print("B")

    lines = printed(build, [[("a", 1), ("b", 1), ("a", 1)]])

    assert lines == ["A> ('a', 1)", "A> ('a', 2)", "A> ('b', 1)", "B> ('a', 1)", "B> ('a', 2)"]


def test_a_record_changed_downstream_does_not_change_the_state_it_came_from() -> None:
    def spoil(total: Total) -> Total:
        total.count += 1000
        return total

    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        totals = stream.map(lambda pair: Total(pair[0], pair[1]), output_type=Total)
        summed = totals.key_by("word").reduce(lambda a, b: Total(a.word, a.count + b.count)).uid("sum")
        summed.map(spoil, output_type=Total).map(lambda total: total.count, output_type=int).print()

    assert printed(build, [[("a", 1), ("a", 2)], [("a", 3)]]) == ["1001", "1003", "1006"]


def test_a_record_changed_by_one_reader_is_unchanged_for_the_other() -> None:
    def spoil(total: Total) -> Total:
        total.count = -1
        return total

    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        totals = stream.key_by(0).map(lambda pair: Total(pair[0], pair[1]), output_type=Total)
        totals.map(spoil, output_type=Total).print("spoilt")
        totals.print("whole")

    lines = printed(build, [[("a", 1)]])

    assert lines == ["spoilt> Total(word='a', count=-1)", "whole> Total(word='a', count=1)"]


@pytest.mark.parametrize("how", ["sum", "min", "max"])
def test_a_union_in_front_of_an_aggregate_is_one_stream(how: str) -> None:
    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        plain = stream.map(lambda pair: (pair[0], pair[1]), output_type=PAIR)
        more = stream.map(lambda pair: (pair[0], pair[1] + 10), output_type=PAIR)
        getattr(plain.union(more).key_by(0), how)(1).uid("u").print()

    lines = printed(build, [[("a", 1)], [("a", 2)]])

    last = {"sum": 26, "min": 1, "max": 12}[how]
    assert f"('a', {last})" in lines
    assert len(lines) == 4


def test_functions_live_only_in_the_subtasks_their_operator_has() -> None:
    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        stream.key_by(0).process(Count(), output_type=PAIR).uid("narrow").set_parallelism(1).map(
            Where(), output_type=PAIR
        ).set_parallelism(1).print()

    job = LocalJob(build, [[("a", 1), ("b", 1)]], MemoryStorage(), parallelism=3)

    assert {line.partition("> ")[2].partition(",")[0] for line in job.run().printed_lines} == {"('0 of 1'"}


class Where(MapFunction):
    def open(self, ctx: RuntimeContext) -> None:
        if ctx.subtask_index >= ctx.parallelism:
            raise AssertionError("opened where it has no subtask")
        self.where = f"{ctx.subtask_index} of {ctx.parallelism}"

    def map(self, value: tuple[str, int]) -> tuple[str, int]:
        return self.where, value[1]


class FailsToClose(MapFunction):
    def map(self, value: Any) -> Any:
        return value

    def close(self) -> None:
        raise ValueError("cannot let go")


def test_an_error_in_close_is_the_users_and_does_not_run_the_finished_job_again() -> None:
    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        stream.map(FailsToClose(), output_type=PAIR).print()

    restart = FixedDelayRestart(attempts=3, delay=timedelta(0))
    job = LocalJob(build, [[("a", 1)]], MemoryStorage(), parallelism=1, restart=restart)

    with pytest.raises(UserFunctionError, match="cannot let go"):
        job.run()

    assert job.heard.restarts == []
    assert job.heard.printed_lines == ["('a', 1)"]


def test_key_by_has_no_parallelism_uid_or_name_of_its_own() -> None:
    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        stream.key_by(0).uid("where does this go?")  # type: ignore[attr-defined]  # nor has it one at run time

    with pytest.raises(JobGraphError, match="operator after key_by"):
        printed(build, [[("a", 1)]])


def test_a_key_that_could_change_under_its_state_is_refused() -> None:
    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        stream.key_by(lambda pair: [pair[0]], key_type=list[str]).sum(1).uid("s").print()

    with pytest.raises(JobGraphError, match=r"keys of type list\[str\] are mutable"):
        printed(build, [[("a", 1)]])
