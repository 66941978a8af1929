"""State handles: how a function reads and writes the state of the current key."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Protocol, TypeVar

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)


class ValueState(Protocol[T]):
    """One value per key. Every call applies to the key of the current record.

    T is the return type of `value`: a state of int is a `ValueState[int]` if it has a default and no TTL, else a
    `ValueState[int | None]`.
    """

    def value(self) -> T:
        """Return the value of the current key; if it has none, the descriptor's default, or None with TTL."""

    def update(self, value: T | None) -> None:
        """Set the value of the current key; None clears it.

        After changing a value in place, pass it to `update` again; otherwise the change is not recorded.
        """

    def clear(self) -> None:
        """Remove the value of the current key."""


class ListState(Protocol[T]):
    """A list of elements per key. Adding None is an error."""

    def add(self, value: T) -> None: ...

    def add_all(self, values: Iterable[T]) -> None: ...

    def update(self, values: Iterable[T]) -> None:
        """Replace the whole list; an empty one clears it."""

    def get(self) -> list[T]:
        """Return the elements in insertion order; empty if there are none. The result is a copy."""

    def __iter__(self) -> Iterator[T]: ...

    def clear(self) -> None: ...


class ReducingState(Protocol[T]):
    """One value per key, which combines all added values."""

    def add(self, value: T) -> None: ...

    def get(self) -> T | None: ...

    def clear(self) -> None: ...


class AggregatingState(Protocol[In, Out]):
    """An accumulator per key to which values are added; `get` returns the result, None if nothing was added."""

    def add(self, value: In) -> None: ...

    def get(self) -> Out | None: ...

    def clear(self) -> None: ...


class MapState(MutableMapping[K, V]):
    """A mapping per key with the methods of a dict and Flink's names for them.

    Reading or writing one entry does not touch the others. A value is never None; for a missing key, `get` returns
    None and `[]` raises KeyError.
    """

    @abstractmethod
    def __getitem__(self, key: K) -> V: ...

    @abstractmethod
    def is_empty(self) -> bool:
        """Return whether the current key has no entries, without counting them."""

    def put(self, key: K, value: V) -> None:
        self[key] = value

    def put_all(self, values: Mapping[K, V]) -> None:
        self.update(values)

    def contains(self, key: K) -> bool:
        return key in self

    def remove(self, key: K) -> None:
        """Remove one entry; do nothing if it does not exist."""
        self.pop(key, None)


class ReadOnlyMapState(Mapping[K, V]):
    """Broadcast state as the non-broadcast side sees it."""

    def contains(self, key: K) -> bool:
        return key in self

    def is_empty(self) -> bool:
        return len(self) == 0
