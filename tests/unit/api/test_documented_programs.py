"""The programs of the API page, as written there: each builds, with the types it leaves to annotations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from checkdam import (
    BroadcastContext,
    CheckpointConfig,
    CheckpointedFunction,
    CheckpointingMode,
    CheckpointRetention,
    CleanupFullSnapshot,
    CleanupIncrementally,
    CleanupOnCompaction,
    FixedDelayRestart,
    FlatMapFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    OnTimerContext,
    OutputTag,
    ProcessContext,
    ReadOnlyContext,
    RocksDBStateBackend,
    RuntimeContext,
    SinkContext,
    SinkFunction,
    SourceContext,
    SourceFunction,
    StateTtlConfig,
    StreamExecutionEnvironment,
    TtlTime,
    TtlUpdateType,
    TtlVisibility,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from checkdam.backends.state_backends import backend_from
from checkdam.graph.levels import JobPlan, Partitioning, plan_job
from checkdam.graph.operators import Operator
from checkdam.runtime.restart import restart_strategy_from


def environment() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


def planned(env: StreamExecutionEnvironment) -> JobPlan:
    return plan_job("job", env._operators, parallelism=2, max_parallelism=None)


def operator(plan: JobPlan, uid: str) -> Operator:
    return next(op for op in plan.operators if op.uid == uid)


def names(plan: JobPlan) -> list[list[str]]:
    return [[op.name for op in plan.source_side], *([op.name for op in level.operators] for level in plan.levels)]


def test_word_count_builds() -> None:
    env = environment()
    (
        env.socket_text_stream("localhost", 7777)
        .flat_map(str.split, output_type=str)
        .map(lambda word: (word, 1), output_type=tuple[str, int])
        .key_by(lambda pair: pair[0], key_type=str)
        .sum(1)
        .uid("wc-sum")
        .print()
    )

    plan = planned(env)

    assert names(plan) == [["socket(localhost:7777)", "flat_map", "map"], ["sum", "print"]]
    assert operator(plan, "wc-sum").output_type.name == "tuple[str, int]"


class CountWindowAverage(FlatMapFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.sum = ctx.get_state(ValueStateDescriptor("average", tuple[int, int], default=(0, 0)))

    def flat_map(self, pair: tuple[int, int]) -> Iterator[tuple[int, int]]:
        count, total = self.sum.value()
        count, total = count + 1, total + pair[1]
        if count >= 2:
            yield pair[0], total // count
            self.sum.clear()
        else:
            self.sum.update((count, total))


def test_keyed_state_in_a_function_builds_and_its_types_come_from_annotations() -> None:
    env = environment()
    env.from_collection([(1, 3), (1, 5), (1, 7), (1, 4), (1, 2)]).key_by(lambda p: p[0]).flat_map(
        CountWindowAverage()
    ).uid("average").print()

    average = operator(planned(env), "average")

    assert average.output_type.name == "tuple[int, int]"
    assert average.key is not None
    assert (average.key.type.name, average.key.columns) == ("int", (0,))


class Silence(KeyedProcessFunction[str, tuple[str, int], tuple[str, int]]):
    """Tells a key that has been quiet for a minute; late records go aside."""

    LATE = OutputTag("late", str)

    def process_element(self, value: tuple[str, int], ctx: ProcessContext[str]) -> Iterator[tuple[str, int]]:
        if ctx.timestamp is not None and ctx.timestamp <= ctx.timer_service.current_watermark:
            ctx.output(self.LATE, ctx.current_key)
        ctx.timer_service.register_event_time_timer(value[1] + 60_000)
        yield value

    def on_timer(self, timestamp: int, ctx: OnTimerContext[str]) -> Iterator[tuple[str, int]]:
        yield ctx.current_key, timestamp


def test_timers_event_time_and_side_outputs_build() -> None:
    env = environment()
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=5), lambda pair: pair[1])
    quiet = (
        env.from_collection([("a", 1)])
        .assign_timestamps_and_watermarks(strategy)
        .key_by(lambda pair: pair[0])
        .process(Silence())
        .uid("silence")
    )
    quiet.print()
    quiet.get_side_output(Silence.LATE).print("late")

    plan = planned(env)

    assert names(plan) == [["collection", "timestamps"], ["process", "print", "side output late", "print"]]
    assert operator(plan, "silence").output_type.name == "tuple[str, int]"
    assert plan.has_event_time
    assert plan.has_ticks


def test_ttl_builds() -> None:
    ttl = StateTtlConfig(
        timedelta(seconds=1),
        update_type=TtlUpdateType.ON_CREATE_AND_WRITE,
        visibility=TtlVisibility.NEVER_RETURN_EXPIRED,
        time=TtlTime.PROCESSING_TIME,
        cleanup=(CleanupFullSnapshot(), CleanupIncrementally(10, run_for_every_record=True), CleanupOnCompaction(1000)),
    )

    assert ValueStateDescriptor("text state", str, ttl=ttl).ttl is ttl


class BufferingSink(SinkFunction, CheckpointedFunction):
    def __init__(self, threshold: int) -> None:
        self.threshold, self.buffered = threshold, list[tuple[str, int]]()

    def invoke(self, value: tuple[str, int], ctx: SinkContext) -> None: ...

    def initialize_state(self, ctx: FunctionInitializationContext) -> None:
        self.checkpointed = ctx.operator_state_store.get_list_state(
            ListStateDescriptor("buffered-elements", tuple[str, int])
        )
        if ctx.is_restored:
            self.buffered.extend(self.checkpointed.get())

    def snapshot_state(self, ctx: FunctionSnapshotContext) -> None:
        self.checkpointed.update(self.buffered)


class CounterSource(SourceFunction, CheckpointedFunction):
    offset = 0

    def initialize_state(self, ctx: FunctionInitializationContext) -> None: ...

    def snapshot_state(self, ctx: FunctionSnapshotContext) -> None: ...

    def run(self, ctx: SourceContext) -> Iterator[int]:
        while True:
            self.offset += 1
            yield self.offset - 1


def test_operator_state_in_a_source_and_a_sink_builds_in_the_slots() -> None:
    env = environment()
    counted = env.add_source(CounterSource()).uid("counter")
    counted.map(lambda n: ("n", n)).add_sink(BufferingSink(10)).uid("buffer")

    plan = planned(env)

    assert names(plan) == [[], ["CounterSource", "map", "BufferingSink"]]
    assert operator(plan, "counter").output_type.name == "int"
    assert operator(plan, "buffer").output_type.name == "tuple[str, int]"
    assert plan.wire(1) == ()
    assert plan.has_ticks


@dataclass(frozen=True)
class Item:
    shape: str
    color: str


@dataclass(frozen=True)
class Rule:
    name: str
    first: str
    second: str


RULES = MapStateDescriptor("RulesBroadcastState", str, Rule)


class MatchRules(KeyedBroadcastProcessFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.waiting = ctx.get_map_state(MapStateDescriptor("items", str, list[Item]))

    def process_broadcast_element(self, rule: Rule, ctx: BroadcastContext) -> None:
        ctx.get_broadcast_state(RULES)[rule.name] = rule

    def process_element(self, item: Item, ctx: ReadOnlyContext) -> Iterator[str]:
        for name, _rule in ctx.get_broadcast_state(RULES).items():
            yield name


def test_broadcast_state_builds() -> None:
    env = environment()
    items = env.from_collection([Item("square", "red")])
    rules = env.from_collection([Rule("pairs", "square", "circle")])
    items.key_by(lambda item: item.color).connect(rules.broadcast(RULES)).process(MatchRules()).uid("match")

    plan = planned(env)

    match = operator(plan, "match")
    assert match.output_type.name == "str"
    assert match.key is not None
    assert (match.key.type.name, match.key.columns) == ("str", (1,))
    assert [(edge.side, edge.partitioning) for edge in plan.edges] == [
        (0, Partitioning.KEYED),
        (1, Partitioning.BROADCAST),
    ]


def test_checkpoints_are_set_as_written() -> None:
    env = environment()
    env.enable_checkpointing(
        CheckpointConfig(
            interval=timedelta(seconds=1),
            mode=CheckpointingMode.EXACTLY_ONCE,
            min_pause=timedelta(milliseconds=500),
            timeout=timedelta(minutes=1),
            tolerable_failures=2,
            max_concurrent=1,
            retention=CheckpointRetention.RETAIN_ON_CANCELLATION,
            num_retained=3,
            storage="file:///data/checkpoints",
        )
    )
    env.set_state_backend(RocksDBStateBackend(memory="256 MB"))
    env.set_restart_strategy(FixedDelayRestart(attempts=3, delay=timedelta(seconds=10)))

    assert CheckpointConfig.from_configuration(env.configuration) == CheckpointConfig(
        interval=timedelta(seconds=1),
        min_pause=timedelta(milliseconds=500),
        timeout=timedelta(minutes=1),
        tolerable_failures=2,
        retention=CheckpointRetention.RETAIN_ON_CANCELLATION,
        num_retained=3,
        storage="file:///data/checkpoints",
    )
    assert backend_from(env.configuration) == RocksDBStateBackend(memory=256 << 20)
    assert restart_strategy_from(env.configuration, checkpointing=True) == FixedDelayRestart(3, timedelta(seconds=10))
