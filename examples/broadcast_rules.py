"""Pairs of shapes of one colour, found by rules that every subtask has: `checkdam run examples/broadcast_rules.py`.

Prints, in any order,

    stack: red triangle, red square
    stack: red circle, red square
    roll: blue square, blue circle
"""

from collections.abc import Iterator
from dataclasses import dataclass

from checkdam import (
    BroadcastContext,
    KeyedBroadcastProcessFunction,
    MapStateDescriptor,
    ReadOnlyContext,
    RuntimeContext,
    StreamExecutionEnvironment,
)


@dataclass(frozen=True)
class Item:
    color: str
    shape: str


@dataclass(frozen=True)
class Rule:
    """Matches when an item of one of the first shapes is followed by one of the second shape and the same colour."""

    name: str
    first: list[str]
    second: str


RULES = MapStateDescriptor("RulesBroadcastState", str, Rule)


class MatchRules(KeyedBroadcastProcessFunction[str, Item, Rule, str]):
    """Keeps, for each colour and rule, the items that may begin a match."""

    def open(self, ctx: RuntimeContext) -> None:
        self.waiting = ctx.get_map_state(MapStateDescriptor("items", str, list[Item]))

    def process_broadcast_element(self, rule: Rule, ctx: BroadcastContext[str]) -> None:
        ctx.get_broadcast_state(RULES)[rule.name] = rule

    def process_element(self, item: Item, ctx: ReadOnlyContext[str]) -> Iterator[str]:
        for name, rule in ctx.get_broadcast_state(RULES).items():  # read-only on this side
            if item.shape == rule.second:
                for first in self.waiting.pop(name, []):
                    yield f"{name}: {first.color} {first.shape}, {item.color} {item.shape}"
            if item.shape in rule.first:
                self.waiting[name] = [*self.waiting.get(name, []), item]


env = StreamExecutionEnvironment.get_execution_environment()
items = env.from_collection(
    [
        Item("red", "triangle"),
        Item("blue", "square"),
        Item("red", "circle"),
        Item("green", "circle"),
        Item("blue", "circle"),
        Item("red", "square"),
        Item("red", "square"),
    ]
)
rules = env.from_collection([Rule("stack", ["triangle", "circle"], "square"), Rule("roll", ["square"], "circle")])
matches = items.key_by(lambda item: item.color).connect(rules.broadcast(RULES)).process(MatchRules()).uid("match")
matches.print()
env.execute("BroadcastRules")
