"""Counts of Python work on the source side, sent to the driver by a Spark accumulator."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark import SparkContext
from pyspark.accumulators import Accumulator, AccumulatorParam

from checkdam.runtime.slot.level import RunningLevel
from checkdam.runtime.slot.messages import OperatorCounts

Totals = dict[tuple[int, int], OperatorCounts]  # by operator and subtask


class _Sum(AccumulatorParam[Totals]):  # type: ignore[misc]  # pyspark's types are not followed
    """Adds counts by operator and subtask."""

    def zero(self, value: Totals) -> Totals:
        return {}

    def addInPlace(self, value1: Totals, value2: Totals) -> Totals:  # noqa: N802  Spark's names
        for of, more in value2.items():
            value1[of] = _added(value1.get(of, OperatorCounts()), more)
        return value1


class SourceCounting:
    """The counts of one job. Spark adds those of a task when it has succeeded, and before the epoch's job returns.

    So they are exact unless Spark runs a task of the source side twice to the end, to replace lost shuffle files.
    """

    def __init__(self, context: SparkContext) -> None:
        self.accumulator: Accumulator[Totals] = context.accumulator({}, _Sum())

    def take(self) -> Mapping[tuple[int, int], OperatorCounts]:
        """Return the counts since the last call, by operator and subtask. Called on the driver, between epochs."""
        taken: Totals = self.accumulator.value
        self.accumulator.value = {}
        return taken


def tell(accumulator: Accumulator[Totals], level: RunningLevel, subtask: int) -> None:
    """Report the counts of a task's operators. Called in the task, after its last record."""
    accumulator.add({(operator, subtask): running.take_counts() for operator, running in level.operators.items()})


def _added(a: OperatorCounts, b: OperatorCounts) -> OperatorCounts:
    return OperatorCounts(
        a.records_in + b.records_in,
        a.records_out + b.records_out,
        a.bytes_in + b.bytes_in,
        a.bytes_out + b.bytes_out,
        a.busy_seconds + b.busy_seconds,
    )
