"""Alerts about suspicious transactions: see README.md. `checkdam run examples/fraud_detection/job.py -- DIRECTORY`.

Below the directory: rules/ with one JSON file per changed rule, alerts/, checkpoints/.
"""

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from detector import FIRST_RULE, RULES, FraudDetector, Rule
from transactions import TransactionSource

from checkdam import CheckpointConfig, CheckpointRetention, StreamExecutionEnvironment, WatermarkStrategy

PER_SECOND = 1000

if len(sys.argv) != 2:
    sys.exit("usage: checkdam run examples/fraud_detection/job.py -- DIRECTORY")
directory = Path(sys.argv[1])
(directory / "rules").mkdir(parents=True, exist_ok=True)


class ChangedRule(NamedTuple):
    """A row of a changed rule. What is no JSON, or lacks a field, arrives as None."""

    name: str | None
    small: float | None
    large: float | None
    within: int | None


def rules_of(row: ChangedRule) -> Iterator[Rule]:
    """The rule of a complete row."""
    if row.name is not None and row.small is not None and row.large is not None and row.within is not None:
        yield Rule(row.name, row.small, row.large, row.within)


env = StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(
    CheckpointConfig(
        interval=timedelta(seconds=2),
        retention=CheckpointRetention.RETAIN_ON_CANCELLATION,
        storage=str(directory / "checkpoints"),
    )
)

changes = env.read_stream(
    "json", schema="name string, small double, large double, within int", path=directory / "rules"
)
rules = env.from_collection([FIRST_RULE]).union(changes.flat_map(rules_of))

(
    env.add_source(TransactionSource(PER_SECOND))
    .uid("transactions")
    .set_parallelism(1)  # one history, in the order of time
    .assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps(lambda transaction: transaction.at))
    .key_by(lambda transaction: transaction.account)
    .connect(rules.broadcast(RULES))
    .process(FraudDetector())
    .uid("fraud-detector")
    .sink_to_files(str(directory / "alerts"))
    .uid("alerts")
)
env.execute("FraudDetection")
