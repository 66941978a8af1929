"""Random programs of writes, checkpoints, failures and restarts against a dict that forgets nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from tests.support.examples import examples

from checkdam.backends import HashMapStateBackend, KeyedStateStore, PendingSnapshot, StoreOwner
from checkdam.ids import Attempt, CheckpointId, OperatorUid, SubtaskIndex
from checkdam.state.key_groups import key_group_range, key_groups, subtask_of
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.state.spec import StateKind, StateSpec
from checkdam.state.ttl import StateTtlConfig
from checkdam.testing import MemoryStorage
from checkdam.types.type_info import type_info

pytestmark = pytest.mark.slow

MAX_PARALLELISM = 8
KEYS = [f"k{i}" for i in range(24)]
GROUP_OF = dict(zip(KEYS, key_groups(KEYS, type_info(str), MAX_PARALLELISM).tolist(), strict=True))
TTL = StateTtlConfig(timedelta(seconds=1))
KINDS = {
    "immutable": StateSpec("immutable", StateKind.VALUE, type_info(int)),
    "mutable": StateSpec("mutable", StateKind.VALUE, type_info(list[int])),
    "map": StateSpec("map", StateKind.MAP, type_info(int), type_info(int)),
    "windowed": StateSpec("windowed", StateKind.MAP, type_info(list[int]), type_info(int), namespace=type_info(str)),
    "expiring": StateSpec("expiring", StateKind.MAP, type_info(tuple[int, int]), type_info(int), ttl=TTL),
}
CELLS = ["immutable", "mutable"]
MAPS = ["map", "windowed", "expiring"]
Model = dict[str, dict[Any, Any]]  # by entry key


@dataclass
class Pending:
    parts: list[PendingSnapshot]
    model: Model
    builds_on: list[KeyedStateHandle]  # the last completed checkpoint when it was taken


class Stores(RuleBasedStateMachine):
    """A job of some subtasks. Each checkpoint remembers the model as of its barrier; restoring must give that back.

    Entries that expire are the model's until `now` has passed their time: then they may be there or not.
    """

    pending = Bundle("pending")

    def __init__(self) -> None:
        super().__init__()
        self.storage = MemoryStorage()
        self.model: Model = {name: {} for name in KINDS}
        self.number = 0
        self.attempt = 0
        self.now = 0
        self.latest: tuple[int, list[KeyedStateHandle], Model] = (0, [], {name: {} for name in KINDS})
        self.taken: dict[int, Pending] = {}

    @initialize(parallelism=st.integers(1, 4))
    def start(self, parallelism: int) -> None:
        self._open(parallelism, claim=True, registered=list(KINDS))

    @rule(kind=st.sampled_from(CELLS), key=st.sampled_from(KEYS), value=st.integers(0, 9))
    def put(self, kind: str, key: str, value: int) -> None:
        held = value if kind == "immutable" else [value]
        self._state(kind, key).update(held)
        self.model[kind][key] = list(held) if isinstance(held, list) else held

    @rule(key=st.sampled_from(KEYS), value=st.integers(0, 9))
    def change_in_place(self, key: str, value: int) -> None:
        state = self._state("mutable", key)
        values = state.value() or []
        values.append(value)
        state.update(values)
        self.model["mutable"][key] = list(values)

    @rule(kind=st.sampled_from(list(KINDS)), key=st.sampled_from(KEYS))
    def clear(self, kind: str, key: str) -> None:
        self._state(kind, key).clear()
        for entry in self._entries(kind, key):
            del self.model[kind][entry]

    @rule(
        kind=st.sampled_from(MAPS), key=st.sampled_from(KEYS), map_keys=st.sets(st.integers(0, 5)), value=st.integers()
    )
    def put_entries(self, kind: str, key: str, map_keys: set[int], value: int) -> None:
        state = self._state(kind, key)
        number = value % 1000
        for map_key in map_keys:
            held: Any = {"map": number, "windowed": [number], "expiring": (number, self.now)}[kind]
            state.put(map_key, held)
            self.model[kind][(*self._outer(kind, key), map_key)] = _copy(held)

    @rule(kind=st.sampled_from(MAPS), key=st.sampled_from(KEYS), map_key=st.integers(0, 5))
    def remove_entry(self, kind: str, key: str, map_key: int) -> None:
        self._state(kind, key).remove(map_key)
        self.model[kind].pop((*self._outer(kind, key), map_key), None)

    @rule(name=st.sampled_from(["day", "night"]))
    def switch_namespace(self, name: str) -> None:
        for store in self.stores:
            store.current_namespace = name

    @rule(later=st.integers(1, 3), count=st.integers(0, 5))
    def let_time_pass(self, later: int, count: int) -> None:
        self.now += later
        for states in self.states:
            if "expiring" in states:
                states["expiring"].sweep(count)

    def _outer(self, kind: str, key: str) -> tuple[Any, ...]:
        return (key, self.stores[0].current_namespace) if kind == "windowed" else (key,)

    def _entries(self, kind: str, key: str) -> list[Any]:
        """The entry keys in the model that belong to a key, in the current namespace."""
        if kind in CELLS:
            return [key] if key in self.model[kind] else []
        outer = self._outer(kind, key)
        return [entry for entry in self.model[kind] if entry[:-1] == outer]

    def _prune(self, stored: tuple[int, int]) -> tuple[int, int] | None:
        return stored if stored[1] + 3 > self.now else None

    @rule(values=st.dictionaries(st.sampled_from(KEYS), st.integers(-(2**63), 2**63 - 1), min_size=5))
    def put_many(self, values: dict[str, int]) -> None:
        for key, value in values.items():
            self.put("immutable", key, value)

    @rule()
    def end_batch(self) -> None:
        for store in self.stores:
            store.batch_ended()

    @rule(target=pending)
    def snapshot(self) -> int:
        self.number += 1
        model = {name: {key: _copy(value) for key, value in held.items()} for name, held in self.model.items()}
        parts = [store.snapshot(CheckpointId(self.number)) for store in self.stores]
        self.taken[self.number] = Pending(parts, model, self.latest[1])
        return self.number

    @rule(number=pending)
    def complete(self, number: int) -> None:
        if number not in self.taken:
            return
        pending = self.taken.pop(number)
        handles = [part.write(self.storage, "shared") for part in pending.parts]
        self.latest = (number, handles, pending.model)
        for store in self.stores:
            store.completed(CheckpointId(number))
        for older in [other for other in self.taken if other < number]:
            self.abort(older, is_written=False)
        self._sweep()

    @rule(number=pending, is_written=st.booleans())
    def abort(self, number: int, is_written: bool) -> None:
        if number not in self.taken:
            return
        pending = self.taken.pop(number)
        if is_written:
            for part in pending.parts:
                part.write(self.storage, "shared")
        for store in self.stores:
            store.aborted(CheckpointId(number))
        self._sweep()

    @rule(count=st.integers(9, 12), keys=st.lists(st.sampled_from(KEYS), min_size=2, max_size=2))
    def many_small_checkpoints(self, count: int, keys: list[str]) -> None:
        for value in range(count):  # long chains, so that merges happen
            self.put("immutable", keys[value % 2], value)
            self.complete(self.snapshot())

    @rule(
        parallelism=st.integers(1, 4),
        claim=st.booleans(),
        registered=st.sampled_from([["immutable"], ["mutable", "map"], list(KINDS)]),
    )
    def restart(self, parallelism: int, claim: bool, registered: list[str]) -> None:
        self._open(parallelism, claim=claim, registered=registered)
        self.taken.clear()
        self.model = {name: {key: _copy(value) for key, value in held.items()} for name, held in self.latest[2].items()}
        self._sweep()

    @invariant()
    def live_state_equals_the_model(self) -> None:
        for kind in KINDS:
            if kind in self.states[0]:
                found = {entry: value for states in self.states for entry, value in states[kind].all()}
                if kind == "expiring":
                    assert found.items() <= self.model[kind].items()
                    found = {entry: value for entry, value in found.items() if self._prune(value)}
                    fresh = {entry: value for entry, value in self.model[kind].items() if self._prune(value)}
                    assert found == fresh
                else:
                    assert found == self.model[kind]
                held = sum(len(list(states[kind].all())) for states in self.states)
                assert held == len({entry for states in self.states for entry, _ in states[kind].all()})

    @invariant()
    def entries_are_counted(self) -> None:
        for store, states in zip(self.stores, self.states, strict=True):
            assert store.count().entries == sum(len(list(state.all())) for state in states.values())

    def teardown(self) -> None:
        if hasattr(self, "stores"):
            self.complete(self.snapshot())
            self.restart(3, claim=False, registered=list(KINDS))
            self.live_state_equals_the_model()

    def _open(self, parallelism: int, *, claim: bool, registered: list[str]) -> None:
        self.attempt += 1
        handles = self.latest[1]
        self.stores: list[KeyedStateStore] = []
        for subtask in range(parallelism):
            owned = key_group_range(subtask, parallelism, MAX_PARALLELISM)
            owner = StoreOwner(
                OperatorUid("op"),
                SubtaskIndex(subtask),
                Attempt(f"a{self.attempt}"),
                owned,
                MAX_PARALLELISM,
                type_info(str),
            )
            mine = [handle for handle in handles if set(handle.key_groups) & set(owned)]
            self.stores.append(HashMapStateBackend().open(owner, mine, self.storage, claim=claim))
            self.stores[-1].current_namespace = "day"
        self.states: list[dict[str, Any]] = [
            {name: self._asked(store, name) for name in registered} for store in self.stores
        ]

    def _asked(self, store: KeyedStateStore, kind: str) -> Any:
        if kind in CELLS:
            return store.cells(KINDS[kind])
        return store.maps(KINDS[kind], self._prune if kind == "expiring" else None)

    def _state(self, kind: str, key: str) -> Any:
        """The handle of a state with the key set; asks for the state first where nobody has yet."""
        subtask = subtask_of(GROUP_OF[key], len(self.stores), MAX_PARALLELISM)
        for states, store in zip(self.states, self.stores, strict=True):
            if kind not in states:
                states[kind] = self._asked(store, kind)
        self.stores[subtask].current_key = key
        return self.states[subtask][kind]

    def _sweep(self) -> None:
        """Remove each file that neither the latest completed checkpoint needs nor one that a pending one builds on."""
        kept = [*self.latest[1], *(handle for pending in self.taken.values() for handle in pending.builds_on)]
        needed = {file.path for handle in kept for file in handle.files}
        for status in self.storage.list(""):
            if status.path not in needed:
                self.storage.delete(status.path)


def _copy(value: Any) -> Any:
    return list(value) if isinstance(value, list) else value


Stores.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)
TestHashMapStore = Stores.TestCase
