"""The pattern: a thief tries a card with a small amount, and then takes a large one."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from transactions import Transaction

from checkdam import (
    BroadcastContext,
    KeyedBroadcastProcessFunction,
    MapStateDescriptor,
    OnTimerContext,
    ReadOnlyContext,
    RuntimeContext,
)


@dataclass(frozen=True)
class Rule:
    """Below `small`, then within so many seconds above `large`: an alert. Within 0 seconds: no such rule any more."""

    name: str
    small: float
    large: float
    within: int


FIRST_RULE = Rule("trial", small=1.0, large=500.0, within=60)


class Trial(NamedTuple):
    """A small transaction after which a large one would be suspicious, until the deadline."""

    number: int
    deadline: int


class Alert(NamedTuple):
    rule: str
    account: str
    small: int
    large: int
    amount: float


RULES = MapStateDescriptor("rules", str, Rule)


class FraudDetector(KeyedBroadcastProcessFunction[str, Transaction, Rule, Alert]):
    """Remembers, for each account and rule, the last trial; an alert uses it up, and a timer forgets it."""

    def open(self, ctx: RuntimeContext) -> None:
        self.trials = ctx.get_map_state(MapStateDescriptor("trials", str, Trial))

    def process_broadcast_element(self, rule: Rule, ctx: BroadcastContext[str]) -> None:
        rules = ctx.get_broadcast_state(RULES)
        if rule.within > 0:
            rules[rule.name] = rule
        else:
            rules.remove(rule.name)

    def process_element(self, transaction: Transaction, ctx: ReadOnlyContext[str]) -> Iterator[Alert]:
        for name, rule in ctx.get_broadcast_state(RULES).items():
            trial = self.trials.get(name)
            if trial and transaction.amount > rule.large and transaction.at < trial.deadline:
                yield Alert(name, transaction.account, trial.number, transaction.number, transaction.amount)
                del self.trials[name]
            if transaction.amount < rule.small:
                deadline = transaction.at + 1000 * rule.within
                self.trials[name] = Trial(transaction.number, deadline)
                ctx.timer_service.register_event_time_timer(deadline)

    def on_timer(self, timestamp: int, ctx: OnTimerContext[str]) -> None:
        for name, trial in list(self.trials.items()):
            if trial.deadline <= timestamp:
                del self.trials[name]
