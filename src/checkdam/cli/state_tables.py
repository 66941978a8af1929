"""Formats state as tables for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from checkdam.cli import number_format
from checkdam.cli.tables import add_row, table_of
from checkdam.clock import from_milliseconds
from checkdam.state_reader.content import StateContent
from checkdam.state_reader.descriptions import StateDescription
from checkdam.state_reader.diffing import StateDiff
from checkdam.state_reader.json_rows import json_example
from checkdam.state_reader.savepoint_reader import Savepoint

_LONGEST = 200  # characters of a value


def states_table(savepoint: Savepoint, states: Mapping[str, Sequence[StateDescription]]) -> RenderableType:
    """Return the owner of the state, then a row for each state of each operator."""
    head = (
        f"{savepoint.job_name} ({savepoint.job_id}), checkpoint {savepoint.checkpoint_id} after epoch "
        f"{savepoint.epoch}, {savepoint.completed_at:%Y-%m-%d %H:%M:%S} UTC"
    )
    table = table_of("uid", "operator", "state", "kind", "key", "type", "entries", "size")
    for operator in savepoint.operators:
        own = (operator.uid, f"{operator.name} ×{operator.parallelism}, max {operator.max_parallelism}")
        for place, each in enumerate(states[operator.uid]):
            add_row(table, *(own if place == 0 else ("", "")), *_cells(each))
        if not states[operator.uid]:
            add_row(table, *own, "", "", "", "", "", "")
    return Group(escape(head), table)


def _cells(state: StateDescription) -> tuple[str, ...]:
    kind = f"{state.kind}, TTL" if state.ttl else state.kind
    of = f"dict[{state.map_key_type}, {state.type}]" if state.map_key_type and not state.is_timers else state.type
    of = f"{of} by {state.window_type}" if state.window_type else of
    entries = "?" if state.entries is None else number_format.number(state.entries)
    entries = entries if state.entries is None or state.entries_are_exact else f"≤ {entries}"
    size = "?" if state.bytes is None else number_format.size(state.bytes)
    return state.name, kind, state.key_type or "", of, entries, size


def rows_table(content: StateContent, rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Return entries with a column for each of their parts."""
    state = content.description
    of = "timers" if state.is_timers else f"{state.name}, {state.kind} state of {state.type}"
    head = f"{of}, by {state.key_type}" if state.key_type else of
    head = f"{state.uid}: {head}"
    if not rows:
        return Group(escape(head), "[dim]nothing[/]")
    table = table_of(*(name.replace("_", " ") for name in rows[0]))
    for row in rows:
        add_row(table, *(_FORMATS.get(name, _short)(value) for name, value in row.items()))
    return Group(escape(head), table)


def diff_table(found: Sequence[StateDiff]) -> RenderableType:
    """Return the counts of each state, with examples below those that differ."""
    table = table_of("uid", "state", "added", "changed", "removed", "unchanged")
    for each in found:
        counts = (each.added, each.changed, each.removed, each.unchanged)
        add_row(table, each.description.uid, each.description.name, *map(number_format.number, counts))
    parts: list[RenderableType] = [table]
    for each in found:
        if each.examples:
            parts.append(escape(f"{each.description.name} of {each.description.uid}"))
            parts.append(_examples(each))
    return Group(*parts)


def _examples(found: StateDiff) -> Table:
    table = table_of("what", "key", "before", "after")
    for example in found.examples:
        shown = json_example(example, found.content)
        before = "" if example.what == "added" else _short(shown["before"])
        after = "" if example.what == "removed" else _short(shown["after"])
        add_row(table, example.what, _key_text(found, shown["key"]), before, after)
    return table


def _key_text(found: StateDiff, key: Any) -> str:
    """Format the key of a difference; of window state with the window."""
    if found.description.window_type is None:
        return _short(key)
    first, window, *map_key = key
    return ", ".join((_short(first), window_text(window), *map(_short, map_key)))


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def window_text(window: Any) -> str:
    """Format a window of time as its start and end; another kind of window by its fields."""
    if window is None:
        return ""
    if isinstance(window, dict) and [*window] == ["start", "end"]:
        return f"{_instant(window['start'])} – {_instant(window['end'])}"
    return "global" if window == {"id": 0} else _short(window)


def _instant(milliseconds: int) -> str:
    """Format a time with its milliseconds, if it has any."""
    rest = milliseconds % 1000
    shown = _time(milliseconds - rest)
    return f"{shown}.{rest:03d}" if rest and ":" in shown else str(milliseconds) if rest else shown


def _time(touched: Any) -> str:
    """Format milliseconds since 1970 as a time; event time may be any number."""
    if isinstance(touched, list):
        return ", ".join(map(_time, touched))
    try:
        return f"{from_milliseconds(touched):%Y-%m-%d %H:%M:%S}"
    except OverflowError:
        return str(touched)


_FORMATS: Final[Mapping[str, Callable[[Any], str]]] = {"last_touched": _time, "window": window_text}
