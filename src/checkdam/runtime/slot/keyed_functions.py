"""Runs functions on a keyed stream: records under their key, and timers under theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

from checkdam.backends.contract import NO_KEY, KeyedStateStore
from checkdam.graph.contexts import TimeDomain
from checkdam.graph.operators import FilterKind, MapKind, Operator
from checkdam.runtime.failures import NO_RECORD, user_error
from checkdam.runtime.slot.context import OperatorTime, TimerContext
from checkdam.runtime.slot.process import Process
from checkdam.runtime.slot.side_outputs import SideOutputs
from checkdam.runtime.slot.timers import TimerQueue, Timers
from checkdam.types.batch import Batch
from checkdam.types.record_copies import copier, extending

Call = Callable[[Any, Any], Iterable[Any] | None]
"""Handles one record with its context; returns its output."""


class DueTimers:
    """Calls `on_timer` for the due timers of one operator."""

    def __init__(
        self,
        operator: Operator,
        time: OperatorTime,
        timers: Timers,
        ctx: TimerContext,
        on_timer: Callable[[int, Any], Iterable[Any] | None],
    ) -> None:
        self._operator = operator
        self._time = time
        self.timers = timers
        self._ctx = ctx
        self._call = on_timer
        self._copier = copier(operator.output_type)

    def fire_processing(self, produced: list[Any], stamps: list[int | None]) -> None:
        """Fire timers that are due by the clock; their output is appended without event time."""
        if len(self.timers.processing):
            self._fire(self.timers.processing, self._time.processing_time(), produced, stamps)

    def fire_event(self, produced: list[Any], stamps: list[int | None]) -> None:
        """Fire timers that are due by the watermark; their output has the timers' time."""
        if len(self.timers.event):
            self._fire(self.timers.event, self._time.current_watermark, produced, stamps)

    def _fire(self, queue: TimerQueue, until: int, produced: list[Any], stamps: list[int | None]) -> None:
        ctx, time, call = self._ctx, self._time, self._call
        is_event = queue.domain is TimeDomain.EVENT_TIME
        ctx.time_domain = queue.domain
        due = queue.due(until)
        extend = extending(produced, self._copier)
        try:
            for timestamp in due:
                ctx.timestamp = timestamp
                time.timestamp = timestamp if is_event else None
                some = call(timestamp, ctx)
                if some is not None:
                    extend(some)
                    stamps.extend(repeat(time.timestamp, len(produced) - len(stamps)))
        except Exception as cause:
            where = f"on_timer at {ctx.timestamp} for key {ctx.current_key!r}"
            raise user_error(self._operator, NO_RECORD, cause, where=where) from cause
        finally:
            due.close()  # type: ignore[attr-defined]  # a generator; after a failure it must let go of the key
            time.timestamp = None

    @property
    def next_due(self) -> int | None:
        """The time of the next processing-time timer."""
        return self.timers.processing.next_time


