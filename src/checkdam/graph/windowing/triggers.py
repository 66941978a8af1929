"""Triggers: decide when a window emits its result, and when its contents are dropped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar, overload

from typing_extensions import TypeForm
from typing_extensions import TypeVar as TypeVarWithDefault

from checkdam.errors import JobGraphError
from checkdam.graph.windowing.arguments import checked_count, checked_duration
from checkdam.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from checkdam.state.handles import AggregatingState, ListState, MapState, ReducingState, ValueState
from checkdam.types.hints import PickleType, SchemaType

T_contra = TypeVarWithDefault("T_contra", contravariant=True, default=Any)
W_contra = TypeVarWithDefault("W_contra", contravariant=True, default=Any)
S = TypeVar("S")
I = TypeVar("I")  # noqa: E741
A = TypeVar("A")
O = TypeVar("O")  # noqa: E741
K = TypeVar("K")
V = TypeVar("V")


class TriggerResult(Enum):
    """The decision of a trigger: emit the result of a window, drop its contents, both, or neither."""

    CONTINUE = (False, False)
    FIRE = (True, False)
    PURGE = (False, True)
    FIRE_AND_PURGE = (True, True)

    @property
    def is_fire(self) -> bool:
        return self.value[0]

    @property
    def is_purge(self) -> bool:
        return self.value[1]


CONTINUE, FIRE = TriggerResult.CONTINUE, TriggerResult.FIRE


class TriggerContext(Protocol):
    """A trigger's access to the clock, and to the timers and state of the current key and window."""

    @property
    def current_processing_time(self) -> int: ...

    @property
    def current_watermark(self) -> int: ...

    def register_event_time_timer(self, time: int) -> None: ...

    def register_processing_time_timer(self, time: int) -> None: ...

    def delete_event_time_timer(self, time: int) -> None: ...

    def delete_processing_time_timer(self, time: int) -> None: ...

    @overload
    def get_partitioned_state(self, descriptor: ValueStateDescriptor[S]) -> ValueState[S]: ...

    @overload
    def get_partitioned_state(self, descriptor: ListStateDescriptor[S]) -> ListState[S]: ...

    @overload
    def get_partitioned_state(self, descriptor: ReducingStateDescriptor[S]) -> ReducingState[S]: ...

    @overload
    def get_partitioned_state(self, descriptor: AggregatingStateDescriptor[I, A, O]) -> AggregatingState[I, O]: ...

    @overload
    def get_partitioned_state(self, descriptor: MapStateDescriptor[K, V]) -> MapState[K, V]: ...

    def get_partitioned_state(self, descriptor: Any) -> Any:
        """Return a state of the current key and window. It is part of checkpoints; `clear` must clear it."""


class OnMergeContext(TriggerContext, Protocol):
    """The context of `on_merge`."""

    def merge_partitioned_state(
        self,
        descriptor: ListStateDescriptor[Any] | ReducingStateDescriptor[Any] | AggregatingStateDescriptor[Any, Any, Any],
    ) -> None:
        """Move the state of the windows that were merged into the state of the new one."""


class Trigger(Generic[T_contra, W_contra]):
    """Decides when a window fires. Subclass it for a trigger of your own.

    One object serves all keys and windows: keep what belongs to a window in `ctx.get_partitioned_state`.
    """

    @property
    def states(self) -> Sequence[StateDescriptor]:
        """The states that the trigger asks for, as far as it names them: these are compared before a job is restored.

        A state that is not named here is restored when the trigger asks for it first.
        """
        return ()

    def on_element(self, value: T_contra, timestamp: int, window: W_contra, ctx: TriggerContext) -> TriggerResult:
        """Decide after a record was added to a window."""
        raise NotImplementedError(f"{type(self).__name__} must define on_element(value, timestamp, window, ctx)")

    def on_event_time(self, time: int, window: W_contra, ctx: TriggerContext) -> TriggerResult:
        """Decide when an event-time timer of a window is due: one of this trigger, or the one that ends the window."""
        return CONTINUE

    def on_processing_time(self, time: int, window: W_contra, ctx: TriggerContext) -> TriggerResult:
        """Decide when a processing-time timer of a window is due."""
        return CONTINUE

    def can_merge(self) -> bool:
        """Return whether the trigger can work with windows that merge. If so, define `on_merge`."""
        return False

    def on_merge(self, window: W_contra, ctx: OnMergeContext) -> None:
        """Take over the state and timers of merged windows: `window` is the new one."""
        raise NotImplementedError(
            f"{type(self).__name__} must define on_merge(window, ctx), or return False from can_merge"
        )

    def clear(self, window: W_contra, ctx: TriggerContext) -> None:
        """Delete the trigger's state and timers of a window that ends."""


