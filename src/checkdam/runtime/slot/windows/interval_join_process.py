"""Runs interval joins: keeps the records of both sides until no partner can come any more."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from checkdam.runtime.slot.timers import TimerQueue, Timers
from checkdam.state.descriptors import MapStateDescriptor
from checkdam.state.handles import MapState
from checkdam.types.batch import Batch
from checkdam.types.record_copies import Copier, copier, extending
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
        # For each side: from and to where partners lie, and for how long a record is kept
        reach = ((kind.lower, kind.upper), (-kind.upper, -kind.lower))
        life = (max(kind.upper, 0), max(-kind.lower, 0))
        self._sides = [
            _Side(store, states.get_map_state(each), copier(record), within, kept_for)
            for each, record, within, kept_for in zip(buffer_states(kind), kind.types, reach, life, strict=True)
        ]
        self._ctx = PairContext(FunctionOutputs(outputs, kind.late_tags))
        self._copier = copier(operator.output_type)
        self.late_records_dropped: int = 0

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
            self._sides[side].write(self._timers.event)
        except Exception as cause:
            raise user_error(self._operator, value, cause) from cause
        finally:
            self._store.current_key = NO_KEY
            self._time.timestamp = None
        return Batch(self._operator.output_type, rows=produced, timestamps=stamps) if produced else None

    def advance(self, watermark: int) -> Batch | None:
        self._time.advance(watermark)
        ending: dict[Any, None] = {}
        for time in self._timers.event.due(watermark):
            ending[self._store.current_key] = None
            for side in self._sides:
                side.remove(time)
        for side in self._sides:
            side.forget(ending, watermark)
        return None

    @property
    def timers(self) -> Timers:
        return self._timers

    def take_side_outputs(self) -> Mapping[str, Batch]:
        return self._outputs.take()

    def _add(self, value: Any, time: int, side: int, produced: list[Any], stamps: list[int | None]) -> None:
        if time < self._time.current_watermark:
            tag = self._late_tags[side]
            if tag is not None:
                self._outputs.add(tag, value, time)
            else:
                self.late_records_dropped += 1
            return
        own, others = self._sides[side], self._sides[1 - side]
        own.add(value, time)
        first, last = (time + bound for bound in own.reach)
        for other_time, partners in others.between(first, last):
            self._join(value, time, side, partners, other_time, produced, stamps)

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
        self._time.timestamp = ctx.timestamp = max(time, other_time)
        extend = extending(produced, self._copier)
        for partner in partners:
            some = self._call(value, partner, ctx) if side == 0 else self._call(partner, value, ctx)
            if some is not None:
                extend(some)
        stamps.extend(repeat(ctx.timestamp, len(produced) - len(stamps)))


class _Side:
    """The records of one side, by key and time.

    New records are held in memory until the end of their batch. The times of each key's records are in memory always,
    in order: what a record costs depends on its partners only, not on the records before it.
    """

    def __init__(
        self,
        store: KeyedStateStore,
        buffer: MapState[int, list[Any]],
        copier: Copier | None,
        reach: tuple[int, int],
        life: int,
    ) -> None:
        self._store = store
        self._copier = copier
        self._buffer = buffer
        self.reach = reach
        self._life = life
        self._new: dict[Any, dict[int, list[Any]]] = {}  # by key and time: records that the state does not have yet
        self._times: dict[Any, list[int]] = {}  # by key; no more keys than have timers

    def add(self, value: Any, time: int) -> None:
        """Add a record of the current key, as it is now: the function may change it."""
        if self._copier is not None and type(value) is not self._copier.exact:
            value = self._copier.copy(value)
        new = self._new.setdefault(self._store.current_key, {})
        held = new.get(time)
        if held is not None:
            held.append(value)
            return
        new[time] = [value]
        times = self._times_of_key()
        place = bisect_left(times, time)
        if place == len(times) or times[place] != time:
            times.insert(place, time)
        self._times[self._store.current_key] = times

    def between(self, first: int, last: int) -> Iterator[tuple[int, list[Any]]]:
        """Yield the times in this range, both included, with the records that the current key has there."""
        times = self._times_of_key()
        new = self._new.get(self._store.current_key, {})
        for time in times[bisect_left(times, first) : bisect_right(times, last)]:
            yield time, [*self._buffer.get(time, ()), *new.get(time, ())]

    def write(self, timers: TimerQueue) -> None:
        """Write the new records to the state, with timers for their removal."""
        new, self._new = self._new, {}
        for self._store.current_key, by_time in new.items():
            for time, values in by_time.items():
                self._buffer[time] = [*self._buffer.get(time, ()), *values]
                timers.register(time + self._life)

    def remove(self, due: int) -> None:
        """Remove the records of the current key whose timer is due at this time."""
        self._buffer.remove(due - self._life)

    def forget(self, keys: Iterable[Any], watermark: int) -> None:
        """Forget the times of records that were removed up to this watermark."""
        for key in keys:
            times = self._times.get(key)
            if times is not None:
                del times[: bisect_right(times, watermark - self._life)]
                if not times:
                    del self._times[key]

    def _times_of_key(self) -> list[int]:
        """Return the times of the current key's records. The state is asked once, as after a restore it has some."""
        times = self._times.get(self._store.current_key)
        if times is None:
            times = sorted(self._buffer.keys())
            if times:
                self._times[self._store.current_key] = times
        return times


class PairContext:
    """Passed to the function with each pair."""

    __slots__ = ("_outputs", "left_timestamp", "right_timestamp", "timestamp")

    def __init__(self, outputs: FunctionOutputs) -> None:
        self._outputs = outputs
        self.left_timestamp = self.right_timestamp = self.timestamp = 0

    def output(self, tag: OutputTag[Any], value: Any) -> None:
        self._outputs.add(tag, value, self.timestamp)