class KeyedProcess(Process):
    """One function under keys: process_element, both sides of a KeyedCoProcessFunction, map, flat_map and filter.

    Processing-time timers that are due when an epoch begins fire before its first record.
    """

    def __init__(
        self,
        operator: Operator,
        store: KeyedStateStore,
        time: OperatorTime,
        calls: Sequence[tuple[Call, Any]],
        *,
        outputs: SideOutputs | None = None,
        timers: DueTimers | None = None,
        after_records: Callable[[], Callable[[], None] | None] = lambda: None,
        is_stamped: bool = False,
        where: str | None = None,
    ) -> None:
        """Set up the calls. `after_records` returns what to call after each record of a batch, if anything."""
        self._operator = operator
        self._store = store
        self._time = time
        self._calls = calls  # for each side the call and its context
        self._outputs = outputs
        self._timers = timers
        self._after_records = after_records
        self._where = where
        self._is_stamped = is_stamped  # downstream of a timestamp assigner: output of event-time timers has their time
        self._has_begun = False  # whether the epoch has
        self._copier = copier(operator.output_type)

    def __call__(self, batch: Batch, keys: Batch | None, side: int = 0) -> Batch | None:
        assert keys is not None
        call, ctx = self._calls[side]
        produced: list[Any] = []
        stamps: list[int | None] = []
        if not self._has_begun:
            self._has_begun = True
            if self._timers is not None:
                self._timers.fire_processing(produced, stamps)
        after_record = self._after_records()  # asked each time: a function may declare states while it processes
        if batch.timestamps is None and after_record is None:
            self._run(batch.rows, keys.rows, call, ctx, produced)
            self._store.batch_ended()
            return Batch(self._operator.output_type, rows=produced)
        return self._run_stamped(batch, keys.rows, call, ctx, produced, stamps, after_record)

    def _run(self, rows: list[Any], keys: list[Any], call: Call, ctx: Any, produced: list[Any]) -> None:
        """Process records without timestamps: the hottest loop."""
        store, extend = self._store, produced.extend
        value = None
        try:
            if self._copier is None:
                for store.current_key, value in zip(keys, rows, strict=True):
                    some = call(value, ctx)
                    if some is not None:
                        extend(some)
                return
            append, exact, copy = produced.append, self._copier.exact, self._copier.copy
            for store.current_key, value in zip(keys, rows, strict=True):
                some = call(value, ctx)
                if some is not None:
                    for each in some:  # as `extending`, without a call
                        append(each if type(each) is exact else copy(each))
        except Exception as cause:
            raise user_error(self._operator, value, cause, where=self._where) from cause
        finally:
            store.current_key = NO_KEY

    def _run_stamped(
        self,
        batch: Batch,
        keys: list[Any],
        call: Call,
        ctx: Any,
        produced: list[Any],
        stamps: list[int | None],
        after_record: Callable[[], None] | None,
    ) -> Batch:
        """Process records with everything the hot loop leaves out: output has its record's timestamp, if any."""
        store, time = self._store, self._time
        extend = extending(produced, self._copier)
        times = batch.timestamps
        value = None
        try:
            for store.current_key, value, time.timestamp in zip(
                keys, batch.rows, times if times is not None else repeat(None, len(keys)), strict=True
            ):
                some = call(value, ctx)
                if some is not None:
                    extend(some)
                    stamps.extend(repeat(time.timestamp, len(produced) - len(stamps)))
                if after_record is not None:
                    after_record()
        except Exception as cause:
            raise user_error(self._operator, value, cause, where=self._where) from cause
        finally:
            store.current_key = NO_KEY
            time.timestamp = None
        return Batch(self._operator.output_type, rows=produced, timestamps=None if times is None else stamps)

    def advance(self, watermark: int) -> Batch | None:
        self._has_begun = False
        if self._timers is None:
            self._time.advance(watermark)
            return None
        produced: list[Any] = []
        stamps: list[int | None] = []
        self._timers.fire_processing(produced, stamps)
        self._time.advance(watermark)
        self._timers.fire_event(produced, stamps)
        if not produced:
            return None
        return Batch(self._operator.output_type, rows=produced, timestamps=stamps if self._is_stamped else None)

    @property
    def next_due(self) -> int | None:
        return self._timers.next_due if self._timers is not None else None

    @property
    def timers(self) -> Timers | None:
        return self._timers.timers if self._timers is not None else None

    def take_side_outputs(self) -> Mapping[str, Batch]:
        return self._outputs.take() if self._outputs is not None else {}


def as_flat(operator: Operator, call: Callable[[Any], Any]) -> Call:
    """Adapt a function of map, flat_map or filter on a keyed stream to the form of process_element."""
    if isinstance(operator.kind, MapKind):
        return lambda value, ctx: (call(value),)
    if isinstance(operator.kind, FilterKind):
        return lambda value, ctx: (value,) if call(value) else None
    return lambda value, ctx: call(value)
