"""Keyed state of every kind as plain dictionaries: what a store and its handles must be equal to, whatever happens."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from checkdam.backends.keyed_state import OperatorKeyedState
from checkdam.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from checkdam.state.ttl import (
    CleanupFullSnapshot,
    CleanupIncrementally,
    StateTtlConfig,
    TtlTime,
    TtlUpdateType,
    TtlVisibility,
)
from checkdam.testing import ManualClock

LIFE = 1000
BEGINNING = -(2**63)


class Mean:
    """Keeps (sum, count): an accumulator of another type than values and result."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]


@dataclass
class Time:
    """The time as a slot tells it, moved by hand."""

    clock: ManualClock = field(default_factory=ManualClock)
    watermark: int = BEGINNING
    timestamp: int | None = 0

    def processing_time(self) -> int:
        return round(self.clock.now().timestamp() * 1000)


@dataclass(frozen=True)
class Declared:
    """One state: how to ask for it, and the rules it lives by."""

    name: str
    kind: str
    ttl: StateTtlConfig | None = None
    has_namespace: bool = False

    def ask(self, keyed: OperatorKeyedState) -> Any:
        name, ttl = self.name, self.ttl
        if self.kind == "value":
            return keyed.get_state(ValueStateDescriptor(name, int, default=-1, ttl=ttl))
        if self.kind == "list":
            return keyed.get_list_state(ListStateDescriptor(name, int, ttl))
        if self.kind == "reducing":
            return keyed.get_reducing_state(ReducingStateDescriptor(name, int, lambda kept, added: kept + added, ttl))
        if self.kind == "aggregating":
            return keyed.get_aggregating_state(AggregatingStateDescriptor(name, tuple[int, int], Mean(), ttl))
        return keyed.get_map_state(MapStateDescriptor(name, str, int, ttl))


def _ttl(time: TtlTime, update: TtlUpdateType, **options: Any) -> StateTtlConfig:
    return StateTtlConfig(timedelta(milliseconds=LIFE), update_type=update, time=time, **options)


_CLOCK, _EVENT = TtlTime.PROCESSING_TIME, TtlTime.EVENT_TIME
_WRITE, _READ = TtlUpdateType.ON_CREATE_AND_WRITE, TtlUpdateType.ON_READ_AND_WRITE
_SHOWN: dict[str, Any] = {"visibility": TtlVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP, "cleanup": None}
_SWEPT: dict[str, Any] = {"cleanup": (CleanupFullSnapshot(), CleanupIncrementally(2, run_for_every_record=True))}

STATES = {
    each.name: each
    for each in [
        *(Declared(f"plain {kind}", kind) for kind in ("value", "list", "reducing", "aggregating", "map")),
        Declared("value by clock", "value", _ttl(_CLOCK, _WRITE)),
        Declared("value by event, read", "value", _ttl(_EVENT, _READ, **_SWEPT)),
        Declared("value shown", "value", _ttl(_CLOCK, _READ, **_SHOWN)),
        Declared("list by clock", "list", _ttl(_CLOCK, _READ, **_SWEPT)),
        Declared("list by event", "list", _ttl(_EVENT, _WRITE)),
        Declared("list shown", "list", _ttl(_EVENT, _READ, **_SHOWN)),
        Declared("reducing by clock, read", "reducing", _ttl(_CLOCK, _READ)),
        Declared("aggregating by event", "aggregating", _ttl(_EVENT, _WRITE, cleanup=None)),
        Declared("map by clock, read", "map", _ttl(_CLOCK, _READ)),
        Declared("map by event", "map", _ttl(_EVENT, _WRITE, **_SWEPT)),
        Declared("map shown", "map", _ttl(_CLOCK, _WRITE, **_SHOWN)),
        Declared("value in namespaces", "value", has_namespace=True),
        Declared("list in namespaces", "list", _ttl(_CLOCK, _WRITE, **_SWEPT), has_namespace=True),
        Declared("map in namespaces", "map", _ttl(_EVENT, _READ), has_namespace=True),
    ]
}

