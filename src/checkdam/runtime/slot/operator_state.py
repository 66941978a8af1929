"""Operator state: lists and mappings that belong to a subtask and not to a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from checkdam.errors import JobGraphError, StateAccessError, StateNotRestorableError, StateRequestError
from checkdam.state.descriptors import ListStateDescriptor, MapStateDescriptor, StateDescriptor
from checkdam.state.handle_checks import ElementFit, KeyFit
from checkdam.state.handles import ListState, MapState, ReadOnlyMapState
from checkdam.state.snapshot_handles import OperatorStatePart, Redistribution
from checkdam.types.evolution import Compatibility, compare, restoring_value
from checkdam.types.serializers import serializer, serializer_from_spec
from checkdam.types.text_filter import TextFilter
from checkdam.types.type_check import UNCHANGING, are_exact, is_hashable
from checkdam.types.type_info import TypeInfo, tuple_of, type_info

Restored = Mapping[tuple[str, Redistribution], OperatorStatePart]
"""The restored state of a subtask, as `checkpoint.operator_state.redistribute` distributes it."""

CapturedStates = list[list[Any] | tuple[bytes, ...]]
"""The elements of each state in the order of declaration, or their encoded form."""

_FIT_HINT = "Declare the state with the type that its values have, or convert them."


class OperatorStates:
    """The operator states of one subtask of one operator; the store of a CheckpointedFunction.

    Declaring a name again returns the same state. Another kind or type raises StateRequestError.
    """

    def __init__(self, operator_name: str, restored: Restored, *, is_first_subtask: bool) -> None:
        self._operator_name = operator_name
        self._restored = dict(restored)
        self._is_first_subtask = is_first_subtask
        self._states: dict[str, tuple[Redistribution, _Codec, OperatorList | BroadcastMap]] = {}
        self._checks = _Checks()

    def get_list_state(self, descriptor: ListStateDescriptor[Any]) -> ListState[Any]:
        self._check_kind("get_list_state", ListStateDescriptor, descriptor)
        return self._list(descriptor, Redistribution.SPLIT)

    def get_union_list_state(self, descriptor: ListStateDescriptor[Any]) -> ListState[Any]:
        self._check_kind("get_union_list_state", ListStateDescriptor, descriptor)
        return self._list(descriptor, Redistribution.UNION)

    def get_broadcast_state(self, descriptor: MapStateDescriptor[Any, Any]) -> MapState[Any, Any]:
        self._check_kind("get_broadcast_state", MapStateDescriptor, descriptor)
        return self._map(descriptor)

    def declare_broadcast(self, descriptor: MapStateDescriptor[Any, Any]) -> BroadcastMap:
        """Open a state that the stream was broadcast with."""
        return self._map(descriptor)

    def snapshot(self) -> tuple[OperatorStatePart, ...]:
        """Encode every state as of now, element by element; undeclared states are carried over.

        Raises:
            JobGraphError: an element no longer has the declared type: it was changed in place.
        """
        return self.encode(self.capture())

    def capture(self) -> CapturedStates:
        """Capture every state as of now, for `encode`; cheap where elements are immutable."""
        return [
            elements if UNCHANGING.issuperset(map(type, elements := state.elements())) else codec.fixed(elements)
            for _, codec, state in self._states.values()
        ]

    def capture_after(self, update: Callable[[Any], None], context: Any) -> CapturedStates:
        """Let the function update its states, and capture them. Elements are checked when they are encoded."""
        self._checks.are_late = True
        try:
            update(context)
        finally:
            self._checks.are_late = False
        return self.capture()

    def encode(self, captured: CapturedStates) -> tuple[OperatorStatePart, ...]:
        parts = [
            OperatorStatePart(name, redistribution, codec.spec, each if isinstance(each, tuple) else codec.encode(each))
            for (name, (redistribution, codec, _)), each in zip(self._states.items(), captured, strict=True)
        ]
        for (_, redistribution), part in self._restored.items():
            if redistribution is not Redistribution.UNION or self._is_first_subtask:  # each subtask holds all of it
                parts.append(part)
        return tuple(parts)

    def readable(self, captured: CapturedStates) -> list[ReadableState]:
        """Return captured states by name, for readers in any thread."""
        return [
            ReadableState(name, redistribution, codec, each)
            for (name, (redistribution, codec, _)), each in zip(self._states.items(), captured, strict=False)
        ]

    def sizes(self, captured: CapturedStates | None) -> list[tuple[str, Redistribution, str, int]]:
        """Return name, redistribution, type and number of elements of each state, as of now or when captured."""
        counts = [len(state) for _, _, state in self._states.values()] if captured is None else map(len, captured)
        return [
            (name, redistribution, codec.spec, count)
            for (name, (redistribution, codec, _)), count in zip(self._states.items(), counts, strict=False)
        ]

    @property
    def not_asked_for(self) -> list[str]:
        """The names of restored states that the function has not declared yet. May be read from any thread."""
        return [name for name, _ in list(self._restored)]

    def _list(self, descriptor: ListStateDescriptor[Any], redistribution: Redistribution) -> OperatorList:
        of = type_info(descriptor.type)
        known = self._known(descriptor.name, redistribution, of)
        if known is not None:
            assert isinstance(known, OperatorList)
            return known
        codec = self._open(descriptor, redistribution, of)
        named = f'list state "{descriptor.name}" of operator "{self._operator_name}"'
        elements = ElementFit(of, f"an element for {named}", hint=_FIT_HINT)
        state = OperatorList(
            descriptor.name, self._take(descriptor.name, redistribution, codec), elements, self._checks
        )
        self._states[descriptor.name] = redistribution, codec, state
        return state

    def _map(self, descriptor: MapStateDescriptor[Any, Any]) -> BroadcastMap:
        of_key, of_value = type_info(descriptor.key_type), type_info(descriptor.value_type)
        named = f'broadcast state "{descriptor.name}" of operator "{self._operator_name}"'
        element = tuple_of([of_key, of_value])
        known = self._known(descriptor.name, Redistribution.BROADCAST, element)
        if known is not None:
            assert isinstance(known, BroadcastMap)
            return known
        codec = self._open(descriptor, Redistribution.BROADCAST, element)
        if not is_hashable(of_key):
            raise JobGraphError(
                f"{named} has keys of type {of_key.name}, which is not hashable",
                hint="Make map keys of scalars, tuples and frozen dataclasses.",
            )
        keys = KeyFit(of_key, f"a key of {named}", hint="Declare the map with the type that its keys have.")
        values = ElementFit(of_value, f"a value for {named}", hint=_FIT_HINT)
        entries = dict(self._take(descriptor.name, Redistribution.BROADCAST, codec))
        state = BroadcastMap(descriptor.name, entries, keys, values)
        self._states[descriptor.name] = Redistribution.BROADCAST, codec, state
        return state

    def _check_kind(self, call: str, kind: type[StateDescriptor], given: Any) -> None:
        if not isinstance(given, kind):
            named = f' "{given.name}"' if isinstance(given, StateDescriptor) else ""
            raise StateRequestError(
                f'operator "{self._operator_name}" calls {call}() for operator state{named} with a '
                f"{type(given).__name__}, which takes a {kind.__name__}",
                hint=f"Make it a {kind.__name__}. Keyed state of other kinds is asked for in open(), behind key_by().",
            )

    def _known(
        self, name: str, redistribution: Redistribution, element: TypeInfo
    ) -> OperatorList | BroadcastMap | None:
        """Return the state if it was declared before; None the first time."""
        if name not in self._states:
            return None
        first, codec, state = self._states[name]
        if (first, codec.type) == (redistribution, element):
            return state
        raise StateRequestError(
            f'operator "{self._operator_name}" asks for operator state "{name}" as {_WORDS[first]} of {codec.type.name}'
            f" and then as {_WORDS[redistribution]} of {element.name}",
            hint="Give each state of an operator its own name, or ask for it with the same descriptor each time.",
        )

    def _open(
        self,
        descriptor: ListStateDescriptor[Any] | MapStateDescriptor[Any, Any],
        redistribution: Redistribution,
        element: TypeInfo,
    ) -> _Codec:
        name = descriptor.name
        if descriptor.ttl is not None:
            raise JobGraphError(
                f'operator state "{name}" of operator "{self._operator_name}" has a time to live, which only keyed'
                " state can have",
                hint="Leave ttl out, and drop old elements in snapshot_state().",
            )
        other = next((mode for other, mode in self._restored if other == name and mode is not redistribution), None)
        if other is not None and (name, redistribution) not in self._restored:
            raise StateNotRestorableError(
                f'operator state "{name}" of operator "{self._operator_name}" was a {_WORDS[other]} in the checkpoint'
                f" and is a {_WORDS[redistribution]} in the job",
                hint="Ask for it as it was, or give the new one another name.",
            )
        return _Codec(self._operator_name, name, element)

    def _take(self, name: str, redistribution: Redistribution, codec: _Codec) -> list[Any]:
        part = self._restored.pop((name, redistribution), None)
        return codec.decode(part) if part is not None and part.elements else []


_WORDS = {
    Redistribution.SPLIT: "list state",
    Redistribution.UNION: "union list state",
    Redistribution.BROADCAST: "broadcast state",
}


class _Codec:
    """The durable form of one state's elements."""

    def __init__(self, operator_name: str, name: str, element: TypeInfo) -> None:
        self._which = f'operator state "{name}" of operator "{operator_name}"'
        with self._naming():
            self._serializer = serializer(element)
        self.type = self._serializer.type
        self.spec = self._serializer.spec

    def decode_one(self, element: bytes) -> Any:
        return self._serializer.decode_one(element)

    def fixed(self, elements: list[Any]) -> list[Any] | tuple[bytes, ...]:
        """Return the elements protected from changes: themselves if they are immutable."""
        of = self._serializer.type
        return elements if of.is_immutable and are_exact(of, elements) else self.encode(elements)

    def encode(self, elements: list[Any]) -> tuple[bytes, ...]:
        with self._naming():
            self._serializer.encode_checked(elements)
        return tuple(map(self._serializer.encode_one, elements))

    @contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except JobGraphError as misfit:
            raise JobGraphError(f"{self._which}: {misfit.message}", hint=misfit.hint) from misfit

    def decode(self, part: OperatorStatePart) -> list[Any]:
        verdict = compare(part.type, self._serializer.type)
        if verdict.kind is Compatibility.INCOMPATIBLE:
            raise StateNotRestorableError(
                f"{self._which} does not fit its new type: {verdict.reason}",
                hint=verdict.hint or "Declare it with the old type, or give the new one another name.",
            )
        with restoring_value(self._which):
            if verdict.convert is None:
                return list(map(self._serializer.decode_one, part.elements))
            return list(map(verdict.convert, map(serializer_from_spec(part.type).decode_one, part.elements)))


