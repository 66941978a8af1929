"""States as JSON, for the command line and REST: rows and differences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from checkdam.state_reader.content import StateContent
from checkdam.state_reader.diffing import Example
from checkdam.state_reader.keyed_states import KeyedState
from checkdam.state_reader.operator_states import BroadcastState, OperatorListState
from checkdam.state_reader.timer_states import TimerContent
from checkdam.types.json_values import to_json
from checkdam.types.type_info import tuple_of


def json_rows(content: StateContent) -> Iterator[dict[str, Any]]:
    """Iterate over the rows of a state by column name, values in the form of `to_json`; times are in milliseconds."""
    if isinstance(content, KeyedState):
        for row in content.rows():
            parts = zip(content.part_types, row.parts, strict=True)
            shown = {name: to_json(part, of) for (name, of), part in parts}
            shown["value"] = to_json(row.value, content.value_type)
            if row.last_touched is not None:
                shown["last_touched"] = row.last_touched
            yield shown | {"key_group": row.key_group}
    elif isinstance(content, OperatorListState):
        for subtask, element in content:
            yield {"subtask": subtask, "value": to_json(element, content.element_type)}
    elif isinstance(content, BroadcastState):
        (_, of_key), (_, of_value) = content.element_type.fields
        for key, value in content:
            yield {"key": to_json(key, of_key), "value": to_json(value, of_value)}
    elif isinstance(content, TimerContent):
        for (key, *window, domain), timestamp in content:
            shown = {"key": to_json(key, content.key_type)}
            if window:
                shown["window"] = to_json(window[0], content.window_type)
            yield shown | {"timestamp": timestamp, "time_domain": domain}
    else:
        raise AssertionError(f"{type(content).__name__} is not a state")


def json_example(example: Example, content: StateContent) -> dict[str, Any]:
    """Return one difference of a state; if entries have more than a key, the key is an array of all parts."""
    of_key = of_value = None
    if isinstance(content, KeyedState):
        parts = [of for _, of in content.part_types]
        of_key, of_value = parts[0] if len(parts) == 1 else tuple_of(parts), content.value_type
    return {
        "what": example.what,
        "key": to_json(example.key, of_key),
        "before": to_json(example.before, of_value),
        "after": to_json(example.after, of_value),
    }
