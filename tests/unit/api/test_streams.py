"""What calls on streams add to the graph, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.launch import Launch
from checkdam.api.streams import DataStream
from checkdam.backends import HashMapStateBackend, RocksDBStateBackend
from checkdam.backends.state_backends import backend_from
from checkdam.checkpoint.settings import CheckpointConfig
from checkdam.config import Configuration
from checkdam.errors import ConfigError, JobGraphError
from checkdam.graph.contexts import OnTimerContext, OutputTag, ProcessContext, SourceContext
from checkdam.graph.functions import (
    AggregateFunction,
    BroadcastProcessFunction,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    SinkFunction,
    SourceFunction,
)
from checkdam.graph.operators import AggregateFunctionKind, ConnectKind, TimestampsKind
from checkdam.graph.watermarks import WatermarkStrategy
from checkdam.runtime.restart import FixedDelayRestart
from checkdam.state.descriptors import MapStateDescriptor, ValueStateDescriptor
from checkdam.state.ttl import StateTtlConfig
from checkdam.types.hints import PickleType

RULES = MapStateDescriptor("rules", str, int)
LIMITS = MapStateDescriptor("limits", str, int)
LATE = OutputTag("late", str)


class Plain(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[str]:
        yield str(value)


class Keyed(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: ProcessContext) -> Iterator[str]:
        yield str(value)


class Collecting(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: ProcessContext, out: Any) -> None: ...  # type: ignore[override]


class CollectingOnTimer(Keyed):
    def on_timer(self, timestamp: int, ctx: OnTimerContext, collector: Any) -> None: ...  # type: ignore[override]


class WithoutContext(ProcessFunction):
    def process_element(self, value: Any) -> None: ...  # type: ignore[override]


class WithOptions(ProcessFunction):
    def process_element(self, value: Any, ctx: Any, *more: Any, scale: int = 1) -> None: ...


class OnlyTimer(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: ProcessContext) -> None: ...

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterator[int]:
        yield timestamp


class TwoTypes(Keyed):
    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterator[int]:
        yield timestamp


class Both(KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: ProcessContext) -> Iterator[float]:
        yield 1.0

    def process_element2(self, value: Any, ctx: ProcessContext) -> None: ...


class Rules(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> list[bytes]:
        return []


class KeyedRules(KeyedBroadcastProcessFunction):
    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[bytes]:
        yield b""


class RulesWithTimer(KeyedBroadcastProcessFunction):
    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterator[int]:
        yield timestamp


class Mean(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: tuple[str, int], accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + value[1]

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[1] / accumulator[0]


class Unannotated(AggregateFunction):
    """Says nothing about its types."""


class Box:
    """A class of the user's own, without a durable form."""


class Numbers(SourceFunction):
    def run(self, ctx: SourceContext) -> Iterator[int]:
        yield 1


class Discard(SinkFunction):
    def invoke(self, value: Any, ctx: Any) -> None: ...


class Upper(MapFunction):
    def map(self, value: tuple[str, int]) -> str:
        return value[0].upper()


class Letters(FlatMapFunction):
    def flat_map(self, value: tuple[str, int]) -> Iterator[str]:
        yield from value[0]


def environment() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment(Launch(Configuration()))


def pairs(env: StreamExecutionEnvironment | None = None) -> DataStream[Any]:
    return (env or environment()).from_collection([("a", 1)])


def last(stream: Any) -> Any:
    return stream._environment._operators[-1]


