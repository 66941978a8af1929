"""The stores that a backend provides for state handles: one value per key, or a mapping per key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

Prune = Callable[[Any], Any]
"""Takes a stored value and returns it without expired elements: the same object if all are fresh, None if none are."""


def as_of_now(prune: Prune) -> Prune:
    """Return the same prune with its clock stopped.

    For asynchronous work on the state as of now, such as writing a snapshot: event time that advances meanwhile must
    not remove elements that a restore, which starts at the old watermark, still has to see.
    """
    stop: Callable[[], Prune] | None = getattr(prune, "as_of_now", None)
    return prune if stop is None else stop()


def in_bulk(prune: Prune, every: int) -> Prune:
    """Return the same prune for one pass over many values: reads the clock first, and after every `every` values."""
    bulk: Callable[[int], Prune] | None = getattr(prune, "in_bulk", None)
    return prune if bulk is None else bulk(every)


def shortened(prune: Prune, by: int) -> Prune:
    """Return the same prune for elements that expire this many milliseconds earlier."""
    shorter: Callable[[int], Prune] | None = getattr(prune, "shortened", None)
    return prune if shorter is None else shorter(by)


class Cells(Protocol):
    """One stored value per key (and namespace): the basis of values, lists and accumulators."""

    def value(self) -> Any:
        """Return the stored value of the current key, None if there is none."""

    def update(self, value: Any) -> None:
        """Set it; None clears it. After changing a value in place, pass it here again to record the change."""

    def clear(self) -> None: ...

    def stored_keys(self) -> Iterator[Any]:
        """Return the keys that have something stored, each once, as of the first read. For states without namespaces.

        Later writes do not change which keys follow.
        """

    def all(self) -> Iterator[tuple[Any, Any]]:
        """Return every entry key (the key, or a tuple of key and namespace) with its value. Do not write meanwhile."""

    def sweep(self, count: int) -> None:
        """Inspect the next `count` entries, in endless rotation, and drop what the state's `prune` finds expired."""


class Maps(Protocol):
    """A mapping per key (and namespace), with each entry stored separately. Values are never None."""

    def get(self, map_key: Any) -> Any:
        """Return the value under that map key of the current key, None if there is none."""

    def put(self, map_key: Any, value: Any) -> None: ...

    def remove(self, map_key: Any) -> None:
        """Remove one entry; do nothing if it does not exist."""

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Return the entries of the current key. The function may put and remove entries while it reads."""

    def is_empty(self) -> bool: ...

    def clear(self) -> None: ...

    def stored_keys(self) -> Iterator[Any]:
        """Return the keys that have something stored, each once, as of the first read. For states without namespaces.

        Later writes do not change which keys follow.
        """

    def all(self) -> Iterator[tuple[Any, Any]]:
        """Return every entry key (a tuple of key, namespace if any, map key) with its value. Do not write meanwhile."""

    def sweep(self, count: int) -> None:
        """Inspect the next `count` entries, in endless rotation, and drop what the state's `prune` finds expired."""
