"""Aggregates windows in event time epoch by epoch: the same results as record by record, with less work for each.

While an epoch runs the watermark stands still, so no window fires but for late records. Records are therefore combined
in memory, by window and key, and reach the state once, at the end of the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np

from checkdam.backends.contract import NO_KEY, KeyedStateStore
from checkdam.backends.keyed_state import OperatorKeyedState
from checkdam.errors import StateAccessError
from checkdam.graph.functions import AggregateFunction
from checkdam.graph.operators import Operator, WindowKind
from checkdam.graph.watermarks import MAX_WATERMARK
from checkdam.graph.windowing.assigners import SlidingEventTimeWindows, TumblingEventTimeWindows
from checkdam.graph.windowing.triggers import EventTimeTrigger
from checkdam.graph.windowing.window_contents import Aggregated, FieldAggregated, Reduced
from checkdam.graph.windowing.windows import TimeWindow
from checkdam.runtime.failures import NO_RECORD, user_error
from checkdam.runtime.slot.context import OperatorTime
from checkdam.runtime.slot.process import Process
from checkdam.runtime.slot.side_outputs import SideOutputs
from checkdam.runtime.slot.windows.window_process import WindowProcess
from checkdam.runtime.slot.windows.window_state import combiner
from checkdam.state.handle_checks import Fit
from checkdam.types.batch import Batch
from checkdam.types.type_info import Kind

_FIT_HINT = "Make the function return the type of its records, or of the accumulator; or declare another."

Held = dict[int, dict[Any, Any]]
"""By the start of a window or pane: what each key has in it."""


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
        made = PaneAggregation if has_panes(kind) else EpochAggregation
    return made(operator, store, time, states, outputs=outputs, is_stamped=is_stamped)


def is_aggregable(kind: WindowKind) -> bool:
    """Return whether records only have to be combined by window until the watermark passes its end.

    Overlapping windows must not share records that a function may change.
    """
    return (
        type(kind.assigner) in (TumblingEventTimeWindows, SlidingEventTimeWindows)
        and type(kind.trigger) is EventTimeTrigger
        and kind.evictor is None
        and isinstance(kind.contents, Reduced | FieldAggregated | Aggregated)
        and (kind.contents.record.is_immutable or type(kind.assigner) is TumblingEventTimeWindows)
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


class EpochAggregation(WindowProcess):
    """Windows whose records are combined in memory until the end of the epoch."""

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
        contents, assigner = self._kind.contents, self._kind.assigner
        assert isinstance(assigner, TumblingEventTimeWindows | SlidingEventTimeWindows)
        assert isinstance(contents, Reduced | FieldAggregated | Aggregated)
        self._size = assigner.size
        self._slide = assigner.slide if isinstance(assigner, SlidingEventTimeWindows) else assigner.size
        self._offset = assigner.offset
        self._table = self._contents.table
        kept = contents.accumulator if isinstance(contents, Aggregated) else contents.record
        self._fit = Fit(kept, f"what operator {operator.title} keeps for a window", hint=_FIT_HINT)
        self._combine = _combining(contents)
        self._result = contents.function.get_result if isinstance(contents, Aggregated) else _unchanged
        self._held: Held = {}
        self._new: dict[int, list[Any]] = {}  # by start of a window: the keys for which it has begun in this epoch
        # Windows that end until then may have been restored from another trigger or lateness, without their timers
        self._restored_until = max((window.max_timestamp for _, window in self._timers.event.holders), default=None)
        # A record's oldest window begins at most this long before its latest
        self._spread = (math.ceil(self._size / self._slide) - 1) * self._slide

    def __call__(self, batch: Batch, keys: Batch | None, side: int = 0) -> Batch | None:
        assert keys is not None
        times = batch.timestamps
        if times is None or None in times or MAX_WATERMARK in times:
            return super().__call__(batch, keys, side)  # which refuses such a record
        stamps = np.asarray(times, dtype=np.int64)
        latest = stamps - (stamps - self._offset) % self._slide  # the start of the latest window of each record
        is_on_time = latest - self._spread + self._size - 1 > self._time.current_watermark
        if is_on_time.all():
            if len(stamps):
                self._gather(keys.rows, batch.rows, stamps, latest)
            return None
        rows, all_keys = batch.rows, keys.rows
        if self._slide < self._size:
            # A record may be late for one of its windows while another is open: its key's order must be kept in that.
            behind = {all_keys[at] for at in np.flatnonzero(~is_on_time).tolist()}
            is_on_time = np.fromiter((key not in behind for key in all_keys), dtype=bool, count=len(all_keys))
            self._apply()
        on_time, late = np.flatnonzero(is_on_time).tolist(), np.flatnonzero(~is_on_time).tolist()
        if on_time:
            chosen = [all_keys[at] for at in on_time], [rows[at] for at in on_time]
            self._gather(*chosen, stamps[is_on_time], latest[is_on_time])
        one_by_one = Batch(batch.type, rows=[rows[at] for at in late], timestamps=[times[at] for at in late])
        return super().__call__(one_by_one, Batch(keys.type, rows=[all_keys[at] for at in late]), side)

    def flush(self) -> Batch | None:
        self._apply()
        return None

    def advance(self, watermark: int) -> Batch | None:
        self._has_begun = False
        self._time.advance(watermark)
        for _ in self._timers.processing.take_due(self._time.processing_time()):
            pass  # left by a trigger that the job had before it was restored
        for time, holders in self._timers.event.take_due(watermark):
            self._end_windows(time, holders)
        return self._taken()

    # ---- records

    def _gather(self, keys: list[Any], rows: list[Any], stamps: Any, latest: Any) -> None:
        """Combine records into all windows that they belong to, in each window in the order of arrival."""
        for start, chosen in self._by_window(stamps, latest):
            some_keys, some_rows = keys, rows
            if len(chosen) < len(keys):
                some_keys, some_rows = [keys[at] for at in chosen], [rows[at] for at in chosen]
            held = self._held.setdefault(start, {})
            self._load(start, held, some_keys)
            self._run(held, some_keys, some_rows)

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

    def _run(self, held: dict[Any, Any], keys: list[Any], rows: list[Any]) -> None:
        combine = self._combine
        value = None
        try:
            for key, value in zip(keys, rows, strict=True):
                held[key] = combine(held[key], value)
        except Exception as cause:
            raise user_error(self._operator, value, cause) from cause

    def _apply(self) -> None:
        """Write what the epoch's records were combined to into the state, and register the ends of new windows."""
        held, self._held = self._held, {}
        new, self._new = self._new, {}
        for start, values in held.items():
            window = TimeWindow(start, start + self._size)
            added = {(key, window): value for key, value in values.items()}
            self._check(added)
            self._table.put_all(added)
            self._register(window, values if self._may_be_restored(window) else new.get(start, ()))

    def _check(self, added: Mapping[Any, Any]) -> None:
        """Refuse values that are not of the state's type, naming key and window."""
        try:
            self._fit.check_all(list(added.values()))
        except StateAccessError:
            for (key, window), value in added.items():
                try:
                    self._fit.check(value)
                except StateAccessError as cause:
                    where = f"window {window} of key {key!r}"
                    raise user_error(self._operator, NO_RECORD, cause, where=where) from cause

    def _may_be_restored(self, window: TimeWindow) -> bool:
        return self._restored_until is not None and window.max_timestamp <= self._restored_until

    def _register(self, window: TimeWindow, keys: Collection[Any]) -> None:
        """Register the timers of a window that has begun for these keys."""
        if not keys:
            return
        holders = [(key, window) for key in keys]
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
        store, ctx, call, result = self._store, self._window_ctx, self._emission.call, self._result
        try:
            for holder, kept in zip(firing, self._table.get_all(firing), strict=True):
                if kept is None:
                    continue  # purged by a trigger that the job had before it was restored
                store.current_key, store.current_namespace = key, ctx.window = holder
                element = result(kept)
                if element is not None:
                    self._extend(call(key, ctx, [element]), ctx.window)
            self._table.remove_all(self._filled(ending) if self._may_be_restored_at(time) else ending)
            self._clear_windows(ending)
        except Exception as cause:
            where = f"window {ctx.window} of key {store.current_key!r}"
            raise user_error(self._operator, NO_RECORD, cause, where=where) from cause
        finally:
            store.current_key, store.current_namespace = NO_KEY, None

    def _may_be_restored_at(self, time: int) -> bool:
        return self._restored_until is not None and time <= self._restored_until + self._lateness

    def _filled(self, holders: list[Any]) -> list[Any]:
        """Return those that have contents."""
        found = self._table.get_all(holders)
        return [holder for holder, kept in zip(holders, found, strict=True) if kept is not None]

    def _clear_windows(self, holders: list[Any]) -> None:
        clear, store, ctx = self._emission.clear, self._store, self._window_ctx
        if clear is not None:
            for holder in holders:
                store.current_key, store.current_namespace = _, ctx.window = holder
                clear(ctx)


