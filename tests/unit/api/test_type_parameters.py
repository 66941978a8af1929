"""Classes that name their types as parameters: the types of streams follow from them where methods tell nothing."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import pytest

from checkdam import (
    AggregateFunction,
    BroadcastProcessFunction,
    DataStream,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeyedStream,
    MapFunction,
    MapStateDescriptor,
    OutputTag,
    ProcessContext,
    ProcessFunction,
    SourceFunction,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
)
from checkdam.api.launch import Launch
from checkdam.config import Configuration
from checkdam.errors import JobGraphError
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.testing.local_job import LocalJob

Pair = tuple[str, int]
RULES = MapStateDescriptor("rules", str, int)


class Length(MapFunction[Pair, int]):
    def map(self, value):
        return value[1]


class Letters(FlatMapFunction[Pair, str]):
    def flat_map(self, value):
        yield from value[0]


class Split(ProcessFunction[Pair, str]):
    def process_element(self, value, ctx):
        yield value[0]


class Count(KeyedProcessFunction[str, Pair, Pair]):
    def open(self, ctx):
        self.count = ctx.get_state(ValueStateDescriptor("count", int, default=0))

    def process_element(self, value, ctx):
        self.count.update(self.count.value() + value[1])
        yield ctx.current_key, self.count.value()


class CountMore(Count):
    """Names its types through the class above it."""


class OnlyTimer(KeyedProcessFunction[str, Pair, int]):
    def process_element(self, value: Pair, ctx: ProcessContext[str]) -> None: ...


class Annotated(KeyedProcessFunction[str, Pair, float]):
    def process_element(self, value: Pair, ctx: ProcessContext[str]) -> Iterator[int]:
        yield value[1]


class Join(KeyedCoProcessFunction[str, Pair, Pair, int]):
    def process_element1(self, value, ctx):
        yield 1


class Rules(BroadcastProcessFunction[Pair, Pair, bytes]):
    def process_element(self, value, ctx):
        yield b""


class KeyedRules(KeyedBroadcastProcessFunction[str, Pair, Pair, bytes]):
    def process_element(self, value, ctx):
        yield b""


class Mean(AggregateFunction[Pair, Pair, float]):
    def create_accumulator(self):
        return "", 0


class Numbers(SourceFunction[int]):
    def run(self, ctx):
        yield 1


def pairs() -> DataStream[Pair]:
    return StreamExecutionEnvironment(Launch(Configuration())).from_collection([("a", 1)])


def keyed() -> KeyedStream[str, Pair]:
    return pairs().key_by(lambda pair: pair[0])


def both(stream: DataStream[Pair]) -> Any:
    key = stream.key_by(lambda pair: pair[0])
    return key.connect(key).process(Join())


TYPED: dict[str, tuple[Callable[[], DataStream[Any]], str]] = {
    "map": (lambda: pairs().map(Length()), "int"),
    "flat map": (lambda: pairs().flat_map(Letters()), "str"),
    "process": (lambda: pairs().process(Split()), "str"),
    "keyed process": (lambda: keyed().process(Count()), "tuple[str, int]"),
    "inherited": (lambda: keyed().process(CountMore()), "tuple[str, int]"),
    "a method that yields nothing": (lambda: keyed().process(OnlyTimer()), "int"),
    "an annotation wins": (lambda: keyed().process(Annotated()), "int"),
    "output_type wins": (lambda: keyed().process(OnlyTimer(), output_type=int | None), "int | None"),
    "co-process": (lambda: both(pairs()), "int"),
    "broadcast": (lambda: (s := pairs()).connect(s.broadcast(RULES)).process(Rules()), "bytes"),
    "keyed broadcast": (
        lambda: (s := keyed()).connect(s.broadcast(RULES)).process(KeyedRules()),
        "bytes",
    ),
    "aggregate": (lambda: keyed().aggregate(Mean()), "float"),
    "source": (lambda: pairs()._environment.add_source(Numbers()), "int"),
}


@pytest.mark.parametrize("case", TYPED)
def test_the_output_type_comes_from_the_parameters_of_the_class(case: str) -> None:
    build, expected = TYPED[case]

    assert build().type.name == expected


def test_the_accumulators_type_comes_from_the_parameters_of_the_class() -> None:
    operator = keyed().aggregate(Mean())._environment._operators[-1]

    assert operator.kind.accumulator.name == "tuple[str, int]"  # type: ignore[union-attr]  # it is an aggregate


def test_a_job_of_functions_with_parameters_runs_and_resumes() -> None:
    def build(env: StreamExecutionEnvironment, stream: DataStream[Pair]) -> None:
        stream.key_by(lambda pair: pair[0]).process(CountMore()).uid("count").print()

    epochs: list[list[Pair]] = [[("a", 1), ("b", 2)], [("a", 3)]]
    storage = MemoryStorage()
    LocalJob(build, epochs[:1], storage, record_type=Pair, parallelism=1).run()

    resumed = LocalJob(build, epochs, storage, record_type=Pair, parallelism=1).run()

    assert resumed.printed_lines == ["('a', 4)"]


def test_parameters_change_neither_equality_nor_what_is_pickled() -> None:
    assert ValueStateDescriptor[int]("n", int) == ValueStateDescriptor("n", int)
    assert OutputTag[str]("late", str) == OutputTag("late", str)
    assert type(cloudpickle.loads(cloudpickle.dumps(Count()))) is Count


@pytest.mark.parametrize("call", ["uid", "name", "set_parallelism", "set_max_parallelism"])
def test_a_keyed_stream_is_no_operator_and_has_no_settings(call: str) -> None:
    stream: Any = keyed()

    assert not hasattr(stream, call)
    with pytest.raises(JobGraphError, match=r"key_by has no uid, name or parallelism\. Set it on the operator after"):
        getattr(stream, call)
    with pytest.raises(AttributeError, match="key_by has no uid"):
        getattr(stream, call)


def test_what_a_keyed_stream_never_had_is_a_plain_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'KeyedStream' object has no attribute 'keyed_by'") as error:
        keyed().keyed_by  # type: ignore[attr-defined]  # noqa: B018

    assert not isinstance(error.value, JobGraphError)
