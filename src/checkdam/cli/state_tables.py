"""State as tables for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from checkdam.cli import number_format
from checkdam.clock import from_milliseconds
from checkdam.state_reader.content import StateContent
from checkdam.state_reader.descriptions import StateDescription
from checkdam.state_reader.diffing import StateDiff
from checkdam.state_reader.json_rows import json_example
from checkdam.state_reader.savepoint_reader import Savepoint

_FIGURES = frozenset({"entries", "size", "added", "changed", "removed", "unchanged", "key group", "subtask"})
_LONGEST = 200  # characters of a value


def states_table(savepoint: Savepoint, states: Mapping[str, Sequence[StateDescription]]) -> RenderableType:
    """Whose state it is, then a row for each state of each operator."""
    head = (
        f"{savepoint.job_name} ({savepoint.job_id}), checkpoint {savepoint.checkpoint_id} after epoch "
        f"{savepoint.epoch}, {savepoint.completed_at:%Y-%m-%d %H:%M:%S} UTC"
    )
    table = _table("uid", "operator", "state", "kind", "key", "type", "entries", "size")
    for operator in savepoint.operators:
        own = (operator.uid, f"{operator.name} ×{operator.parallelism}, max {operator.max_parallelism}")
        for place, each in enumerate(states[operator.uid]):
            _add(table, *(own if place == 0 else ("", "")), *_cells(each))
        if not states[operator.uid]:
            _add(table, *own, "", "", "", "", "", "")
    return Group(escape(head), table)


def _cells(state: StateDescription) -> tuple[str, ...]:
    kind = f"{state.kind}, TTL" if state.ttl else state.kind
    of = f"dict[{state.map_key_type}, {state.type}]" if state.map_key_type and not state.is_timers else state.type
    of = f"{of} by {state.namespace_type}" if state.namespace_type else of
    entries = "?" if state.entries is None else number_format.number(state.entries)
    entries = entries if state.entries is None or state.entries_are_exact else f"≤ {entries}"
    size = "?" if state.bytes is None else number_format.size(state.bytes)
    return state.name, kind, state.key_type or "", of, entries, size


def rows_table(content: StateContent, rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Entries, a column for each part of them."""
    state = content.description
    of = "timers" if state.is_timers else f"{state.name}, {state.kind} state of {state.type}"
    head = f"{of}, by {state.key_type}" if state.key_type else of
    head = f"{state.uid}: {head}"
    if not rows:
        return Group(escape(head), "[dim]nothing[/]")
    table = _table(*(name.replace("_", " ") for name in rows[0]))
    for row in rows:
        _add(table, *(_time(value) if name == "last_touched" else _short(value) for name, value in row.items()))
    return Group(escape(head), table)


def diff_table(found: Sequence[StateDiff]) -> RenderableType:
    """Counts of each state, and examples below those that differ."""
    table = _table("uid", "state", "added", "changed", "removed", "unchanged")
    for each in found:
        counts = (each.added, each.changed, each.removed, each.unchanged)
        _add(table, each.description.uid, each.description.name, *map(number_format.number, counts))
    parts: list[RenderableType] = [table]
    for each in found:
        if each.examples:
            parts.append(escape(f"{each.description.name} of {each.description.uid}"))
            parts.append(_examples(each))
    return Group(*parts)


def _examples(found: StateDiff) -> Table:
    table = _table("what", "key", "before", "after")
    for example in found.examples:
        shown = json_example(example, found.content)
        before = "" if example.what == "added" else _short(shown["before"])
        after = "" if example.what == "removed" else _short(shown["after"])
        _add(table, example.what, _short(shown["key"]), before, after)
    return table


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _time(touched: Any) -> str:
    """Milliseconds since 1970 as a time; of event time whatever number it is."""
    if isinstance(touched, list):
        return ", ".join(map(_time, touched))
    try:
        return f"{from_milliseconds(touched):%Y-%m-%d %H:%M:%S}"
    except OverflowError:
        return str(touched)


def _table(*names: str) -> Table:
    """A table whose texts fold on a narrow terminal, never its figures."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", border_style="dim", padding=(0, 1, 0, 0), pad_edge=False)
    for name in names:
        justify: Literal["left", "right"] = "right" if name in _FIGURES else "left"
        table.add_column(name, justify=justify, no_wrap=name in _FIGURES, overflow="fold")
    return table


def _add(table: Table, *cells: str) -> None:
    table.add_row(*map(escape, cells))
