"""Aggregates windows in event time epoch by epoch: the same results as record by record, with less work for each.

While an epoch runs the watermark stands still, so no window fires but for late records. Records are therefore combined
in memory, by window and key, and reach the state once, at the end of the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import Any

import numpy as np

from checkdam.backends.contract import NO_KEY, KeyedStateStore
from checkdam.backends.keyed_state import OperatorKeyedState
from checkdam.errors import StateAccessError
from checkdam.graph.operators import Operator
from checkdam.graph.watermarks import MAX_WATERMARK
from checkdam.graph.windowing.window_contents import Aggregated, FieldAggregated, Reduced
from checkdam.graph.windowing.windows import TimeWindow
from checkdam.runtime.failures import NO_RECORD, user_error
from checkdam.runtime.slot.context import OperatorTime
from checkdam.runtime.slot.side_outputs import SideOutputs
from checkdam.runtime.slot.windows.window_process import WindowProcess
from checkdam.runtime.slot.windows.window_state import combiner
from checkdam.state.handle_checks import Fit
from checkdam.types.batch import Batch
from checkdam.types.record_copies import extending

NO_ACCUMULATOR = "add(value, accumulator) returned None: it must return the accumulator"
_FIT_HINT = "Make the function return the type of its records, or of the accumulator; or declare another."


class EpochAggregation(WindowProcess):
    """Windows whose records are combined in memory until the end of the epoch.

    Records that are late for one of their windows are handled one by one. Unless each record has one window, so are all
    other records of their keys in the batch: the order within a key must be kept.
    """

    _has_one_window = False  # whether a record belongs to one window, which records of other times do not change

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
        assert isinstance(contents, Reduced | FieldAggregated | Aggregated)
        self._table = self._contents.table
        kept = contents.accumulator if isinstance(contents, Aggregated) else contents.record
        self._fit = Fit(kept, f"what operator {operator.title} keeps for a window", hint=_FIT_HINT)
        self._combine = _combining(contents)
        self._merge_two = _merging(contents)
        self._result = contents.function.get_result if isinstance(contents, Aggregated) else _unchanged
        # Windows that end until then may have been restored from another trigger or lateness, without their timers
        self._restored_until = max((window.max_timestamp for _, window in self._timers.event.holders), default=None)

    def __call__(self, batch: Batch, keys: Batch | None, side: int = 0) -> Batch | None:
        assert keys is not None
        times = batch.timestamps
        if times is None or None in times or MAX_WATERMARK in times:
            return super().__call__(batch, keys, side)  # which refuses such a record
        stamps = np.asarray(times, dtype=np.int64)
        bounds = self._bounds(batch, stamps)
        is_on_time = self._are_on_time(bounds)
        if is_on_time.all():
            if len(stamps) and not self._add_columns(batch, keys, stamps, bounds):
                self._gather(keys.rows, batch.rows, stamps, bounds)
            return None
        rows, all_keys = batch.rows, keys.rows
        if not self._has_one_window:
            behind = {all_keys[at] for at in np.flatnonzero(~is_on_time).tolist()}
            is_on_time = np.fromiter((key not in behind for key in all_keys), dtype=bool, count=len(all_keys))
            self._apply()
        on_time, late = np.flatnonzero(is_on_time).tolist(), np.flatnonzero(~is_on_time).tolist()
        if on_time:
            chosen = [all_keys[at] for at in on_time], [rows[at] for at in on_time]
            self._gather(*chosen, stamps[is_on_time], bounds[is_on_time])
        one_by_one = Batch(batch.type, rows=[rows[at] for at in late], timestamps=[times[at] for at in late])
        return super().__call__(one_by_one, Batch(keys.type, rows=[all_keys[at] for at in late]), side)

    def flush(self) -> Batch | None:
        self._apply()
        return None

    def advance(self, watermark: int) -> Batch | None:
        self._has_begun = False
        self._time.advance(watermark)
        self._timers.processing.take_due(self._time.processing_time())  # of a trigger that the job had before
        self._end_due(watermark)
        return self._taken()

    def _bounds(self, batch: Batch, stamps: Any) -> Any:
        """Return a number for each record that tells its windows, together with its timestamp."""
        raise NotImplementedError

    def _are_on_time(self, bounds: Any) -> Any:
        """Return for each record whether all its windows are still open."""
        raise NotImplementedError

    def _add_columns(self, batch: Batch, keys: Batch, stamps: Any, bounds: Any) -> bool:
        """Keep records as columns until `_apply`, if they can be combined so. Return whether they are kept."""
        return False

    def _gather(self, keys: list[Any], rows: list[Any], stamps: Any, bounds: Any) -> None:
        """Combine records into all windows that they belong to, in each window in the order of arrival."""
        raise NotImplementedError

    def _apply(self) -> None:
        """Write what the epoch's records were combined to into the state, and register the ends of new windows."""
        raise NotImplementedError

    def _end_due(self, watermark: int) -> None:
        """Emit the windows whose end is reached, and clear those that no late record can reach."""
        raise NotImplementedError

    def _fold(self, held: dict[Any, Any], keys: list[Any], rows: list[Any]) -> None:
        """Combine records, in their order, with what their keys hold, if anything."""
        get, value = held.get, None
        try:
            if isinstance(self._kind.contents, Aggregated):  # without a call in between, for the sake of speed
                create, add = self._kind.contents.function.create_accumulator, self._kind.contents.function.add
                for key, value in zip(keys, rows, strict=True):
                    kept = get(key)
                    held[key] = kept = add(value, create() if kept is None else kept)
                    if kept is None:
                        raise TypeError(NO_ACCUMULATOR)
                return
            combine = self._combine
            for key, value in zip(keys, rows, strict=True):
                held[key] = combine(get(key), value)
        except Exception as cause:
            raise user_error(self._operator, value, cause) from cause

    def _emitter(self) -> Callable[[tuple[Any, TimeWindow], Any], None]:
        """Return a function that emits a window, given by key and window, with what is kept for it.

        Both are current afterwards. Call it within `_errors_named`, with the window's time as the current timestamp.
        """
        store, ctx, call, result = self._store, self._window_ctx, self._emission.call, self._result
        produced, stamps, extend = self._produced, self._stamps, extending(self._produced, self._copier)

        def emit(holder: tuple[Any, TimeWindow], kept: Any) -> None:
            store.current_key, store.current_namespace = key, ctx.window = holder
            element = None if kept is None else result(kept)  # a trigger that the job had before may have purged it
            some = None if element is None else call(key, ctx, [element])
            if some is not None:
                extend(some)
                stamps.extend(repeat(holder[1].end - 1, len(produced) - len(stamps)))

        return emit

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        """Let errors name the current window and key. Make none current afterwards, nor a timestamp."""
        store = self._store
        try:
            yield
        except Exception as cause:
            where = f"window {store.current_namespace} of key {store.current_key!r}"
            raise user_error(self._operator, NO_RECORD, cause, where=where) from cause
        finally:
            store.current_key, store.current_namespace = NO_KEY, None
            self._time.timestamp = None

    def _check(self, values: list[Any], holders: Iterable[tuple[Any, Any]]) -> None:
        """Refuse values that are not of the state's type, naming key and window of the first one."""
        try:
            self._fit.check_all(values)
        except StateAccessError:
            for (key, window), value in zip(holders, values, strict=True):
                try:
                    self._fit.check(value)
                except StateAccessError as cause:
                    where = f"window {window} of key {key!r}"
                    raise user_error(self._operator, NO_RECORD, cause, where=where) from cause

    def _may_be_restored(self, window: TimeWindow) -> bool:
        return self._restored_until is not None and window.max_timestamp <= self._restored_until


