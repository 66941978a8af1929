"""Pages of state as JSON, of a running job and of snapshots alike: keys, elements of operator state, timers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from checkdam.server.app.endpoint import Positive, Query
from checkdam.state.snapshot_handles import Redistribution
from checkdam.state_reader.descriptions import OPERATOR_KINDS
from checkdam.types.json_values import to_json
from checkdam.types.type_info import TypeInfo

LARGEST_PAGE = 1_000
CURSOR = Query("cursor", str, "`next` of the previous page; left out: the first page")
LIMIT = Query("limit", Positive, f"Most entries to return, up to {LARGEST_PAGE}", default=50)
FILTER = Query(
    "filter",
    str,
    "Only keys whose JSON contains this text, ignoring case; a page looks at a limited number of keys, so it may be "
    "empty though `next` leads on",
)


class KeyEntry(msgspec.Struct, frozen=True, rename="kebab"):
    key: Any
    value: Any
    key_group: int
    window: Any = msgspec.UNSET


class Page(msgspec.Struct, frozen=True):
    """Some keys of a state; `scanned` is how many keys a filter has looked at."""

    epoch: int
    entries: list[KeyEntry]
    next: str | None
    scanned: int | msgspec.UnsetType = msgspec.UNSET


class OperatorStateShape(msgspec.Struct, frozen=True, rename="kebab"):
    """An operator state. `key-type` is that of broadcast state; its elements are counted once, not per subtask."""

    name: str
    mode: str
    type: str
    elements: int
    key_type: str | msgspec.UnsetType = msgspec.UNSET


class TimersShape(msgspec.Struct, frozen=True, rename="kebab"):
    """The timers of an operator in one time domain; `next` is the time of the earliest, if that is known."""

    time_domain: str
    entries: int | None
    next: int | msgspec.UnsetType | None = msgspec.UNSET


class Element(msgspec.Struct, frozen=True):
    """One entry of broadcast state, with its key, or one element of a list, with its subtask."""

    value: Any
    key: Any = msgspec.UNSET
    subtask: int | msgspec.UnsetType = msgspec.UNSET


class Elements(msgspec.Struct, frozen=True):
    epoch: int
    mode: str
    entries: list[Element]
    next: str | None
    scanned: int | msgspec.UnsetType = msgspec.UNSET


class TimerEntry(msgspec.Struct, frozen=True, rename="kebab"):
    key: Any
    timestamp: int
    time_domain: str
    key_group: int
    window: Any = msgspec.UNSET


class TimersPage(msgspec.Struct, frozen=True):
    """Some timers. `entries` of a running job are the next ones of each time domain, in the order of their times."""

    epoch: int
    entries: list[TimerEntry]
    next: str | None
    scanned: int | msgspec.UnsetType = msgspec.UNSET


def elements_of(mode: Redistribution, of: TypeInfo, entries: Sequence[tuple[int, Any]]) -> list[Element]:
    """Convert elements, each given with its subtask; of broadcast state an element is a pair of key and value."""
    if mode is not Redistribution.BROADCAST:
        return [Element(to_json(element, of), subtask=subtask) for subtask, element in entries]
    (_, of_key), (_, of_value) = of.fields
    return [Element(to_json(value, of_value), key=to_json(key, of_key)) for _, (key, value) in entries]


def operator_state_shape(name: str, mode: Redistribution, of: TypeInfo, elements: int) -> OperatorStateShape:
    if mode is not Redistribution.BROADCAST:
        return OperatorStateShape(name, OPERATOR_KINDS[mode], of.name, elements)
    (_, of_key), (_, of_value) = of.fields
    return OperatorStateShape(name, OPERATOR_KINDS[mode], of_value.name, elements, of_key.name)


def window_json(window: Any, of: TypeInfo | None) -> Any:
    return msgspec.UNSET if of is None else to_json(window, of)
