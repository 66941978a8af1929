"""Whatever a store went through, its snapshots read as what it held, and two of them differ by what happened."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.snapshot_files import completed

from checkdam.backends import HashMapStateBackend, KeyedStateBackend, RocksDBStateBackend, StoreOwner
from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.checkpoint.completed import OperatorEntry
from checkdam.ids import Attempt, CheckpointId, OperatorUid, SubtaskIndex
from checkdam.state.key_groups import key_group_range, key_groups
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.state.spec import StateKind, StateSpec
from checkdam.state_reader import Savepoint
from checkdam.state_reader.diffing import diff
from checkdam.storage.subtree import subtree
from checkdam.testing import MemoryStorage
from checkdam.testing.local_job import JOB_ID
from checkdam.testing.mounts import mount
from checkdam.types.type_info import type_info

MAX_PARALLELISM = 8
PARALLELISM = 2


@dataclass(frozen=True)
class Pair:
    name: str
    number: int


KEYS: dict[str, tuple[Any, list[Any]]] = {
    "int": (int, list(range(-3, 9))),
    "str": (str, [f"k{i}" for i in range(12)]),
    "tuple": (tuple[str, int], [(f"k{i % 3}", i) for i in range(12)]),
    "dataclass": (Pair, [Pair(f"k{i % 3}", i) for i in range(12)]),
}
BACKENDS: dict[str, KeyedStateBackend] = {"hashmap": HashMapStateBackend(), "rocksdb": RocksDBStateBackend("16 MB")}

changes = st.dictionaries(st.integers(0, 11), st.one_of(st.none(), st.floats(), st.integers(0, 3).map(float)))


class Operator:
    """Two subtasks of one operator with one value state, and what they must hold."""

    def __init__(self, backend: KeyedStateBackend, key_type: Any, keys: list[Any], work: str) -> None:
        self._keys = keys
        self._group_of = key_groups(keys, type_info(key_type), MAX_PARALLELISM).tolist()
        self.storage = MemoryStorage()
        self._uri = mount(self.storage)
        self.held: dict[Any, Any] = {}
        spec = StateSpec("state", StateKind.VALUE, type_info(float))
        self._owners = [
            StoreOwner(
                OperatorUid("op"),
                SubtaskIndex(subtask),
                Attempt("a1"),
                key_group_range(subtask, PARALLELISM, MAX_PARALLELISM),
                MAX_PARALLELISM,
                type_info(key_type),
                lambda: Path(tempfile.mkdtemp(dir=work)),
            )
            for subtask in range(PARALLELISM)
        ]
        self._stores = [backend.open(owner, (), None, claim=True) for owner in self._owners]
        self._cells = [store.cells(spec) for store in self._stores]

    def change(self, changed: dict[int, float | None]) -> None:
        for place, value in changed.items():
            key, group = self._keys[place], self._group_of[place]
            for owner, store, cell in zip(self._owners, self._stores, self._cells, strict=True):
                if group in owner.key_groups:
                    store.current_key = key
                    cell.update(value)
            self.held[key] = value
            if value is None:
                del self.held[key]

    def snapshot(self, number: int) -> Savepoint:
        handles: dict[SubtaskIndex, KeyedStateHandle] = {}
        for owner, store in zip(self._owners, self._stores, strict=True):
            store.end_epoch()
            handles[owner.subtask] = store.snapshot(CheckpointId(number)).write(subtree(self.storage, JOB_ID), "shared")
            store.completed(CheckpointId(number))
        entry = OperatorEntry(OperatorUid("op"), "op", PARALLELISM, MAX_PARALLELISM, handles)
        CheckpointStore(self.storage, JOB_ID).write(completed([entry], number, PARALLELISM, MAX_PARALLELISM))
        return Savepoint.load(f"{self._uri}/{JOB_ID}/chk-{number}")

    def close(self) -> None:
        for store in self._stores:
            store.close()


def _plain(key: Any) -> Any:
    return (key.name, key.number) if isinstance(key, Pair) else key


def _read(key: Any) -> Any:
    return tuple(key.values()) if isinstance(key, dict) else key


def _same(value: Any) -> Any:
    return repr(value)  # NaN is equal to nothing, and -0.0 to 0.0


@pytest.mark.parametrize("backend", ["hashmap", pytest.param("rocksdb", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KEYS)
@settings(deadline=None, max_examples=examples(10))
@given(rounds=st.lists(changes, min_size=1, max_size=4))
def test_a_snapshot_reads_as_what_the_store_held(
    backend: str, kind: str, rounds: list[dict[int, float | None]]
) -> None:
    key_type, keys = KEYS[kind]
    with tempfile.TemporaryDirectory() as work:
        operator = Operator(BACKENDS[backend], key_type, keys, work)
        before: dict[Any, str] = {}
        older: Savepoint | None = None
        for number, changed in enumerate(rounds, start=1):
            operator.change(changed)
            now = {_plain(key): _same(value) for key, value in operator.held.items()}
            savepoint = operator.snapshot(number)

            if savepoint.states("op"):
                state = savepoint.keyed_state("op", "state")
                assert {_read(key): _same(value) for key, value in state} == now
                assert len(list(state)) == state.count() == state.to_arrow().num_rows == len(now)
                assert sum(size.entries for size in state.key_groups()) == len(now)
                for key in keys:
                    assert _same(state.get(key)) == now.get(_plain(key), "None")
            else:
                assert now == {}
            if older is not None:
                _check_difference(older, savepoint, before, now)
            older, before = savepoint, now
        operator.close()


def _check_difference(older: Savepoint, newer: Savepoint, before: dict[Any, str], now: dict[Any, str]) -> None:
    same = {key for key in before.keys() & now.keys() if _number(before[key]) == _number(now[key])}
    expected = (
        len(now.keys() - before.keys()),
        len(before.keys() & now.keys()) - len(same),
        len(before.keys() - now.keys()),
        len(same),
    )
    found = [(each.added, each.changed, each.removed, each.unchanged) for each in diff(older, newer)]
    assert found == [expected] or (not found and not before and not now)


def _number(text: str) -> str:
    return "0.0" if text == "-0.0" else text  # equal, so that nothing has changed
