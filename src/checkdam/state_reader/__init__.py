"""Opens checkpoints and savepoints without a running job: `Savepoint.load(path)`."""

from typing import TYPE_CHECKING

from checkdam.state_reader.content import StateContent
from checkdam.state_reader.descriptions import KeyGroupSize, OperatorDescription, StateDescription
from checkdam.state_reader.keyed_states import KeyedState
from checkdam.state_reader.operator_states import BroadcastState, OperatorListState
from checkdam.state_reader.savepoint_reader import Savepoint
from checkdam.state_reader.timer_states import TimerContent

if TYPE_CHECKING:
    from checkdam.state_reader.spark_source import SparkSession

__all__ = [
    "BroadcastState",
    "KeyGroupSize",
    "KeyedState",
    "OperatorDescription",
    "OperatorListState",
    "Savepoint",
    "StateContent",
    "StateDescription",
    "TimerContent",
    "register",
]


def register(spark: "SparkSession") -> None:
    """Make snapshots readable in a Spark session: `spark.read.format("checkdam").option("uid", …).load(path)`."""
    from checkdam.state_reader.spark_source import register as register_source  # loads Spark only when needed

    register_source(spark)
