"""Aggregates tumbling and sliding windows in event time epoch by epoch."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from checkdam.backends.contract import KeyedStateStore
from checkdam.backends.keyed_state import OperatorKeyedState
from checkdam.graph.operators import KeySelector, Operator
from checkdam.graph.watermarks import MAX_WATERMARK
from checkdam.graph.windowing.assigners import SlidingEventTimeWindows, TumblingEventTimeWindows
from checkdam.graph.windowing.window_contents import FieldAggregated, Reduced
from checkdam.graph.windowing.windows import TimeWindow
from checkdam.runtime.failures import NO_RECORD, user_error
from checkdam.runtime.slot.column_aggregates import ColumnAggregate
from checkdam.runtime.slot.context import OperatorTime
from checkdam.runtime.slot.side_outputs import SideOutputs
from checkdam.runtime.slot.windows.epoch_aggregation import EpochAggregation
from checkdam.runtime.slot.windows.window_columns import WindowColumns
from checkdam.types.batch import Batch

Held = dict[int, dict[Any, Any]]
"""By the start of a window or pane: what each key has in it."""


class FixedWindowAggregation(EpochAggregation):
    """Tumbling and sliding windows, each record combined with what every one of its windows holds."""

    def __init__(
        self,
        operator: Operator,
        store: KeyedStateStore,
        time: OperatorTime,
        states: OperatorKeyedState,
        *,
        outputs: SideOutputs,
        is_stamped: bool,
    ) -> None:
        super().__init__(operator, store, time, states, outputs=outputs, is_stamped=is_stamped)
        assigner = self._kind.assigner
        assert isinstance(assigner, TumblingEventTimeWindows | SlidingEventTimeWindows)
        self._size = assigner.size
        self._slide = assigner.slide if isinstance(assigner, SlidingEventTimeWindows) else assigner.size
        self._offset = assigner.offset
        self._has_one_window = self._slide >= self._size
        self._held: Held = {}
        self._new: dict[int, list[Any]] = {}  # by start of a window: the keys for which it has begun in this epoch
        self._begun: set[int] = set()  # the starts of windows that have begun in earlier epochs, of this attempt
        self._columns: WindowColumns | None = None  # only where a record belongs to one window or pane
        contents, key = self._kind.contents, operator.key
        if self._has_one_window and key is not None and isinstance(contents, FieldAggregated | Reduced):
            self._use_columns(ColumnAggregate.of_window(contents, key), key)
        # A record's oldest window begins at most this long before its latest
        self._spread = (math.ceil(self._size / self._slide) - 1) * self._slide

    def _bounds(self, batch: Batch, stamps: Any) -> Any:
        """Return the start of the latest window of each record."""
        return stamps - (stamps - self._offset) % self._slide

    def _are_on_time(self, bounds: Any) -> Any:
        return bounds - self._spread + self._size - 1 > self._time.current_watermark

    def _end_due(self, watermark: int) -> None:
        while due := self._timers.event.take_due(watermark):
            for time, holders in due:
                self._end_windows(time, holders)

    def _use_columns(self, aggregate: ColumnAggregate | None, key: KeySelector) -> None:
        if aggregate is not None:
            self._columns = WindowColumns(aggregate, key.type)

    # ---- records

    def _add_columns(self, batch: Batch, keys: Batch, stamps: Any, bounds: Any) -> bool:
        if self._columns is None or (stamps >= bounds + self._size).any():  # in no window
            return False
        return self._columns.add(batch, keys, bounds)

    def _apply_columns(self) -> None:
        """Combine the records that were kept as columns with the others of the epoch."""
        combine = self._combine
        for start, keys, records in () if self._columns is None else self._columns.take():
            held = self._held.setdefault(start, {})
            if not self._is_new(start):
                self._load(start, held, keys)
            for key, record in zip(keys, records, strict=True):
                held[key] = combine(held.get(key), record)

    def _gather(self, keys: list[Any], rows: list[Any], stamps: Any, bounds: Any) -> None:
        for start, chosen in self._by_window(stamps, bounds):
            some_keys, some_rows = keys, rows
            if len(chosen) < len(keys):
                some_keys, some_rows = [keys[at] for at in chosen], [rows[at] for at in chosen]
            held = self._held.setdefault(start, {})
            if not self._is_new(start):
                self._load(start, held, some_keys)
            self._fold(held, some_keys, some_rows)

    def _by_window(self, stamps: Any, latest: Any) -> Iterator[tuple[int, list[int]]]:
        """Yield the start of each window and the positions of its records, in the order of arrival."""
        order = np.argsort(latest, kind="stable")
        starts, first = np.unique(latest[order], return_index=True)
        groups = dict(zip(starts.tolist(), np.split(order, first[1:]), strict=True))  # by their latest window
        shifts = range(0, self._size, self._slide)
        for start in np.unique(np.concatenate([starts - shift for shift in shifts])).tolist():
            parts = [groups[start + shift] for shift in shifts if start + shift in groups]
            chosen = parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))
            chosen = chosen[stamps[chosen] < start + self._size]
            if len(chosen):
                yield start, chosen.tolist()

    def _is_new(self, start: int) -> bool:
        """Return whether no key has anything in a window before this epoch, so that it need not be looked up.

        Only of windows that a record does not share with others: those are written in the middle of an epoch too.
        """
        if not self._has_one_window or start in self._begun:
            return False
        return self._restored_until is None or start + self._size - 1 > self._restored_until

    def _load(self, start: int, held: dict[Any, Any], keys: list[Any]) -> None:
        """Load what the state has for keys that occur in a window for the first time in this epoch."""
        unknown = [key for key in dict.fromkeys(keys) if key not in held]
        if not unknown:
            return
        window = TimeWindow(start, start + self._size)
        found = self._table.get_all([(key, window) for key in unknown])
        held.update(zip(unknown, found, strict=True))
        new = [key for key, value in zip(unknown, found, strict=True) if value is None]
        if new:
            self._new.setdefault(start, []).extend(new)

    def _apply(self) -> None:
        self._apply_columns()
        held, self._held = self._held, {}
        new, self._new = self._new, {}
        for start, values in held.items():
            window = TimeWindow(start, start + self._size)
            added = {(key, window): value for key, value in values.items()}
            self._check(list(values.values()), added)
            self._table.put_all(added)
            if self._is_new(start) or self._may_be_restored(window):
                self._register(window, added)
            else:
                self._register(window, [(key, window) for key in new.get(start, ())])
        self._begun.update(held)

    def _register(self, window: TimeWindow, holders: Collection[Any]) -> None:
        """Register the timers of a window that has begun, for each holder: key and window."""
        if not holders:
            return
        self._timers.event.register_all(window.max_timestamp, holders)
        end = self._end_of(window)
        if self._lateness and end != MAX_WATERMARK:
            self._timers.event.register_all(end, holders)

    # ---- windows that end

    def _end_windows(self, time: int, holders: list[Any]) -> None:
        """Emit the windows whose end is reached at this time, and clear those that no late record can reach."""
        firing = [holder for holder in holders if holder[1].max_timestamp == time]
        ending = firing if not self._lateness else [each for each in holders if self._end_of(each[1]) == time]
        if self._lateness and firing and self._may_be_restored(firing[0][1]):
            self._timers.event.register_all(self._end_of(firing[0][1]), firing)  # the lateness may be a new one
        contents = self._table.get_all(firing)
        with self._errors_named():
            emit = self._emitter()
            self._time.timestamp = time
            for holder, kept in zip(firing, contents, strict=True):
                emit(holder, kept)
        self._table.remove_all(self._filled(ending) if self._may_be_restored_at(time) else ending)
        self._clear_windows(ending)
        self._begun.discard(time + 1 - self._size)

    def _may_be_restored_at(self, time: int) -> bool:
        return self._restored_until is not None and time <= self._restored_until + self._lateness

    def _filled(self, holders: list[Any]) -> list[Any]:
        """Return those that have contents."""
        found = self._table.get_all(holders)
        return [holder for holder, kept in zip(holders, found, strict=True) if kept is not None]

    def _clear_windows(self, holders: list[Any]) -> None:
        clear, store, ctx = self._emission.clear, self._store, self._window_ctx
        if clear is None:
            return
        with self._errors_named():
            for holder in holders:
                store.current_key, store.current_namespace = _, ctx.window = holder
                self._time.timestamp = holder[1].max_timestamp
                clear(ctx)


class PaneAggregation(FixedWindowAggregation):
    """Sliding windows: records are combined once for each pane, and the result goes into all windows of the pane.

    Panes are the parts into which the bounds of all windows divide time.
    """

    def __init__(
        self,
        operator: Operator,
        store: KeyedStateStore,
        time: OperatorTime,
        states: OperatorKeyedState,
        *,
        outputs: SideOutputs,
        is_stamped: bool,
    ) -> None:
        super().__init__(operator, store, time, states, outputs=outputs, is_stamped=is_stamped)
        self._pane = math.gcd(self._size, self._slide)
        self._panes: dict[Any, dict[int, Any]] = {}  # by key: what each pane was combined to, the first to arrive first
        contents = self._kind.contents
        if operator.key is not None and isinstance(contents, FieldAggregated):
            self._use_columns(ColumnAggregate.of_window(contents, operator.key), operator.key)

    def _add_columns(self, batch: Batch, keys: Batch, stamps: Any, bounds: Any) -> bool:
        return self._columns is not None and self._columns.add(batch, keys, self._panes_of(stamps))

    def _apply_columns(self) -> None:
        combine, panes = self._combine, self._panes
        for start, keys, records in () if self._columns is None else self._columns.take():
            for key, record in zip(keys, records, strict=True):
                own = panes.setdefault(key, {})
                own[start] = combine(own.get(start), record)

    def _panes_of(self, stamps: Any) -> Any:
        return stamps - (stamps - self._offset) % self._pane

    def _gather(self, keys: list[Any], rows: list[Any], stamps: Any, bounds: Any) -> None:
        combine, panes = self._combine, self._panes
        starts = self._panes_of(stamps).tolist()
        value = None
        try:
            for key, value, start in zip(keys, rows, starts, strict=True):
                own = panes.get(key)
                if own is None:
                    panes[key] = {start: combine(None, value)}
                else:
                    own[start] = combine(own.get(start), value)
        except Exception as cause:
            raise user_error(self._operator, value, cause) from cause

    def _apply(self) -> None:
        self._apply_columns()
        panes, self._panes = self._panes, {}
        try:
            added = self._spread_over_windows(panes)
            new: dict[TimeWindow, list[tuple[Any, TimeWindow]]] = {}
            for entry, kept in zip(added, self._table.get_all(list(added)), strict=True):
                if kept is None or self._may_be_restored(entry[1]):
                    new.setdefault(entry[1], []).append(entry)
                if kept is not None:
                    added[entry] = self._merge_two(kept, added[entry])
        except Exception as cause:
            raise user_error(self._operator, NO_RECORD, cause, where="merge") from cause
        self._check(list(added.values()), added)
        self._table.put_all(added)
        for window, holders in new.items():
            self._register(window, holders)

    def _spread_over_windows(self, panes: dict[Any, dict[int, Any]]) -> dict[tuple[Any, TimeWindow], Any]:
        """Return what the panes of each key combine to in each window that contains one of them."""
        windows: dict[int, TimeWindow] = {}
        added: dict[tuple[Any, TimeWindow], Any] = {}
        for key, own in panes.items():
            for start, value in self._windows_of(own):
                window = windows.get(start)
                if window is None:
                    window = windows[start] = TimeWindow(start, start + self._size)
                added[key, window] = value
        return added

    def _windows_of(self, panes: dict[int, Any]) -> Iterator[tuple[int, Any]]:
        """Yield the start of each window that contains panes of a key, with what these combine to.

        Both ends of the window only move forwards. What its panes combine to is kept in two parts, so that each pane is
        merged a few times, however many windows contain it: `older[first]` is that of ordered[first:split], and
        `newer` that of ordered[split:after].
        """
        size, slide, joined = self._size, self._slide, self._joined
        arrival = {pane: number for number, pane in enumerate(panes)}
        ordered = sorted(panes)
        parts = [(arrival[pane], panes[pane]) for pane in ordered]
        older: list[Any] = [None] * len(parts)
        newer: Any = None
        merged: Any = None
        first = split = after = 0
        start = self._earliest_window(ordered[0])
        while start <= ordered[-1]:
            is_same = True
            while first < len(ordered) and ordered[first] < start:
                first, is_same = first + 1, False
            while after < len(ordered) and ordered[after] < start + size:
                newer = joined(newer, parts[after])
                after, is_same = after + 1, False
            if first == after:
                start, newer = self._earliest_window(ordered[first]), None
                continue
            if first >= split:
                part = None
                for position in reversed(range(first, after)):
                    older[position] = part = joined(parts[position], part)
                split, newer = after, None
            if not is_same:
                merged = joined(older[first], newer)[1]
            yield start, merged
            start += slide

    def _joined(self, one: Any, other: Any) -> Any:
        """Merge two parts, each None or when it arrived first and its value: the one that did so comes first."""
        if one is None or other is None:
            return other if one is None else one
        if one[0] < other[0]:
            return one[0], self._merge_two(one[1], other[1])
        return other[0], self._merge_two(other[1], one[1])

    def _earliest_window(self, pane: int) -> int:
        """Return the start of the earliest window that contains a pane."""
        start = pane + self._pane - self._size
        return start + (self._offset - start) % self._slide