class PaneAggregation(EpochAggregation):
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
        contents = self._kind.contents
        self._pane = math.gcd(self._size, self._slide)
        self._merge_two: Callable[[Any, Any], Any] = (
            contents.function.merge if isinstance(contents, Aggregated) else self._combine
        )
        self._panes: dict[Any, dict[int, Any]] = {}  # by key: what each pane was combined to, the first to arrive first

    def _gather(self, keys: list[Any], rows: list[Any], stamps: Any, latest: Any) -> None:
        combine, panes = self._combine, self._panes
        starts = (stamps - (stamps - self._offset) % self._pane).tolist()
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
        panes, self._panes = self._panes, {}
        try:
            added = self._spread_over_windows(panes)
            new: dict[TimeWindow, list[Any]] = {}
            for entry, kept in zip(added, self._table.get_all(list(added)), strict=True):
                if kept is None or self._may_be_restored(entry[1]):
                    new.setdefault(entry[1], []).append(entry[0])
                if kept is not None:
                    added[entry] = self._merge_two(kept, added[entry])
        except Exception as cause:
            raise user_error(self._operator, NO_RECORD, cause, where="merge") from cause
        self._check(added)
        self._table.put_all(added)
        for window, keys in new.items():
            self._register(window, keys)

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

        Panes are merged in the order in which the first record of each has arrived.
        """
        size, slide = self._size, self._slide
        arrival = {pane: number for number, pane in enumerate(panes)}
        ordered = sorted(panes)
        first = after = 0  # the panes of the window are ordered[first:after]
        merged: Any = None
        within: list[int] = []
        start = self._earliest_window(ordered[0])
        while start <= ordered[-1]:
            while first < len(ordered) and ordered[first] < start:
                first += 1
            while after < len(ordered) and ordered[after] < start + size:
                after += 1
            if first == after:
                start = self._earliest_window(ordered[first])
                continue
            if within != (contained := sorted(ordered[first:after], key=arrival.__getitem__)):
                is_longer = bool(within) and contained[: len(within)] == within
                merged = merged if is_longer else panes[contained[0]]
                for pane in contained[len(within) if is_longer else 1 :]:
                    merged = self._merge_two(merged, panes[pane])
                within = contained
            yield start, merged
            start += slide

    def _earliest_window(self, pane: int) -> int:
        """Return the start of the earliest window that contains a pane."""
        start = pane + self._pane - self._size
        return start + (self._offset - start) % self._slide


def _combining(contents: Reduced | FieldAggregated | Aggregated) -> Callable[[Any, Any], Any]:
    """Return the function that combines what is kept, None at first, with a record."""
    if isinstance(contents, Aggregated):
        create, add = contents.function.create_accumulator, contents.function.add

        def added(kept: Any, value: Any) -> Any:
            accumulator = add(value, create() if kept is None else kept)
            if accumulator is None:
                raise TypeError("add(value, accumulator) returned None: it must return the accumulator")
            return accumulator

        return added
    combine = combiner(contents)

    def combined(kept: Any, value: Any) -> Any:
        result = value if kept is None else combine(kept, value)
        if result is None:
            raise TypeError("two records were combined into None, which is no record")
        return result

    return combined


def _unchanged(kept: Any) -> Any:
    return kept
