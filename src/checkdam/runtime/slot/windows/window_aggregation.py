"""Chooses how a window operator runs: record by record, or aggregated by epoch where that gives the same results."""

from __future__ import annotations

from checkdam.backends.contract import KeyedStateStore
from checkdam.backends.keyed_state import OperatorKeyedState
from checkdam.graph.functions import AggregateFunction
from checkdam.graph.operators import Operator, WindowKind
from checkdam.graph.windowing.assigners import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from checkdam.graph.windowing.triggers import EventTimeTrigger
from checkdam.graph.windowing.window_contents import Aggregated, FieldAggregated, Reduced
from checkdam.runtime.slot.context import OperatorTime
from checkdam.runtime.slot.process import Process
from checkdam.runtime.slot.side_outputs import SideOutputs
from checkdam.runtime.slot.windows.fixed_window_aggregation import FixedWindowAggregation, PaneAggregation
from checkdam.runtime.slot.windows.session_aggregation import SessionAggregation
from checkdam.runtime.slot.windows.window_process import WindowProcess
from checkdam.types.type_info import Kind


def window_process(
    operator: Operator,
    store: KeyedStateStore,
    time: OperatorTime,
    states: OperatorKeyedState,
    *,
    outputs: SideOutputs,
    is_stamped: bool,
) -> Process:
    """Return the process of a window operator: the one that aggregates by epoch where that is possible."""
    kind = operator.kind
    assert isinstance(kind, WindowKind)
    made: type[WindowProcess] = WindowProcess
    if is_aggregable(kind):
        if type(kind.assigner) is EventTimeSessionWindows:
            made = SessionAggregation
        else:
            made = PaneAggregation if has_panes(kind) else FixedWindowAggregation
    return made(operator, store, time, states, outputs=outputs, is_stamped=is_stamped)


def is_aggregable(kind: WindowKind) -> bool:
    """Return whether records only have to be combined by window until the watermark passes its end.

    Overlapping windows must not share records that a function may change.
    """
    return (
        type(kind.assigner) in (TumblingEventTimeWindows, SlidingEventTimeWindows, EventTimeSessionWindows)
        and type(kind.trigger) is EventTimeTrigger
        and kind.evictor is None
        and isinstance(kind.contents, Reduced | FieldAggregated | Aggregated)
        and (kind.contents.record.is_immutable or type(kind.assigner) is not SlidingEventTimeWindows)
    )


def has_panes(kind: WindowKind) -> bool:
    """Return whether overlapping windows can share what records in the same part of them were combined to.

    Combining in another order than that of arrival must not change the result, and what is shared must be immutable.
    """
    if type(kind.assigner) is not SlidingEventTimeWindows or kind.assigner.slide >= kind.assigner.size:
        return False
    contents = kind.contents
    if isinstance(contents, Aggregated):
        return contents.accumulator.is_immutable and type(contents.function).merge is not AggregateFunction.merge
    if isinstance(contents, FieldAggregated) and contents.record.is_immutable:
        of = contents.record if contents.field is None else contents.record.field_type(contents.field)
        return of.kind in (Kind.INT, Kind.DECIMAL)
    return False
