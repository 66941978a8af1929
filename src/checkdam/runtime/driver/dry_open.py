"""Finds the states an operator declares, by opening its function without any record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from checkdam.backends.contract import (
    NO_KEY,
    Cells,
    HeldChanges,
    Maps,
    MemberOwner,
    PendingSnapshot,
    ValueTable,
    asked_twice,
)
from checkdam.backends.keyed_state import OperatorKeyedState
from checkdam.errors import CheckdamError, StateNotRestorableError, UserFunctionError
from checkdam.graph.contexts import TimeDomain
from checkdam.graph.operators import ConnectKind, IntervalJoinKind, Operator, WindowKind
from checkdam.ids import CheckpointId, Epoch, OperatorUid
from checkdam.runtime.slot.aggregate import aggregate_state
from checkdam.runtime.slot.context import FunctionContext, InitializationContext, OperatorTime
from checkdam.runtime.slot.operator_processes import begin, guarded
from checkdam.runtime.slot.operator_setup import own_copy
from checkdam.runtime.slot.operator_state import OperatorStates
from checkdam.runtime.slot.timers import timer_state
from checkdam.runtime.slot.windows.interval_join_process import buffer_states
from checkdam.runtime.slot.windows.window_process import declare_window_states
from checkdam.state.descriptors import ListStateDescriptor, MapStateDescriptor
from checkdam.state.handles import ListState, MapState
from checkdam.state.snapshot_handles import OperatorStatePart, Redistribution
from checkdam.state.spec import StateSpec
from checkdam.state.state_count import StateCount
from checkdam.types.type_info import TypeInfo, tuple_of, type_info

Restored = Mapping[tuple[str, Redistribution], OperatorStatePart]


@dataclass
class Declared:
    """The states of one operator, in the order it declared them."""

    keyed: dict[str, StateSpec] = field(default_factory=dict)
    operator: dict[str, tuple[Redistribution, TypeInfo]] = field(default_factory=dict)


def states_of(operator: Operator, restored: Restored, *, max_parallelism: int, is_restored: bool) -> Declared:
    """Return the states the operator declares. Calls `initialize_state`, `open` and `close` of a copy of its function
    only.

    The function sees the operator state that was `restored`, where it fits, and no keyed state.

    Raises:
        UserFunctionError: the function raised.
        JobGraphError: it declares a state that is not possible.
    """
    operator = own_copy(operator)
    declared = Declared()
    store = _RecordingStore(declared, operator)
    operator_states = _RecordingOperatorStates(declared, operator, restored)
    if isinstance(operator.kind, ConnectKind):
        for descriptor in operator.kind.broadcast:
            operator_states.declare_broadcast(descriptor)
    keyed = OperatorKeyedState(store, OperatorTime(), operator.uid or OperatorUid(operator.name))
    _ask_for_built_in(operator, store, keyed)
    context = FunctionContext(
        operator.name, 0, 1, keyed if operator.key is not None else None, max_parallelism=max_parallelism
    )
    try:
        _live(operator, context, InitializationContext(is_restored, operator_states, context))
    except UserFunctionError:
        if not operator_states.has_refused:
            raise  # otherwise it failed because its own state was missing
    return declared


def _live(operator: Operator, context: FunctionContext, beginning: InitializationContext) -> None:
    """Open and close a function without any record. As in a slot, it is closed whatever happened."""
    function = operator.rich_function
    try:
        begin(operator, context, beginning)
    except BaseException as failure:
        try:
            if function is not None:
                guarded(operator, "close", lambda _: function.close(), None)
        except CheckdamError as another:
            failure.add_note(f"and then: {another}")
        raise
    if function is not None:
        guarded(operator, "close", lambda _: function.close(), None)


def _ask_for_built_in(operator: Operator, store: _RecordingStore, keyed: OperatorKeyedState) -> None:
    """Declare the states that the runtime itself keeps for an operator."""
    aggregated = aggregate_state(operator)
    if aggregated is not None:
        store.table(aggregated)
    if isinstance(operator.kind, WindowKind):
        declare_window_states(operator.kind, store, keyed)
        return
    if isinstance(operator.kind, IntervalJoinKind):
        for buffer in buffer_states(operator.kind):
            keyed.get_map_state(buffer)
    if operator.key is not None and operator.has_timers:
        for domain in (TimeDomain.EVENT_TIME, TimeDomain.PROCESSING_TIME):
            store.table(timer_state(domain))


class _NoEntries:
    """A keyed state outside any key: it can be declared, and reading it raises an error that says why."""

    def _refuse(self, *_: Any) -> NoReturn:
        hash(NO_KEY)
        raise AssertionError("there is no key to hash")

    value = update = clear = get = put = remove = items = is_empty = _refuse

    def stored_keys(self) -> Iterator[Any]:
        return iter(())

    def all(self) -> Iterator[tuple[Any, Any]]:
        return iter(())

    def sweep(self, count: int) -> None:
        """Do nothing: there are no entries."""

    def get_all(self, keys: Sequence[Any]) -> list[Any]:
        return [None for _ in keys]

    put_all = remove_all = _refuse

    def promise_no_change_in_place(self) -> None:
        """Do nothing: no snapshot is taken."""


class _RecordingStore:
    """A keyed state store that holds nothing and records the states it is asked for."""

    current_key: Any = NO_KEY
    current_namespace: Any = None
    not_asked_for: Sequence[str] = ()
    published = None

    def __init__(self, declared: Declared, operator: Operator) -> None:
        self._declared = declared
        self._operator = operator

    def cells(self, spec: StateSpec, prune: Any = None) -> Cells:
        return self._noted(spec)

    def maps(self, spec: StateSpec, prune: Any = None) -> Maps:
        return self._noted(spec)

    def table(self, spec: StateSpec) -> ValueTable:
        return self._noted(spec)

    def kept_set(self, spec: StateSpec, owner: MemberOwner) -> Iterator[Any]:
        self._noted(spec)
        return iter(())

    def _noted(self, spec: StateSpec) -> _NoEntries:
        if spec.name in self._declared.keyed:
            raise asked_twice(self._operator.uid, spec.name)
        self._declared.keyed[spec.name] = spec
        return _NoEntries()

    @property
    def specs(self) -> Sequence[StateSpec]:
        return list(self._declared.keyed.values())

    def batch_ended(self) -> None:
        """Do nothing: there are no batches."""

    def hold_back(self, changes: HeldChanges) -> None:
        """Do nothing: there are no changes."""

    def end_epoch(self) -> None:
        """Do nothing: there are no epochs."""

    def count(self) -> StateCount:
        return StateCount()

    def publish(self, epoch: Epoch) -> None:
        raise AssertionError("nothing runs, so nothing reads it")

    def unpublish(self) -> None:
        """Do nothing: nothing was published."""

    def close(self) -> None:
        """Do nothing: no resources are held."""

    def snapshot(self, checkpoint_id: CheckpointId, *, full: bool = False) -> PendingSnapshot:
        raise AssertionError("nothing runs, so no snapshot is taken")

    def completed(self, checkpoint_id: CheckpointId) -> None:
        """Do nothing: there are no checkpoints."""

    def aborted(self, checkpoint_id: CheckpointId) -> None:
        """Do nothing: there are no checkpoints."""


class _RecordingOperatorStates:
    """Records the operator states that a slot would open; one that does not fit is handed out empty."""

    def __init__(self, declared: Declared, operator: Operator, restored: Restored) -> None:
        self._declared = declared.operator
        self._states = OperatorStates(operator.uid or operator.name, restored, is_first_subtask=True)
        self._empty = OperatorStates(operator.uid or operator.name, {}, is_first_subtask=True)
        self.has_refused = False

    def get_list_state(self, descriptor: ListStateDescriptor[Any]) -> ListState[Any]:
        state: ListState[Any] = self._opened("get_list_state", descriptor)
        self._declared[descriptor.name] = Redistribution.SPLIT, type_info(descriptor.type)
        return state

    def get_union_list_state(self, descriptor: ListStateDescriptor[Any]) -> ListState[Any]:
        state: ListState[Any] = self._opened("get_union_list_state", descriptor)
        self._declared[descriptor.name] = Redistribution.UNION, type_info(descriptor.type)
        return state

    def get_broadcast_state(self, descriptor: MapStateDescriptor[Any, Any]) -> MapState[Any, Any]:
        state: MapState[Any, Any] = self._opened("get_broadcast_state", descriptor)
        self._note_broadcast(descriptor)
        return state

    def declare_broadcast(self, descriptor: MapStateDescriptor[Any, Any]) -> None:
        self._note_broadcast(descriptor)
        self._opened("declare_broadcast", descriptor)

    def _note_broadcast(self, descriptor: MapStateDescriptor[Any, Any]) -> None:
        pair = tuple_of([type_info(descriptor.key_type), type_info(descriptor.value_type)])
        self._declared[descriptor.name] = Redistribution.BROADCAST, pair

    def _opened(self, method: str, descriptor: ListStateDescriptor[Any] | MapStateDescriptor[Any, Any]) -> Any:
        try:
            return getattr(self._states, method)(descriptor)
        except StateNotRestorableError:
            self.has_refused = True
            return getattr(self._empty, method)(descriptor)
