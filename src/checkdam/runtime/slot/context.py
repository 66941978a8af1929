"""The objects behind every `ctx`: the part of a slot that user functions see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from checkdam.backends.contract import KeyedStateStore
from checkdam.backends.keyed_state import OperatorKeyedState
from checkdam.clock import Clock, SystemClock, to_milliseconds
from checkdam.errors import StateAccessError, StateRequestError
from checkdam.graph.contexts import KeyedStateAccess, OperatorStateStore, OutputTag, TimeDomain, TimerService
from checkdam.graph.metrics import MetricGroup, OperatorMetrics
from checkdam.graph.watermarks import MAX_WATERMARK, MIN_WATERMARK
from checkdam.runtime.slot.side_outputs import SideOutputs
from checkdam.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from checkdam.state.handles import AggregatingState, ListState, MapState, ReducingState, ValueState
from checkdam.state.key_groups import DEFAULT_MAX_PARALLELISM


class OperatorTime:
    """The current time for one operator: of the clock, of the watermark, and of the current record."""

    __slots__ = ("_clock", "current_watermark", "timestamp", "watermark")

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.timestamp: int | None = None  # of the record, event-time timer or window being processed
        self.watermark = MIN_WATERMARK  # state ages by it, so the end of all input does not advance it
        self.current_watermark = MIN_WATERMARK

    def processing_time(self) -> int:
        """Return milliseconds since 1970."""
        return to_milliseconds(self._clock.now())

    def past_millisecond(self) -> int:
        """Return the last millisecond that is over: records of the current one may still come."""
        return self.processing_time() - 1

    def advance(self, watermark: int) -> None:
        self.current_watermark = watermark
        if watermark != MAX_WATERMARK:
            self.watermark = watermark


@dataclass(frozen=True)
class FunctionContext:
    """Passed to `open`, and valid while the function lives; without keyed state on a stream without keys."""

    operator_name: str
    subtask_index: int
    parallelism: int
    keyed: KeyedStateAccess | None = None
    max_parallelism: int = DEFAULT_MAX_PARALLELISM
    own_metrics: OperatorMetrics | None = None  # None: they are not shown

    @cached_property
    def metrics(self) -> MetricGroup:
        return MetricGroup(OperatorMetrics(self.operator_name) if self.own_metrics is None else self.own_metrics)

    def get_metrics_group(self) -> MetricGroup:
        return self.metrics

    def get_state(self, descriptor: ValueStateDescriptor[Any]) -> ValueState[Any]:
        return self._keyed(descriptor).get_state(descriptor)

    def get_list_state(self, descriptor: ListStateDescriptor[Any]) -> ListState[Any]:
        return self._keyed(descriptor).get_list_state(descriptor)

    def get_reducing_state(self, descriptor: ReducingStateDescriptor[Any]) -> ReducingState[Any]:
        return self._keyed(descriptor).get_reducing_state(descriptor)

    def get_aggregating_state(
        self, descriptor: AggregatingStateDescriptor[Any, Any, Any]
    ) -> AggregatingState[Any, Any]:
        return self._keyed(descriptor).get_aggregating_state(descriptor)

    def get_map_state(self, descriptor: MapStateDescriptor[Any, Any]) -> MapState[Any, Any]:
        return self._keyed(descriptor).get_map_state(descriptor)

    def _keyed(self, descriptor: StateDescriptor) -> KeyedStateAccess:
        if self.keyed is None:
            raise StateRequestError(
                f'operator "{self.operator_name}" asks for keyed state "{descriptor.name}" on a stream without keys',
                hint="Put key_by(…) in front of it.",
            )
        return self.keyed


@dataclass(frozen=True)
class InitializationContext:
    """Passed to `initialize_state`."""

    is_restored: bool
    operator_state_store: OperatorStateStore
    keyed_state_store: KeyedStateAccess


@dataclass(frozen=True)
class SnapshotContext:
    """Passed to `snapshot_state`."""

    checkpoint_id: int
    checkpoint_timestamp: int


class YieldContext:
    """Passed to `snapshot_state` of a source function at each yield, though no checkpoint may ever need that state."""

    __slots__ = ("_time", "checkpoint_id")

    def __init__(self, time: OperatorTime, next_checkpoint: int) -> None:
        self._time = time
        self.checkpoint_id = next_checkpoint

    @property
    def checkpoint_timestamp(self) -> int:
        return self._time.processing_time()


@dataclass(frozen=True)
class GeneratorContext:
    """Passed to a source function's `run`."""

    subtask_index: int
    parallelism: int


class _OfKeyedState:
    """The keyed-state part of a context: the same methods that `open` has, called directly."""

    __slots__ = ("get_aggregating_state", "get_list_state", "get_map_state", "get_reducing_state", "get_state")

    def __init__(self, states: KeyedStateAccess) -> None:
        self.get_state = states.get_state
        self.get_list_state = states.get_list_state
        self.get_reducing_state = states.get_reducing_state
        self.get_aggregating_state = states.get_aggregating_state
        self.get_map_state = states.get_map_state


