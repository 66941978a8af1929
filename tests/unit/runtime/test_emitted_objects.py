"""What is emitted is fixed when it is emitted, in whole jobs: each operator has records of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.graph.contexts import OutputTag, RuntimeContext
from checkdam.graph.functions import (
    BroadcastProcessFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    SinkFunction,
    SourceFunction,
)
from checkdam.graph.watermarks import WatermarkStrategy
from checkdam.state.descriptors import MapStateDescriptor, ValueStateDescriptor
from checkdam.testing import MemoryStorage
from checkdam.testing.local_job import LocalJob

RULES = MapStateDescriptor("rules", str, str)


@dataclass
class Account:
    n: int
    seen: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.n}{self.seen or ''}"


ASIDE = OutputTag("aside", Account)


def raised(account: Account) -> Account:
    account.n += 1
    return account


class Kept(KeyedProcessFunction):
    """Emits the object that it keeps, and goes on to change it."""

    def open(self, ctx: RuntimeContext) -> None:
        self.state = ctx.get_state(ValueStateDescriptor("account", Account))

    def process_element(self, value: str, ctx: Any) -> Iterator[Account]:
        account = self.state.value() or Account(0)
        account.n += 1
        account.seen.append(account.n)
        self.state.update(account)
        yield account


class KeptAside(Kept):
    def process_element(self, value: str, ctx: Any) -> Iterator[Account]:
        for account in super().process_element(value, ctx):
            ctx.output(ASIDE, account)
        yield from ()


class Reused:
    """One object for everything."""

    def __init__(self) -> None:
        self.account = Account(0)

    def next(self) -> Account:
        self.account.n += 1
        self.account.seen.append(self.account.n)
        return self.account


class ReusedMap(Reused, MapFunction):
    def map(self, value: str) -> Account:
        return self.next()


class ReusedFlatMap(Reused, FlatMapFunction):
    def flat_map(self, value: str) -> Iterator[Account]:
        yield self.next()


class ReusedProcess(Reused, ProcessFunction):
    def process_element(self, value: str, ctx: Any) -> Iterator[Account]:
        yield self.next()


class Through(ProcessFunction):
    def process_element(self, value: str, ctx: Any) -> Iterator[str]:
        yield value


class ReusedAside(Reused, ProcessFunction):
    def process_element(self, value: str, ctx: Any) -> None:
        ctx.output(ASIDE, self.next())


class ReusedTimer(Reused, KeyedProcessFunction):
    def process_element(self, value: str, ctx: Any) -> Iterator[Account]:
        for at in range(3):
            ctx.timer_service.register_processing_time_timer(at)
        yield from ()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Account]:
        yield self.next()


class ReusedBroadcast(Reused, BroadcastProcessFunction):
    def process_broadcast_element(self, value: str, ctx: Any) -> Iterator[Account]:
        yield from ()

    def process_element(self, value: str, ctx: Any) -> Iterator[Account]:
        yield self.next()


class ReusedSource(Reused, SourceFunction):
    def run(self, ctx: Any) -> Iterator[Account]:
        for _ in range(3):
            yield self.next()


class ChangedLater(FilterFunction):
    """Changes what it let through."""

    last = Account(0)

    def filter(self, value: Account) -> bool:
        self.last.n = 99
        self.last = value
        return True


class Untyped(Reused, FlatMapFunction):
    """Emits one dict again and again, under no declared type."""

    def flat_map(self, value: str) -> Any:
        self.shown = getattr(self, "shown", {"n": 0, "seen": []})
        self.shown["n"] += 1
        self.shown["seen"].append(self.shown["n"])
        yield self.shown


class ListAsTuple(FlatMapFunction):
    """Emits a list, which passes for a tuple, and changes it."""

    def flat_map(self, value: str) -> Iterator[tuple[int, str]]:
        self.row = getattr(self, "row", [0, "a"])
        self.row[0] += 1
        yield self.row  # type: ignore[misc]  # the point of it


FIXED = ["1[1]", "2[1, 2]", "3[1, 2, 3]"]


def behind_all(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
    stream.print()


def behind_a_map(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
    stream.map(lambda account: account, output_type=Account).print()


def behind_a_shuffle(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
    stream.key_by(lambda a: "k", key_type=str).map(lambda account: account, output_type=Account).print()


def text(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
    stream.map(str, output_type=str).print()


def stamped(stream: DataStream[Any]) -> DataStream[Any]:
    return stream.assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps(len))


EMITTED: dict[str, Callable[[StreamExecutionEnvironment, DataStream[Any]], DataStream[Any]]] = {
    "state": lambda env, s: s.key_by(lambda w: w).process(Kept()).uid("k"),
    "side output": lambda env, s: s.key_by(lambda w: w).process(KeptAside()).uid("k").get_side_output(ASIDE),
    "map": lambda env, s: s.map(ReusedMap()),
    "flat_map": lambda env, s: s.flat_map(ReusedFlatMap()),
    "keyed map": lambda env, s: s.key_by(lambda w: w).map(ReusedMap()).uid("m"),
    "process": lambda env, s: s.process(ReusedProcess()),
    "side output without keys": lambda env, s: s.process(ReusedAside()).get_side_output(ASIDE),
    "state with event time": lambda env, s: stamped(s).key_by(lambda w: w).process(Kept()).uid("k"),
    "flat_map with event time": lambda env, s: stamped(s.process(Through())).flat_map(ReusedFlatMap()),
    "broadcast": lambda env, s: s.connect(s.broadcast(RULES)).process(ReusedBroadcast()).uid("b"),
    "source function": lambda env, s: env.add_source(ReusedSource(), output_type=Account).uid("s"),
}


@pytest.mark.parametrize("behind", [behind_all, behind_a_map, behind_a_shuffle, text])
@pytest.mark.parametrize("name", EMITTED)
def test_what_is_emitted_does_not_change_with_the_object(name: str, behind: Any) -> None:
    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        behind(env, EMITTED[name](env, stream))
        if name == "source function":
            stream.filter(lambda w: False).print()

    lines = LocalJob(build, [["k", "k", "k"]], MemoryStorage(), parallelism=1).run().printed_lines

    assert lines == FIXED


def test_what_timers_emit_does_not_change_with_the_object() -> None:
    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        text(env, stream.key_by(lambda w: w).process(ReusedTimer()).uid("t"))

    assert LocalJob(build, [["k"], ["k"]], MemoryStorage(), parallelism=1).run().printed_lines[:3] == FIXED


def test_a_filter_that_changes_what_it_let_through_changes_nothing_behind_it() -> None:
    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        text(env, stream.map(len, output_type=int).map(Account, output_type=Account).filter(ChangedLater()))

    assert LocalJob(build, [["k", "kk"]], MemoryStorage(), parallelism=1).run().printed_lines == ["1", "2"]


@pytest.mark.parametrize("takes", [0, 1])
def test_each_of_several_behind_one_operator_has_records_of_its_own(takes: int) -> None:
    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        accounts = stream.process(ReusedProcess())
        branches: list[Any] = [
            lambda: accounts.map(raised, output_type=Account).map(raised, output_type=Account).map(str).print("a"),
            lambda: accounts.map(raised, output_type=Account).map(str).print("b"),
            lambda: accounts.key_by(lambda a: a.n).map(raised, output_type=Account).map(str).print("c"),
            lambda: accounts.map(str).print("d"),
        ]
        for branch in branches if takes else reversed(branches):
            branch()

    lines = LocalJob(build, [["k", "k"]], MemoryStorage(), parallelism=1).run().printed_lines

    assert sorted(lines) == [
        *("a> 3[1]", "a> 4[1, 2]", "b> 2[1]", "b> 3[1, 2]", "c> 2[1]", "c> 3[1, 2]", "d> 1[1]", "d> 2[1, 2]")
    ]


def test_readers_of_one_side_output_have_records_of_their_own() -> None:
    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        accounts = stream.process(ReusedAside())
        accounts.get_side_output(ASIDE).map(raised, output_type=Account).map(str).print("a")
        accounts.get_side_output(ASIDE).map(str).print("b")

    lines = LocalJob(build, [["k", "k"]], MemoryStorage(), parallelism=1).run().printed_lines

    assert sorted(lines) == ["a> 2[1]", "a> 3[1, 2]", "b> 1[1]", "b> 2[1, 2]"]


def test_values_of_no_declared_type_are_fixed_too() -> None:
    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        stream.flat_map(Untyped()).map(lambda d: f"{d['n']}{d['seen']}", output_type=str).print()

    assert LocalJob(build, [["k", "k", "k"]], MemoryStorage(), parallelism=1).run().printed_lines == FIXED


@pytest.mark.parametrize("is_chained", [True, False])
def test_a_list_that_passes_for_a_tuple_is_fixed_too(*, is_chained: bool) -> None:
    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        rows = stream.flat_map(ListAsTuple())
        if not is_chained:
            rows = rows.key_by(lambda row: row[1]).map(lambda row: row, output_type=tuple[int, str])
        rows.map(lambda row: row[0], output_type=int).print()

    assert LocalJob(build, [["k", "k", "k"]], MemoryStorage(), parallelism=1).run().printed_lines == ["1", "2", "3"]


def test_a_key_that_is_one_list_again_and_again_is_fixed_too() -> None:
    key = ["", 1]

    def reused(word: str) -> Any:  # a list, though keys are to be tuples
        key[0] = word
        return key

    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        text(env, stream.key_by(reused, key_type=tuple[str, int]).process(Kept()).uid("k"))

    lines = LocalJob(build, [["a", "b", "a"]], MemoryStorage(), parallelism=1).run().printed_lines
    assert lines == ["1[1]", "1[1]", "2[1, 2]"]


def test_a_running_aggregate_emits_what_it_had_then() -> None:
    def add(kept: Account, new: Account) -> Account:
        kept.n += new.n
        kept.seen.append(kept.n)
        return kept

    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        accounts = stream.map(lambda w: Account(1, [1]), output_type=Account)
        text(env, accounts.key_by(lambda a: "k", key_type=str).reduce(add).uid("r"))

    assert LocalJob(build, [["k", "k", "k"]], MemoryStorage(), parallelism=1).run().printed_lines == FIXED


def test_a_sink_function_has_records_of_its_own() -> None:
    class Spoil(SinkFunction):
        def invoke(self, value: Account, ctx: Any) -> None:
            value.n = 99

    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        accounts = stream.process(ReusedProcess())
        accounts.add_sink(Spoil())
        text(env, accounts)

    assert LocalJob(build, [["k", "k", "k"]], MemoryStorage(), parallelism=1).run().printed_lines == FIXED
