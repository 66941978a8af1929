"""The parts of a keyed state's entries: key, window, map key, value, and the time of last access."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from checkdam.backends.restoring import untimed
from checkdam.backends.state_file import StateInfo
from checkdam.graph.windowing.windows import GlobalWindow, TimeWindow
from checkdam.state.spec import StateKind
from checkdam.state_reader.columns import is_hashable, positional, unpickled
from checkdam.types.type_info import TypeInfo, tuple_of, type_info
from checkdam.types.type_text import text_of, type_from_text

_WINDOWS: Final = {text_of(type_info(of)): type_info(of) for of in (TimeWindow, GlobalWindow)}


class EntryParts:
    """The parts of a state's entries: key, window, map key, value, and with TTL the time of last access.

    The window is the namespace of the state. Time windows and global windows are read as their classes.
    """

    def __init__(self, info: StateInfo, key_type: str, *, unpickle: bool) -> None:
        stored = type_from_text(info.type)
        self.stored = unpickled(stored) if unpickle else stored
        self.is_timed = info.ttl
        self.is_timed_list = info.ttl and info.kind == StateKind.LIST
        self.value = untimed(stored) if info.ttl else stored
        self.keys = [("key", type_from_text(key_type))]
        self.keys += [("window", _window_type(info.namespace))] if info.namespace else []
        self.keys += [("map_key", type_from_text(info.map_key))] if info.map_key else []

    @property
    def entry_key(self) -> TypeInfo:
        """The type that identifies an entry: the key alone, or a tuple that begins with it."""
        return self.keys[0][1] if len(self.keys) == 1 else tuple_of([of for _, of in self.keys])

    @property
    def has_window(self) -> bool:
        return len(self.keys) > 1 and self.keys[1][0] == "window"

    def split(self, stored: list[Any]) -> tuple[list[Any], list[Any]]:
        """Split stored values into values and times; the times are empty without TTL."""
        if not self.is_timed:
            return stored, []
        if self.is_timed_list:
            return [[each for each, _ in held] for held in stored], [[time for _, time in held] for held in stored]
        return [value for value, _ in stored], [time for _, time in stored]

    def key_columns(self, entry_keys: list[Any]) -> Iterator[tuple[TypeInfo, list[Any]]]:
        if len(self.keys) == 1:
            yield self.keys[0][1], entry_keys
        else:
            for place, (_, of) in enumerate(self.keys):
                yield of, [entry_key[place] for entry_key in entry_keys]

    def key_parts(self, entry_key: Any) -> tuple[Any, ...]:
        return (entry_key,) if len(self.keys) == 1 else entry_key

    def key_of(self, entry_key: Any) -> Any:
        return entry_key if len(self.keys) == 1 else entry_key[0]

    def by_key(self, entries: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """Return each key once with its value: for a map a dict by map key, with windows a dict by window."""
        if len(self.keys) == 1:
            return list(entries)
        of_key = self.keys[0][1]
        found: dict[Any, tuple[Any, dict[Any, Any]]] = {}
        for entry_key, value in entries:
            key = entry_key[0]
            _, held = found.setdefault(key if is_hashable(of_key) else positional(of_key, key), (key, {}))
            _put(held, self._looked_up_by(entry_key), value)
        return list(found.values())

    def _looked_up_by(self, entry_key: Any) -> list[Any]:
        """Return window and map key in hashable form."""
        parts = zip(self.keys[1:], entry_key[1:], strict=True)
        return [part if is_hashable(of) else positional(of, part) for (_, of), part in parts]


def _window_type(text: str) -> TypeInfo:
    return _WINDOWS.get(text) or type_from_text(text)


def _put(found: dict[Any, Any], path: Sequence[Any], value: Any) -> None:
    for step in path[:-1]:
        found = found.setdefault(step, {})
    found[path[-1]] = value