Where = tuple[str, int]  # key and namespace


class Model:
    """Per state and key the elements with the time they were touched; what has expired stays, and is not shown.

    A list is a list of [element, touched], everything else a dict of them: by map key, or under "" for the one value.
    """

    def __init__(self, time: Time) -> None:
        self._time = time
        self.states: dict[str, dict[Where, Any]] = {name: {} for name in STATES}

    def write(self, of: Declared, where: Where, value: int, map_key: str = "") -> None:
        """Set, add or put, by the kind of state."""
        if of.kind == "list":
            self.states[of.name].setdefault(where, []).append([value, self._stamp(of)])
            return
        held = self.states[of.name].setdefault(where, {})
        before = held.get(map_key)
        shown = before is not None and self._is_shown(of, before)
        kept: Any = value
        if of.kind == "reducing":
            kept = before[0] + value if shown else value
        elif of.kind == "aggregating":
            kept = Mean().add(value, before[0] if shown else (0, 0))
        held[map_key] = [kept, self._stamp(of) if before is None else self._touched(of, before)]

    def read(self, of: Declared, where: Where) -> Any:
        """All of it as the handle shows it, touched by that if reading touches."""
        held = self.states[of.name].get(where, [] if of.kind == "list" else {})
        pairs = held if of.kind == "list" else list(held.values())
        touches = of.ttl is not None and of.ttl.update_type is _READ
        shown: Any
        if of.kind == "list":
            shown = [value for value, _ in held if self._is_shown(of, [value, _])]
        else:
            shown = {map_key: pair[0] for map_key, pair in held.items() if self._is_shown(of, pair)}
        fresh = [pair for pair in pairs if self._is_fresh(of, pair)]
        if of.kind != "list":
            self.states[of.name][where] = {map_key: pair for map_key, pair in held.items() if pair in fresh}
        elif touches or not fresh:
            self.states[of.name][where] = fresh
        for pair in fresh if touches else ():
            pair[1] = max(pair[1], self._stamp(of))
        if of.kind == "list":
            return shown
        if of.kind == "map":
            return shown
        found = shown.get("")
        if of.kind == "value":
            return -1 if found is None and of.ttl is None else found
        return Mean().get_result(found) if of.kind == "aggregating" and found is not None else found

    def remove(self, of: Declared, where: Where, map_key: str) -> None:
        self.states[of.name].get(where, {}).pop(map_key, None)

    def clear(self, of: Declared, where: Where) -> None:
        self.states[of.name].pop(where, None)

    def replace(self, of: Declared, where: Where, values: list[int]) -> None:
        self.states[of.name][where] = [[value, self._stamp(of)] for value in values]

    def copied(self) -> dict[str, dict[Where, Any]]:
        return copy.deepcopy(self.states)

    def restore(self, states: dict[str, dict[Where, Any]]) -> None:
        """What has expired by now does not come back, even where it could be shown before."""
        self.states = copy.deepcopy(states)
        for name, by_where in self.states.items():
            of = STATES[name]
            for where, held in by_where.items():
                if of.kind == "list":
                    by_where[where] = [pair for pair in held if self._is_fresh(of, pair)]
                else:
                    by_where[where] = {map_key: pair for map_key, pair in held.items() if self._is_fresh(of, pair)}

    def _stamp(self, of: Declared) -> int:
        if of.ttl is not None and of.ttl.time is _EVENT:
            assert self._time.timestamp is not None
            return self._time.timestamp
        return self._time.processing_time()

    def _touched(self, of: Declared, before: list[Any]) -> int:
        return max(int(before[1]), self._stamp(of))

    def _is_fresh(self, of: Declared, pair: Any) -> bool:
        if of.ttl is None:
            return True
        now = self._time.watermark if of.ttl.time is _EVENT else self._time.processing_time()
        return bool(pair[1] + LIFE > now)

    def _is_shown(self, of: Declared, pair: Any) -> bool:
        return self._is_fresh(of, pair) or (of.ttl is not None and of.ttl.visibility is _SHOWN["visibility"])