@dataclass(frozen=True)
class ReadableState:
    """One state as it was when captured. Encodes and decodes in the thread of the reader."""

    name: str
    redistribution: Redistribution
    codec: _Codec
    elements: list[Any] | tuple[bytes, ...]

    @property
    def type(self) -> str:
        """The durable text of the element type; elements of broadcast state are pairs."""
        return self.codec.spec

    def encoded(self, place: int) -> bytes:
        if isinstance(self.elements, tuple):
            return self.elements[place]
        return self.codec.encode([self.elements[place]])[0]

    def filter_of(self, text: str) -> Callable[[int], bool]:
        """Return the filter of elements by place: of broadcast state by their keys, of lists by the elements."""
        of = self.codec.type
        is_broadcast = self.redistribution is Redistribution.BROADCAST
        matches = TextFilter(text, of.fields[0][1] if is_broadcast else of)

        def is_wanted(place: int) -> bool:
            element = self.elements[place]
            if isinstance(self.elements, tuple):
                element = self.codec.decode_one(element)
            return matches(element[0] if is_broadcast else element)

        return is_wanted


class _Checks:
    """Whether elements are checked when they are added, or when they are encoded."""

    are_late = False


class OperatorList:
    """A list of one subtask. Adding an element that is not of the declared type is an error."""

    def __init__(self, name: str, elements: list[Any], fit: ElementFit, checks: _Checks) -> None:
        self._name = name
        self._elements = elements
        self._is_shared = False
        self._fit = fit
        self._checks = checks

    def add(self, value: Any) -> None:
        self.add_all([value])

    def add_all(self, values: Iterable[Any]) -> None:
        if self._is_shared:
            self._elements, self._is_shared = self._elements.copy(), False
        self._elements += self._checked(values)

    def update(self, values: Iterable[Any]) -> None:
        self._elements = list(values) if self._checks.are_late else self._checked(values)
        self._is_shared = False

    def get(self) -> list[Any]:
        return self._elements.copy()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def __len__(self) -> int:
        return len(self._elements)

    def clear(self) -> None:
        self._elements, self._is_shared = [], False

    def elements(self) -> list[Any]:
        """Return a list that no later call changes."""
        self._is_shared = True
        return self._elements

    def _checked(self, values: Iterable[Any]) -> list[Any]:
        return list(values) if self._checks.are_late else self._fit.checked(values)


