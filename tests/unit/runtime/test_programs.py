"""Whole programs in one process: each operator does what its name says, on its own and with others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.errors import JobGraphError, UserFunctionError
from checkdam.graph.contexts import ProcessContext, RuntimeContext
from checkdam.graph.functions import FilterFunction, KeyedProcessFunction, MapFunction
from checkdam.runtime.restart import NoRestart
from checkdam.state.descriptors import ValueStateDescriptor
from checkdam.testing import MemoryStorage
from checkdam.testing.local_job import LocalJob
from checkdam.testing.trouble import Step, Trouble, kill_slot

Build = Callable[[StreamExecutionEnvironment, DataStream[Any]], Any]
SEEN = ValueStateDescriptor("seen", int, default=0)


def printed(build: Build, *epochs: Iterable[Any], **options: Any) -> list[str]:
    return LocalJob(build, epochs, MemoryStorage(), **{"parallelism": 1, **options}).run().printed_lines


def words(line: str) -> Iterator[str]:
    yield from line.split()


class Count(KeyedProcessFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.seen = ctx.get_state(SEEN)

    def process_element(self, value: str, ctx: ProcessContext[str]) -> Iterator[tuple[str, int]]:
        self.seen.update(self.seen.value() + 1)
        yield ctx.current_key, self.seen.value()


class FirstOnly(FilterFunction):
    """Keeps state on a keyed stream."""

    def open(self, ctx: RuntimeContext) -> None:
        self.seen = ctx.get_state(SEEN)

    def filter(self, value: str) -> bool:
        self.seen.update(self.seen.value() + 1)
        return bool(self.seen.value() == 1)


class StateWithoutKey(MapFunction):
    def open(self, ctx: RuntimeContext) -> None:
        ctx.get_state(SEEN)


PROGRAMS: dict[str, tuple[Build, list[str]]] = {
    "map": (lambda env, s: s.map(lambda w: w.upper(), output_type=str).print(), ["A B", "A"]),
    "flat_map": (lambda env, s: s.flat_map(words).print(), ["a", "b", "a"]),
    "filter": (lambda env, s: s.filter(lambda w: "b" in w).print(), ["a b"]),
    "label": (lambda env, s: s.print("in"), ["in> a b", "in> a"]),
    "process": (
        lambda env, s: s.flat_map(words, str).key_by(lambda w: w).process(Count()).uid("c").print(),
        ["('a', 1)", "('b', 1)", "('a', 2)"],
    ),
    "reduce": (
        lambda env, s: (
            s.flat_map(words, str).key_by(lambda w: 0, key_type=int).reduce(lambda x, y: x + y).uid("r").print()
        ),
        ["a", "ab", "aba"],
    ),
    "min": (
        lambda env, s: s.map(len, output_type=int).key_by(lambda n: 0, key_type=int).min().uid("m").print(),
        ["3", "1"],
    ),
    "a keyed filter that keeps state": (
        lambda env, s: s.flat_map(words, str).key_by(lambda w: w).filter(FirstOnly()).uid("f").print(),
        ["a", "b"],
    ),
    "a keyed map that keeps none": (
        lambda env, s: s.flat_map(words, str).key_by(lambda w: w).map(lambda w: w * 2, output_type=str).print(),
        ["aa", "bb", "aa"],
    ),
    "union": (lambda env, s: s.union(s.map(lambda w: "x", output_type=str)).print(), ["a b", "x", "a", "x"]),
    "a union across levels": (
        lambda env, s: (
            s.key_by(lambda w: w)
            .reduce(lambda x, y: x)
            .uid("r")
            .union(s)
            .key_by(lambda w: w)
            .process(Count())
            .uid("c")
            .print()
        ),
        ["('a b', 1)", "('a b', 2)", "('a', 1)", "('a', 2)"],
    ),
    "opaque records": (lambda env, s: s.map(lambda w: {w}).map(lambda w: sorted(w)).print(), ["['a b']", "['a']"]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_operator_does_what_its_name_says_across_epochs(name: str) -> None:
    build, lines = PROGRAMS[name]

    assert sorted(printed(build, ["a b"], ["a"])) == sorted(lines)


@pytest.mark.parametrize("name", PROGRAMS)
def test_with_more_slots_and_a_failover_the_lines_are_the_same_but_for_repeats(name: str) -> None:
    build, lines = PROGRAMS[name]

    shown = printed(build, ["a b"], ["a"], parallelism=3, troubles=[Trouble(Step.AFTER_LEVEL, kill_slot(1), number=2)])

    assert {line.partition("> ")[2] for line in shown} == {line.rpartition("> ")[2] for line in lines}


def two_levels(env: StreamExecutionEnvironment, s: DataStream[Any]) -> None:
    counts = s.flat_map(words, str).map(lambda w: (w, 1), output_type=tuple[str, int]).key_by(0).sum(1).uid("count")
    counts.map(lambda p: (p[1] % 2 == 0, 1), output_type=tuple[bool, int]).key_by(0).sum(1).uid("parity").print()


def test_a_key_by_after_a_key_by_counts_what_the_first_gives() -> None:
    lines = printed(two_levels, ["a b a"], ["a c"], ["b b"], parallelism=3)

    assert {line.partition("> ")[2] for line in lines} >= {"(True, 2)", "(False, 5)"}


def test_a_level_narrower_than_the_job_keeps_its_state_and_is_restored() -> None:
    def build(env: StreamExecutionEnvironment, s: DataStream[Any]) -> None:
        wide = s.map(lambda w: (w, 1), output_type=tuple[str, int]).key_by(0).sum(1).uid("wide")
        wide.key_by(0).max(1).uid("narrow").set_parallelism(1)

    job = LocalJob(
        build,
        [["a", "b"], ["a"], ["c"]],
        MemoryStorage(),
        parallelism=3,
        troubles=[Trouble(Step.BEFORE_LEVEL, kill_slot(2), number=3)],
    )

    job.run()

    assert job.state("narrow") == {"a": ("a", 2), "b": ("b", 1), "c": ("c", 1)}
    assert job.state("narrow") == job.state("wide")


def test_several_sinks_each_get_every_record_and_a_spark_sink_gets_them_by_epoch() -> None:
    seen: dict[int, list[Any]] = {}

    def build(env: StreamExecutionEnvironment, s: DataStream[Any]) -> None:
        s.print("one")
        s.print("two")
        s.sink_to_spark(lambda rows, epoch: seen.update({epoch: rows}))

    lines = printed(build, ["a"], ["b"])

    assert sorted(lines) == ["one> a", "one> b", "two> a", "two> b"]
    assert seen == {1: ["a"], 2: ["b"]}


def test_a_collection_arrives_in_epoch_0_before_the_stream() -> None:
    lines = printed(lambda env, s: s.union(env.from_collection(["first"])).print(), ["a"], ["b"])

    assert lines == ["first", "a", "b"]


def test_a_record_that_the_function_rejects_ends_the_job_with_operator_record_and_the_users_frames() -> None:
    def parse(word: str) -> int:
        return int(word)

    job = LocalJob(
        lambda env, s: s.key_by(lambda w: w).map(parse).name("parse").print(),
        [["1", "x"]],
        MemoryStorage(),
    )

    with pytest.raises(UserFunctionError) as failure:
        job.run()

    assert (failure.value.operator, failure.value.record) == ("parse", "'x'")
    assert "in parse" in failure.value.user_traceback
    assert len(job.heard.restarts) == 5  # as the strategy says


def test_state_on_a_stream_without_keys_is_refused() -> None:
    with pytest.raises(JobGraphError, match='asks for keyed state "seen" on a stream without keys'):
        printed(lambda env, s: s.map(StateWithoutKey(), output_type=str).print(), ["a"], restart=NoRestart())


class Lifecycle(MapFunction):
    events: list[str] = []  # noqa: RUF012  shared on purpose: slots of this process have copies of the function

    def open(self, ctx: RuntimeContext) -> None:
        Lifecycle.events.append(f"open {ctx.subtask_index}/{ctx.parallelism} {ctx.operator_name}")

    def map(self, value: str) -> str:
        return value

    def close(self) -> None:
        Lifecycle.events.append("close")


def test_a_function_is_opened_once_per_subtask_and_closed_at_the_end() -> None:
    Lifecycle.events.clear()

    printed(lambda env, s: s.map(Lifecycle(), output_type=str).print(), ["a"], ["b"], ["c"], parallelism=2)

    assert sorted(Lifecycle.events) == ["close", "close", "open 0/2 map", "open 1/2 map"]