class RecordContext(_OfKeyedState):
    """Passed to a function with each record of a stream without keys."""

    __slots__ = ("_outputs", "_time", "timer_service")

    def __init__(
        self, states: KeyedStateAccess, time: OperatorTime, timer_service: TimerService, outputs: SideOutputs
    ) -> None:
        super().__init__(states)
        self._time = time
        self._outputs = outputs
        self.timer_service = timer_service

    @property
    def timestamp(self) -> int | None:
        return self._time.timestamp

    def output(self, tag: OutputTag[Any], value: Any) -> None:
        self._outputs.add(tag, value, self.timestamp)


class KeyedContext(RecordContext):
    """Passed to a function with each record of a keyed stream."""

    __slots__ = ("_store",)

    def __init__(
        self,
        store: KeyedStateStore,
        states: KeyedStateAccess,
        time: OperatorTime,
        timer_service: TimerService,
        outputs: SideOutputs,
    ) -> None:
        super().__init__(states, time, timer_service, outputs)
        self._store = store

    @property
    def current_key(self) -> Any:
        return self._store.current_key


class _OfBroadcast:
    """The broadcast-state part of a context."""

    __slots__ = ()
    _broadcast: Mapping[str, Any]

    def get_broadcast_state(self, descriptor: MapStateDescriptor[Any, Any]) -> Any:
        found = self._broadcast.get(descriptor.name)
        if found is None:
            known = ", ".join(f'"{name}"' for name in self._broadcast)
            raise StateAccessError(
                f'there is no broadcast state "{descriptor.name}"; the stream was broadcast with {known}',
                hint="Name its descriptor where the stream is broadcast: rules.broadcast(RULES).",
            )
        return found


class UnkeyedBroadcastContext(_OfBroadcast, RecordContext):
    """Passed to a function on a side without keys of an operator with broadcast state."""

    __slots__ = ("_broadcast", "_keyed")

    def __init__(
        self,
        broadcast: Mapping[str, Any],
        states: KeyedStateAccess,
        time: OperatorTime,
        timer_service: TimerService,
        outputs: SideOutputs,
    ) -> None:
        super().__init__(states, time, timer_service, outputs)
        self._broadcast = broadcast
        self._keyed = states if isinstance(states, OperatorKeyedState) else None

    def apply_to_keyed_state(self, descriptor: StateDescriptor, function: Callable[[Any, Any], object]) -> None:
        if self._keyed is None:
            raise StateRequestError(
                "apply_to_keyed_state() was called where the other stream has no keys",
                hint="Put key_by(…) before connect(…), and make the function a KeyedBroadcastProcessFunction.",
            )
        self._keyed.apply_to_all(descriptor, function)

    @property
    def current_key(self) -> Any:
        raise StateAccessError(
            "there is no current key here", hint="Only records of a keyed stream have one: key_by(…) before connect(…)."
        )


class KeyedBroadcastContext(_OfBroadcast, KeyedContext):
    """Passed on the keyed side, or with a timer, of an operator with broadcast state."""

    __slots__ = ("_broadcast",)

    def __init__(
        self,
        broadcast: Mapping[str, Any],
        store: KeyedStateStore,
        states: KeyedStateAccess,
        time: OperatorTime,
        timer_service: TimerService,
        outputs: SideOutputs,
    ) -> None:
        super().__init__(store, states, time, timer_service, outputs)
        self._broadcast = broadcast


class TimerContext(_OfBroadcast, _OfKeyedState):
    """Passed to `on_timer`: like the record's context, except for the timer's own time and domain.

    Its side outputs have event time only if the timer has.
    """

    __slots__ = ("_broadcast", "_outputs", "_store", "_time", "time_domain", "timer_service", "timestamp")

    def __init__(
        self,
        broadcast: Mapping[str, Any],
        store: KeyedStateStore,
        states: KeyedStateAccess,
        time: OperatorTime,
        timer_service: TimerService,
        outputs: SideOutputs,
    ) -> None:
        super().__init__(states)
        self._store = store
        self._time = time
        self._outputs = outputs
        self._broadcast = broadcast
        self.timer_service = timer_service
        self.timestamp = MIN_WATERMARK
        self.time_domain = TimeDomain.EVENT_TIME

    @property
    def current_key(self) -> Any:
        return self._store.current_key

    def output(self, tag: OutputTag[Any], value: Any) -> None:
        self._outputs.add(tag, value, self._time.timestamp)


class InvokeContext:
    """Passed to a sink function with each record."""

    __slots__ = ("_time",)

    def __init__(self, time: OperatorTime) -> None:
        self._time = time

    @property
    def timestamp(self) -> int | None:
        return self._time.timestamp

    @property
    def current_processing_time(self) -> int:
        return self._time.processing_time()

    @property
    def current_watermark(self) -> int:
        return self._time.current_watermark
