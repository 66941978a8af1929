"""How a function comes to its keyed state: descriptors turned into handles over a store."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from checkdam.backends.contract import KeyedStateStore
from checkdam.backends.hashmap_states import HashMapCells
from checkdam.errors import JobGraphError
from checkdam.ids import OperatorUid
from checkdam.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from checkdam.state.fitting import ElementFit, Fit, KeyFit, are_exact, is_hashable
from checkdam.state.handles import AggregatingState, ListState, MapState, ReducingState, ValueState
from checkdam.state.kinds import (
    Cell,
    CheckedValue,
    HoldsNone,
    StoredAggregate,
    StoredList,
    StoredMap,
    StoredReduction,
    ValueWithDefault,
    ValueWithMutableDefault,
    holding_nothing,
)
from checkdam.state.serializers import serializer
from checkdam.state.spec import StateKind, StateSpec
from checkdam.state.stored import Cells, Maps
from checkdam.state.ttl import StateTtlConfig
from checkdam.state.ttl_states import (
    Expiry,
    Lifetime,
    StateTime,
    TtlCell,
    TtlEntries,
    TtlList,
    TtlMap,
    TtlMapWithNone,
    fresh_element,
    fresh_elements,
)
from checkdam.state.types import TypeInfo, list_of, tuple_of, type_info

__all__ = ["KeyedState", "StateTime"]

_FIT_HINT = "Declare the state with the type that its values have, or convert them."


class KeyedState:
    """The keyed state of one operator as its function asks for it; each name once, or the store refuses it.

    With a `namespace` (its type) every state is kept apart for each namespace of a key, and is about the one that
    `store.current_namespace` tells.

    Asking for a state raises JobGraphError where its types cannot be kept, or where a default is not of its type.
    """

    def __init__(
        self, store: KeyedStateStore, time: StateTime, operator_uid: OperatorUid, *, namespace: Any = None
    ) -> None:
        self._store = store
        self._time = time
        self._uid = operator_uid
        self._namespace = None if namespace is None else type_info(namespace)
        self._sweeps: list[Callable[[], None]] = []

    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState[Any]:
        of = self._durable(descriptor, descriptor.type)
        self._check_default(descriptor, of)
        cell, _ = self._cell(StateKind.VALUE, descriptor, of, descriptor.ttl)
        fit = Fit(of, f"the value for {self._named('value', descriptor)}", hint=_FIT_HINT)
        if isinstance(cell, HashMapCells):
            cell.check_with(fit)
        else:
            cell = CheckedValue(cell, fit)
        if descriptor.default is None or descriptor.ttl is not None:  # with TTL a default has no effect, as in Flink
            return cell
        if of.is_immutable and isinstance(cell, HashMapCells):
            cell.default = descriptor.default
            return cell
        return (ValueWithDefault if of.is_immutable else ValueWithMutableDefault)(cell, descriptor.default)

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState[Any]:
        of = self._durable(descriptor, descriptor.type)
        elements = ElementFit(of, f"an element for {self._named('list', descriptor)}", hint=_FIT_HINT)
        if descriptor.ttl is None:
            return StoredList(self._store.cells(self._spec(StateKind.LIST, descriptor, _list(of))), elements)
        life = self._lifetime(StateKind.LIST, descriptor, descriptor.ttl)
        spec = self._spec(StateKind.LIST, descriptor, _list(_timed(of)), descriptor.ttl)
        cells = self._store.cells(spec, Expiry(life.deadline, fresh_elements))
        self._sweep_with_records(descriptor.ttl, cells)
        return TtlList(cells, life, elements)

    def get_reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """The function's results must be of the state's type: another is a StateAccessError when it is returned."""
        of = self._durable(descriptor, descriptor.type)
        cell, kept = self._cell(StateKind.REDUCING, descriptor, of, descriptor.ttl)
        named = self._named("reducing", descriptor)
        reduce = descriptor.reduce if callable(descriptor.reduce) else descriptor.reduce.reduce
        return StoredReduction(
            cell,
            reduce,
            added=Fit(of, f"a value added to {named}", hint=_FIT_HINT, is_own_class=True),
            result=Fit(of, f"the result of the function of {named}", hint=_FIT_HINT, is_own_class=True),
            kept=kept,
        )

    def get_aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        """The accumulators must be of the state's type: another is a StateAccessError when it is returned."""
        of = self._durable(descriptor, descriptor.type)
        cell, kept = self._cell(StateKind.AGGREGATING, descriptor, of, descriptor.ttl)
        named = self._named("aggregating", descriptor)
        fit = Fit(of, f"what add() returns for {named}", hint=_FIT_HINT, is_own_class=True)
        return StoredAggregate(cell, descriptor.aggregate, fit, kept=kept)

    def get_map_state(self, descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        of = self._durable(descriptor, descriptor.value_type)
        of_key = self._durable(descriptor, descriptor.key_type)
        if not is_hashable(of_key):
            raise JobGraphError(
                f"{self._named('map', descriptor)} has keys of type {of_key.name}, which cannot be looked up by",
                hint="Make map keys of scalars, tuples and frozen dataclasses.",
            )
        named = self._named("map", descriptor)
        keys = KeyFit(of_key, f"a key of {named}", hint="Declare the map with the type that its keys have.")
        values = ElementFit(of, f"a value for {named}", hint=_FIT_HINT)
        stored = holding_nothing(of) if values.takes_none else of
        if descriptor.ttl is None:
            maps = self._store.maps(self._spec(StateKind.MAP, descriptor, stored, map_key=of_key))
            return (HoldsNone if values.takes_none else StoredMap)(maps, keys, values)
        life = self._lifetime(StateKind.MAP, descriptor, descriptor.ttl)
        spec = self._spec(StateKind.MAP, descriptor, _timed(stored), descriptor.ttl, of_key)
        maps = self._store.maps(spec, Expiry(life.deadline, fresh_element))
        self._sweep_with_records(descriptor.ttl, maps)
        return (TtlMapWithNone if values.takes_none else TtlMap)(TtlEntries(maps, life), keys, values)

    def for_every_record(self) -> Callable[[], None] | None:
        """What to call for every record, once all states are asked for; None if no state wants to be called."""
        if len(self._sweeps) < 2:
            return self._sweeps[0] if self._sweeps else None
        sweeps = tuple(self._sweeps)

        def sweep_all() -> None:
            for sweep in sweeps:
                sweep()

        return sweep_all

    def _cell(
        self, kind: StateKind, descriptor: StateDescriptor, of: TypeInfo, ttl: StateTtlConfig | None
    ) -> tuple[Cell, Callable[[], Any] | None]:
        """The value of a key, and how to read it in order to add to it if that differs. Without TTL it is the store's
        own object, so that a plain value costs what the store makes it cost.
        """
        if ttl is None:
            return self._store.cells(self._spec(kind, descriptor, of)), None
        life = self._lifetime(kind, descriptor, ttl)
        cells = self._store.cells(self._spec(kind, descriptor, _timed(of), ttl), Expiry(life.deadline, fresh_element))
        self._sweep_with_records(ttl, cells)
        cell = TtlCell(cells, life)
        return cell, cell.peek

    def _sweep_with_records(self, ttl: StateTtlConfig, stored: Cells | Maps) -> None:
        if ttl.incremental is not None and ttl.incremental.run_for_every_record:
            self._sweeps.append(partial(stored.sweep, ttl.incremental.cleanup_size))

    def _lifetime(self, kind: StateKind, descriptor: StateDescriptor, ttl: StateTtlConfig) -> Lifetime:
        return Lifetime(ttl, self._time, self._named(kind.value, descriptor))

    def _spec(
        self,
        kind: StateKind,
        descriptor: StateDescriptor,
        of: TypeInfo,
        ttl: StateTtlConfig | None = None,
        map_key: TypeInfo | None = None,
    ) -> StateSpec:
        return StateSpec(descriptor.name, kind, of, map_key, self._namespace, ttl)

    def _durable(self, descriptor: StateDescriptor, hint: Any) -> TypeInfo:
        of = type_info(hint)
        if not of.is_durable:
            raise JobGraphError(
                f'state "{descriptor.name}" of operator "{self._uid}" is of type {_shown(hint)}, which has no durable '
                "form",
                hint="Name a type made of str, int, float, bool, bytes, datetime, date, Decimal, enums, lists, dicts, "
                "optionals, tuples, NamedTuples, TypedDicts and dataclasses; give its class a durable form: "
                "register_type(MyClass, …); or keep the values pickled: PickleType(MyClass).",
            )
        return of

    def _check_default(self, descriptor: ValueStateDescriptor, of: TypeInfo) -> None:
        if descriptor.default is None:
            return
        misfit = JobGraphError(
            f'the default of state "{descriptor.name}" of operator "{self._uid}" is '
            f"{ascii(descriptor.default)[:200]} of type {type(descriptor.default).__name__}, which is not of its type "
            f"{of.name}",
            hint="Give a default of the declared type, or none.",
        )
        try:
            serializer(of).encode_checked([descriptor.default])
        except JobGraphError as refusal:
            raise misfit from refusal
        if not are_exact(of, [descriptor.default]):  # a list has the durable form of a tuple, but can change
            raise misfit

    def _named(self, kind: str, descriptor: StateDescriptor) -> str:
        return f'{kind} state "{descriptor.name}" of operator "{self._uid}"'


def _timed(of: TypeInfo) -> TypeInfo:
    """An element with the time it was touched."""
    return tuple_of([of, type_info(int)])


def _list(of: TypeInfo) -> TypeInfo:
    return list_of(of, list[of.hint])  # type: ignore[name-defined]


def _shown(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) else str(hint)
