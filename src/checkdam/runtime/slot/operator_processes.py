"""Turns an operator of the plan into its process: chooses the process, and provides its function's contexts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from checkdam.backends.contract import NO_KEY, KeyedStateStore
from checkdam.backends.keyed_state import OperatorKeyedState
from checkdam.clock import Clock, SystemClock
from checkdam.connectors.contract import SinkWriter
from checkdam.errors import CheckdamError, StateAccessError
from checkdam.graph.contexts import KeyedStateAccess, TimerService
from checkdam.graph.functions import DiscardingSink, callable_of, has_timers
from checkdam.graph.operators import (
    AggregateFunctionKind,
    AggregateKind,
    AsyncMapKind,
    BatchProcessKind,
    ConnectKind,
    FilterKind,
    FlatMapKind,
    IntervalJoinKind,
    MapKind,
    Operator,
    ProcessKind,
    ReduceKind,
    SideOutputKind,
    SinkFunctionKind,
    SinkKind,
    SourceFunctionKind,
    TimestampsKind,
    WindowKind,
)
from checkdam.runtime.current_operator import working_for
from checkdam.runtime.failures import NO_RECORD, user_error
from checkdam.runtime.slot.aggregate import aggregate_process
from checkdam.runtime.slot.async_functions import AsyncProcess
from checkdam.runtime.slot.batch_functions import BatchProcess
from checkdam.runtime.slot.context import (
    FunctionContext,
    GeneratorContext,
    InitializationContext,
    InvokeContext,
    KeyedBroadcastContext,
    KeyedContext,
    OperatorTime,
    RecordContext,
    TimerContext,
    UnkeyedBroadcastContext,
)
from checkdam.runtime.slot.event_time import AssignTimestamps
from checkdam.runtime.slot.keyed_functions import Call, DueTimers, KeyedProcess, as_flat
from checkdam.runtime.slot.operator_state import OperatorStates, ReadOnlyBroadcastMap
from checkdam.runtime.slot.plain_functions import (
    BroadcastProcess,
    ColumnMap,
    DiscardingProcess,
    PassThrough,
    PlainProcess,
    SinkFunctionProcess,
    UnkeyedProcess,
    WriterProcess,
)
from checkdam.runtime.slot.process import Process
from checkdam.runtime.slot.side_outputs import SideOutputs
from checkdam.runtime.slot.source_functions import SourceProcess
from checkdam.runtime.slot.timers import ClockOnly, Timers
from checkdam.runtime.slot.windows.interval_join_process import IntervalJoinProcess
from checkdam.runtime.slot.windows.window_aggregation import window_process
from checkdam.types.type_info import TypeInfo

T = TypeVar("T")


@dataclass(frozen=True)
class OperatorSetting:
    """The surroundings of an operator; the defaults are enough for a plain function."""

    time: OperatorTime = field(default_factory=OperatorTime)
    clock: Clock = field(default_factory=SystemClock)
    states: OperatorStates | None = None
    side_types: Mapping[str, TypeInfo] = field(default_factory=dict)  # of the side outputs that are read
    is_stamped: bool = False  # downstream of a timestamp assigner
    is_restored: bool = False
    had_finished: bool = False  # a source function without more records at the restored checkpoint
    observe: Callable[[int, int], None] | None = None  # called with the largest timestamp, if the operator assigns them
    next_checkpoint: int = 1
    records_came: Callable[[], None] = lambda: None  # called when a source function wants an epoch


def make_process(
    operator: Operator,
    *,
    context: FunctionContext,
    store: KeyedStateStore | None = None,
    writer: SinkWriter | None = None,
    around: OperatorSetting | None = None,
) -> Process:
    """Return the process of one operator. Initialises and opens the user's function, once."""
    around = around or OperatorSetting()
    kind = operator.kind
    if isinstance(kind, SinkKind):
        return PassThrough() if writer is None else WriterProcess(writer)
    if isinstance(kind, SideOutputKind):
        return PassThrough()
    if isinstance(kind, TimestampsKind):
        assert around.observe is not None
        return AssignTimestamps(operator, around.observe)
    if store is not None:
        store.current_key = NO_KEY
    broadcast = _declared_broadcast(operator, around)
    states = around.states
    begin(operator, context, InitializationContext(around.is_restored, states, context) if states is not None else None)
    if isinstance(kind, SourceFunctionKind):
        generator = GeneratorContext(context.subtask_index, context.parallelism)
        return SourceProcess(
            operator,
            generator,
            around.clock,
            states=states,
            next_checkpoint=around.next_checkpoint,
            is_finished=around.had_finished,
            records_came=around.records_came,
        )
    if isinstance(kind, AsyncMapKind):
        return _opened(operator, AsyncProcess(operator), context)
    if isinstance(kind, AggregateKind | AggregateFunctionKind | ReduceKind):
        assert store is not None
        return aggregate_process(operator, store)
    if isinstance(kind, WindowKind | IntervalJoinKind):
        assert store is not None
        assert isinstance(context.keyed, OperatorKeyedState)
        outputs = SideOutputs(around.side_types)
        if isinstance(kind, IntervalJoinKind):
            return IntervalJoinProcess(operator, store, around.time, context.keyed, outputs=outputs)
        return window_process(
            operator, store, around.time, context.keyed, outputs=outputs, is_stamped=around.is_stamped
        )
    if isinstance(kind, BatchProcessKind):
        assert store is not None
        assert isinstance(context.keyed, OperatorKeyedState)
        return BatchProcess(operator, store, context.keyed, around.time)
    if store is not None:
        assert isinstance(context.keyed, OperatorKeyedState)
        return _keyed(operator, store, context.keyed, around, broadcast)
    return _unkeyed(operator, context, around, broadcast)