TYPED: dict[str, tuple[Callable[[DataStream[Any]], DataStream[Any]], str]] = {
    "map function": (lambda s: s.map(Upper()), "str"),
    "flat map function": (lambda s: s.flat_map(Letters()), "str"),
    "process": (lambda s: s.process(Plain()), "str"),
    "process with a type of its own": (lambda s: s.process(Plain(), output_type=int), "int"),
    "keyed process": (lambda s: s.key_by(0).process(Keyed()), "str"),
    "only the timer yields": (lambda s: s.key_by(0).process(OnlyTimer()), "int"),
    "two types": (lambda s: s.key_by(0).process(TwoTypes()), "object"),
    "aggregate": (lambda s: s.key_by(0).aggregate(Mean()), "float"),
    "co-process": (lambda s: s.key_by(0).connect(s.key_by(lambda p: p[0])).process(Both()), "float"),
    "broadcast": (lambda s: s.connect(s.broadcast(RULES)).process(Rules()), "bytes"),
    "only the broadcast side yields": (
        lambda s: s.key_by(0).connect(s.broadcast(RULES)).process(KeyedRules()),
        "bytes",
    ),
    "only the timer beside a broadcast yields": (
        lambda s: s.key_by(0).connect(s.broadcast(RULES)).process(RulesWithTimer()),
        "int",
    ),
    "source": (lambda s: s._environment.add_source(Numbers()), "int"),
    "source with a type of its own": (lambda s: s._environment.add_source(Numbers(), output_type=float), "float"),
    "side output": (lambda s: s.process(Plain()).get_side_output(LATE), "str"),
    "side output without a type": (lambda s: s.process(Plain()).get_side_output(OutputTag("x")), "object"),
    "timestamps": (
        lambda s: s.assign_timestamps_and_watermarks(WatermarkStrategy(lambda p: p[1])),
        "tuple[str, int]",
    ),
}


@pytest.mark.parametrize("case", TYPED)
def test_the_type_of_a_stream_comes_from_annotations(case: str) -> None:
    build, expected = TYPED[case]

    assert build(pairs()).type.name == expected


def test_an_aggregate_keeps_an_accumulator_of_its_own_type() -> None:
    inferred = last(pairs().key_by(0).aggregate(Mean())).kind
    given = last(pairs().key_by(0).aggregate(Unannotated(), accumulator_type=PickleType(Box))).kind

    assert isinstance(inferred, AggregateFunctionKind)
    assert inferred.accumulator.name == "tuple[int, int]"
    assert given.accumulator.name == "pickle[Box]"


def test_connected_streams_have_inputs_and_keys_on_both_sides() -> None:
    stream = pairs()
    other = stream.map(Upper())

    operator = last(stream.key_by(0).connect(other.union(other).key_by(lambda word: word)).process(Both()))

    assert (operator.inputs, operator.second_inputs) == ((0,), (1, 1))
    assert operator.key.type == operator.second_key.type
    assert operator.kind.broadcast == ()


def test_a_broadcast_side_has_no_key_and_names_the_states_it_may_write() -> None:
    stream = pairs()

    operator = last(stream.key_by(0).connect(stream.key_by(1).broadcast(RULES, LIMITS)).process(KeyedRules()))

    assert isinstance(operator.kind, ConnectKind)
    assert operator.kind.broadcast == (RULES, LIMITS)
    assert operator.key is not None
    assert operator.second_key is None


def test_asking_twice_for_a_side_output_gives_the_same_stream() -> None:
    made = pairs().process(Plain())

    first, second = made.get_side_output(LATE), made.get_side_output(OutputTag("late", str))

    assert first._operator_id == second._operator_id


def test_two_operators_may_use_one_tag_name_with_different_types() -> None:
    stream = pairs()

    one, other = (stream.process(Plain()).get_side_output(OutputTag("late", of)) for of in (str, int))

    assert (one.type.name, other.type.name) == ("str", "int")


def test_timestamps_do_not_depend_on_keys() -> None:
    operator = last(pairs().key_by(0).assign_timestamps_and_watermarks(WatermarkStrategy(lambda p: p[1])))

    assert isinstance(operator.kind, TimestampsKind)
    assert operator.key is None