class EventTimeTrigger(Trigger[Any, Any]):
    """Fires when the watermark passes the end of the window, and again with each late record that is still allowed."""

    def on_element(self, value: Any, timestamp: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        if window.max_timestamp <= ctx.current_watermark:
            return FIRE
        ctx.register_event_time_timer(window.max_timestamp)
        return CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        return FIRE if time == window.max_timestamp else CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: OnMergeContext) -> None:
        if window.max_timestamp > ctx.current_watermark:
            ctx.register_event_time_timer(window.max_timestamp)

    def clear(self, window: Any, ctx: TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp)


class ProcessingTimeTrigger(Trigger[Any, Any]):
    """Fires when the clock passes the end of the window."""

    def on_element(self, value: Any, timestamp: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp)
        return CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        return FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: OnMergeContext) -> None:
        if window.max_timestamp > ctx.current_processing_time:
            ctx.register_processing_time_timer(window.max_timestamp)

    def clear(self, window: Any, ctx: TriggerContext) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp)


_FIRE_TIME = ReducingStateDescriptor("fire-time", int, min)


class _ContinuousTrigger(Trigger[Any, Any]):
    """Fires at every multiple of an interval; the base of those by the watermark and by the clock."""

    def __init__(self, interval: timedelta) -> None:
        self.interval = checked_duration("the interval of a trigger", interval)

    @property
    def states(self) -> Sequence[StateDescriptor]:
        return (_FIRE_TIME,)

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: OnMergeContext) -> None:
        ctx.merge_partitioned_state(_FIRE_TIME)
        next_fire = ctx.get_partitioned_state(_FIRE_TIME).get()
        if next_fire is not None:
            self._register(next_fire, ctx)

    def clear(self, window: Any, ctx: TriggerContext) -> None:
        next_fire = ctx.get_partitioned_state(_FIRE_TIME)
        time = next_fire.get()
        if time is not None:
            self._delete(time, ctx)
            next_fire.clear()

    def _begin(self, now: int, window: Any, ctx: TriggerContext) -> None:
        """Register the first time at which the window fires, unless one is registered."""
        if ctx.get_partitioned_state(_FIRE_TIME).get() is None:
            past = now % self.interval if now >= 0 else -(-now % self.interval)  # as in Flink: rounded towards 1970
            self._register_next(now - past, window, ctx)

    def _fire(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """Fire if this is the registered time, and register the next one."""
        next_fire = ctx.get_partitioned_state(_FIRE_TIME)
        if next_fire.get() != time:
            return CONTINUE
        next_fire.clear()
        self._register_next(time, window, ctx)
        return FIRE

    def _register_next(self, time: int, window: Any, ctx: TriggerContext) -> None:
        following = min(time + self.interval, window.max_timestamp)
        ctx.get_partitioned_state(_FIRE_TIME).add(following)
        self._register(following, ctx)

    def _register(self, time: int, ctx: TriggerContext) -> None:
        raise NotImplementedError

    def _delete(self, time: int, ctx: TriggerContext) -> None:
        raise NotImplementedError


class ContinuousEventTimeTrigger(_ContinuousTrigger):
    """Fires at every multiple of an interval that the watermark passes, and at the end of the window."""

    def on_element(self, value: Any, timestamp: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        if window.max_timestamp <= ctx.current_watermark:
            return FIRE
        ctx.register_event_time_timer(window.max_timestamp)
        self._begin(timestamp, window, ctx)
        return CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        return FIRE if time == window.max_timestamp else self._fire(time, window, ctx)

    def _register(self, time: int, ctx: TriggerContext) -> None:
        ctx.register_event_time_timer(time)

    def _delete(self, time: int, ctx: TriggerContext) -> None:
        ctx.delete_event_time_timer(time)


class ContinuousProcessingTimeTrigger(_ContinuousTrigger):
    """Fires at every multiple of an interval that the clock passes, and at the end of the window."""

    def on_element(self, value: Any, timestamp: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        self._begin(ctx.current_processing_time, window, ctx)
        return CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        return self._fire(time, window, ctx)

    def _register(self, time: int, ctx: TriggerContext) -> None:
        ctx.register_processing_time_timer(time)

    def _delete(self, time: int, ctx: TriggerContext) -> None:
        ctx.delete_processing_time_timer(time)


class CountTrigger(Trigger[Any, Any]):
    """Fires when a window has received this many records since it fired last."""

    def __init__(self, count: int) -> None:
        self.count = checked_count("the count of a trigger", count)

    @property
    def states(self) -> Sequence[StateDescriptor]:
        return (_COUNT,)

    def on_element(self, value: Any, timestamp: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        received = ctx.get_partitioned_state(_COUNT)
        received.add(1)
        if (received.get() or 0) < self.count:
            return CONTINUE
        received.clear()
        return FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: OnMergeContext) -> None:
        ctx.merge_partitioned_state(_COUNT)

    def clear(self, window: Any, ctx: TriggerContext) -> None:
        ctx.get_partitioned_state(_COUNT).clear()


def _add(one: int, other: int) -> int:
    return one + other


_COUNT = ReducingStateDescriptor("count", int, _add)


class PurgingTrigger(Trigger[T_contra, W_contra]):
    """Drops the contents of a window whenever another trigger lets it fire."""

    def __init__(self, trigger: Trigger[T_contra, W_contra]) -> None:
        self.trigger: Trigger[T_contra, W_contra] = checked_trigger("PurgingTrigger()", trigger)

    @property
    def states(self) -> Sequence[StateDescriptor]:
        return self.trigger.states

    def on_element(self, value: T_contra, timestamp: int, window: W_contra, ctx: TriggerContext) -> TriggerResult:
        return _purging(self.trigger.on_element(value, timestamp, window, ctx))

    def on_event_time(self, time: int, window: W_contra, ctx: TriggerContext) -> TriggerResult:
        return _purging(self.trigger.on_event_time(time, window, ctx))

    def on_processing_time(self, time: int, window: W_contra, ctx: TriggerContext) -> TriggerResult:
        return _purging(self.trigger.on_processing_time(time, window, ctx))

    def can_merge(self) -> bool:
        return self.trigger.can_merge()

    def on_merge(self, window: W_contra, ctx: OnMergeContext) -> None:
        self.trigger.on_merge(window, ctx)

    def clear(self, window: W_contra, ctx: TriggerContext) -> None:
        self.trigger.clear(window, ctx)


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result is FIRE else result


class DeltaTrigger(Trigger[S, Any]):
    """Fires when a record differs from the last one that fired by more than a threshold.

    `delta_function(last, new)` returns the difference; `type` is the type of the records, of which one is kept.
    """

    def __init__(
        self, threshold: float, delta_function: Callable[[S, S], float], type: TypeForm[S] | PickleType[S] | SchemaType
    ) -> None:
        if not callable(delta_function):
            raise JobGraphError(f"DeltaTrigger() takes a function of two records, not {delta_function!r}")
        self.threshold = threshold
        self.delta_function = delta_function
        kept: Any = type
        self._last: ValueStateDescriptor[S] = ValueStateDescriptor("last-element", kept)

    @property
    def states(self) -> Sequence[StateDescriptor]:
        return (self._last,)

    def on_element(self, value: S, timestamp: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        last = ctx.get_partitioned_state(self._last)
        before = last.value()
        if before is None:
            last.update(value)
            return CONTINUE
        if self.delta_function(before, value) > self.threshold:
            last.update(value)
            return FIRE
        return CONTINUE

    def clear(self, window: Any, ctx: TriggerContext) -> None:
        ctx.get_partitioned_state(self._last).clear()


class ProcessingTimeoutTrigger(Trigger[T_contra, W_contra]):
    """Fires when another trigger does, or when the clock has advanced by `timeout` since the first record.

    With `reset_on_record` the time counts from the latest record; with `clear_on_timeout` the state of the other
    trigger is cleared when the time is over.
    """

    def __init__(
        self,
        trigger: Trigger[T_contra, W_contra],
        timeout: timedelta,
        *,
        reset_on_record: bool = False,
        clear_on_timeout: bool = True,
    ) -> None:
        self.trigger: Trigger[T_contra, W_contra] = checked_trigger("ProcessingTimeoutTrigger()", trigger)
        self.timeout = checked_duration("the timeout of a trigger", timeout)
        self.reset_on_record = reset_on_record
        self.clear_on_timeout = clear_on_timeout

    @property
    def states(self) -> Sequence[StateDescriptor]:
        return (_TIMEOUT, *self.trigger.states)

    def on_element(self, value: T_contra, timestamp: int, window: W_contra, ctx: TriggerContext) -> TriggerResult:
        result = self.trigger.on_element(value, timestamp, window, ctx)
        if result.is_fire:
            self.clear(window, ctx)
            return result
        state = ctx.get_partitioned_state(_TIMEOUT)
        due = state.value()
        if due is not None and self.reset_on_record:
            ctx.delete_processing_time_timer(due)
            due = None
        if due is None:
            due = ctx.current_processing_time + self.timeout
            state.update(due)
            ctx.register_processing_time_timer(due)
        return result

    def on_event_time(self, time: int, window: W_contra, ctx: TriggerContext) -> TriggerResult:
        return self._timed_out(self.trigger.on_event_time(time, window, ctx), window, ctx)

    def on_processing_time(self, time: int, window: W_contra, ctx: TriggerContext) -> TriggerResult:
        return self._timed_out(self.trigger.on_processing_time(time, window, ctx), window, ctx)

    def clear(self, window: W_contra, ctx: TriggerContext) -> None:
        state = ctx.get_partitioned_state(_TIMEOUT)
        due = state.value()
        if due is not None:
            ctx.delete_processing_time_timer(due)
            state.clear()
        self.trigger.clear(window, ctx)

    def _timed_out(self, result: TriggerResult, window: W_contra, ctx: TriggerContext) -> TriggerResult:
        if self.clear_on_timeout:
            self.clear(window, ctx)
        return TriggerResult.FIRE_AND_PURGE if result.is_purge else FIRE


_TIMEOUT = ValueStateDescriptor("timeout", int)


class NeverTrigger(Trigger[Any, Any]):
    """Never fires: the default of global windows, which need another."""

    def on_element(self, value: Any, timestamp: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: OnMergeContext) -> None:
        """Do nothing: there is no state."""


def checked_trigger(call: str, given: Any) -> Any:
    """Return the trigger; raise JobGraphError if it is anything else."""
    if isinstance(given, Trigger):
        return given
    is_class = isinstance(given, type) and issubclass(given, Trigger)
    hint = f"Make one: {given.__name__}()." if is_class else "Write trigger=CountTrigger(10), or subclass Trigger."
    raise JobGraphError(f"{call} takes a Trigger, not {given!r}", hint=hint)
