"""Card payments that nobody made: the same ones in every run."""

import random
import time
from collections.abc import Iterator
from itertools import count, islice
from typing import NamedTuple

from checkdam import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    ListStateDescriptor,
    SourceContext,
    SourceFunction,
)

BEGIN = 1_767_225_600_000  # 2026-01-01, in milliseconds since 1970
ACCOUNTS = 20


class Transaction(NamedTuple):
    number: int
    account: str
    at: int
    """Milliseconds since 1970."""
    amount: float


def transactions(seed: int = 7) -> Iterator[Transaction]:
    """Without end, a second apart on average; one in ten is small, one in ten large."""
    chance, at = random.Random(seed), BEGIN
    for number in count():
        at += chance.randrange(2000)
        size = chance.random()
        low, high = (0.01, 1.0) if size < 0.1 else (300.0, 900.0) if size > 0.9 else (1.0, 300.0)
        yield Transaction(number, f"account-{chance.randrange(ACCOUNTS):02d}", at, round(chance.uniform(low, high), 2))


class TransactionSource(SourceFunction[Transaction], CheckpointedFunction):
    """Plays the transactions at some speed. As they are always the same, its state is how many it has given."""

    def __init__(self, per_second: float) -> None:
        self.pause = 1 / per_second
        self.given = 0

    def initialize_state(self, ctx: FunctionInitializationContext) -> None:
        self.checkpointed = ctx.operator_state_store.get_list_state(ListStateDescriptor("given", int))
        self.given = sum(self.checkpointed)

    def run(self, ctx: SourceContext) -> Iterator[Transaction]:
        for transaction in islice(transactions(), self.given, None):
            self.given += 1
            yield transaction
            time.sleep(self.pause)

    def snapshot_state(self, ctx: FunctionSnapshotContext) -> None:
        self.checkpointed.update([self.given])
