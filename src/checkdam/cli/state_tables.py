"""Formats state as tables for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from checkdam.cli import number_format
from checkdam.cli.tables import Words, WordTable
from checkdam.clock import from_milliseconds
from checkdam.state_reader.content import StateContent
from checkdam.state_reader.descriptions import OperatorDescription, StateDescription
from checkdam.state_reader.diffing import StateDiff
from checkdam.state_reader.json_rows import json_example
from checkdam.state_reader.savepoint_reader import Savepoint

_LONGEST = 200  # characters of a value


def operator_parts(
    operators: Sequence[OperatorDescription], states: Mapping[str, Sequence[StateDescription]]
) -> Iterator[RenderableType]:
    """Return a line for each operator, and below it a table of its states."""
    for operator in operators:
        yield Text()
        yield Words(_facts_of(operator, states[operator.uid]), name=operator.uid)
        table = WordTable("state", "kind", "type", "entries", "size", whole={"kind"}, indent=2)
        for state in states[operator.uid]:
            table.add(*_cells(state))
        yield table


def snapshot_name(savepoint: Savepoint) -> tuple[str, str]:
    """Return what a snapshot is and which: ("savepoint", "8 (canonical), after epoch 6")."""
    what = f" ({savepoint.format.lower()})" if savepoint.format is not None else ""
    kind = "checkpoint" if savepoint.format is None else "savepoint"
    return kind, f"{savepoint.checkpoint_id}{what}, after epoch {savepoint.epoch}"


def _facts_of(operator: OperatorDescription, states: Sequence[StateDescription]) -> str:
    key = next((state.key_type for state in states if state.key_type), None)
    size = number_format.size(operator.bytes)
    facts = [
        f"{operator.name} ×{operator.parallelism}, max {operator.max_parallelism}",
        f"{operator.finished_subtasks} finished" if operator.finished_subtasks else "",
        f"key {key}" if key else "",
        operator.backend or "",
        f"{size} in {number_format.counted(operator.files, 'file')}" if operator.files else "",
        f"{number_format.counted(operator.uncommitted_outputs, 'output')} to publish"
        if operator.uncommitted_outputs
        else "",
    ]
    return " · ".join(filter(None, facts))


def _cells(state: StateDescription) -> tuple[str, ...]:
    kind = f"{state.kind}, TTL" if state.ttl else state.kind
    of = f"dict[{state.map_key_type}, {state.type}]" if state.map_key_type and not state.is_timers else state.type
    of = f"{of} by {state.window_type}" if state.window_type else of
    entries = "?" if state.entries is None else number_format.number(state.entries)
    entries = entries if state.entries is None or state.entries_are_exact else f"≤ {entries}"
    size = "?" if state.bytes is None else number_format.size(state.bytes)
    return state.name, kind, of, entries, size


def rows_table(content: StateContent, rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Return entries with a column for each of their parts."""
    state = content.description
    of = "timers" if state.is_timers else f"{state.name}, {state.kind} state of {state.type}"
    head = f"{of}, by {state.key_type}" if state.key_type else of
    head = f"{state.uid}: {head}"
    if not rows:
        return Group(Words(head), Text("nothing", style="dim"))
    table = WordTable(*(name.replace("_", " ") for name in rows[0]))
    for row in rows:
        table.add(*(_FORMATS.get(name, _short)(value) for name, value in row.items()))
    return Group(Words(head), Text(), table)


def diff_table(found: Sequence[StateDiff]) -> RenderableType:
    """Return the counts of each state, with examples below those that differ."""
    table = WordTable("uid", "state", "added", "changed", "removed", "unchanged")
    for each in found:
        counts = (each.added, each.changed, each.removed, each.unchanged)
        table.add(each.description.uid, each.description.name, *map(number_format.number, counts))
    parts: list[RenderableType] = [table]
    for each in found:
        if each.examples:
            parts += [Text(), Text(f"{each.description.name} of {each.description.uid}", style="bold")]
            parts.append(_examples(each))
    return Group(*parts)


def _examples(found: StateDiff) -> WordTable:
    table = WordTable("what", "key", "before", "after", indent=2)
    for example in found.examples:
        shown = json_example(example, found.content)
        before = "" if example.what == "added" else _short(shown["before"])
        after = "" if example.what == "removed" else _short(shown["after"])
        table.add(example.what, _key_text(found, shown["key"]), before, after)
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
        return _period(window["start"], window["end"])
    return "global" if window == {"id": 0} else _short(window)


def _period(start: int, end: int) -> str:
    """Format a period of event time, which may be any numbers."""
    try:
        return number_format.period(from_milliseconds(start), from_milliseconds(end))
    except (OverflowError, ValueError):
        return f"{start} – {end}"


def _time(touched: Any) -> str:
    """Format milliseconds since 1970 as a time; event time may be any number."""
    if isinstance(touched, list):
        return ", ".join(map(_time, touched))
    try:
        return number_format.instant(from_milliseconds(touched))
    except (OverflowError, ValueError):
        return str(touched)


_FORMATS: Final[Mapping[str, Callable[[Any], str]]] = {"last_touched": _time, "window": window_text}
