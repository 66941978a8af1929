"""The contexts that assigners, triggers, evictors and window functions get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from checkdam.backends.contract import KeyedStateStore
from checkdam.backends.keyed_state import OperatorKeyedState
from checkdam.errors import StateRequestError
from checkdam.graph.contexts import KeyedStateAccess, OutputTag
from checkdam.runtime.slot.context import OperatorTime
from checkdam.runtime.slot.side_outputs import FunctionOutputs
from checkdam.runtime.slot.timers import Timers
from checkdam.state.descriptors import StateDescriptor


class _Times:
    """The time by the clock and by the watermark."""

    __slots__ = ("_time",)

    def __init__(self, time: OperatorTime) -> None:
        self._time = time

    @property
    def current_processing_time(self) -> int:
        return self._time.processing_time()

    @property
    def current_watermark(self) -> int:
        return self._time.current_watermark


class TimesContext(_Times):
    """Passed to assigners and evictors."""

    __slots__ = ()


class TriggerCallContext(_Times):
    """Passed to triggers: timers and state of the current key and of the window that is the current namespace."""

    __slots__ = (
        "_states",
        "_store",
        "delete_event_time_timer",
        "delete_processing_time_timer",
        "get_partitioned_state",
        "merged_windows",
        "register_event_time_timer",
        "register_processing_time_timer",
    )

    def __init__(self, store: KeyedStateStore, time: OperatorTime, timers: Timers, states: OperatorKeyedState) -> None:
        super().__init__(time)
        self._store = store
        self._states = states
        self.merged_windows: Sequence[Any] = ()  # while windows merge: those that the new one replaces
        self.get_partitioned_state = states.get
        self.register_event_time_timer = timers.register_event_time_timer
        self.register_processing_time_timer = timers.register_processing_time_timer
        self.delete_event_time_timer = timers.delete_event_time_timer
        self.delete_processing_time_timer = timers.delete_processing_time_timer

    def merge_partitioned_state(self, descriptor: StateDescriptor) -> None:
        self._states.merge_namespaces(descriptor, self._store.current_namespace, self.merged_windows)


class WindowCallContext(_Times):
    """Passed to window functions."""

    __slots__ = ("_global", "_outputs", "_states", "window")

    def __init__(
        self,
        time: OperatorTime,
        states: OperatorKeyedState | None,
        global_states: OperatorKeyedState,
        outputs: FunctionOutputs,
    ) -> None:
        """Set up the context. Windows that merge have no state of their own: `states` is None."""
        super().__init__(time)
        self._states = states
        self._global = global_states
        self._outputs = outputs
        self.window: Any = None

    def window_state(self) -> KeyedStateAccess:
        if self._states is None:
            raise StateRequestError(
                "window_state() was called for windows that merge, which have no state of their own",
                hint="Use global_state(), or windows that do not merge.",
            )
        return self._states

    def global_state(self) -> KeyedStateAccess:
        return self._global

    def output(self, tag: OutputTag[Any], value: Any) -> None:
        self._outputs.add(tag, value, self.window.max_timestamp)
