"""Access to keyed state: turns descriptors into handles over a store."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast, runtime_checkable

from checkdam.backends.contract import KeyedStateStore, ValueTable
from checkdam.backends.hashmap.hashmap_states import DictMap, HashMapMaps
from checkdam.errors import JobGraphError, StateRequestError
from checkdam.ids import OperatorUid
from checkdam.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from checkdam.state.handle_checks import ElementFit, Fit, KeyFit
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
from checkdam.types.serializers import serializer
from checkdam.types.type_check import are_exact, is_hashable
from checkdam.types.type_info import TypeInfo, list_of, tuple_of, type_info

__all__ = ["OperatorKeyedState", "StateTime"]

_FIT_HINT = "Declare the state with the type that its values have, or convert them."


_CALLS: dict[type[StateDescriptor], str] = {
    ValueStateDescriptor: "get_state",
    ListStateDescriptor: "get_list_state",
    ReducingStateDescriptor: "get_reducing_state",
    AggregatingStateDescriptor: "get_aggregating_state",
    MapStateDescriptor: "get_map_state",
}


@runtime_checkable
class _CompleteCell(Protocol):
    """A cell that checks what is written and knows the default itself, so that it needs no wrapper."""

    default: Any

    def check_with(self, fit: Fit) -> None: ...


@dataclass(frozen=True)
class _Asked:
    """A state that the function has asked for: its descriptor and its handle."""

    descriptor: StateDescriptor
    handle: Any
    stored: Cells | Maps
    peek: Callable[[], Any] | None = None
    fit: Fit | None = None
    """Checks what the functions of a reducing or aggregating state return."""
    """With TTL: reads the current key without side effects; None if it has nothing."""


class OperatorKeyedState:
    """The keyed state of one operator as its function asks for it; the same name always gives the same handle.

    With a `namespace` (its type) every state is separate for each namespace of a key, and applies to
    `store.current_namespace`.

    Asking for a state raises StateRequestError if the descriptor is of the wrong kind, if its types cannot be stored,
    if a default has the wrong type, or if the state was asked for before with another kind, type, default or TTL;
    StateNotRestorableError if the restored state is incompatible.
    """

    def __init__(
        self, store: KeyedStateStore, time: StateTime, operator_uid: OperatorUid, *, namespace: Any = None
    ) -> None:
        self._store = store
        self._time = time
        self.uid = operator_uid
        self._namespace = None if namespace is None else type_info(namespace)
        self._sweeps: list[Callable[[], None]] = []
        self._asked: dict[str, _Asked] = {}

    def get_state(self, descriptor: ValueStateDescriptor[Any]) -> ValueState[Any]:
        return self._handle(ValueStateDescriptor, descriptor)  # type: ignore[no-any-return]

    def get_list_state(self, descriptor: ListStateDescriptor[Any]) -> ListState[Any]:
        return self._handle(ListStateDescriptor, descriptor)  # type: ignore[no-any-return]

    def get_reducing_state(self, descriptor: ReducingStateDescriptor[Any]) -> ReducingState[Any]:
        """Return a handle that raises StateAccessError if the function's result is not of the state's type."""
        return self._handle(ReducingStateDescriptor, descriptor)  # type: ignore[no-any-return]

    def get_aggregating_state(
        self, descriptor: AggregatingStateDescriptor[Any, Any, Any]
    ) -> AggregatingState[Any, Any]:
        """Return a handle that raises StateAccessError if an accumulator is not of the state's type."""
        return self._handle(AggregatingStateDescriptor, descriptor)  # type: ignore[no-any-return]

    def get_map_state(self, descriptor: MapStateDescriptor[Any, Any]) -> MapState[Any, Any]:
        return self._handle(MapStateDescriptor, descriptor)  # type: ignore[no-any-return]

    def get(self, descriptor: StateDescriptor) -> Any:
        """Return the state that a descriptor of any kind describes."""
        kind = next((of for of in _CALLS if isinstance(descriptor, of)), None)
        if kind is None:
            raise StateRequestError(
                f'operator "{self.uid}" asks for state with {_described(descriptor)}, which is no state descriptor',
                hint='Write ValueStateDescriptor("some name", <type>).',
            )
        return self._handle(kind, descriptor)

    def table_of(self, descriptor: StateDescriptor) -> ValueTable:
        """Return the entries of a state without TTL, in their stored form."""
        self.get(descriptor)
        return cast(ValueTable, self._asked[descriptor.name].stored)

    def value_table(self, name: str, of: Any) -> ValueTable:
        """Return the entries of a value state without TTL; a default that it was declared with is not in the way."""
        asked = self._asked.get(name)
        default = None if asked is None else getattr(asked.descriptor, "default", None)
        return self.table_of(ValueStateDescriptor(name, of, default=default))

    def merge_namespaces(self, descriptor: StateDescriptor, into: Any, namespaces: Iterable[Any]) -> None:
        """Move what the current key has under several namespaces into one. For list, reducing and aggregating state.

        That one is the current namespace afterwards.
        """
        self.get(descriptor)
        combine = _combiner(descriptor)
        if combine is None or getattr(descriptor, "ttl", None) is not None:
            raise StateRequestError(
                f'operator "{self.uid}" merges state "{descriptor.name}", which is {_described(descriptor)}'
                f"{'' if combine is None else ' with TTL'}",
                hint="Only list, reducing and aggregating state without TTL can be merged.",
            )
        cells, store = cast(Cells, self._asked[descriptor.name].stored), self._store
        parts = []
        for namespace in namespaces:
            store.current_namespace = namespace
            found = cells.value()
            if found is not None:
                cells.clear()
                parts.append(found)
        store.current_namespace = into
        if parts:
            kept = cells.value()
            merged = functools.reduce(combine, parts if kept is None else [kept, *parts])
            fit = self._asked[descriptor.name].fit
            if fit is not None:
                fit.check(merged)
            cells.update(merged)

    def apply_to_all(self, descriptor: StateDescriptor, function: Callable[[Any, Any], object]) -> None:
        """Call `function(key, state)` for every key that has something in that state; that key is the current one.

        The function may change or clear the state of that key, and its other states. Expired elements that are not
        visible count as missing.
        """
        kind = next((of for of in _CALLS if isinstance(descriptor, of)), None)
        if kind is None:
            raise StateRequestError(
                f'operator "{self.uid}" calls apply_to_keyed_state() with {_described(descriptor)}, which takes the '
                "descriptor of a keyed state",
                hint='Write ctx.apply_to_keyed_state(ValueStateDescriptor("some name", <type>), function).',
            )
        state = self._handle(kind, descriptor)
        asked, store = self._asked[descriptor.name], self._store
        before = store.current_key
        try:
            for key in asked.stored.stored_keys():
                store.current_key = key
                if asked.peek is None or asked.peek() is not None:
                    function(key, state)
        finally:
            store.current_key = before

    def _handle(self, kind: type[StateDescriptor], descriptor: StateDescriptor) -> Any:
        """Return the handle of a state; the first call for a name creates it, later ones cost a dict lookup."""
        if type(descriptor) is not kind:
            self._check_descriptor(kind, descriptor)
        asked = self._asked.get(descriptor.name)
        if asked is None:
            asked = self._asked[descriptor.name] = self._open(kind, descriptor)
        elif asked.descriptor is not descriptor:
            self._check_same(asked.descriptor, descriptor)
        return asked.handle

    def _open(self, kind: type[StateDescriptor], descriptor: Any) -> _Asked:
        openings: dict[type[StateDescriptor], Callable[[Any], _Asked]] = {
            ValueStateDescriptor: self._open_value,
            ListStateDescriptor: self._open_list,
            ReducingStateDescriptor: self._open_reduction,
            AggregatingStateDescriptor: self._open_aggregate,
            MapStateDescriptor: self._open_map,
        }
        return openings[kind](descriptor)

    def _check_descriptor(self, kind: type[StateDescriptor], given: Any) -> None:
        if isinstance(given, kind):
            return
        call = next((call for of, call in _CALLS.items() if isinstance(given, of)), None)
        named = f'state "{given.name}"' if isinstance(given, StateDescriptor) else "state"
        raise StateRequestError(
            f'operator "{self.uid}" calls {_CALLS[kind]}() for {named} with {_described(given)}, which takes a '
            f"{kind.__name__}",
            hint=f"Call {call}(), or make it a {kind.__name__}."
            if call is not None
            else f'Write {_CALLS[kind]}({kind.__name__}("some name", <type>)).',
        )

    def _check_same(self, first: StateDescriptor, again: StateDescriptor) -> None:
        """Refuse a second descriptor of a name if it describes another state; its functions may be other objects."""
        if type(first) is not type(again):
            how = f"with a {type(first).__name__} and then with a {type(again).__name__}"
            raise self._not_the_same(again, how)
        for field in ("type", "key_type", "value_type", "default", "ttl"):
            was, now = getattr(first, field, None), getattr(again, field, None)
            if was is not now and was != now:
                raise self._not_the_same(again, f"with {field} {_shown(was)} and then with {field} {_shown(now)}")

    def _not_the_same(self, descriptor: StateDescriptor, how: str) -> StateRequestError:
        return StateRequestError(
            f'operator "{self.uid}" asks for state "{descriptor.name}" {how}',
            hint="Give each state of an operator its own name, or ask for it with the same descriptor each time.",
        )

    def _open_value(self, descriptor: ValueStateDescriptor[Any]) -> _Asked:
        of = self._durable(descriptor, descriptor.type)
        self._check_default(descriptor, of)
        cell, kept, stored = self._cell(StateKind.VALUE, descriptor, of, descriptor.ttl)
        fit = Fit(of, f"the value for {self._named('value', descriptor)}", hint=_FIT_HINT)
        if isinstance(cell, _CompleteCell):
            cell.check_with(fit)
        else:
            cell = CheckedValue(cell, fit)
        if descriptor.default is None or descriptor.ttl is not None:  # with TTL a default has no effect, as in Flink
            return _Asked(descriptor, cell, stored, kept)
        if of.is_immutable and isinstance(cell, _CompleteCell):
            cell.default = descriptor.default
            return _Asked(descriptor, cell, stored, kept)
        with_default = (ValueWithDefault if of.is_immutable else ValueWithMutableDefault)(cell, descriptor.default)
        return _Asked(descriptor, with_default, stored)

    def _open_list(self, descriptor: ListStateDescriptor[Any]) -> _Asked:
        of = self._durable(descriptor, descriptor.type)
        elements = ElementFit(of, f"an element for {self._named('list', descriptor)}", hint=_FIT_HINT)
        if descriptor.ttl is None:
            cells = self._store.cells(self._spec(StateKind.LIST, descriptor, _list(of)))
            return _Asked(descriptor, StoredList(cells, elements), cells)
        life = self._lifetime(StateKind.LIST, descriptor, descriptor.ttl)
        spec = self._spec(StateKind.LIST, descriptor, _list(_timed(of)), descriptor.ttl)
        cells = self._store.cells(spec, Expiry(life.deadline, fresh_elements))
        self._sweep_with_records(descriptor.ttl, cells)
        ageing = TtlList(cells, life, elements)
        return _Asked(descriptor, ageing, cells, ageing.peek)

    def _open_reduction(self, descriptor: ReducingStateDescriptor[Any]) -> _Asked:
        of = self._durable(descriptor, descriptor.type)
        cell, kept, stored = self._cell(StateKind.REDUCING, descriptor, of, descriptor.ttl)
        named = self._named("reducing", descriptor)
        reduce = descriptor.reduce if callable(descriptor.reduce) else descriptor.reduce.reduce
        fit = Fit(of, f"the result of the function of {named}", hint=_FIT_HINT, is_own_class=True)
        reduction = StoredReduction(
            cell,
            reduce,
            added=Fit(of, f"a value added to {named}", hint=_FIT_HINT, is_own_class=True),
            result=fit,
            kept=kept,
        )
        return _Asked(descriptor, reduction, stored, kept, fit)

    def _open_aggregate(self, descriptor: AggregatingStateDescriptor[Any, Any, Any]) -> _Asked:
        of = self._durable(descriptor, descriptor.type)
        cell, kept, stored = self._cell(StateKind.AGGREGATING, descriptor, of, descriptor.ttl)
        named = self._named("aggregating", descriptor)
        fit = Fit(of, f"what add() or merge() returns for {named}", hint=_FIT_HINT, is_own_class=True)
        return _Asked(descriptor, StoredAggregate(cell, descriptor.aggregate, fit, kept=kept), stored, kept, fit)

    def _open_map(self, descriptor: MapStateDescriptor[Any, Any]) -> _Asked:
        of = self._durable(descriptor, descriptor.value_type)
        of_key = self._durable(descriptor, descriptor.key_type)
        if not is_hashable(of_key):
            raise StateRequestError(
                f"{self._named('map', descriptor)} has keys of type {of_key.name}, which is not hashable",
                hint="Make map keys of scalars, tuples and frozen dataclasses.",
            )
        named = self._named("map", descriptor)
        keys = KeyFit(of_key, f"a key of {named}", hint="Declare the map with the type that its keys have.")
        values = ElementFit(of, f"a value for {named}", hint=_FIT_HINT)
        stored = holding_nothing(of) if values.takes_none else of
        if descriptor.ttl is None:
            maps = self._store.maps(self._spec(StateKind.MAP, descriptor, stored, map_key=of_key))
            if isinstance(maps, HashMapMaps) and not values.takes_none:
                return _Asked(descriptor, DictMap(maps, keys, values), maps)
            return _Asked(descriptor, (HoldsNone if values.takes_none else StoredMap)(maps, keys, values), maps)
        life = self._lifetime(StateKind.MAP, descriptor, descriptor.ttl)
        spec = self._spec(StateKind.MAP, descriptor, _timed(stored), descriptor.ttl, of_key)
        maps = self._store.maps(spec, Expiry(life.deadline, fresh_element))
        self._sweep_with_records(descriptor.ttl, maps)
        entries = TtlEntries(maps, life)
        ageing = (TtlMapWithNone if values.takes_none else TtlMap)(entries, keys, values)
        return _Asked(descriptor, ageing, maps, lambda: next((True for _ in entries.visible()), None))

    def for_every_record(self) -> Callable[[], None] | None:
        """Return a function to call after every record, for the states asked for so far; None if none is needed."""
        if len(self._sweeps) < 2:
            return self._sweeps[0] if self._sweeps else None
        sweeps = tuple(self._sweeps)

        def sweep_all() -> None:
            for sweep in sweeps:
                sweep()

        return sweep_all

    def _cell(
        self, kind: StateKind, descriptor: StateDescriptor, of: TypeInfo, ttl: StateTtlConfig | None
    ) -> tuple[Cell, Callable[[], Any] | None, Cells]:
        """Return the value of a key, how to read it in order to add to it if that differs, and the underlying cells.
        Without TTL the value is the store's own object, so that it has no overhead.
        """
        if ttl is None:
            cells = self._store.cells(self._spec(kind, descriptor, of))
            return cells, None, cells
        life = self._lifetime(kind, descriptor, ttl)
        cells = self._store.cells(self._spec(kind, descriptor, _timed(of), ttl), Expiry(life.deadline, fresh_element))
        self._sweep_with_records(ttl, cells)
        cell = TtlCell(cells, life)
        return cell, cell.peek, cells

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
            raise StateRequestError(
                f'state "{descriptor.name}" of operator "{self.uid}" is of type {_shown(hint)}, which has no durable '
                "form",
                hint="Name a type made of str, int, float, bool, bytes, datetime, date, Decimal, enums, lists, dicts, "
                "optionals, tuples, NamedTuples, TypedDicts and dataclasses; give its class a durable form: "
                "register_type(MyClass, …); or keep the values pickled: PickleType(MyClass).",
            )
        return of

    def _check_default(self, descriptor: ValueStateDescriptor[Any], of: TypeInfo) -> None:
        if descriptor.default is None:
            return
        misfit = StateRequestError(
            f'the default of state "{descriptor.name}" of operator "{self.uid}" is '
            f"{ascii(descriptor.default)[:200]} of type {type(descriptor.default).__name__}, which is not of its type "
            f"{of.name}",
            hint="Give a default of the declared type, or none.",
        )
        try:
            serializer(of).encode_checked([descriptor.default])
        except JobGraphError as refusal:
            raise misfit from refusal
        if not are_exact(of, [descriptor.default]):  # a list has the durable form of a tuple, but is mutable
            raise misfit

    def _named(self, kind: str, descriptor: StateDescriptor) -> str:
        return f'{kind} state "{descriptor.name}" of operator "{self.uid}"'


def _combiner(descriptor: StateDescriptor) -> Callable[[Any, Any], Any] | None:
    """Return the function that merges the stored values of two namespaces; None if their kind cannot be merged."""
    if isinstance(descriptor, ListStateDescriptor):
        return _extended
    if isinstance(descriptor, ReducingStateDescriptor):
        combine: Callable[[Any, Any], Any] = getattr(descriptor.reduce, "reduce", descriptor.reduce)
        return combine
    if isinstance(descriptor, AggregatingStateDescriptor):
        return descriptor.aggregate.merge  # type: ignore[attr-defined, no-any-return]  # AggregateFunction has it
    return None


def _extended(one: list[Any], other: list[Any]) -> list[Any]:
    one.extend(other)
    return one


def _timed(of: TypeInfo) -> TypeInfo:
    """Return the type of an element with its touch time."""
    return tuple_of([of, type_info(int)])


def _list(of: TypeInfo) -> TypeInfo:
    return list_of(of, list[of.hint])  # type: ignore[name-defined]


def _shown(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) else str(hint)


def _described(given: Any) -> str:
    return f"a {type(given).__name__}" if isinstance(given, StateDescriptor) else ascii(given)[:200]
