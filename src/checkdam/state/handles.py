"""What a function holds to read and write the state of the current key."""

from __future__ import annotations

from typing import Protocol, TypeVar

T = TypeVar("T")


class ValueState(Protocol[T]):
    """One value per key. Every call is about the key of the record being processed."""

    def value(self) -> T:
        """The value of the current key; the descriptor's default if it has none (None unless one was given)."""

    def update(self, value: T | None) -> None:
        """Set the value of the current key; None clears it.

        A value that is changed in place counts as changed only once it is passed to `update` again.
        """

    def clear(self) -> None:
        """Forget the value of the current key."""