def begin(operator: Operator, context: FunctionContext, beginning: InitializationContext | None) -> None:
    """Start the function: operator state first, if there is any, then `open`."""
    if operator.checkpointed_function is not None:
        assert beginning is not None
        guarded(operator, "initialize_state", operator.checkpointed_function.initialize_state, beginning)
    if operator.rich_function is not None:
        guarded(operator, "open", operator.rich_function.open, context)


def _opened(operator: Operator, process: AsyncProcess, context: FunctionContext) -> Process:
    """Open the function of `map_async` in its event loop, which ends if that fails."""
    try:
        guarded(operator, "open", process.open, context)
    except BaseException as failure:
        try:
            process.close()
        except Exception as another:  # noqa: BLE001  user code may raise anything
            failure.add_note(f"and then: {another}")
        raise
    return process


def guarded(operator: Operator, where: str, call: Callable[[Any], T], argument: Any) -> T:
    """Call user code outside of any record; an error names operator and method."""
    try:
        with working_for(operator):
            return call(argument)
    except StateAccessError as error:
        raise StateAccessError(f"operator {operator.title} in {where}(): {error.message}", hint=error.hint) from error
    except CheckdamError:
        raise
    except Exception as cause:
        raise user_error(operator, NO_RECORD, cause, where=where) from cause


def _declared_broadcast(operator: Operator, around: OperatorSetting) -> Mapping[str, Any]:
    if not isinstance(operator.kind, ConnectKind) or not operator.kind.broadcast:
        return {}
    assert around.states is not None
    return {each.name: around.states.declare_broadcast(each) for each in operator.kind.broadcast}


def _read_only(states: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: ReadOnlyBroadcastMap(state) for name, state in states.items()}


