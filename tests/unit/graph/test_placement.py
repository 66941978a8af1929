"""Where connected streams, side outputs, source functions and timestamps stand in a plan."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import cloudpickle
import pytest

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.launch import Launch
from checkdam.api.streams import DataStream
from checkdam.config import Configuration
from checkdam.connectors.sources import CollectionSource, DataFrameSource, StreamSource
from checkdam.errors import JobGraphError
from checkdam.graph.contexts import OutputTag
from checkdam.graph.functions import (
    BroadcastProcessFunction,
    CheckpointedFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    SinkFunction,
    SourceFunction,
)
from checkdam.graph.levels import JobPlan, Partitioning, plan_job
from checkdam.graph.watermarks import WatermarkStrategy
from checkdam.state.descriptors import MapStateDescriptor
from checkdam.testing.scripted_source import ScriptedSource

RULES = MapStateDescriptor("rules", str, int)
BY_SECOND = WatermarkStrategy(lambda pair: pair[1])
Pair = tuple[str, int]
Build = Callable[[StreamExecutionEnvironment, DataStream[Any]], Any]


class Split(ProcessFunction):
    def process_element(self, value: Pair, ctx: Any) -> Iterator[Pair]:
        yield value


class Rules(BroadcastProcessFunction):
    def process_element(self, value: Pair, ctx: Any) -> Iterator[Pair]:
        yield value


class Both(KeyedCoProcessFunction):
    def process_element1(self, value: Pair, ctx: Any) -> Iterator[Pair]:
        yield value


class Alarm(KeyedProcessFunction):
    def process_element(self, value: Pair, ctx: Any) -> Iterator[Pair]:
        yield value

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Pair]:
        yield "", timestamp


class Numbers(SourceFunction):
    def run(self, ctx: Any) -> Iterator[Pair]:
        yield "", 1


class Kept(CheckpointedFunction):
    """To mix in."""


class KeptNumbers(Kept, Numbers):
    """A source with operator state."""


class Discard(SinkFunction[object]):
    """A sink without state."""


class KeptDiscard(Kept, Discard):
    """A sink with operator state."""


def planned(build: Build, parallelism: int = 2, max_parallelism: int | None = None) -> JobPlan:
    environment = StreamExecutionEnvironment(Launch(Configuration()))
    build(environment, environment.from_collection([("a", 1)]))
    return plan_job("job", environment._operators, parallelism=parallelism, max_parallelism=max_parallelism)


def names(plan: JobPlan) -> list[list[str]]:
    return [[op.name for op in plan.source_side], *([op.name for op in level.operators] for level in plan.levels)]


def kinds(plan: JobPlan) -> list[tuple[int, int, Partitioning]]:
    return [(edge.side, edge.level, edge.partitioning) for edge in plan.edges]


def test_a_process_function_needs_a_slot_and_its_side_output_runs_with_it_whatever_the_parallelism() -> None:
    def build(env: StreamExecutionEnvironment, s: DataStream[Any]) -> None:
        split = s.process(Split()).set_parallelism(3)
        split.get_side_output(OutputTag("late", Pair)).map(lambda p: p).set_parallelism(3).print().set_parallelism(3)

    plan = planned(build)

    assert names(plan) == [["collection"], ["process", "side output late", "map", "print"]]
    assert [level.parallelism for level in plan.levels] == [3]
    assert list(plan.side_outputs_of(1)) == ["late"]
    assert plan.side_outputs_of(2) == {}


def test_a_source_function_stands_in_the_first_level_with_nothing_in_front() -> None:
    plan = planned(lambda env, s: env.add_source(Numbers()).uid("numbers").key_by(0).sum(1).uid("a").print())

    assert names(plan) == [[], ["Numbers"], ["sum", "print"]]
    assert plan.levels[0].inputs == ()
    assert kinds(plan) == [(0, 2, Partitioning.KEYED)]


def test_a_source_function_of_another_width_has_a_level_of_its_own() -> None:
    def build(env: StreamExecutionEnvironment, s: DataStream[Any]) -> None:
        s.print()
        env.add_source(Numbers()).uid("numbers").set_parallelism(1).print().set_parallelism(1)

    plan = planned(build)

    assert names(plan) == [["collection"], ["print"], ["Numbers", "print"]]
    assert [level.parallelism for level in plan.levels] == [2, 1]


def test_a_plain_function_that_reads_a_slot_lives_in_one_whatever_else_it_reads() -> None:
    plan = planned(lambda env, s: s.union(s.process(Split())).map(lambda p: p).print())

    assert names(plan) == [["collection"], ["process", "map", "print"]]
    assert kinds(plan) == [(0, 1, Partitioning.ORIGIN), (0, 1, Partitioning.ORIGIN)]


def test_a_rebalanced_stream_crosses_an_exchange_also_to_a_plain_function_and_as_many_subtasks() -> None:
    plan = planned(lambda env, s: s.rebalance().map(lambda p: p).process(Split()).rebalance().process(Split()).print())

    assert names(plan) == [["collection"], ["map", "process"], ["process", "print"]]
    assert kinds(plan) == [(0, 1, Partitioning.REBALANCE), (0, 2, Partitioning.REBALANCE)]


def test_another_number_of_subtasks_is_reached_by_origin() -> None:
    plan = planned(lambda env, s: s.process(Split()).process(Split()).set_parallelism(3).print())

    assert names(plan) == [["collection"], ["process"], ["process"], ["print"]]
    assert {edge.partitioning for edge in plan.edges} == {Partitioning.ORIGIN}


def test_two_keyed_streams_meet_behind_the_later_of_them() -> None:
    def build(env: StreamExecutionEnvironment, s: DataStream[Any]) -> None:
        summed = s.key_by(0).sum(1).uid("a")
        s.key_by(0).connect(summed.key_by(lambda p: p[0])).process(Both()).uid("b").print()

    plan = planned(build)

    assert names(plan) == [["collection"], ["sum"], ["connect", "print"]]
    assert kinds(plan) == [(0, 1, Partitioning.KEYED), (0, 2, Partitioning.KEYED), (1, 2, Partitioning.KEYED)]
    first, second = plan.edges[1:]
    assert first.key is not None
    assert second.key is not None
    assert first.key.function is None
    assert second.key.function is not None
    assert [edge.id for edge in plan.levels[0].carried] == [first.id]


def test_a_broadcast_side_crosses_an_exchange_even_out_of_the_level_beside() -> None:
    def build(env: StreamExecutionEnvironment, s: DataStream[Any]) -> None:
        split = s.process(Split())
        split.connect(split.broadcast(RULES)).process(Rules()).uid("r").print()

    plan = planned(build)

    assert names(plan) == [["collection"], ["process"], ["connect", "print"]]
    assert kinds(plan) == [
        (0, 1, Partitioning.ORIGIN),
        (0, 2, Partitioning.FORWARD),
        (1, 2, Partitioning.BROADCAST),
    ]


def test_the_first_side_of_a_broadcast_is_chained_where_it_can_be() -> None:
    def build(env: StreamExecutionEnvironment, s: DataStream[Any]) -> None:
        rules = s.map(lambda p: p)
        s.process(Split()).connect(rules.broadcast(RULES)).process(Rules()).uid("r").print()

    plan = planned(build)

    assert names(plan) == [["collection", "map"], ["process", "connect", "print"]]
    assert kinds(plan) == [(0, 1, Partitioning.ORIGIN), (1, 1, Partitioning.BROADCAST)]


def test_a_broadcast_edge_is_as_wide_as_its_target() -> None:
    plan = planned(lambda env, s: s.connect(s.broadcast(RULES)).process(Rules()).uid("r").set_parallelism(5))

    assert [edge.parallelism for edge in plan.edges] == [5, 5]


def test_timestamps_are_assigned_where_the_records_are() -> None:
    def build(env: StreamExecutionEnvironment, s: DataStream[Any]) -> None:
        s.assign_timestamps_and_watermarks(BY_SECOND).map(lambda p: p).print()
        made = env.add_source(Numbers()).uid("numbers").set_parallelism(3)
        made.assign_timestamps_and_watermarks(BY_SECOND).print().set_parallelism(3)

    plan = planned(build)

    assert names(plan) == [["collection", "timestamps", "map"], ["print"], ["Numbers", "timestamps", "print"]]
    assert [edge.has_timestamps for edge in plan.edges] == [True]


def test_event_time_is_that_of_the_nearest_assignments_in_front() -> None:
    def build(env: StreamExecutionEnvironment, s: DataStream[Any]) -> None:
        one = s.assign_timestamps_and_watermarks(BY_SECOND)  # 1
        other = s.map(lambda p: p).assign_timestamps_and_watermarks(BY_SECOND)  # 3
        both = one.union(other, s).key_by(0).sum(1).uid("a")  # 4
        both.assign_timestamps_and_watermarks(BY_SECOND).print()  # 5, 6
        s.print()  # 7

    plan = planned(build)

    assert plan.assigners == {1: (1,), 3: (3,), 4: (1, 3), 5: (5,), 6: (5,)}
    assert {edge.source: edge.has_timestamps for edge in plan.edges} == {0: False, 1: True, 3: True}


def test_a_connected_stream_has_the_event_time_of_both_sides() -> None:
    def build(env: StreamExecutionEnvironment, s: DataStream[Any]) -> None:
        one, other = (s.assign_timestamps_and_watermarks(BY_SECOND) for _ in range(2))
        one.connect(other.broadcast(RULES)).process(Rules()).uid("r")

    assert planned(build).assigners[3] == (1, 2)


def test_records_that_go_back_to_spark_leave_their_timestamps_behind() -> None:
    plan = planned(lambda env, s: s.assign_timestamps_and_watermarks(BY_SECOND).sink_to_spark(lambda rows, epoch: None))

    assert [(edge.target is None, edge.has_timestamps) for edge in plan.edges] == [(False, True), (True, False)]


def test_an_assigner_is_static_or_ends_with_source_functions_if_nothing_else_brings_records_after_epoch_0() -> None:
    def build(env: StreamExecutionEnvironment, s: DataStream[Any]) -> None:
        scripted = env._source("script", ScriptedSource(()), s.type)
        alarms = s.key_by(0).process(Alarm()).uid("alarm")
        for stream in (
            s,
            s.map(lambda p: p),
            scripted,
            s.union(scripted),
            env.add_source(Numbers()).uid("numbers"),
            alarms,
            s.union(env.add_source(Numbers()).uid("more"), env.add_source(Numbers()).uid("most").map(lambda p: p)),
            scripted.union(env.add_source(Numbers()).uid("few")),
        ):
            stream.assign_timestamps_and_watermarks(BY_SECOND).name("assigner").print()

    plan = planned(build)

    static = [op.id in plan.static_assigners for op in plan.operators if op.name == "assigner"]
    assert static == [True, True, False, False, False, False, False, False]
    uids = {op.id: op.uid for op in plan.operators}
    ending = [plan.ending_assigners.get(op.id) for op in plan.operators if op.name == "assigner"]
    assert [each and {uids[op] for op in each} for each in ending] == [
        *[None] * 4,
        {"numbers"},
        None,
        {"more", "most"},
        None,
    ]


class Frame:
    def __init__(self, *, is_streaming: bool) -> None:
        self.isStreaming = is_streaming


def test_only_sources_that_are_all_there_are_static() -> None:
    assert CollectionSource(()).is_static
    assert DataFrameSource(Frame(is_streaming=False)).is_static
    assert not DataFrameSource(Frame(is_streaming=True)).is_static
    assert not StreamSource("rate", bounded=True).is_static
    assert not ScriptedSource(()).is_static


def test_slots_know_the_strategies_of_the_source_side_and_keep_what_lives_in_them() -> None:
    idle = WatermarkStrategy(lambda pair: pair[1], idleness=timedelta(seconds=1))

    def build(env: StreamExecutionEnvironment, s: DataStream[Any]) -> None:
        s.assign_timestamps_and_watermarks(idle).print()
        env.add_source(Numbers()).uid("numbers").assign_timestamps_and_watermarks(BY_SECOND).print()

    plan = planned(build)
    there: JobPlan = pickle.loads(cloudpickle.dumps(plan.for_slots()))

    assert [op.name for op in there.operators] == ["print", "Numbers", "timestamps", "print"]
    assert {op: strategy.idleness for op, strategy in there.strategies.items()} == {1: timedelta(seconds=1), 4: None}
    assert there.assigners == plan.assigners
    assert there.static_assigners == plan.static_assigners == {1}
    assert there.has_ticks


def test_only_timers_source_functions_and_idleness_need_epochs_without_records() -> None:
    idle = WatermarkStrategy(lambda pair: pair[1], idleness=timedelta(seconds=1))

    assert not planned(lambda env, s: s.assign_timestamps_and_watermarks(BY_SECOND).print()).has_ticks
    assert planned(lambda env, s: s.assign_timestamps_and_watermarks(idle).print()).has_ticks
    assert planned(lambda env, s: s.key_by(0).process(Alarm()).uid("a")).has_ticks
    assert planned(lambda env, s: env.add_source(Numbers()).uid("numbers").print()).has_ticks


def test_an_operator_may_have_another_number_of_key_groups_than_the_job() -> None:
    def build(env: StreamExecutionEnvironment, s: DataStream[Any]) -> None:
        s.key_by(0).sum(1).uid("own").set_max_parallelism(16).key_by(0).max(1).uid("job")

    plan = planned(build, max_parallelism=64).for_slots()

    assert {op.uid: plan.key_groups_of(op.id) for op in plan.operators} == {"own": 16, "job": 64}


def test_an_operator_may_be_wider_than_the_jobs_max_parallelism_if_its_own_allows() -> None:
    plan = planned(
        lambda env, s: s.key_by(0).sum(1).uid("a").set_parallelism(9).set_max_parallelism(16), max_parallelism=8
    )

    assert plan.levels[0].parallelism == 9


REFUSED: dict[str, tuple[Build, str]] = {
    "broadcast without uid": (
        lambda env, s: s.connect(s.broadcast(RULES)).process(Rules()),
        'stateful operator "connect" has no uid',
    ),
    "co-process without uid": (
        lambda env, s: s.key_by(0).connect(s.key_by(0)).process(Both()),
        'stateful operator "connect" has no uid',
    ),
    "source without uid": (
        lambda env, s: env.add_source(Numbers()).print(),
        'stateful operator "Numbers" has no uid',
    ),
    "source with state without uid": (
        lambda env, s: env.add_source(KeptNumbers()).print(),
        'stateful operator "KeptNumbers" has no uid',
    ),
    "sink with state without uid": (
        lambda env, s: s.add_sink(KeptDiscard()),
        'stateful operator "KeptDiscard" has no uid',
    ),
    "wider than its own key groups": (
        lambda env, s: s.key_by(0).sum(1).uid("a").set_max_parallelism(1),
        'parallelism 2 of operator "sum" is not between 1 and the max parallelism 1',
    ),
    "no key groups": (
        lambda env, s: s.key_by(0).sum(1).uid("a").set_max_parallelism(0),
        'max parallelism 0 of operator "sum"',
    ),
    "too many key groups": (
        lambda env, s: s.key_by(0).sum(1).uid("a").set_max_parallelism(32769),
        'max parallelism 32769 of operator "sum"',
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_graph_that_cannot_run_is_refused_with_the_name_of_what_is_wrong(case: str) -> None:
    build, message = REFUSED[case]

    with pytest.raises(JobGraphError, match=message) as refusal:
        planned(build, max_parallelism=8)

    assert refusal.value.hint


def test_a_source_function_that_nobody_reads_is_left_out_unless_it_keeps_state() -> None:
    def build(env: StreamExecutionEnvironment, s: DataStream[Any]) -> None:
        env.add_source(Numbers()).name("unread")
        env.add_source(KeptNumbers()).uid("kept")
        s.print()

    assert names(planned(build)) == [["collection"], ["KeptNumbers", "print"]]


def test_a_sink_without_state_needs_no_uid() -> None:
    plan = planned(lambda env, s: env.add_source(Numbers()).uid("numbers").add_sink(Discard()))

    assert names(plan) == [[], ["Numbers", "Discard"]]