def _combining(contents: Reduced | FieldAggregated | Aggregated) -> Callable[[Any, Any], Any]:
    """Return the function that combines what is kept, None at first, with a record."""
    if isinstance(contents, Aggregated):
        create, add = contents.function.create_accumulator, contents.function.add

        def added(kept: Any, value: Any) -> Any:
            accumulator = add(value, create() if kept is None else kept)
            if accumulator is None:
                raise TypeError(NO_ACCUMULATOR)
            return accumulator

        return added
    combine = combiner(contents)
    if isinstance(contents, FieldAggregated):
        return lambda kept, value: value if kept is None else combine(kept, value)

    def combined(kept: Any, value: Any) -> Any:
        result = value if kept is None else combine(kept, value)
        if result is None:
            raise TypeError("two records were combined into None, which is no record")
        return result

    return combined


def _merging(contents: Reduced | FieldAggregated | Aggregated) -> Callable[[Any, Any], Any]:
    """Return the function that combines what is kept of two windows that become one."""
    if isinstance(contents, FieldAggregated):
        return combiner(contents)
    merge = contents.function.merge if isinstance(contents, Aggregated) else combiner(contents)

    def merged(one: Any, other: Any) -> Any:
        result = merge(one, other)
        if result is None:
            raise TypeError("the contents of two windows were combined into None")
        return result

    return merged


def _unchanged(kept: Any) -> Any:
    return kept
