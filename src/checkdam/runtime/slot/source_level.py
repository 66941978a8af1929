"""The plain functions downstream of a source, run by Spark: no state, no timers, created for each epoch."""

from __future__ import annotations

from collections.abc import Mapping

from checkdam.graph.levels import Edge
from checkdam.graph.operators import Operator
from checkdam.runtime.exchange_rows import Wire
from checkdam.runtime.slot.context import FunctionContext
from checkdam.runtime.slot.event_time import SeenTimestamps
from checkdam.runtime.slot.level import RunningLevel, RunningOperator
from checkdam.runtime.slot.operator_processes import OperatorSetting, make_process
from checkdam.runtime.slot.process import Process


def source_level(operators: Mapping[int, Operator], edges: tuple[Edge, ...], wire: Wire, behind: int) -> RunningLevel:
    """Return level 0 for one task and epoch; `behind` is the number of partitions of the first exchange.

    A source among the operators only counts: the records that Spark has read for it are passed to `bring`.
    """
    seen = SeenTimestamps()
    around = OperatorSetting(observe=seen.observe)
    processes = {
        op.id: Process() if op.is_source else make_process(op, context=FunctionContext(op.name, 0, 1), around=around)
        for op in operators.values()
    }
    return RunningLevel(
        operators={op_id: RunningOperator(op, processes[op_id]) for op_id, op in operators.items()},
        outputs=edges,
        wire_in=None,
        wire_out=wire,
        event_time=seen,
        behind=behind,
    )
