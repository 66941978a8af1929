"""Operator state: what a CheckpointedFunction keeps, and what each subtask finds again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.runtime.slot.one_operator import OneOperator, restore_point

from checkdam.errors import (
    JobGraphError,
    StateAccessError,
    StateNotRestorableError,
    StateRequestError,
    UserFunctionError,
)
from checkdam.graph.contexts import FunctionInitializationContext, FunctionSnapshotContext, RuntimeContext, SinkContext
from checkdam.graph.functions import CheckpointedFunction, MapFunction, SinkFunction
from checkdam.graph.operators import MapKind, SinkFunctionKind
from checkdam.runtime.slot.context import SnapshotContext
from checkdam.runtime.slot.operator_state import OperatorStates
from checkdam.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from checkdam.state.snapshot_handles import OperatorStatePart, Redistribution
from checkdam.state.ttl import StateTtlConfig
from checkdam.testing import MemoryStorage


class Buffering(SinkFunction, CheckpointedFunction):
    """Keeps all it was given; `how` says in which kind of list."""

    def __init__(self, how: str = "get_list_state", fails: str = "") -> None:
        self.how, self.fails = how, fails
        self.life: list[Any] = []

    def initialize_state(self, ctx: FunctionInitializationContext) -> None:
        self.life.append(("initialize", ctx.is_restored))
        self._fail("initialize_state")
        ask = getattr(ctx.operator_state_store, self.how)
        self.kept = ask(ListStateDescriptor("buffered", tuple[str, int]))
        self.buffered = list(self.kept)

    def open(self, ctx: RuntimeContext) -> None:
        self.life.append("open")
        self._fail("open")

    def invoke(self, value: Any, ctx: SinkContext) -> None:
        self.buffered.append(value)

    def snapshot_state(self, ctx: FunctionSnapshotContext) -> None:
        self.life.append((ctx.checkpoint_id, ctx.checkpoint_timestamp))
        self._fail("snapshot_state")
        self.kept.update(self.buffered)

    def close(self) -> None:
        self.life.append("close")

    def _fail(self, where: str) -> None:
        if where == self.fails:
            raise ValueError(f"no {where} today")


def sink(how: str = "get_list_state", **options: Any) -> OneOperator:
    return OneOperator(SinkFunctionKind(Buffering(how)), tuple[str, int], **options)


def sinks(count: int, how: str, **options: Any) -> list[OneOperator]:
    return [sink(how, subtask=i, parallelism=count, **options) for i in range(count)]


def test_a_function_is_initialised_then_opened_then_asked_for_snapshots_then_closed() -> None:
    it = sink()
    it.snapshot(7)
    it.close()

    assert it.function.life == [("initialize", False), "open", (7, it.now), "close"]


@pytest.mark.parametrize(
    ("how", "parallelism", "expected"),
    [
        ("get_list_state", 2, [[("a", 1), ("b", 2)], [("c", 3)]]),
        ("get_list_state", 1, [[("a", 1), ("b", 2), ("c", 3)]]),
        ("get_list_state", 3, [[("a", 1)], [("b", 2)], [("c", 3)]]),
        ("get_union_list_state", 2, [[("a", 1), ("b", 2), ("c", 3)]] * 2),
        ("get_union_list_state", 3, [[("a", 1), ("b", 2), ("c", 3)]] * 3),
    ],
)
def test_each_subtask_finds_its_share(how: str, parallelism: int, expected: list[Any]) -> None:
    storage = MemoryStorage()
    before = sinks(2, how, storage=storage)
    before[0].give(("a", 1), ("b", 2))
    before[1].give(("c", 3))

    after = sinks(parallelism, how, storage=storage, restore=restore_point(*before))

    assert [it.function.buffered for it in after] == expected
    assert all(it.function.life[0] == ("initialize", True) for it in after)


def test_a_snapshot_holds_what_was_there_when_it_was_cut() -> None:
    it = sink()
    it.give(("a", 1))
    parts = it.opened.snapshot_state(SnapshotContext(1, 0))
    it.give(("b", 2))

    assert [len(part.elements) for part in parts] == [1]


@pytest.mark.parametrize("where", ["initialize_state", "open", "snapshot_state"])
def test_a_failure_names_operator_and_method(where: str) -> None:
    with pytest.raises(
        UserFunctionError, match=rf'operator "the-operator" \(it\) failed in {where}: .*no {where} today'
    ):
        OneOperator(SinkFunctionKind(Buffering(fails=where)), tuple[str, int]).snapshot()


def test_an_element_of_another_type_is_refused_where_it_is_added() -> None:
    it = sink()
    it.function.buffered.append(("a", "not a number"))

    with pytest.raises(
        StateAccessError,
        match=r'in snapshot_state\(\): an element for list state "buffered" of operator "the-operator" must be of type '
        r"tuple\[str, int\], but was .*not a number",
    ):
        it.snapshot()


@pytest.mark.parametrize("write", ["add", "add_all", "update"])
def test_no_way_to_write_a_list_takes_an_element_of_another_type(write: str) -> None:
    state = OperatorStates("it", {}, is_first_subtask=True).get_list_state(ListStateDescriptor("numbers", int))
    state.add(1)

    with pytest.raises(StateAccessError, match=r'"numbers" of operator "it" must be of type int, but was True'):
        getattr(state, write)(True if write == "add" else [2, True])

    assert state.get() == [1]


def test_broadcast_state_takes_no_value_of_another_type() -> None:
    store = OperatorStates("it", {}, is_first_subtask=True)
    state = store.get_broadcast_state(MapStateDescriptor("rules", str, tuple[int, int]))
    state["a"] = (1, 2)

    with pytest.raises(StateAccessError, match=r'"rules" of operator "it" must be of type tuple\[int, int\], but was'):
        state["a"] = (1, "2")
    with pytest.raises(StateAccessError, match=r'a key of broadcast state "rules"'):
        state["\ud800"] = (1, 2)

    assert dict(state) == {"a": (1, 2)}


def test_an_element_that_was_changed_in_place_is_found_by_the_snapshot() -> None:
    store = OperatorStates("it", {}, is_first_subtask=True)
    element = [1]
    store.get_list_state(ListStateDescriptor("lists", list[int])).add(element)
    element[0] = "text"  # type: ignore[call-overload]

    with pytest.raises(JobGraphError, match=r'operator state "lists" of operator "it": value \[.text.\] does not fit'):
        store.snapshot()


class Stateful(MapFunction, CheckpointedFunction):
    def initialize_state(self, ctx: FunctionInitializationContext) -> None:
        self.count = ctx.keyed_state_store.get_state(ValueStateDescriptor("count", int))

    def snapshot_state(self, ctx: FunctionSnapshotContext) -> None:
        pass

    def map(self, value: str) -> int:
        self.count.update((self.count.value() or 0) + 1)
        return self.count.value() or 0


def test_keyed_state_may_be_asked_for_while_initialising() -> None:
    assert OneOperator(MapKind(Stateful()), key=str).give("a", "b", "a") == [1, 1, 2]
    with pytest.raises(JobGraphError, match="without keys"):
        OneOperator(MapKind(Stateful()))


NUMBERS = ListStateDescriptor("numbers", int)
NAMES = MapStateDescriptor("names", str, int)


def states(restored: Iterable[OperatorStatePart] = (), *, is_first_subtask: bool = True) -> OperatorStates:
    by_name = {(part.name, part.redistribution): part for part in restored}
    return OperatorStates("it", by_name, is_first_subtask=is_first_subtask)


def test_a_list_is_a_list() -> None:
    numbers = states().get_list_state(NUMBERS)
    numbers.add(1)
    numbers.add_all([2, 3])
    got = numbers.get()
    got.append(99)

    assert list(numbers) == numbers.get() == [1, 2, 3]
    numbers.update([4])
    assert numbers.get() == [4]
    numbers.clear()
    assert numbers.get() == []


def test_none_is_no_element_and_a_refused_call_changes_nothing() -> None:
    numbers = states().get_list_state(NUMBERS)
    numbers.add(1)

    for method, argument in (("add", None), ("add_all", [2, None]), ("update", [None])):
        with pytest.raises(StateAccessError, match='list state "numbers"'):
            getattr(numbers, method)(argument)

    assert numbers.get() == [1]


def test_a_broadcast_state_is_a_mapping_without_none() -> None:
    names = states().get_broadcast_state(NAMES)
    names.put_all({"a": 1, "b": 2})
    for name in names:  # may change while it is read
        names.remove(name)
    assert names.is_empty()

    with pytest.raises(StateAccessError, match='broadcast state "names" of operator "it" was None'):
        names["a"] = None


@pytest.mark.parametrize("ask", ["get_list_state", "get_union_list_state", "get_broadcast_state"])
def test_asking_again_for_a_name_returns_the_same_state_with_what_was_restored(ask: str) -> None:
    descriptor = NAMES if ask == "get_broadcast_state" else NUMBERS
    it = states(saved(ask, descriptor, lambda s: s.put("a", 1) if descriptor is NAMES else s.add(1)))
    first = getattr(it, ask)(descriptor)

    again = getattr(it, ask)(replace(descriptor))

    assert again is first
    assert list(again) == (["a"] if descriptor is NAMES else [1])
    assert len(it.snapshot()) == 1


@pytest.mark.parametrize(
    ("ask", "descriptor", "told"),
    [
        ("get_union_list_state", NUMBERS, "as list state of int and then as union list state of int"),
        ("get_list_state", ListStateDescriptor("numbers", str), "as list state of int and then as list state of str"),
        ("get_broadcast_state", MapStateDescriptor("numbers", str, int), "and then as broadcast state of "),
    ],
)
def test_asking_again_with_another_kind_or_type_is_an_error(ask: str, descriptor: Any, told: str) -> None:
    it = states()
    it.get_list_state(NUMBERS)

    with pytest.raises(StateRequestError, match=f'"it" asks for operator state "numbers" .*{told}'):
        getattr(it, ask)(descriptor)


@pytest.mark.parametrize(
    ("ask", "descriptor", "given"),
    [
        ("get_list_state", NAMES, 'state "names" with a MapStateDescriptor, which takes a ListStateDescriptor'),
        ("get_union_list_state", ValueStateDescriptor("v", int), 'state "v" with a ValueStateDescriptor'),
        ("get_broadcast_state", NUMBERS, 'state "numbers" with a ListStateDescriptor, which takes a Map'),
        ("get_list_state", "numbers", "state with a str"),
    ],
)
def test_the_descriptor_of_another_kind_is_refused(ask: str, descriptor: Any, given: str) -> None:
    with pytest.raises(StateRequestError, match=rf'operator "it" calls {ask}\(\) for operator {given}'):
        getattr(states(), ask)(descriptor)


def test_a_declared_broadcast_state_may_be_asked_for_again() -> None:
    it = states()
    declared = it.declare_broadcast(NAMES)

    assert it.get_broadcast_state(NAMES) is declared
    with pytest.raises(StateRequestError, match='asks for operator state "names"'):
        it.get_list_state(ListStateDescriptor("names", int))
    with pytest.raises(StateRequestError, match='asks for operator state "names"'):
        it.get_broadcast_state(MapStateDescriptor("names", str, str))


def test_operator_state_has_no_time_to_live() -> None:
    with pytest.raises(JobGraphError, match="only keyed state can have"):
        states().get_list_state(ListStateDescriptor("old", int, ttl=StateTtlConfig(timedelta(1))))


def saved(ask: str, descriptor: Any, fill: Any) -> tuple[OperatorStatePart, ...]:
    it = states()
    fill(getattr(it, ask)(descriptor))
    return it.snapshot()


def test_state_that_nobody_asks_for_is_carried_on_and_a_union_only_once() -> None:
    parts = [
        *saved("get_list_state", ListStateDescriptor("split", int), lambda s: s.add(1)),
        *saved("get_union_list_state", ListStateDescriptor("union", int), lambda s: s.add(2)),
        *saved("get_broadcast_state", NAMES, lambda s: s.put("a", 3)),
    ]

    assert set(states(parts).snapshot()) == set(parts)
    assert set(states(parts, is_first_subtask=False).snapshot()) == {parts[0], parts[2]}


def test_state_asked_for_in_another_way_is_refused() -> None:
    parts = saved("get_union_list_state", NUMBERS, lambda s: s.add(2))

    with pytest.raises(StateNotRestorableError, match=r'"numbers" .* was a union list state .* and is a list state'):
        states(parts).get_list_state(NUMBERS)


@dataclass
class Old:
    name: str
    size: int


@dataclass
class New:
    name: str
    color: str = "red"


def test_elements_migrate_with_their_type() -> None:
    listed = saved("get_list_state", ListStateDescriptor("things", Old), lambda s: s.add(Old("box", 1)))
    mapped = saved("get_broadcast_state", MapStateDescriptor("by name", str, Old), lambda s: s.put("a", Old("x", 2)))

    it = states([*listed, *mapped])

    assert it.get_list_state(ListStateDescriptor("things", New)).get() == [New("box")]
    assert dict(it.get_broadcast_state(MapStateDescriptor("by name", str, New))) == {"a": New("x")}


def test_an_incompatible_type_is_refused_by_name() -> None:
    parts = saved("get_list_state", NUMBERS, lambda s: s.add(2))

    with pytest.raises(StateNotRestorableError, match=r'"numbers" of operator "it" does not fit its new type: .*str'):
        states(parts).get_list_state(ListStateDescriptor("numbers", str))


def test_the_redistribution_is_part_of_what_is_kept() -> None:
    it = states()
    it.get_list_state(ListStateDescriptor("a", int))
    it.get_union_list_state(ListStateDescriptor("b", int))
    it.get_broadcast_state(NAMES)

    kept = {part.name: part.redistribution for part in it.snapshot()}

    assert kept == {"a": Redistribution.SPLIT, "b": Redistribution.UNION, "names": Redistribution.BROADCAST}


@pytest.mark.parametrize(
    "ask",
    [
        lambda states: states.get_list_state(ListStateDescriptor("x", set[int])),
        lambda states: states.get_union_list_state(ListStateDescriptor("x", object)),
        lambda states: states.get_broadcast_state(MapStateDescriptor("x", str, set[int])),
    ],
)
def test_a_type_without_a_durable_form_names_state_and_operator(ask: Any) -> None:
    with pytest.raises(JobGraphError, match=r'operator state "x" of operator "it": .* has no durable form'):
        ask(states())


@pytest.mark.parametrize("wrong", [1, True, None, b"a"])
def test_a_key_of_another_type_is_refused_by_broadcast_state_at_every_access(wrong: Any) -> None:
    rules = states().get_broadcast_state(MapStateDescriptor("rules", str, int))
    rules["a"] = 1
    for access in (
        lambda: rules[wrong],
        lambda: rules.get(wrong),
        lambda: wrong in rules,
        lambda: rules.put(wrong, 1),
        lambda: rules.remove(wrong),
        lambda: rules.pop(wrong, None),
    ):
        with pytest.raises(StateAccessError, match='a key of broadcast state "rules" of operator "it" must be of type'):
            access()
    assert dict(rules) == {"a": 1}


def test_broadcast_state_needs_keys_that_can_be_looked_up_by() -> None:
    with pytest.raises(JobGraphError, match='broadcast state "rules" of operator "it" has keys of type list'):
        states().get_broadcast_state(MapStateDescriptor("rules", list[int], int))


@dataclass
class Picky:
    name: str
    color: str = "red"

    def __post_init__(self) -> None:
        raise LookupError("not this one")


def test_an_element_that_its_new_class_rejects_names_state_and_operator() -> None:
    parts = saved("get_list_state", ListStateDescriptor("x", Old), lambda state: state.add(Old("box", 1)))

    with pytest.raises(
        StateNotRestorableError, match=r'operator state "x" of operator "it".*LookupError: not this one'
    ):
        states(parts).get_list_state(ListStateDescriptor("x", Picky))