def test_uid_name_and_both_parallelisms_are_kept_on_operators_and_sinks() -> None:
    stream = pairs()
    stream.process(Plain()).uid("u").name("n").set_parallelism(3).set_max_parallelism(7)
    processed = last(stream)
    stream.add_sink(Discard()).uid("s").set_parallelism(2).set_max_parallelism(5)
    sink = last(stream)

    assert (processed.uid, processed.name, processed.parallelism, processed.max_parallelism) == ("u", "n", 3, 7)
    assert (sink.uid, sink.name, sink.parallelism, sink.max_parallelism) == ("s", "Discard", 2, 5)


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "keyed function, no keys": (lambda s: s.process(Keyed()), "without keys takes a ProcessFunction, not Keyed"),
    "plain function, keys": (lambda s: s.key_by(0).process(Plain()), "keyed stream takes a KeyedProcessFunction"),
    "connected function alone": (lambda s: s.process(Rules()), "takes a ProcessFunction, not Rules"),
    "a lambda": (lambda s: s.process(lambda v: v), "takes a ProcessFunction, not function"),
    "a class": (lambda s: s.process(Plain), "not the class Plain itself"),
    "plain rules, keys": (
        lambda s: s.key_by(0).connect(s.broadcast(RULES)).process(Rules()),
        "takes a KeyedBroadcastProcessFunction, not Rules",
    ),
    "keyed rules, no keys": (
        lambda s: s.connect(s.broadcast(RULES)).process(KeyedRules()),
        "takes a BroadcastProcessFunction, not KeyedRules",
    ),
    "keyed function on two streams": (
        lambda s: s.key_by(0).connect(s.key_by(0)).process(Keyed()),
        "takes a KeyedCoProcessFunction, not Keyed",
    ),
    "not a source": (lambda s: s._environment.add_source(Discard()), "takes a SourceFunction, not Discard"),
    "not a sink": (lambda s: s.add_sink(print), "takes a SinkFunction, not builtin_function_or_method"),
    "not an aggregate": (lambda s: s.key_by(0).aggregate(max), "takes an AggregateFunction"),
    "no accumulator type": (lambda s: s.key_by(0).aggregate(Unannotated()), "accumulator of Unannotated is of type"),
    "not a strategy": (lambda s: s.assign_timestamps_and_watermarks(max), "takes a WatermarkStrategy"),
    "not a tag": (lambda s: s.process(Plain()).get_side_output("late"), "takes an OutputTag"),
    "two types of a tag": (
        lambda s: _both(s.process(Plain()), OutputTag("late", str), OutputTag("late", int)),
        'side output "late" is declared with the types str and int',
    ),
    "side output of a map": (lambda s: s.map(Upper()).get_side_output(LATE), '"map" has no side outputs'),
    "side output of key_by": (
        lambda s: s.process(Plain()).key_by(lambda w: w, key_type=str).get_side_output(LATE),
        "key_by has no side outputs",
    ),
    "side output of a union": (
        lambda s: s.process(Plain()).union(s.process(Plain())).get_side_output(LATE),
        "no side outputs",
    ),
    "side output of a side output": (
        lambda s: s.process(Plain()).get_side_output(LATE).get_side_output(LATE),
        "no side outputs",
    ),
    "uid of a rebalanced stream": (lambda s: s.rebalance().uid("x"), "rebalance has no uid"),
    "side output of a rebalanced stream": (
        lambda s: s.process(Plain()).rebalance().get_side_output(LATE),
        "rebalance has no side outputs",
    ),
    "union of a rebalanced stream": (lambda s: s.union(s.rebalance()), "a rebalanced stream cannot be united"),
    "uid of a side output": (lambda s: s.process(Plain()).get_side_output(LATE).uid("x"), "a side output has no uid"),
    "no descriptors": (lambda s: s.broadcast(), "declares no state"),
    "another descriptor": (lambda s: s.broadcast(ValueStateDescriptor("v", int)), "takes MapStateDescriptors"),
    "a name twice": (
        lambda s: s.broadcast(RULES, LIMITS, MapStateDescriptor("rules", int, int)),
        'declares state "rules" twice',
    ),
    "a broadcast state that ages": (lambda s: s.broadcast(_aging()), "has a time to live"),
    "two environments": (lambda s: s.key_by(0).connect(pairs().key_by(0)), "different environments"),
    "two environments, broadcast": (lambda s: s.connect(pairs().broadcast(RULES)), "different environments"),
    "keys of two types": (lambda s: s.key_by(0).connect(s.key_by(1)), "different types: str and int"),
    "no keys": (lambda s: s.connect(s), "neither has keys"),
    "keys on one side": (lambda s: s.connect(s.key_by(0)), "only one has keys"),
    "not a stream": (lambda s: s.connect([1]), "takes a stream, not list"),
    "a function that forgets to return its stream": (
        lambda s: s.connect(None),
        "takes a stream, not NoneType. A function that builds a stream must return it",
    ),
    "union with nothing": (lambda s: s.union(None), r"union\(\) takes streams, not NoneType. A function that builds"),
    "a collector": (
        lambda s: s.key_by(0).process(Collecting()),
        r"process_element takes \(value, ctx, out\) and is called with \(value, ctx\)\. There is no collector",
    ),
    "a collector for timers": (
        lambda s: s.key_by(0).process(CollectingOnTimer()),
        r"on_timer takes \(timestamp, ctx, collector\) and is called with \(timestamp, ctx\)\. There is no collector",
    ),
    "a collector of a plain function": (
        lambda s: s.flat_map(lambda value, out: None),
        r"function of flat_map\(\) takes \(value, out\) and is called with \(value\)\. There is no collector",
    ),
    "no context": (
        lambda s: s.process(WithoutContext()),
        r"takes \(value\) and is called with \(value, ctx\)\. Change",
    ),
    "a width that is text": (lambda s: s.print().set_parallelism("4"), r"set_parallelism\(\) takes a whole number"),
    "key groups that are no number": (
        lambda s: s.map(Upper()).set_max_parallelism(True),
        r"set_max_parallelism\(\) takes a whole number, not True",
    ),
    "not a function": (lambda s: s.map(3), "map: 3 is neither"),
}


