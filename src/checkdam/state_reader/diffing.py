"""Differences between two snapshots: keys added, changed and removed, by state."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal

import msgspec

from checkdam.errors import StateAccessError, UsageError
from checkdam.state_reader.content import StateContent
from checkdam.state_reader.descriptions import StateDescription
from checkdam.state_reader.keyed_states import Group, KeyedState
from checkdam.state_reader.operator_states import BroadcastState
from checkdam.state_reader.savepoint_reader import Savepoint

What = Literal["added", "changed", "removed"]

EXAMPLES = 10

_encoder = msgspec.msgpack.Encoder(decimal_format="string")


@dataclass(frozen=True)
class Example:
    """One difference. In list state of an operator, whose elements have no key, `key` is the element itself."""

    what: What
    key: Any
    before: Any = None
    after: Any = None


@dataclass
class StateDiff:
    """The differences of one state, with the first few as examples."""

    content: StateContent
    """The state in the newer snapshot, or in the older one if it was removed."""
    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    examples: list[Example] = field(default_factory=list)

    @property
    def description(self) -> StateDescription:
        return self.content.description

    @property
    def is_same(self) -> bool:
        return not (self.added or self.changed or self.removed)

    def note(self, example: Example, limit: int) -> None:
        setattr(self, example.what, getattr(self, example.what) + 1)
        if len(self.examples) < limit:
            self.examples.append(example)


def diff(
    old: Savepoint, new: Savepoint, uid: str | None = None, name: str | None = None, *, examples: int = EXAMPLES
) -> Iterator[StateDiff]:
    """Compare two snapshots: all states, or those of one operator or name. Holds one key group in memory at a time.

    A state that only one of the snapshots has is compared with an empty one.

    Raises:
        StateAccessError: neither has such an operator or state.
        UsageError: keys cannot be compared, because their type or the number of key groups differs.
    """
    for which in _states(old, new, uid, name):
        yield diff_state(_content(old, which), _content(new, which), examples=examples)


def diff_state(old: StateContent | None, new: StateContent | None, *, examples: int = EXAMPLES) -> StateDiff:
    """Compare one state in two snapshots; None stands for a snapshot without it. Raise the errors of `diff`."""
    newest = new or old
    if newest is None:
        raise ValueError("neither snapshot has the state")
    found = StateDiff(newest)
    if isinstance(newest, KeyedState):
        _compare_keyed(old, new, found, examples)
    elif isinstance(newest, BroadcastState):
        _compare(_entries(old), _entries(new), found, examples)
    else:
        _compare_elements(old, new, found, examples)
    return found


def _states(old: Savepoint, new: Savepoint, uid: str | None, name: str | None) -> list[tuple[str, str, str]]:
    """Return operator, kind and name of each state to compare, in the order of the newer snapshot."""
    found: dict[tuple[str, str, str], None] = {}
    for side in (new, old):
        for operator in side.operators:
            if uid in (None, operator.uid):
                for state in side.states(operator.uid):
                    if name in (None, state.name):
                        found[operator.uid, state.kind, state.name] = None
    if not found and uid is not None:
        for side in (new, old):  # raises, listing the existing states
            side.check(uid, name)
        raise StateAccessError(f'operator "{uid}" has no state in either snapshot')
    if not found and name is not None:
        raise StateAccessError(f'no operator has a state "{name}" in either snapshot')
    return list(found)


def _content(side: Savepoint, which: tuple[str, str, str]) -> StateContent | None:
    uid, kind, name = which
    if all(operator.uid != uid for operator in side.operators):
        return None
    state = next((each for each in side.states(uid) if (each.kind, each.name) == (kind, name)), None)
    return None if state is None else side.content_of(state)


def _compare_keyed(old: Any, new: Any, found: StateDiff, limit: int) -> None:
    if old is not None and new is not None:
        _check_comparable(old, new)
    sides = [[] if side is None else _tagged(side, place) for place, side in enumerate((old, new))]
    merged = heapq.merge(*sides, key=lambda each: (each[1].number, each[0]))
    for _, versions in groupby(merged, key=lambda each: each[1].number):
        by_side = {place: group.entries for place, group in versions}
        _compare(by_side.get(0, {}), by_side.get(1, {}), found, limit)


def _entries(side: StateContent | None) -> dict[Any, tuple[Any, Any]]:
    return {} if side is None else {_durable(key): (key, value) for key, value in side}


def _tagged(side: KeyedState, place: int) -> Iterator[tuple[int, Group]]:
    return ((place, group) for group in side.groups())


def _check_comparable(old: KeyedState, new: KeyedState) -> None:
    which = f'state "{new.description.name}" of operator "{new.description.uid}"'
    before, after = old.description, new.description
    for what in ("key_type", "window_type", "map_key_type"):
        if getattr(before, what) != getattr(after, what):
            raise UsageError(
                f"{which} cannot be compared: its {what.replace('_', ' ')} was {getattr(before, what)} and is "
                f"{getattr(after, what)}"
            )
    if old.max_parallelism != new.max_parallelism:
        raise UsageError(
            f"{which} cannot be compared: it has {old.max_parallelism} key groups in the older snapshot and "
            f"{new.max_parallelism} in the newer one",
            hint="Compare snapshots of one job: its max parallelism never changes.",
        )


def _compare(
    before: dict[Any, tuple[Any, Any]], after: dict[Any, tuple[Any, Any]], found: StateDiff, limit: int
) -> None:
    for each, (key, value) in after.items():
        if each not in before:
            found.note(Example("added", key, None, value), limit)
        elif is_same(before[each][1], value):
            found.unchanged += 1
        else:
            found.note(Example("changed", key, before[each][1], value), limit)
    for each, (key, value) in before.items():
        if each not in after:
            found.note(Example("removed", key, value, None), limit)


def is_same(one: Any, other: Any) -> bool:
    """Return whether two values have the same durable form: equal values of one type do, and NaN equals NaN."""
    if type(one) is not type(other):
        return False
    return bool(one == other) or _durable(one) == _durable(other)


def _durable(value: Any) -> bytes:
    return _encoder.encode(value)


def _compare_elements(old: StateContent | None, new: StateContent | None, found: StateDiff, limit: int) -> None:
    """Compare elements, which have no key, as multisets: an element that both have, in any subtask, is unchanged."""
    values: dict[bytes, Any] = {}
    counts: list[Counter[bytes]] = []
    for side in (old, new):
        counts.append(Counter())
        for _, element in () if side is None else side:
            encoded = _durable(element)
            values.setdefault(encoded, element)
            counts[-1][encoded] += 1
    before, after = counts
    found.unchanged += (before & after).total()
    for encoded in (after - before).elements():
        found.note(Example("added", values[encoded], None, values[encoded]), limit)
    for encoded in (before - after).elements():
        found.note(Example("removed", values[encoded], values[encoded], None), limit)