def _keyed(
    operator: Operator,
    store: KeyedStateStore,
    states: OperatorKeyedState,
    around: OperatorSetting,
    broadcast: Mapping[str, Any],
) -> Process:
    function, time, outputs = operator.function, around.time, SideOutputs(around.side_types)
    timers, service = None, _no_timers(operator, time)
    visible = _read_only(broadcast)
    if has_timers(function):
        registered = service = Timers(store, time)
        ctx = TimerContext(visible, store, states, time, service, outputs)
        timers = DueTimers(operator, time, registered, ctx, function.on_timer)
    process = KeyedProcess(
        operator,
        store,
        time,
        _calls(operator, KeyedBroadcastContext(visible, store, states, time, service, outputs))
        if broadcast
        else _calls(operator, KeyedContext(store, states, time, service, outputs), InvokeContext(time)),
        outputs=outputs,
        timers=timers,
        after_records=states.for_every_record,
        is_stamped=around.is_stamped,
        where=_where(operator),
    )
    if not broadcast:
        return process
    return BroadcastProcess(process, _broadcast_side(operator, states, around, broadcast, outputs))


def _calls(operator: Operator, ctx: KeyedContext, sink_ctx: InvokeContext | None = None) -> list[tuple[Call, Any]]:
    """Return the calls for the records of each side of a keyed operator."""
    kind, function = operator.kind, operator.function
    if isinstance(kind, ConnectKind) and not kind.broadcast:
        return [(function.process_element1, ctx), (function.process_element2, ctx)]
    if isinstance(kind, ProcessKind | ConnectKind):
        return [(callable_of(function), ctx)]
    if isinstance(kind, SinkFunctionKind):
        return [(_without_result(callable_of(function)), sink_ctx)]
    return [(as_flat(operator, callable_of(function)), ctx)]


def _unkeyed(
    operator: Operator, states: KeyedStateAccess, around: OperatorSetting, broadcast: Mapping[str, Any]
) -> Process:
    call, time, outputs = callable_of(operator.function), around.time, SideOutputs(around.side_types)
    if isinstance(operator.kind, MapKind):
        return ColumnMap(operator, call)
    if isinstance(operator.kind, FlatMapKind | FilterKind):
        return PlainProcess(operator, call)
    if isinstance(operator.kind, SinkFunctionKind):
        if type(operator.function) is DiscardingSink:
            return DiscardingProcess(time)
        return SinkFunctionProcess(operator, time, call, InvokeContext(time))
    service = _no_timers(operator, time)
    if broadcast:
        seen = UnkeyedBroadcastContext(_read_only(broadcast), states, time, service, outputs)
        main = UnkeyedProcess(operator, time, call, seen, outputs)
        return BroadcastProcess(main, _broadcast_side(operator, states, around, broadcast, outputs))
    if isinstance(operator.kind, ProcessKind):
        return UnkeyedProcess(operator, time, call, RecordContext(states, time, service, outputs), outputs)
    raise TypeError(f"no way to run {operator.kind!r}")


def _broadcast_side(
    operator: Operator,
    states: KeyedStateAccess,
    around: OperatorSetting,
    broadcast: Mapping[str, Any],
    outputs: SideOutputs,
) -> UnkeyedProcess:
    time = around.time
    service = ClockOnly(
        time,
        f"operator {operator.title} uses timers in process_broadcast_element, where there is no key for them",
        hint="Use them in process_element or on_timer.",
    )
    ctx = UnkeyedBroadcastContext(broadcast, states, time, service, outputs)
    return UnkeyedProcess(operator, time, operator.function.process_broadcast_element, ctx, outputs)


def _no_timers(operator: Operator, time: OperatorTime) -> TimerService:
    if operator.key is None:
        return ClockOnly(
            time,
            f"operator {operator.title} uses timers on a stream without keys",
            hint="Put key_by(…) in front of it, and make its function a KeyedProcessFunction.",
        )
    return ClockOnly(
        time,
        f"operator {operator.title} uses timers, and its function does not define on_timer(timestamp, ctx)",
        hint="Define what is to happen when a timer is due.",
    )


def _where(operator: Operator) -> str | None:
    """Return the method that errors of the operator's function name; see `where` of UserFunctionError."""
    return "invoke" if isinstance(operator.kind, SinkFunctionKind) else None


def _without_result(call: Callable[[Any, Any], Any]) -> Call:
    """Wrap a sink's function, whose result is ignored."""

    def invoke(value: Any, ctx: Any) -> None:
        call(value, ctx)

    return invoke
