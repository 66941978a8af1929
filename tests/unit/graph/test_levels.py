from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.launch import Launch
from checkdam.api.streams import DataStream
from checkdam.config import Configuration
from checkdam.errors import JobGraphError
from checkdam.graph.contexts import RuntimeContext
from checkdam.graph.functions import MapFunction
from checkdam.graph.levels import JobPlan, Partitioning, plan_job

Pair = tuple[str, int]
Build = Callable[[StreamExecutionEnvironment, DataStream[Any]], Any]


class Opened(MapFunction):
    def open(self, ctx: RuntimeContext) -> None: ...

    def map(self, value: Any) -> Any:
        return value


def planned(build: Build, parallelism: int = 2, max_parallelism: int | None = None) -> JobPlan:
    environment = StreamExecutionEnvironment(Launch(Configuration()))
    build(environment, environment.from_collection([("a", 1)]))
    return plan_job("job", environment._operators, parallelism=parallelism, max_parallelism=max_parallelism)


def names(plan: JobPlan) -> list[list[str]]:
    return [[op.name for op in plan.source_side], *([op.name for op in level.operators] for level in plan.levels)]


def kinds(plan: JobPlan) -> list[tuple[int, Partitioning]]:
    return [(edge.level, edge.partitioning) for edge in plan.edges]


def test_plain_functions_behind_a_source_stay_on_the_source_side_and_a_sink_gets_them_rebalanced() -> None:
    plan = planned(lambda env, s: s.map(lambda p: p).filter(lambda p: True).print())

    assert names(plan) == [["collection", "map", "filter"], ["print"]]
    assert kinds(plan) == [(1, Partitioning.ORIGIN)]


def test_a_function_with_a_life_needs_a_slot() -> None:
    plan = planned(lambda env, s: s.map(Opened(), output_type=Pair).print())

    assert names(plan) == [["collection"], ["map", "print"]]


def test_each_key_by_begins_a_level_and_what_follows_without_key_is_chained() -> None:
    def build(env: StreamExecutionEnvironment, s: DataStream[Any]) -> None:
        first = s.key_by(0).sum(1).uid("a").map(lambda p: p)
        first.key_by(1).max(1).uid("b").print()

    plan = planned(build)

    assert names(plan) == [["collection"], ["sum", "map"], ["max", "print"]]
    assert kinds(plan) == [(1, Partitioning.KEYED), (2, Partitioning.KEYED)]


def test_a_union_across_levels_carries_the_early_records_through() -> None:
    def build(env: StreamExecutionEnvironment, s: DataStream[Any]) -> None:
        counted = s.key_by(0).sum(1).uid("a")
        counted.union(s).key_by(0).max(1).uid("b").print()

    plan = planned(build)

    assert names(plan) == [["collection"], ["sum"], ["max", "print"]]
    [carried] = plan.levels[0].carried
    assert (carried.source, carried.level) == (0, 2)
    assert carried in plan.wire(1)
    assert carried in plan.wire(2)
    assert carried not in plan.levels[1].carried


def test_another_parallelism_begins_a_level_of_that_width_and_the_job_has_as_many_slots_as_the_widest() -> None:
    plan = planned(lambda env, s: s.key_by(0).sum(1).uid("a").set_parallelism(3).print().set_parallelism(1))

    assert names(plan) == [["collection"], ["sum"], ["print"]]
    assert [level.parallelism for level in plan.levels] == [3, 1]
    assert kinds(plan) == [(1, Partitioning.KEYED), (2, Partitioning.ORIGIN)]
    assert plan.slots == 3


def test_branches_of_different_width_do_not_share_a_level() -> None:
    def build(env: StreamExecutionEnvironment, s: DataStream[Any]) -> None:
        s.key_by(0).sum(1).uid("a").set_parallelism(2).print().set_parallelism(2)
        s.key_by(0).max(1).uid("b").set_parallelism(3).print().set_parallelism(3)

    plan = planned(build)

    assert [[op.parallelism for op in level.operators] for level in plan.levels] == [[2, 2], [3, 3]]
    assert names(plan) == [["collection"], ["sum", "print"], ["max", "print"]]


def test_what_leads_nowhere_is_left_out() -> None:
    def build(env: StreamExecutionEnvironment, s: DataStream[Any]) -> None:
        s.map(lambda p: p).name("dead")
        env.from_collection([1]).name("unread")
        s.print()

    assert names(planned(build)) == [["collection"], ["print"]]


def test_state_without_a_sink_is_wanted() -> None:
    assert names(planned(lambda env, s: s.key_by(0).sum(1).uid("a"))) == [["collection"], ["sum"]]


REFUSED: dict[str, tuple[Build, str]] = {
    "no sink": (lambda env, s: s.map(lambda p: p), "no sink and keeps no state"),
    "no uid": (lambda env, s: s.key_by(0).sum(1).print(), 'stateful operator "sum" has no uid'),
    "same uid": (
        lambda env, s: s.key_by(0).sum(1).uid("a").key_by(0).max(1).uid("a"),
        'operators "sum" and "max" have the same uid "a"',
    ),
    "two sinks in one place": (
        lambda env, s: (s.sink_to_files("out"), s.map(lambda p: p).sink_to_files("out")),
        "have the same uid",
    ),
    "too wide": (lambda env, s: s.key_by(0).sum(1).uid("a").set_parallelism(9), "parallelism 9 of operator"),
    "no width": (lambda env, s: s.print().set_parallelism(0), 'parallelism 0 of operator "print"'),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_job_that_cannot_run_is_refused_with_the_name_of_what_is_wrong(case: str) -> None:
    build, message = REFUSED[case]

    with pytest.raises(JobGraphError, match=message) as refusal:
        planned(build, max_parallelism=8)

    assert refusal.value.hint


@pytest.mark.parametrize(("parallelism", "max_parallelism"), [(9, 8), (129, None), (0, 8), (1, 32769)])
def test_a_parallelism_outside_its_bounds_is_refused(parallelism: int, max_parallelism: int | None) -> None:
    with pytest.raises(JobGraphError, match="parallelism"):
        planned(lambda env, s: s.print(), parallelism, max_parallelism)


def test_the_plan_for_slots_has_no_source_but_all_edges() -> None:
    plan = planned(lambda env, s: s.map(lambda p: p).key_by(0).sum(1).uid("a").print())

    travelling = plan.for_slots()

    assert [op.name for op in travelling.operators] == ["sum", "print"]
    assert travelling.source_side == ()
    assert travelling.wire(1) == plan.wire(1)
    assert travelling.levels == plan.levels


def test_a_spark_sink_leaves_the_last_level_and_is_carried_there_from_an_earlier_one() -> None:
    def build(env: StreamExecutionEnvironment, s: DataStream[Any]) -> None:
        first = s.key_by(0).sum(1).uid("a")
        first.sink_to_spark(lambda rows, epoch: None)
        first.key_by(0).max(1).uid("b").print()

    plan = planned(build)

    [edge] = plan.spark_sinks
    assert edge.level == 3
    assert edge in plan.levels[1].carried
    assert plan.wire(3) == (edge,)
