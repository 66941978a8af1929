"""What a backend stores for the handles of keyed state: one value a key, or the entries of a mapping a key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

Prune = Callable[[Any], Any]
"""Takes a stored value and returns it without what has expired: the same object if all of it is fresh, None if none."""


def as_of_now(prune: Prune) -> Prune:
    """The same prune with its clock stopped.

    For work that goes on later about the state as of now, such as writing what was sealed: event time that has moved on
    meanwhile must not take away what a restore, which starts at the old watermark, still has to see.
    """
    stop: Callable[[], Prune] | None = getattr(prune, "as_of_now", None)
    return prune if stop is None else stop()


def in_bulk(prune: Prune, every: int) -> Prune:
    """The same prune for one pass over many stored values: asks for the time first, and again after `every` of them."""
    bulk: Callable[[int], Prune] | None = getattr(prune, "in_bulk", None)
    return prune if bulk is None else bulk(every)


def shortened(prune: Prune, by: int) -> Prune:
    """The same prune for elements that live so many milliseconds less."""
    shorter: Callable[[int], Prune] | None = getattr(prune, "shortened", None)
    return prune if shorter is None else shorter(by)


class Cells(Protocol):
    """One stored value per key (and namespace): the ground that values, lists and accumulators stand on."""

    def value(self) -> Any:
        """The stored value of the current key, None if there is none."""

    def update(self, value: Any) -> None:
        """Set it; None clears it. A value changed in place counts as changed only once it is passed here again."""

    def clear(self) -> None: ...

    def stored_keys(self) -> Iterator[Any]:
        """The keys that have something stored as of the first one asked for, each once, of a state without namespaces.

        What is written meanwhile shows in no key that comes later.
        """

    def all(self) -> Iterator[tuple[Any, Any]]:
        """Every entry key (the key, or a tuple of key and namespace) with its value; no writes meanwhile."""

    def sweep(self, count: int) -> None:
        """Look at the next `count` entries, round and round, and drop what the state's `prune` finds expired."""


class Maps(Protocol):
    """A mapping per key (and namespace), every entry of it stored on its own. Values are never None."""

    def get(self, map_key: Any) -> Any:
        """The value under that map key of the current key, None if there is none."""

    def put(self, map_key: Any, value: Any) -> None: ...

    def remove(self, map_key: Any) -> None:
        """Forget one entry; one that is not there is no error."""

    def items(self) -> Iterator[tuple[Any, Any]]:
        """The entries of the current key. The function may put and remove while it reads."""

    def is_empty(self) -> bool: ...

    def clear(self) -> None: ...

    def stored_keys(self) -> Iterator[Any]:
        """The keys that have something stored as of the first one asked for, each once, of a state without namespaces.

        What is written meanwhile shows in no key that comes later.
        """

    def all(self) -> Iterator[tuple[Any, Any]]:
        """Every entry key (a tuple of key, namespace if any, map key) with its value; no writes meanwhile."""

    def sweep(self, count: int) -> None:
        """Look at the next `count` entries, round and round, and drop what the state's `prune` finds expired."""
