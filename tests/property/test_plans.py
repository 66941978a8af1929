"""Whatever the graph looks like, its plan moves every record forward and loses none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.launch import Launch
from checkdam.api.streams import DataStream
from checkdam.config import Configuration
from checkdam.graph.contexts import OutputTag
from checkdam.graph.functions import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    SinkFunction,
    SourceFunction,
)
from checkdam.graph.levels import Edge, JobPlan, Partitioning, plan_job
from checkdam.graph.operators import (
    ConnectKind,
    Operator,
    SideOutputKind,
    SourceFunctionKind,
    TimestampsKind,
)
from checkdam.graph.watermarks import WatermarkStrategy
from checkdam.state.descriptors import MapStateDescriptor

pytestmark = pytest.mark.slow

Pair = tuple[str, int]
RULES = MapStateDescriptor("rules", str, int)


class Plain(ProcessFunction):
    def process_element(self, value: Pair, ctx: Any) -> Iterator[Pair]:
        yield value


class Keyed(KeyedProcessFunction):
    def process_element(self, value: Pair, ctx: Any) -> Iterator[Pair]:
        yield value


class Both(KeyedCoProcessFunction):
    def process_element1(self, value: Pair, ctx: Any) -> Iterator[Pair]:
        yield value


class Rules(BroadcastProcessFunction):
    def process_element(self, value: Pair, ctx: Any) -> Iterator[Pair]:
        yield value


class KeyedRules(KeyedBroadcastProcessFunction):
    def process_element(self, value: Pair, ctx: Any) -> Iterator[Pair]:
        yield value


class Numbers(SourceFunction):
    def run(self, ctx: Any) -> Iterator[Pair]:
        yield "", 1


class Discard(SinkFunction[object]):
    """Takes everything."""


Step = Callable[[StreamExecutionEnvironment, DataStream[Any], DataStream[Any]], DataStream[Any]]
STEPS: dict[str, Step] = {
    "collection": lambda env, one, other: env.from_collection([("a", 1)]),
    "source function": lambda env, one, other: env.add_source(Numbers()),
    "map": lambda env, one, other: one.map(lambda pair: pair),
    "union": lambda env, one, other: one.union(other).filter(lambda pair: True),
    "timestamps": lambda env, one, other: one.assign_timestamps_and_watermarks(WatermarkStrategy(lambda p: p[1])),
    "sum": lambda env, one, other: one.key_by(0).sum(1),
    "process": lambda env, one, other: one.process(Plain()),
    "keyed process": lambda env, one, other: one.key_by(0).process(Keyed()),
    "co-process": lambda env, one, other: one.key_by(0).connect(other.key_by(0)).process(Both()),
    "broadcast": lambda env, one, other: one.connect(other.broadcast(RULES)).process(Rules()),
    "keyed broadcast": lambda env, one, other: one.key_by(0).connect(other.broadcast(RULES)).process(KeyedRules()),
    "side output": lambda env, one, other: one.process(Plain()).get_side_output(OutputTag("late", Pair)),
}


@st.composite
def plans(draw: st.DrawFn) -> JobPlan:
    """A graph of any shape: each step reads what earlier ones made; all that nobody reads ends in a sink."""
    env = StreamExecutionEnvironment(Launch(Configuration()))
    streams = [env.from_collection([("a", 1)])]
    for number in range(draw(st.integers(1, 12))):
        step = draw(st.sampled_from(sorted(STEPS)))
        made = STEPS[step](env, draw(st.sampled_from(streams)), draw(st.sampled_from(streams)))
        streams.append(made)
        if step != "side output":
            made.uid(f"step-{number}")
            width = draw(st.sampled_from([None, None, 1, 3]))
            if width is not None:
                made.set_parallelism(width)
    for stream in streams:
        if draw(st.booleans()) or stream is streams[-1]:
            stream.add_sink(Discard())
        elif draw(st.booleans()):
            stream.sink_to_spark(lambda rows, epoch: None)
    return plan_job("job", env._operators, parallelism=2, max_parallelism=None)


def levels_of(plan: JobPlan) -> dict[int, int]:
    in_slots = {op.id: level.index for level in plan.levels for op in level.operators}
    return {op.id: 0 for op in plan.source_side} | in_slots


def widths_of(plan: JobPlan) -> dict[int, int]:
    return {op.id: op.parallelism or 0 for level in plan.levels for op in level.operators}


def readings(op: Operator) -> list[tuple[int, int]]:
    return [(0, i) for i in op.inputs] + [(1, i) for i in op.second_inputs]


def edges_of(plan: JobPlan, source: int, target: int, side: int) -> list[Edge]:
    return [edge for edge in plan.edges if (edge.source, edge.target, edge.side) == (source, target, side)]


@settings(deadline=None)
@given(plans())
def test_every_reading_is_chained_in_its_level_or_crosses_to_a_later_one(plan: JobPlan) -> None:
    level, width = levels_of(plan), widths_of(plan)

    assert set(level) == {op.id for op in plan.operators}
    for op in plan.operators:
        for side, source in readings(op):
            edges = edges_of(plan, source, op.id, side)
            if level[source] == level[op.id]:
                assert not edges
                assert (op.key, side) == (None, 0) or level[op.id] == 0
                assert level[op.id] == 0 or width[source] == width[op.id]
            else:
                assert len(edges) == readings(op).count((side, source))
                assert all(level[source] < edge.level == level[op.id] for edge in edges)
                assert all(edge.parallelism == width[op.id] for edge in edges)


@settings(deadline=None)
@given(plans())
def test_every_reading_of_a_key_is_by_key_and_every_broadcast_reaches_all_subtasks(plan: JobPlan) -> None:
    for op in plan.operators:
        for side, source in readings(op):
            key = op.second_key if side else op.key
            found = {edge.partitioning for edge in edges_of(plan, source, op.id, side)}
            if key is not None:
                assert found == {Partitioning.KEYED}
            elif side == 1:
                assert isinstance(op.kind, ConnectKind)
                assert op.kind.broadcast
                assert found == {Partitioning.BROADCAST}
            else:
                assert found <= {Partitioning.FORWARD, Partitioning.ORIGIN}


@settings(deadline=None)
@given(plans())
def test_a_level_has_one_width_and_is_never_empty(plan: JobPlan) -> None:
    assert [level.index for level in plan.levels] == list(range(1, len(plan.levels) + 1))
    for level in plan.levels:
        assert len({op.parallelism for op in level.operators}) == 1
        assert level.parallelism >= (level.operators[0].parallelism or 0)
        assert [op.id for op in level.operators] == sorted(op.id for op in level.operators)


@settings(deadline=None)
@given(plans())
def test_side_outputs_run_with_their_operator_and_slots_have_what_needs_them(plan: JobPlan) -> None:
    level = levels_of(plan)

    for op in plan.operators:
        if isinstance(op.kind, SideOutputKind):
            assert level[op.id] == level[op.inputs[0]]
            assert plan.side_outputs_of(op.inputs[0])[op.kind.tag] is op
        if isinstance(op.kind, SourceFunctionKind) or op.needs_slot:
            assert level[op.id] > 0
        if isinstance(op.kind, TimestampsKind) and op.parallelism is None:
            assert level[op.id] == max(level[i] for i in op.inputs)
    assert {op.id for op in plan.for_slots().operators} == {op for op, at in level.items() if at > 0}


@settings(deadline=None)
@given(plans())
def test_an_edge_is_on_every_exchange_between_its_ends_and_on_no_other(plan: JobPlan) -> None:
    level = levels_of(plan)

    for edge in plan.edges:
        on = [at for at in range(1, len(plan.levels) + 2) if edge in plan.wire(at)]
        assert on == list(range(level[edge.source] + 1, edge.level + 1))
        assert [each.index for each in plan.levels if edge in each.carried] == on[:-1]
    assert all(plan.for_slots().wire(each.index) == plan.wire(each.index) for each in plan.levels)


@settings(deadline=None)
@given(plans())
def test_an_operator_has_event_time_exactly_if_an_assignment_is_in_front(plan: JobPlan) -> None:
    by_id = {op.id: op for op in plan.operators}

    def nearest(op: Operator) -> set[int]:
        if isinstance(op.kind, TimestampsKind):
            return {op.id}
        return {assigner for i in op.all_inputs for assigner in nearest(by_id[i])}

    assert {op: set(found) for op, found in plan.assigners.items()} == {
        op.id: nearest(op) for op in plan.operators if nearest(op)
    }
    assert set(plan.strategies) == {op.id for op in plan.operators if isinstance(op.kind, TimestampsKind)}
    assert plan.static_assigners <= set(plan.strategies)
    for edge in plan.edges:
        assert edge.has_timestamps == (edge.target is not None and edge.source in plan.assigners)
