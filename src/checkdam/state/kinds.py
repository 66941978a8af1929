"""The handles of keyed state on top of a backend's stores: values with a default, lists, reductions, aggregates, maps.

A plain value without a default needs no handle here: the backend's cells are one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, ItemsView, Iterable, Iterator, ValuesView
from typing import Any, Protocol

from checkdam.state.descriptors import Aggregate
from checkdam.state.handle_checks import GREATEST_INT, LEAST_INT, ElementFit, Fit, KeyFit
from checkdam.state.handles import MapState
from checkdam.types.type_info import Codec, Kind, TypeInfo


class Cell(Protocol):
    """The value of the current key: the interface that handles need of a backend's cells, also implemented by TTL."""

    def value(self) -> Any: ...

    def update(self, value: Any) -> None: ...

    def clear(self) -> None: ...


class Entries(Protocol):
    """The entries of the current key: the interface that handles need of a backend's maps, also implemented by TTL."""

    def get(self, map_key: Any) -> Any: ...

    def put(self, map_key: Any, value: Any) -> None: ...

    def remove(self, map_key: Any) -> None: ...

    def items(self) -> Iterator[tuple[Any, Any]]: ...

    def is_empty(self) -> bool: ...

    def clear(self) -> None: ...


class CheckedValue:
    """A value that is checked on write. Reading and clearing go straight to the cell."""

    __slots__ = ("_by_class", "_check", "_write", "clear", "value")

    def __init__(self, cell: Cell, fit: Fit) -> None:
        self._write = cell.update
        self._by_class = fit.by_class
        self._check = fit.check
        self.value = cell.value
        self.clear = cell.clear

    def update(self, value: Any) -> None:
        if type(value) is not self._by_class and value is not None:
            self._check(value)
        self._write(value)


class ValueWithDefault:
    """A value with a default for keys without one. All keys share the default, so it must be immutable."""

    __slots__ = ("_default", "_stored", "clear", "update")

    def __init__(self, cell: Cell, default: Any) -> None:
        self._stored = cell.value
        self._default = default
        self.update = cell.update  # the cell's own methods, without a wrapper
        self.clear = cell.clear

    def value(self) -> Any:
        found = self._stored()
        return self._default if found is None else found


class ValueWithMutableDefault(ValueWithDefault):
    """A value with a mutable default: each reader gets a copy, so that changing it affects no other key."""

    __slots__ = ()

    def value(self) -> Any:
        found = self._stored()
        return copy.deepcopy(self._default) if found is None else found


class StoredList:
    """A list stored as one value. `get` and iteration return a copy, so the list may change while it is read."""

    __slots__ = ("_by_class", "_cell", "_elements")

    def __init__(self, cell: Cell, elements: ElementFit) -> None:
        self._cell = cell
        self._elements = elements
        self._by_class = elements.by_class

    def add(self, value: Any) -> None:
        if type(value) is not self._by_class:
            self._elements.check(value)
        held = self._cell.value()
        if held is None:
            self._cell.update([value])
        else:
            held.append(value)
            self._cell.update(held)

    def add_all(self, values: Iterable[Any]) -> None:
        """Add the elements in order: all of them, or none if one is invalid."""
        added = self._elements.checked(values)
        if added:
            held = self._cell.value() or []
            held.extend(added)
            self._cell.update(held)

    def update(self, values: Iterable[Any]) -> None:
        self._cell.update(self._elements.checked(values) or None)

    def get(self) -> list[Any]:
        return list(self._cell.value() or ())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def clear(self) -> None:
        self._cell.clear()


class StoredReduction:
    """A value that combines all added values. The result must have the state's type, and so is never None.

    The first value added is stored as it is; adding None is an error.
    """

    __slots__ = ("_added", "_by_class", "_cell", "_kept", "_reduce", "_result", "clear", "get")

    def __init__(
        self,
        cell: Cell,
        reduce: Callable[[Any, Any], Any],
        *,
        added: Fit,
        result: Fit,
        kept: Callable[[], Any] | None = None,
    ) -> None:
        """Build the handle. `kept` reads the stored value to add to, where that differs from the user's read."""
        self._cell = cell
        self._kept = cell.value if kept is None else kept
        self._reduce = reduce
        self._added = added
        self._result = result
        self._by_class = result.by_class
        self.get = cell.value
        self.clear = cell.clear

    def add(self, value: Any) -> None:
        kept = self._kept()
        if kept is None or value is None:
            self._added.check(value)
            self._cell.update(value)
            return
        result = self._reduce(kept, value)
        if type(result) is not self._by_class:
            self._result.check(result)
        self._cell.update(result)


class StoredAggregate:
    """An accumulator to which values are added. It must have the state's type after every `add`, and so is never None.

    Any value that the aggregate accepts may be added, including None.
    """

    __slots__ = ("_add", "_by_class", "_cell", "_create", "_fit", "_kept", "_result", "clear")

    def __init__(
        self, cell: Cell, aggregate: Aggregate[Any, Any, Any], fit: Fit, *, kept: Callable[[], Any] | None = None
    ) -> None:
        self._cell = cell
        self._kept = cell.value if kept is None else kept
        self._create = aggregate.create_accumulator
        self._add = aggregate.add
        self._result = aggregate.get_result
        self._fit = fit
        self._by_class = fit.by_class
        self.clear = cell.clear

    def add(self, value: Any) -> None:
        accumulator = self._kept()
        accumulator = self._add(value, self._create() if accumulator is None else accumulator)
        if type(accumulator) is not self._by_class:
            self._fit.check(accumulator)
        self._cell.update(accumulator)

    def get(self) -> Any:
        accumulator = self._cell.value()
        return None if accumulator is None else self._result(accumulator)