class BroadcastMap(MapState[Any, Any]):
    """A mapping that is the same in every subtask.

    A key that is not of the declared type is an error in every call, a value when it is put.
    """

    def __init__(self, name: str, entries: dict[Any, Any], keys: KeyFit, values: ElementFit) -> None:
        self.name = name
        self._entries = entries
        self._keys = keys
        self._values = values
        self._exact = keys.exact

    def __getitem__(self, key: Any) -> Any:
        if type(key) is not self._exact:
            self._keys.check(key)
        return self._entries[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._keys.check(key)
        self._values.check(value)
        self._entries[key] = value

    def __delitem__(self, key: Any) -> None:
        if type(key) is not self._exact:
            self._keys.check(key)
        del self._entries[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._entries))  # the function may put and remove while it reads

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        if type(key) is not self._exact:
            self._keys.check(key)
        return key in self._entries

    def is_empty(self) -> bool:
        return not self._entries

    def clear(self) -> None:
        self._entries.clear()

    def elements(self) -> list[Any]:
        return list(self._entries.items())


class ReadOnlyBroadcastMap(ReadOnlyMapState[Any, Any]):
    """Broadcast state where it is read-only: subtasks see different records there, and their copies would diverge."""

    def __init__(self, of: BroadcastMap) -> None:
        self._of = of
        self.get = of.get  # type: ignore[method-assign]  # read with every record: no second call in between

    def __getitem__(self, key: Any) -> Any:
        return self._of[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, key: object) -> bool:
        return key in self._of

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise StateAccessError(
            f'broadcast state "{self._of.name}" was written where it can only be read',
            hint="Write it in process_broadcast_element, which every subtask calls with the same records.",
        )

    __setitem__ = __delitem__ = put = put_all = remove = update = pop = popitem = setdefault = clear = _refuse
