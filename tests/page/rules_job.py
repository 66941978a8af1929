"""A job with rules in broadcast state, lists of an operator and timers, and names too long for a node of the graph."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from checkdam import DataStream, StreamExecutionEnvironment
from checkdam.graph.contexts import (
    BroadcastContext,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    OnTimerContext,
    ReadOnlyContext,
    RuntimeContext,
)
from checkdam.graph.functions import CheckpointedFunction, FlatMapFunction, KeyedBroadcastProcessFunction
from checkdam.graph.watermarks import WatermarkStrategy
from checkdam.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor

Payment = tuple[str, int, int]
"""Who pays, how much, and when; by "rule" and a number: a rule for that amount."""

UID = "match-payments-against-all-rules-in-force"
NOW = time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Rule:
    above: int
    because: str
    countries: list[str]


RULES = MapStateDescriptor("rules", str, Rule)


class Recent(FlatMapFunction, CheckpointedFunction):
    """Keeps the payments since the start in list state."""

    def initialize_state(self, ctx: FunctionInitializationContext) -> None:
        self.kept = ctx.operator_state_store.get_list_state(ListStateDescriptor("recent payments", Payment))

    def flat_map(self, value: Payment) -> Iterator[Payment]:
        self.kept.add(value)
        yield value

    def snapshot_state(self, ctx: FunctionSnapshotContext) -> None:
        pass


class Match(KeyedBroadcastProcessFunction[str, Payment, Payment, str]):
    def open(self, ctx: RuntimeContext) -> None:
        self.paid = ctx.get_state(ValueStateDescriptor("paid", int, default=0))

    def process_broadcast_element(self, value: Payment, ctx: BroadcastContext[str]) -> None:
        reason = (
            f"payments above {value[1]} are looked at by a person before they are let through, whatever they are for"
        )
        ctx.get_broadcast_state(RULES)[f"above {value[1]}"] = Rule(value[1], reason, ["AT", "CH", "DE", "FR", "IT"])

    def process_element(self, value: Payment, ctx: ReadOnlyContext[str]) -> Iterator[str]:
        self.paid.update(self.paid.value() + value[1])
        ctx.timer_service.register_event_time_timer(value[2] + 3_600_000)
        yield f"{value[0]} {self.paid.value()}"

    def on_timer(self, timestamp: int, ctx: OnTimerContext[str]) -> None:
        pass


def payments() -> list[list[Payment]]:
    """Return three epochs: two rules at first, a third in the second epoch, and some hundred customers who pay."""
    rules: list[list[Payment]] = [[("rule", 100, NOW), ("rule", 250, NOW)], [("rule", 1000, NOW)], []]
    return [
        [*some, *((f"customer {number:03}", number, NOW + number * 1_000) for number in range(120))] for some in rules
    ]


def match_payments(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
    timed = stream.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps(lambda payment: payment[2])
    )
    recent = timed.flat_map(Recent(), output_type=Payment).uid("recent").name("remember all payments since the start")
    rules = recent.filter(lambda payment: payment[0] == "rule").broadcast(RULES)
    keyed = recent.filter(lambda payment: payment[0] != "rule").key_by(0, key_type=str)
    keyed.connect(rules).process(Match(), output_type=str).uid(UID).print().uid("told")
