"""How much a state holds, in keys and entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateCount:
    """A map of three entries is one key, and so are three windows of one key.

    `keys` is None where they are not counted. Unless `is_exact`, both are estimates.
    """

    entries: int = 0
    keys: int | None = 0
    is_exact: bool = True


def count_of_states(counts: Iterable[StateCount]) -> StateCount:
    """Return the count of an operator's states. Its keys are those of the state with most: few keys have only some."""
    return _joined(list(counts), max)


def count_of_parts(counts: Iterable[StateCount]) -> StateCount:
    """Return the count of parts that have no key in common, such as the subtasks of an operator."""
    return _joined(list(counts), sum)


def _joined(counts: list[StateCount], join: Callable[[list[int]], int]) -> StateCount:
    keys = [each.keys for each in counts if each.keys is not None]
    return StateCount(
        sum(each.entries for each in counts),
        None if len(keys) < len(counts) else join(keys) if keys else 0,
        all(each.is_exact for each in counts),
    )
