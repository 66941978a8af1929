"""Broadcast streams and side outputs in whole jobs: the real runtime in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.graph.contexts import OutputTag
from checkdam.graph.functions import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    ProcessFunction,
)
from checkdam.graph.watermarks import WatermarkStrategy
from checkdam.state.descriptors import MapStateDescriptor
from checkdam.testing import MemoryStorage
from checkdam.testing.local_job import Heard, LocalJob
from checkdam.testing.scripted_source import ScriptedSource
from checkdam.testing.trouble import Step, Trouble, kill_slot
from checkdam.types.type_info import type_info

Item = tuple[str, int]

RULES = MapStateDescriptor("rules", str, int)


class Match(KeyedBroadcastProcessFunction):
    """Gives each item with the sum of all rules there are."""

    def process_broadcast_element(self, value: Item, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES)[value[0]] = value[1]

    def process_element(self, value: Item, ctx: Any) -> Iterator[Item]:
        yield value[0], sum(ctx.get_broadcast_state(RULES).values())


class MatchUnkeyed(BroadcastProcessFunction):
    process_broadcast_element = Match.process_broadcast_element
    process_element = Match.process_element


def script(environment: StreamExecutionEnvironment, *epochs: list[Item]) -> DataStream[Any]:
    spec = ScriptedSource(tuple(tuple(epoch) for epoch in epochs))
    return environment._source("rules", spec, type_info(tuple[str, int]))


def job(
    build: Callable[[StreamExecutionEnvironment, DataStream[Any]], Any], *epochs: list[Item], **options: Any
) -> LocalJob:
    return LocalJob(build, epochs, options.pop("storage", MemoryStorage()), record_type=tuple[str, int], **options)


def shown(heard: Heard) -> list[str]:
    return sorted(line.rpartition("> ")[2] for line in heard.printed_lines)


KEYS = "abcdefgh"


@pytest.mark.parametrize("is_keyed", [True, False])
@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_within_an_epoch_every_subtask_sees_all_rules_before_any_item(parallelism: int, *, is_keyed: bool) -> None:
    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        rules = script(environment, [("x", 1), ("y", 2)], [("x", 10)]).broadcast(RULES)
        items: Any = stream.key_by(0, key_type=str) if is_keyed else stream
        function = Match() if is_keyed else MatchUnkeyed()
        items.connect(rules).process(function, output_type=tuple[str, int]).uid("match").print()

    epochs = [[(key, 0) for key in KEYS], [(key, 0) for key in KEYS]]
    heard = job(build, *epochs, parallelism=parallelism).run()

    assert shown(heard) == sorted([f"('{key}', 3)" for key in KEYS] + [f"('{key}', 12)" for key in KEYS])


def test_rules_that_are_made_behind_an_exchange_reach_every_subtask_in_the_same_epoch() -> None:
    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        counted = script(environment, [("x", 1), ("x", 2), ("y", 4)]).key_by(0, key_type=str).sum(1).uid("sum")
        counted = counted.filter(lambda rule: rule[1] != 1)
        items = stream.key_by(0, key_type=str)
        items.connect(counted.broadcast(RULES)).process(Match(), output_type=tuple[str, int]).uid("match").print()

    heard = job(build, [(key, 0) for key in KEYS], parallelism=3).run()

    assert shown(heard) == [f"('{key}', 7)" for key in KEYS]


def test_rules_that_pass_a_level_of_another_width_are_copied_once_for_each_subtask_behind_it() -> None:
    """The rules come from a source, their readers stand behind two exchanges."""

    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        rules = script(environment, [("x", 1), ("y", 2)]).broadcast(RULES)
        counted = stream.key_by(0, key_type=str).sum(1).uid("sum").set_parallelism(1)
        matched = counted.key_by(0, key_type=str).connect(rules).process(Match(), output_type=tuple[str, int])
        matched.uid("match").set_parallelism(4).print()

    heard = job(build, [(key, 0) for key in KEYS], parallelism=2).run()

    assert shown(heard) == [f"('{key}', 3)" for key in KEYS]


@pytest.mark.parametrize("step", [Step.BEFORE_LEVEL, Step.EPOCH_DONE, Step.BEFORE_WRITING])
def test_broadcast_state_and_items_survive_a_lost_slot(step: Step) -> None:
    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        rules = script(environment, [("x", 1)], [("x", 10)]).broadcast(RULES)
        items = stream.key_by(0, key_type=str)
        matched = items.connect(rules).process(Match(), output_type=tuple[str, int]).uid("match")
        matched.key_by(0, key_type=str).sum(1).uid("sum").print()

    kill = Trouble(step, kill_slot(1), number=2)
    running = job(build, *[[(key, 0) for key in KEYS]] * 3, troubles=[kill])
    running.run()

    assert kill.happened.is_set()
    assert running.state("sum") == {key: (key, 21) for key in KEYS}


def test_side_outputs_go_their_own_way_beside_the_main_one() -> None:
    odd = OutputTag("odd", tuple[str, int])

    class Split(ProcessFunction):
        def process_element(self, value: Item, ctx: Any) -> Iterator[Item]:
            if value[1] % 2:
                ctx.output(odd, value)
            else:
                yield value

    def build(_: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        main = stream.process(Split(), output_type=tuple[str, int])
        main.map(lambda item: f"even {item[1]}", output_type=str).print()
        aside = main.get_side_output(odd)
        aside.key_by(0, key_type=str).sum(1).uid("sum").map(lambda item: f"odd {item[1]}", output_type=str).print()

    heard = job(build, [("a", 1), ("a", 2), ("a", 3)], [("a", 4), ("a", 5)]).run()

    assert shown(heard) == ["even 2", "even 4", "odd 1", "odd 4", "odd 9"]


def test_each_side_of_two_keyed_streams_is_told_apart_and_keeps_its_timestamps() -> None:
    class Both(KeyedCoProcessFunction):
        def process_element1(self, value: Item, ctx: Any) -> Iterator[str]:
            yield f"one {value} {ctx.timestamp}"

        def process_element2(self, value: Item, ctx: Any) -> Iterator[str]:
            yield f"two {value} {ctx.timestamp}"

    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        by_time = WatermarkStrategy.for_monotonous_timestamps(lambda item: item[1])
        first = stream.assign_timestamps_and_watermarks(by_time).key_by(lambda item: item[0], key_type=str)
        second = script(environment, [("a", 7)]).key_by(0, key_type=str)
        first.connect(second).process(Both(), output_type=str).uid("both").print()

    heard = job(build, [("a", 1), ("b", 2)]).run()

    assert shown(heard) == ["one ('a', 1) 1", "one ('b', 2) 2", "two ('a', 7) None"]
