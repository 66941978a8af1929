"""Runs windows record by record: assigns each to its windows, asks the trigger, and emits the windows that fire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, cast

from checkdam.backends.contract import NO_KEY, Cells, KeyedStateStore
from checkdam.backends.keyed_state import OperatorKeyedState
from checkdam.graph.contexts import TimeDomain
from checkdam.graph.operators import Operator, WindowKind
from checkdam.graph.watermarks import MAX_WATERMARK, MIN_WATERMARK
from checkdam.graph.windowing.assigners import MergingWindowAssigner, checked_window_type
from checkdam.graph.windowing.evictors import TimestampedValue
from checkdam.graph.windowing.triggers import TriggerResult
from checkdam.graph.windowing.window_contents import MERGING_WINDOWS, TwoSided
from checkdam.runtime.failures import NO_RECORD, user_error
from checkdam.runtime.slot.context import OperatorTime
from checkdam.runtime.slot.process import Process
from checkdam.runtime.slot.side_outputs import FunctionOutputs, SideOutputs
from checkdam.runtime.slot.timers import TimerQueue, Timers, timer_state
from checkdam.runtime.slot.windows.merging_windows import MergingWindows
from checkdam.runtime.slot.windows.restored_windows import check_merging
from checkdam.runtime.slot.windows.user_checks import checked_assign, checked_evictor, checked_merge
from checkdam.runtime.slot.windows.window_calls import emission
from checkdam.runtime.slot.windows.window_contexts import TimesContext, TriggerCallContext, WindowCallContext
from checkdam.runtime.slot.windows.window_state import WindowState
from checkdam.state.descriptors import ListStateDescriptor
from checkdam.types.batch import Batch
from checkdam.types.record_copies import copier, extending
from checkdam.types.type_info import TypeInfo, tuple_of


def window_type(kind: WindowKind) -> TypeInfo:
    """Return the type of the operator's windows: the namespace of their state."""
    return checked_window_type(kind.assigner)


def merging_state(of: TypeInfo) -> ListStateDescriptor[Any]:
    """Return the state that holds the windows of a key that may merge."""
    pair: Any = tuple_of([of, of])
    return ListStateDescriptor(MERGING_WINDOWS, pair)


def declare_window_states(kind: WindowKind, store: KeyedStateStore, states: OperatorKeyedState) -> None:
    """Ask for the states that windows keep, without running any."""
    of_window = window_type(kind)
    if isinstance(kind.assigner, MergingWindowAssigner):
        states.get_list_state(merging_state(of_window))
    own_states = OperatorKeyedState(store, OperatorTime(), states.uid, namespace=of_window)
    WindowState(own_states, kind.contents, keeps_all=kind.evictor is not None)
    for descriptor in kind.trigger.states:
        own_states.get(descriptor)
    for domain in (TimeDomain.EVENT_TIME, TimeDomain.PROCESSING_TIME):
        store.table(timer_state(domain, of_window))


