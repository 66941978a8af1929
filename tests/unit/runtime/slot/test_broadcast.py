"""Broadcast state: written by one side, read by the other, the same for all subtasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.runtime.slot.one_operator import OneOperator, restore_point

from checkdam.errors import UserFunctionError
from checkdam.graph.contexts import BroadcastContext, OnTimerContext, ReadOnlyContext, RuntimeContext
from checkdam.graph.functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from checkdam.graph.operators import ConnectKind
from checkdam.state.descriptors import MapStateDescriptor, ValueStateDescriptor
from checkdam.testing import MemoryStorage

RULES = MapStateDescriptor("rules", str, str)
COUNTS = MapStateDescriptor("counts", str, int)
UNKNOWN = MapStateDescriptor("unknown", str, int)


class _Both:
    """What both functions do: "name=text" is a rule, and records tell the rule of their name."""

    def process_broadcast_element(self, value: str, ctx: BroadcastContext) -> Iterator[str]:
        name, _, text = value.partition("=")
        if name == "timer":
            ctx.timer_service.register_event_time_timer(1)
        if name == "key":
            _ = ctx.current_key  # type: ignore[attr-defined]  # must be refused
        ctx.get_broadcast_state(RULES)[name] = text
        counts = ctx.get_broadcast_state(COUNTS)
        counts.put(name, (counts.get(name) or 0) + 1)
        yield f"rule {name}"

    def process_element(self, value: str, ctx: ReadOnlyContext) -> Iterator[str]:
        rules: Any = ctx.get_broadcast_state(RULES)
        misuses: dict[str, Any] = {
            "set": lambda: rules.__setitem__("a", "b"),
            "del": lambda: rules.__delitem__("a"),
            "put": lambda: rules.put("a", "b"),
            "put_all": lambda: rules.put_all({"a": "b"}),
            "remove": lambda: rules.remove("a"),
            "update": lambda: rules.update(a="b"),
            "pop": lambda: rules.pop("a", None),
            "setdefault": lambda: rules.setdefault("a", "b"),
            "clear": lambda: rules.clear(),
            "unknown": lambda: ctx.get_broadcast_state(UNKNOWN),
        }
        misuses.get(value, lambda: None)()
        yield f"{value}: {rules.get(value)} {ctx.get_broadcast_state(COUNTS).get(value)} of {len(rules)}"


class Rules(_Both, BroadcastProcessFunction):
    pass


class KeyedRules(_Both, KeyedBroadcastProcessFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.last = ctx.get_state(ValueStateDescriptor("last", str))

    def process_element(self, value: str, ctx: ReadOnlyContext) -> Iterator[str]:
        yield from super().process_element(value, ctx)
        self.last.update(value)
        ctx.timer_service.register_event_time_timer(10)

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterator[str]:
        rules = ctx.get_broadcast_state(RULES)  # type: ignore[attr-defined]  # more than the contract says
        yield f"{ctx.current_key} {self.last.value()} {dict(rules)}"


FUNCTIONS = pytest.mark.parametrize(("function", "key"), [(Rules(), None), (KeyedRules(), str)])


def connected(function: Any, key: Any, **options: Any) -> OneOperator:
    return OneOperator(ConnectKind(function, (RULES, COUNTS)), key=key, **options)


@FUNCTIONS
def test_one_side_reads_what_the_other_has_written_in_every_state(function: Any, key: Any) -> None:
    it = connected(function, key)

    assert it.give("a=one", "b=two", "a=three", side=1) == ["rule a", "rule b", "rule a"]
    assert it.give("a", "c") == ["a: three 2 of 2", "c: None None of 2"]


@pytest.mark.parametrize("how", ["set", "del", "put", "put_all", "remove", "update", "pop", "setdefault", "clear"])
@FUNCTIONS
def test_writing_where_it_may_only_be_read_names_the_state(function: Any, key: Any, how: str) -> None:
    it = connected(function, key)
    it.give("a=one", side=1)

    with pytest.raises(UserFunctionError, match='StateAccessError: broadcast state "rules" was written where'):
        it.give(how)

    assert it.give("a") == ["a: one 1 of 1"]


@FUNCTIONS
def test_an_unknown_descriptor_names_the_known_ones(function: Any, key: Any) -> None:
    with pytest.raises(UserFunctionError, match=r'no broadcast state "unknown"; .* with "rules", "counts"'):
        connected(function, key).give("unknown")


@FUNCTIONS
def test_the_broadcast_side_has_neither_key_nor_timers(function: Any, key: Any) -> None:
    it = connected(function, key)

    with pytest.raises(UserFunctionError, match="timers in process_broadcast_element"):
        it.give("timer=1", side=1)
    with pytest.raises(UserFunctionError, match="there is no current key here"):
        it.give("key=1", side=1)


def test_a_timer_of_the_keyed_side_sees_state_of_both_kinds() -> None:
    it = connected(KeyedRules(), str)
    it.give("a=one", side=1)
    it.give("a", "b")

    assert it.advance(10) == ["a a {'a': 'one'}", "b b {'a': 'one'}"]


class ReadsKeyedState(KeyedRules):
    def process_broadcast_element(self, value: str, ctx: BroadcastContext) -> Iterator[str]:
        self.last.value()
        yield value


def test_keyed_state_cannot_be_read_on_the_broadcast_side() -> None:
    it = connected(ReadsKeyedState(), str)
    it.give("a")

    with pytest.raises(UserFunctionError, match="outside a keyed context"):
        it.give("a=one", side=1)


@FUNCTIONS
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_every_subtask_restores_a_copy_whatever_the_parallelism(function: Any, key: Any, parallelism: int) -> None:
    storage = MemoryStorage()
    before = [connected(function, key, storage=storage, subtask=i, parallelism=2) for i in range(2)]
    for it in before:
        it.give("a=one", "b=two", side=1)
    point = restore_point(*before)

    after = [
        connected(function, key, storage=storage, restore=point, subtask=i, parallelism=parallelism)
        for i in range(parallelism)
    ]

    assert [it.give("a") for it in after] == [["a: one 1 of 2"]] * parallelism
    after[0].give("c=three", side=1)
    assert after[0].give("c") == ["c: three 1 of 3"]
