"""The smallest store that handles can stand on: dicts, and a note of every sweep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from checkdam.backends.contract import KeyedStateStore
from checkdam.backends.keyed_state import OperatorKeyedState
from checkdam.ids import OperatorUid
from checkdam.state.spec import StateSpec
from checkdam.state.stored import Prune
from checkdam.testing import ManualClock


class PlainCells:
    def __init__(self, store: PlainStore, prune: Prune | None) -> None:
        self._store = store
        self._prune = prune
        self.entries: dict[Any, Any] = {}
        self.sweeps: list[int] = []
        self.writes = 0

    def value(self) -> Any:
        return self.entries.get(self._store.current_key)

    def update(self, value: Any) -> None:
        self.writes += 1
        if value is None:
            self.clear()
        else:
            self.entries[self._store.current_key] = value

    def clear(self) -> None:
        self.entries.pop(self._store.current_key, None)

    def stored_keys(self) -> Iterator[Any]:
        return iter(list(self.entries))

    def all(self) -> Iterator[tuple[Any, Any]]:
        return iter(self.entries.items())

    def sweep(self, count: int) -> None:
        assert self._prune is not None
        self.sweeps.append(count)
        for key in list(self.entries)[:count]:
            stored = self.entries.pop(key)
            left = self._prune(stored)
            if left is not None:
                self.entries[key] = left


class PlainMaps:
    def __init__(self, store: PlainStore, prune: Prune | None) -> None:
        self._store = store
        self._prune = prune
        self.entries: dict[Any, Any] = {}
        self.sweeps: list[int] = []
        self.items_read = 0

    def get(self, map_key: Any) -> Any:
        return self.entries.get((self._store.current_key, map_key))

    def put(self, map_key: Any, value: Any) -> None:
        self.entries[self._store.current_key, map_key] = value

    def remove(self, map_key: Any) -> None:
        self.entries.pop((self._store.current_key, map_key), None)

    def items(self) -> Iterator[tuple[Any, Any]]:
        for (key, map_key), value in list(self.entries.items()):
            if key == self._store.current_key:
                self.items_read += 1
                yield map_key, value

    def is_empty(self) -> bool:
        return all(key != self._store.current_key for key, _ in self.entries)

    def clear(self) -> None:
        self.entries = {both: value for both, value in self.entries.items() if both[0] != self._store.current_key}

    def stored_keys(self) -> Iterator[Any]:
        return iter(dict.fromkeys(key for key, _ in self.entries))

    def all(self) -> Iterator[tuple[Any, Any]]:
        return iter(self.entries.items())

    def sweep(self, count: int) -> None:
        PlainCells.sweep(cast(PlainCells, self), count)


@dataclass
class PlainStore:
    """Only what handles ask of a store; the states by name are there to look into."""

    current_key: Any = "k"
    current_namespace: Any = None
    states: dict[str, Any] = field(default_factory=dict)
    specs: dict[str, StateSpec] = field(default_factory=dict)

    def cells(self, spec: StateSpec, prune: Prune | None = None) -> PlainCells:
        self.specs[spec.name] = spec
        made = self.states[spec.name] = PlainCells(self, prune)
        return made

    def maps(self, spec: StateSpec, prune: Prune | None = None) -> PlainMaps:
        self.specs[spec.name] = spec
        made = self.states[spec.name] = PlainMaps(self, prune)
        return made


@dataclass
class RecordTime:
    """The time as a slot tells it, moved by hand; in milliseconds."""

    clock: ManualClock = field(default_factory=ManualClock)
    watermark: int = -(2**63)
    timestamp: int | None = None
    readings: int = 0

    def processing_time(self) -> int:
        self.readings += 1
        return round(self.clock.now().timestamp() * 1000)

    def advance(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds / 1000)


def keyed_state(store: PlainStore, time: RecordTime | None = None) -> OperatorKeyedState:
    return OperatorKeyedState(cast(KeyedStateStore, store), time or RecordTime(), OperatorUid("op"))