class WindowProcess(Process):
    """Windows of one operator in one subtask, by Flink's rules.

    The watermark moves at the end of an epoch: during the epoch a record is late if its windows had ended by the
    watermark of the epoch before.
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
        """Set up the windows. `states` is the keyed state of the operator that belongs to no window."""
        kind = operator.kind
        assert isinstance(kind, WindowKind)
        self._operator = operator
        self._store = store
        self._time = time
        self._outputs = outputs
        self._is_stamped = is_stamped
        self._kind = kind
        self._trigger = kind.trigger
        self._by_event_time = kind.assigner.is_event_time()
        self._lateness = kind.allowed_lateness
        check_merging(states.uid, kind, store.not_asked_for)
        of_window = window_type(kind)
        self._assign = checked_assign(kind.assigner, of_window)
        own_states = OperatorKeyedState(store, time, states.uid, namespace=of_window)
        self._merging = None
        if isinstance(kind.assigner, MergingWindowAssigner):
            self._merge_windows = checked_merge(kind.assigner, of_window)
            merging = states.table_of(merging_state(of_window))
            merging.promise_no_change_in_place()  # `MergingWindows.pairs` is a new list each time
            self._merging = cast(Cells, merging)
        self._contents = WindowState(own_states, kind.contents, keeps_all=kind.evictor is not None)
        for descriptor in kind.trigger.states:
            own_states.get(descriptor)
        self._timers = Timers(store, time, of_window)
        self._times = TimesContext(time)
        self._ctx = TriggerCallContext(store, time, self._timers, own_states)
        function_outputs = FunctionOutputs(outputs, [kind.late_tag])
        self._window_ctx = WindowCallContext(
            time, own_states if self._merging is None else None, states, function_outputs
        )
        self._evict = None if kind.evictor is None else checked_evictor(kind.evictor)
        self._emission = emission(kind.function, kind.contents, is_evicted=kind.evictor is not None)
        contents = kind.contents
        self._is_two_sided = isinstance(contents, TwoSided)
        kept = (contents.first, contents.second) if isinstance(contents, TwoSided) else (contents.record,)
        self._copiers = [copier(of) for of in kept]
        self._has_begun = False  # whether the epoch has
        self.late_records_dropped: int = 0
        self._copier = copier(operator.output_type)
        self._produced: list[Any] = []
        self._stamps: list[int | None] = []

    def __call__(self, batch: Batch, keys: Batch | None, side: int = 0) -> Batch | None:
        assert keys is not None
        self._begin()
        times = batch.timestamps
        time, reached = self._time, self._reached()
        value = None
        try:
            for self._store.current_key, value, timestamp in zip(
                keys.rows, batch.rows, times if times is not None else repeat(None, len(keys)), strict=True
            ):
                time.timestamp = reached if timestamp is None else timestamp
                self._add(value, timestamp, side)
        except Exception as cause:
            raise user_error(self._operator, value, cause) from cause
        finally:
            self._store.current_key, self._store.current_namespace = NO_KEY, None
            time.timestamp = None
        return self._taken()

    def advance(self, watermark: int) -> Batch | None:
        self._fire_due(self._timers.processing, self._time.past_millisecond())
        self._has_begun = False
        if watermark > self._time.current_watermark:  # as in Flink: a timer that is already due waits until it moves
            self._time.advance(watermark)
            self._fire_due(self._timers.event, watermark)
        return self._taken()

    @property
    def next_due(self) -> int | None:
        earliest = self._timers.processing.next_time
        return None if earliest is None else earliest + 1  # when its millisecond is over

    @property
    def timers(self) -> Timers:
        return self._timers

    def take_side_outputs(self) -> Mapping[str, Batch]:
        return self._outputs.take()

    def _begin(self) -> None:
        """Fire the processing-time timers that are due before the first record of an epoch.

        As in Flink a timer is due when its millisecond is over: until then records of its window may come.
        """
        if not self._has_begun:
            self._has_begun = True
            self._fire_due(self._timers.processing, self._time.past_millisecond())

    def _reached(self) -> int | None:
        """Return the watermark, which stands in for the timestamp of what has none; None before the first one."""
        return None if self._time.watermark == MIN_WATERMARK else self._time.watermark

    # ---- a record

    def _add(self, value: Any, timestamp: int | None, side: int) -> None:
        at = MIN_WATERMARK if timestamp is None else timestamp
        if self._by_event_time and (timestamp is None or timestamp == MAX_WATERMARK):
            found = (
                "no timestamp" if timestamp is None else "the timestamp of a window without end, such as a count window"
            )
            raise ValueError(f"the record has {found}: windows in event time need a time of its own")
        windows = self._assign(value, at, self._times)
        add = self._add_to_window if self._merging is None else self._add_merging
        copies = self._copiers[side]
        is_copied = copies is not None and len(windows) > 1 and type(value) is not copies.exact
        is_skipped = True
        for window in windows:
            # A function may change what its window keeps
            own = copies.copy(value) if copies is not None and is_copied else value
            if add(window, self._element(own, timestamp, side), own, at):
                is_skipped = False
        if is_skipped and self._by_event_time and at + self._lateness <= self._time.current_watermark:
            self._drop_late(value, timestamp)

    def _element(self, value: Any, timestamp: int | None, side: int) -> Any:
        """Return the form in which a window keeps a record."""
        if self._is_two_sided:
            value = (1, None, value) if side else (0, value, None)
        return value if self._kind.evictor is None else (value, timestamp)

    def _drop_late(self, value: Any, timestamp: int | None) -> None:
        if self._kind.late_tag is not None:
            self._outputs.add(self._kind.late_tag, value, timestamp)
        else:
            self.late_records_dropped += 1

    def _add_to_window(self, window: Any, element: Any, value: Any, timestamp: int) -> bool:
        """Add a record to a window. Return False if the window is over."""
        if self._by_event_time and self._end_of(window) <= self._time.current_watermark:
            return False
        self._store.current_namespace = window
        self._contents.add(element)
        result = self._trigger.on_element(value, timestamp, window, self._ctx)
        self._act(result, window, window)
        self._register_end(window)
        return True

    def _add_merging(self, window: Any, element: Any, value: Any, timestamp: int) -> bool:
        """Add a record to a window, which may merge with others. Return False if the resulting window is over."""
        windows = self._merging_windows()
        window = windows.add(window, self._merge)
        if self._by_event_time and self._end_of(window) <= self._time.current_watermark:
            windows.remove(window)
            self._keep(windows)
            return False
        home = self._store.current_namespace = windows.kept_under(window)
        self._contents.add(element)
        self._store.current_namespace = window
        result = self._trigger.on_element(value, timestamp, window, self._ctx)
        self._act(result, window, home)
        self._register_end(window)
        self._keep(windows)
        return True

    def _merge(self, merged: Any, old: list[Any], home: Any, moved: list[Any]) -> None:
        """Let one window replace several: trigger, timers and contents."""
        end = self._end_of(merged)
        now = self._time.current_watermark if self._by_event_time else self._time.processing_time()
        if end <= now:
            raise ValueError(
                f"windows merge into {merged}, which had ended before: "
                f"{'the watermark' if self._by_event_time else 'the clock'} is at {now}"
            )
        self._store.current_namespace = merged
        self._ctx.merged_windows = old
        self._trigger.on_merge(merged, self._ctx)
        self._ctx.merged_windows = ()
        for window in old:
            self._store.current_namespace = window
            self._trigger.clear(window, self._ctx)
            self._timers_of_end.delete(self._end_of(window))
        if moved:
            self._contents.merge(home, moved)

    def _merging_windows(self) -> MergingWindows:
        assert self._merging is not None
        return MergingWindows(self._merge_windows, self._merging.value() or ())

    def _keep(self, windows: MergingWindows) -> None:
        assert self._merging is not None
        if windows.has_changed:
            self._merging.update(windows.pairs or None)

    # ---- a timer

    def _fire_due(self, queue: TimerQueue, until: int) -> None:
        if not len(queue):
            return
        due = queue.due(until)
        time = MIN_WATERMARK
        store, reached = self._store, self._reached()
        is_event = queue.domain is TimeDomain.EVENT_TIME
        try:
            for time in due:
                self._time.timestamp = time if is_event else reached
                self._on_timer(queue.domain, time, store.current_namespace)
        except Exception as cause:
            where = f"window {store.current_namespace} of key {store.current_key!r} at {time}"
            raise user_error(self._operator, NO_RECORD, cause, where=where) from cause
        finally:
            due.close()  # type: ignore[attr-defined]  # a generator; after a failure it must let go of the key
            store.current_namespace = self._time.timestamp = None

    def _on_timer(self, domain: TimeDomain, time: int, window: Any) -> None:
        windows, home = None, window
        if self._merging is not None:
            windows = self._merging_windows()
            home = windows.kept_under(window)
            if home is None:
                return  # a timer of a window that has merged or ended
        is_event = domain is TimeDomain.EVENT_TIME
        decide = self._trigger.on_event_time if is_event else self._trigger.on_processing_time
        self._act(decide(time, window, self._ctx), window, home)
        if is_event is self._by_event_time and time == self._end_of(window):
            self._end(window, home, windows)
        elif is_event and self._by_event_time and time == window.max_timestamp:
            self._store.current_namespace = window
            self._register_end(window)  # after a restore with another lateness it may not be registered

    def _end(self, window: Any, home: Any, windows: MergingWindows | None) -> None:
        """Clear everything that is kept for a window."""
        self._store.current_namespace = home
        self._contents.clear()
        self._store.current_namespace = window
        self._trigger.clear(window, self._ctx)
        self._window_ctx.window = window
        if self._emission.clear is not None:
            self._time.timestamp = self._time_of(window)
            self._emission.clear(self._window_ctx)
        if windows is not None:
            windows.remove(window)
            self._keep(windows)

    # ---- firing

    def _act(self, result: TriggerResult, window: Any, home: Any) -> None:
        if result is TriggerResult.CONTINUE:
            return
        if not isinstance(result, TriggerResult):
            raise TypeError(f"{type(self._trigger).__name__} returned {result!r}, which is not a TriggerResult")
        self._store.current_namespace = home
        if result.is_fire:
            elements = self._contents.get()
            if elements is not None:
                outer, self._time.timestamp = self._time.timestamp, self._time_of(window)
                self._emit(window, home, elements)
                self._time.timestamp = outer
        if result.is_purge:
            self._store.current_namespace = home
            self._contents.clear()
        self._store.current_namespace = window

    def _emit(self, window: Any, home: Any, elements: Sequence[Any]) -> None:
        ctx = self._window_ctx
        ctx.window = window
        self._store.current_namespace = window
        if self._evict is None:
            self._extend(self._emission.call(self._store.current_key, ctx, elements), window)
            return
        evict_before, evict_after = self._evict
        kept = evict_before([TimestampedValue(*each) for each in elements], window, self._times)
        self._extend(self._emission.call(self._store.current_key, ctx, [each.value for each in kept]), window)
        kept = evict_after(kept, window, self._times)
        self._store.current_namespace = home
        self._contents.replace([tuple(each) for each in kept])

    def _extend(self, some: Iterable[Any] | None, window: Any) -> None:
        if some is not None:
            extending(self._produced, self._copier)(some)
            self._stamps.extend(repeat(window.max_timestamp, len(self._produced) - len(self._stamps)))

    def _taken(self) -> Batch | None:
        if not self._produced:
            return None
        produced, stamps = self._produced, self._stamps
        self._produced, self._stamps = [], []
        return Batch(self._operator.output_type, rows=produced, timestamps=stamps if self._is_stamped else None)

    def _time_of(self, window: Any) -> int | None:
        """Return the time at which the window's function touches state that expires by event time.

        It is the timestamp of the window's output; without one, the time of the record or timer that fires the window.
        """
        last: int = window.max_timestamp
        return last if self._by_event_time and last != MAX_WATERMARK else self._time.timestamp

    # ---- the end of a window

    @property
    def _timers_of_end(self) -> TimerQueue:
        return self._timers.event if self._by_event_time else self._timers.processing

    def _end_of(self, window: Any) -> int:
        """Return the time at which everything kept for a window is cleared."""
        last: int = window.max_timestamp
        return min(last + self._lateness, MAX_WATERMARK) if self._by_event_time else last

    def _register_end(self, window: Any) -> None:
        end = self._end_of(window)
        if end != MAX_WATERMARK:
            self._timers_of_end.register(end)