def _both(stream: DataStream[Any], *tags: OutputTag[Any]) -> None:
    for tag in tags:
        stream.get_side_output(tag)


def _aging() -> MapStateDescriptor[Any, Any]:
    return MapStateDescriptor("rules", str, int, ttl=StateTtlConfig(timedelta(1)))


def test_a_function_may_have_parameters_with_defaults() -> None:
    def scaled(value: Any, scale: int = 2) -> Any:
        return value * scale

    stream = pairs().process(WithOptions()).map(print).map(scaled)

    stream.filter(bool).key_by(str, key_type=str)


@pytest.mark.parametrize("how", ["sum", "min", "max"])
@pytest.mark.parametrize("field", [1, 3, "amount", False])
def test_a_field_of_plain_numbers_is_refused(how: str, field: Any) -> None:
    numbers = StreamExecutionEnvironment(Launch(Configuration())).from_collection([1, 2]).key_by(int, key_type=int)

    with pytest.raises(
        JobGraphError, match=rf"{how}\({field!r}\): records of type int have no fields\. Write {how}\(\)"
    ):
        getattr(numbers, how)(field)
    getattr(numbers, how)(0)


def test_a_state_backend_may_be_given_by_its_name() -> None:
    environment = StreamExecutionEnvironment(Launch(Configuration()))

    found: list[Any] = [
        backend_from(environment.set_state_backend(name)._configuration) for name in ("rocksdb", "hashmap")
    ]

    assert found == [RocksDBStateBackend(), HashMapStateBackend()]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("rockdb", r'setting "state.backend.type".*rockdb.*hashmap'),
        (
            RocksDBStateBackend,
            r"not the class RocksDBStateBackend\. Write set_state_backend\(RocksDBStateBackend\(\)\)",
        ),
        (None, "takes a state backend, not None"),
    ],
)
def test_what_is_no_state_backend_is_refused(wrong: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        StreamExecutionEnvironment(Launch(Configuration())).set_state_backend(wrong)


@pytest.mark.parametrize("case", REFUSED)
def test_a_call_that_cannot_be_meant_is_refused_where_it_is_written(case: str) -> None:
    build, message = REFUSED[case]

    with pytest.raises(JobGraphError, match=message):
        build(pairs())


def test_read_text_takes_pythons_words_for_what_to_do_with_text_that_is_not_utf8(tmp_path: Path) -> None:
    environment = StreamExecutionEnvironment(Launch(Configuration()))
    specs = [
        environment._operators[environment.read_text(str(tmp_path), **options)._operator_id].kind.spec  # type: ignore[union-attr,arg-type]
        for options in ({}, {"errors": "replace"})
    ]

    assert [spec.errors for spec in specs] == ["strict", "replace"]
    with pytest.raises(JobGraphError, match=r"errors is 'ignore'\. It must be"):
        environment.read_text(str(tmp_path), errors="ignore")  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["10s", None, 0.5, True, CheckpointConfig, FixedDelayRestart()])
def test_what_is_no_choice_of_checkpoints_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"enable_checkpointing\(\) takes a CheckpointConfig, a timedelta or milli"):
        StreamExecutionEnvironment(Launch(Configuration())).enable_checkpointing(wrong)


@pytest.mark.parametrize("wrong", ["none", None, FixedDelayRestart, CheckpointConfig()])
def test_what_is_no_restart_strategy_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"set_restart_strategy\(\) takes a restart strategy"):
        StreamExecutionEnvironment(Launch(Configuration())).set_restart_strategy(wrong)