class StoredMap(MapState[Any, Any]):
    """A mapping with each entry stored separately.

    A key of the wrong type is an error in every method, including `in` and `get`; so is a value of the wrong type on
    write, and None as key or value unless its type is optional. After changing a value in place, put it again;
    otherwise the change is not recorded.

    Iteration, also over `keys()`, `values()` and `items()`, has no defined order. Unlike a dict's it continues if the
    map changes meanwhile: each remaining entry is returned once; an entry put or removed meanwhile may be returned in
    its old form, in its new form, or not at all.
    """

    __slots__ = ("_entries", "_exact", "_exact_value", "_keys", "_values")

    def __init__(self, entries: Entries, keys: KeyFit, values: ElementFit) -> None:
        self._entries = entries
        self._keys = keys
        self._values = values
        self._exact = keys.exact
        self._exact_value = values.exact

    def __getitem__(self, key: Any) -> Any:
        if type(key) is not self._exact:
            self._keys.check(key)
        found = self._entries.get(key)
        if found is None:
            raise KeyError(key)
        return found

    def get(self, key: Any, default: Any = None) -> Any:
        if type(key) is not self._exact:
            self._keys.check(key)
        found = self._entries.get(key)
        return default if found is None else found

    def __contains__(self, key: Any) -> bool:
        return self.get(key) is not None

    def __setitem__(self, key: Any, value: Any) -> None:
        if (kind := type(key)) is not self._exact or not (
            (kind is str and key.isascii()) or (kind is int and LEAST_INT <= key <= GREATEST_INT)
        ):
            self._keys.check(key)
        if (kind := type(value)) is not self._exact_value or (
            (kind is str and not value.isascii()) or (kind is int and not LEAST_INT <= value <= GREATEST_INT)
        ):
            self._values.check(value)
        self._entries.put(key, value)

    def __delitem__(self, key: Any) -> None:
        self[key]
        self._entries.remove(key)

    def remove(self, key: Any) -> None:
        if type(key) is not self._exact:
            self._keys.check(key)
        self._entries.remove(key)

    _NOTHING: Any = object()

    def pop(self, key: Any, default: Any = _NOTHING) -> Any:
        found = StoredMap.get(self, key)
        if found is not None:
            self._entries.remove(key)
            return found
        if default is self._NOTHING:
            raise KeyError(key)
        return default

    def popitem(self) -> tuple[Any, Any]:
        """Remove and return an arbitrary entry, unlike a dict, which returns the latest."""
        for key, value in self._entries.items():
            self._entries.remove(key)
            return key, value
        raise KeyError("popitem(): the map is empty")

    def setdefault(self, key: Any, default: Any = None) -> Any:
        found = self.get(key)
        if found is not None:
            return found
        self[key] = default
        return default

    def __iter__(self) -> Iterator[Any]:
        for key, _ in self._entries.items():
            yield key

    def __len__(self) -> int:
        """Count the entries, which takes as long as reading them."""
        return sum(1 for _ in self._entries.items())

    def __bool__(self) -> bool:
        return not self._entries.is_empty()

    def values(self) -> ValuesView[Any]:
        return _Values(self)

    def items(self) -> ItemsView[Any, Any]:
        return _Items(self)

    def pairs(self) -> Iterator[tuple[Any, Any]]:
        return iter(self._entries.items())

    def is_empty(self) -> bool:
        return self._entries.is_empty()

    def clear(self) -> None:
        self._entries.clear()


NOTHING: Any = type("Nothing", (), {"__slots__": (), "__repr__": lambda _: "None"})()
"""Stands for None in a store of optional map values, where None means that an entry does not exist."""


def holding_nothing(of: TypeInfo) -> TypeInfo:
    """Return the stored type of an optional map value, with NOTHING for None. Its durable form is that of `of`."""
    codec = Codec(_none_for_nothing, _nothing_for_none)
    return TypeInfo(Kind.REGISTERED, of.name, of.arrow_type, of.hint, frozen=False, form=of, codec=codec)


def _none_for_nothing(value: Any) -> Any:
    return None if value is NOTHING else value


def _nothing_for_none(value: Any) -> Any:
    return NOTHING if value is None else value


class HoldsNone(StoredMap):
    """Mixin for maps whose values may be None; comes before StoredMap or a subclass of it."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        return _none_for_nothing(super().__getitem__(key))

    def get(self, key: Any, default: Any = None) -> Any:
        return _none_for_nothing(super().get(key, default))

    def __contains__(self, key: Any) -> bool:
        return super().get(key) is not None

    def __setitem__(self, key: Any, value: Any) -> None:
        self._keys.check(key)
        self._values.check(value)
        self._entries.put(key, _nothing_for_none(value))

    def pop(self, key: Any, default: Any = StoredMap._NOTHING) -> Any:
        return _none_for_nothing(super().pop(key, default))

    def popitem(self) -> tuple[Any, Any]:
        key, value = super().popitem()
        return key, _none_for_nothing(value)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        found = super().get(key)  # once: a read may return an expired value and drop it
        if found is not None:
            return _none_for_nothing(found)
        self[key] = default
        return default

    def pairs(self) -> Iterator[tuple[Any, Any]]:
        return ((key, _none_for_nothing(value)) for key, value in super().pairs())


class _Values(ValuesView[Any]):
    """A values view that reads keys and values together: looking a key up again fails if it was removed meanwhile."""

    _mapping: StoredMap

    def __iter__(self) -> Iterator[Any]:
        for _, value in self._mapping.pairs():
            yield value

    def __contains__(self, value: object) -> bool:
        return any(each is value or each == value for each in self)


class _Items(ItemsView[Any, Any]):
    _mapping: StoredMap

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self._mapping.pairs()
