"""What a function holds to read and write the state of the current key."""

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
    """One value per key. Every call is about the key of the record being processed.

    T is what `value` returns: a state of int is a `ValueState[int]` if it has a default and no TTL, else a
    `ValueState[int | None]`.
    """

    def value(self) -> T:
        """The value of the current key; if it has none, the descriptor's default, or None without one or with TTL."""

    def update(self, value: T | None) -> None:
        """Set the value of the current key; None clears it.

        A value that is changed in place counts as changed only once it is passed to `update` again.
        """

    def clear(self) -> None:
        """Forget the value of the current key."""


class ListState(Protocol[T]):
    """A list of elements per key. None is no element: adding it is an error."""

    def add(self, value: T) -> None: ...

    def add_all(self, values: Iterable[T]) -> None: ...

    def update(self, values: Iterable[T]) -> None:
        """Replace the whole list; an empty one clears it."""

    def get(self) -> list[T]:
        """The elements in the order they were added; empty if there are none. Changing the list changes nothing."""

    def __iter__(self) -> Iterator[T]: ...

    def clear(self) -> None: ...


class ReducingState(Protocol[T]):
    """One value per key, into which added values are reduced."""

    def add(self, value: T) -> None: ...

    def get(self) -> T | None: ...

    def clear(self) -> None: ...


class AggregatingState(Protocol[In, Out]):
    """An accumulator per key that values are added to; `get` tells the result, None if nothing was added."""

    def add(self, value: In) -> None: ...

    def get(self) -> Out | None: ...

    def clear(self) -> None: ...


class MapState(MutableMapping[K, V]):
    """A mapping per key: everything a dict can do, and Flink's names for it.

    A single entry is read and written without touching the others. A value is never None; a missing key reads as None
    through `get` and is a KeyError through `[]`.
    """

    @abstractmethod
    def __getitem__(self, key: K) -> V: ...

    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the current key has no entries; does not count them."""

    def put(self, key: K, value: V) -> None:
        self[key] = value

    def put_all(self, values: Mapping[K, V]) -> None:
        self.update(values)

    def contains(self, key: K) -> bool:
        return key in self

    def remove(self, key: K) -> None:
        """Forget one entry; one that is not there is no error."""
        self.pop(key, None)


class ReadOnlyMapState(Mapping[K, V]):
    """Broadcast state as the keyed side sees it."""

    def contains(self, key: K) -> bool:
        return key in self

    def is_empty(self) -> bool:
        return len(self) == 0
