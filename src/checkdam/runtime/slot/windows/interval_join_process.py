"""Runs interval joins: keeps the records of both sides until no partner can come any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

from checkdam.backends.contract import NO_KEY, KeyedStateStore
from checkdam.backends.keyed_state import OperatorKeyedState
from checkdam.graph.contexts import OutputTag
from checkdam.graph.operators import IntervalJoinKind, Operator
from checkdam.graph.windowing.interval_join import LEFT_BUFFER, RIGHT_BUFFER
from checkdam.runtime.failures import user_error
from checkdam.runtime.slot.context import OperatorTime
from checkdam.runtime.slot.process import Process
from checkdam.runtime.slot.side_outputs import FunctionOutputs, SideOutputs
from checkdam.runtime.slot.timers import Timers
from checkdam.state.descriptors import MapStateDescriptor
from checkdam.types.batch import Batch
from checkdam.types.record_copies import copier, extending
from checkdam.types.type_info import list_of


def buffer_states(kind: IntervalJoinKind) -> tuple[MapStateDescriptor[Any, Any], MapStateDescriptor[Any, Any]]:
    """Return the states that hold the records of both sides, by timestamp."""
    left: Any
    right: Any
    left, right = (list_of(of, list[of.hint]) for of in kind.types)  # type: ignore[name-defined]
    return MapStateDescriptor(LEFT_BUFFER, int, left), MapStateDescriptor(RIGHT_BUFFER, int, right)


class IntervalJoinProcess(Process):
    """An interval join by Flink's rules: a left record at time t joins the right ones from t + lower to t + upper.

    A record behind the watermark, which is that of the epoch before, is late and joins nothing.
    """

    def __init__(
        self,
        operator: Operator,
        store: KeyedStateStore,
        time: OperatorTime,
        states: OperatorKeyedState,
        *,
        outputs: SideOutputs,
    ) -> None:
        kind = operator.kind
        assert isinstance(kind, IntervalJoinKind)
        self._operator = operator
        self._store = store
        self._time = time
        self._outputs = outputs
        self._call = kind.function.process_element
        self._late_tags = kind.late_tags
        self._timers = Timers(store, time)
        self._buffers = [states.get_map_state(each) for each in buffer_states(kind)]
        # For each side: from and to where partners lie, and for how long a record is kept
        self._reach = ((kind.lower, kind.upper), (-kind.upper, -kind.lower))
        self._life = (max(kind.upper, 0), max(-kind.lower, 0))
        self._ctx = PairContext(FunctionOutputs(outputs, kind.late_tags))
        self._copier = copier(operator.output_type)

    def __call__(self, batch: Batch, keys: Batch | None, side: int = 0) -> Batch | None:
        assert keys is not None
        produced: list[Any] = []
        stamps: list[int | None] = []
        value = None
        times: Sequence[int | None] = batch.timestamps if batch.timestamps is not None else [None] * len(batch)
        try:
            for self._store.current_key, value, timestamp in zip(keys.rows, batch.rows, times, strict=True):
                if timestamp is None:
                    raise ValueError("the record has no timestamp, which an interval join needs")
                self._add(value, timestamp, side, produced, stamps)
        except Exception as cause:
            raise user_error(self._operator, value, cause) from cause
        finally:
            self._store.current_key = NO_KEY
        return Batch(self._operator.output_type, rows=produced, timestamps=stamps) if produced else None

    def advance(self, watermark: int) -> Batch | None:
        self._time.advance(watermark)
        left, right = self._buffers
        for time in self._timers.event.due(watermark):
            left.remove(time - self._life[0])
            right.remove(time - self._life[1])
        return None

    def take_side_outputs(self) -> Mapping[str, Batch]:
        return self._outputs.take()

    def _add(self, value: Any, time: int, side: int, produced: list[Any], stamps: list[int | None]) -> None:
        if time < self._time.current_watermark:
            tag = self._late_tags[side]
            if tag is not None:
                self._outputs.add(tag, value, time)
            return
        own, others = self._buffers[side], self._buffers[1 - side]
        own[time] = [*own.get(time, ()), value]
        first, last = (time + bound for bound in self._reach[side])
        for other_time, partners in others.items():
            if first <= other_time <= last:
                self._join(value, time, side, partners, other_time, produced, stamps)
        self._timers.event.register(time + self._life[side])

    def _join(
        self,
        value: Any,
        time: int,
        side: int,
        partners: list[Any],
        other_time: int,
        produced: list[Any],
        stamps: list[int | None],
    ) -> None:
        ctx = self._ctx
        ctx.left_timestamp, ctx.right_timestamp = (time, other_time) if side == 0 else (other_time, time)
        ctx.timestamp = max(time, other_time)
        extend = extending(produced, self._copier)
        for partner in partners:
            some = self._call(value, partner, ctx) if side == 0 else self._call(partner, value, ctx)
            if some is not None:
                extend(some)
        stamps.extend(repeat(ctx.timestamp, len(produced) - len(stamps)))


class PairContext:
    """Passed to the function with each pair."""

    __slots__ = ("_outputs", "left_timestamp", "right_timestamp", "timestamp")

    def __init__(self, outputs: FunctionOutputs) -> None:
        self._outputs = outputs
        self.left_timestamp = self.right_timestamp = self.timestamp = 0

    def output(self, tag: OutputTag[Any], value: Any) -> None:
        self._outputs.add(tag, value, self.timestamp)
