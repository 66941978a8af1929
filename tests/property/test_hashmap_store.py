"""Random programs of writes, checkpoints, failures and restarts against a dict that forgets nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from checkdam.backends import HashMapStateBackend, KeyedStateStore, Sealed, StoreOwner
from checkdam.ids import Attempt, CheckpointId, OperatorUid, SubtaskIndex
from checkdam.state.descriptors import ValueStateDescriptor
from checkdam.state.key_groups import key_group_range, key_groups, subtask_of
from checkdam.state.snapshots import KeyedStateHandle
from checkdam.state.types import type_info
from checkdam.testing import MemoryStorage

MAX_PARALLELISM = 8
KEYS = [f"k{i}" for i in range(24)]
GROUP_OF = dict(zip(KEYS, key_groups(KEYS, type_info(str), MAX_PARALLELISM).tolist(), strict=True))
KINDS = {
    "immutable": ValueStateDescriptor("immutable", int),
    "mutable": ValueStateDescriptor("mutable", list[int]),
}
Model = dict[str, dict[str, Any]]


@dataclass
class Pending:
    parts: list[Sealed]
    model: Model
    builds_on: list[KeyedStateHandle]  # the last completed checkpoint when it was sealed


class Stores(RuleBasedStateMachine):
    """A job of some subtasks. Each checkpoint remembers the model as of its seal; restoring must give that back."""

    pending = Bundle("pending")

    def __init__(self) -> None:
        super().__init__()
        self.storage = MemoryStorage()
        self.model: Model = {name: {} for name in KINDS}
        self.number = 0
        self.attempt = 0
        self.latest: tuple[int, list[KeyedStateHandle], Model] = (0, [], {name: {} for name in KINDS})
        self.sealed: dict[int, Pending] = {}

    @initialize(parallelism=st.integers(1, 4))
    def start(self, parallelism: int) -> None:
        self._open(parallelism, claim=True, registered=list(KINDS))

    @rule(kind=st.sampled_from(list(KINDS)), key=st.sampled_from(KEYS), value=st.integers(0, 9))
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
        self.model[kind].pop(key, None)

    @rule(values=st.dictionaries(st.sampled_from(KEYS), st.integers(-(2**63), 2**63 - 1), min_size=5))
    def put_many(self, values: dict[str, int]) -> None:
        for key, value in values.items():
            self.put("immutable", key, value)

    @rule(target=pending)
    def seal(self) -> int:
        self.number += 1
        model = {name: {key: _copy(value) for key, value in held.items()} for name, held in self.model.items()}
        parts = [store.seal(CheckpointId(self.number)) for store in self.stores]
        self.sealed[self.number] = Pending(parts, model, self.latest[1])
        return self.number

    @rule(number=pending)
    def complete(self, number: int) -> None:
        if number not in self.sealed:
            return
        pending = self.sealed.pop(number)
        handles = [part.write(self.storage, "shared") for part in pending.parts]
        self.latest = (number, handles, pending.model)
        for store in self.stores:
            store.completed(CheckpointId(number))
        for older in [other for other in self.sealed if other < number]:
            self.abort(older, is_written=False)
        self._sweep()

    @rule(number=pending, is_written=st.booleans())
    def abort(self, number: int, is_written: bool) -> None:
        if number not in self.sealed:
            return
        pending = self.sealed.pop(number)
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
            self.complete(self.seal())

    @rule(
        parallelism=st.integers(1, 4),
        claim=st.booleans(),
        registered=st.sampled_from([["immutable"], ["mutable"], list(KINDS)]),
    )
    def restart(self, parallelism: int, claim: bool, registered: list[str]) -> None:
        self._open(parallelism, claim=claim, registered=registered)
        self.sealed.clear()
        self.model = {name: {key: _copy(value) for key, value in held.items()} for name, held in self.latest[2].items()}
        self._sweep()

    @invariant()
    def live_state_equals_the_model(self) -> None:
        for kind in KINDS:
            if kind in self.states[0]:
                for key in KEYS:
                    assert self._state(kind, key).value() == self.model[kind].get(key)

    def teardown(self) -> None:
        if hasattr(self, "stores"):
            self.complete(self.seal())
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
            self.stores.append(HashMapStateBackend().open(owner, mine, self.storage, "", claim=claim))
        self.states: list[dict[str, Any]] = [
            {name: store.value_state(KINDS[name]) for name in registered} for store in self.stores
        ]

    def _state(self, kind: str, key: str) -> Any:
        """The handle of a state with the key set; asks for the state first where nobody has yet."""
        subtask = subtask_of(GROUP_OF[key], len(self.stores), MAX_PARALLELISM)
        for states, store in zip(self.states, self.stores, strict=True):
            if kind not in states:
                states[kind] = store.value_state(KINDS[kind])
        self.stores[subtask].current_key = key
        return self.states[subtask][kind]

    def _sweep(self) -> None:
        """Remove each file that neither the latest completed checkpoint needs nor one that a pending one builds on."""
        kept = [*self.latest[1], *(handle for pending in self.sealed.values() for handle in pending.builds_on)]
        needed = {file.path for handle in kept for file in handle.files}
        for status in self.storage.list(""):
            if status.path not in needed:
                self.storage.delete(status.path)


def _copy(value: Any) -> Any:
    return list(value) if isinstance(value, list) else value


Stores.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestHashMapStore = Stores.TestCase
