"""Random programs over every kind of state, with TTL, namespaces, timers, checkpoints, crashes and rescaling."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, rule
from tests.property.state_model import STATES, Declared, Model, Time
from tests.support.examples import examples

from checkdam.backends import (
    HashMapStateBackend,
    KeyedStateBackend,
    KeyedStateStore,
    PendingSnapshot,
    RocksDBStateBackend,
    StoreOwner,
)
from checkdam.backends.contract import NO_KEY
from checkdam.backends.keyed_state import OperatorKeyedState
from checkdam.errors import StateAccessError
from checkdam.graph.contexts import TimeDomain
from checkdam.ids import Attempt, CheckpointId, OperatorUid, SubtaskIndex
from checkdam.runtime.slot.timers import TimerQueue
from checkdam.state.key_groups import key_group_range, key_groups, subtask_of
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.state.ttl import TtlTime
from checkdam.testing import MemoryStorage
from checkdam.types.type_info import type_info

UID = OperatorUid("op")
MAX_PARALLELISM = 4
KEYS = [f"k{i}" for i in range(6)]
GROUP_OF = dict(zip(KEYS, key_groups(KEYS, type_info(str), MAX_PARALLELISM).tolist(), strict=True))
MAP_KEYS = ["x", "y", "z"]

MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None  # a disk that is slow to sync would be all of the time

HASHMAP = HashMapStateBackend()
ROCKSDB = RocksDBStateBackend(memory="16 MB")

wheres = st.tuples(st.sampled_from(KEYS), st.integers(0, 1))
values = st.integers(0, 99)
timestamps = st.integers(0, 5000)
picks = st.integers(0, 11)  # which of the program's states, counted round and round
map_keys = st.sampled_from(MAP_KEYS)


@dataclass
class Saved:
    """What a checkpoint must give back: the model, the timers and the watermark as of its barrier."""

    model: dict[str, dict[Any, Any]]
    timers: set[tuple[int, str]]
    watermark: int


@dataclass
class Pending:
    parts: list[PendingSnapshot]
    saved: Saved
    builds_on: list[KeyedStateHandle]  # the last completed checkpoint when it was taken


@dataclass
class Subtask:
    store: KeyedStateStore
    states: dict[str, Any]
    sweeps: list[Callable[[], None]]
    timers: TimerQueue


class Programs(RuleBasedStateMachine):
    """A job of some subtasks. Each checkpoint remembers the model as of its barrier; a restart must give that back."""

    backends: ClassVar[list[KeyedStateBackend]]
    pending = Bundle("pending")

    def __init__(self) -> None:
        super().__init__()
        self.storage = MemoryStorage()
        self.directory = tempfile.TemporaryDirectory(dir=MEMORY)
        self.directories = 0
        self.time = Time()
        self.model = Model(self.time)
        self.number = 0
        self.attempt = 0
        self.timers: set[tuple[int, str]] = set()
        self.latest: tuple[list[KeyedStateHandle], Saved] = ([], self._saved())
        self.declared: list[Declared] = []
        self.taken: dict[int, Pending] = {}
        self.subtasks: list[Subtask] = []

    @initialize(parallelism=st.integers(1, 3), names=st.sets(st.sampled_from(list(STATES)), min_size=3, max_size=4))
    def start(self, parallelism: int, names: set[str]) -> None:
        self.declared = [STATES[name] for name in sorted(names)]  # a few at a time, so that they meet each other often
        self._open(parallelism, self.backends[0], claim=True)

    @rule(pick=picks, where=wheres, value=values, map_key=map_keys, at=timestamps)
    def write(self, pick: int, where: tuple[str, int], value: int, map_key: str, at: int) -> None:
        self.time.timestamp = at
        of, state, where = self._state(pick, where)
        _write(of, state, value, map_key)
        self.model.write(of, where, value, map_key if of.kind == "map" else "")

    @rule(pick=picks, where=wheres, several=st.lists(values, max_size=3), at=timestamps, replaces=st.booleans())
    def write_several(self, pick: int, where: tuple[str, int], several: list[int], at: int, replaces: bool) -> None:
        self.time.timestamp = at
        of, state, where = self._state(pick, where)
        if of.kind == "list" and replaces:
            state.update(several)
            self.model.replace(of, where, several)
        elif of.kind == "list":
            state.add_all(several)
            for value in several:
                self.model.write(of, where, value)
        elif of.kind == "map":
            entries = dict(zip(MAP_KEYS, several, strict=False))
            state.put_all(entries)
            for map_key, value in entries.items():
                self.model.write(of, where, value, map_key)

    @rule(pick=picks, where=wheres, map_key=map_keys, is_one=st.booleans())
    def forget(self, pick: int, where: tuple[str, int], map_key: str, is_one: bool) -> None:
        of, state, where = self._state(pick, where)
        if of.kind == "map" and is_one:
            state.remove(map_key)
            self.model.remove(of, where, map_key)
        else:
            state.clear()
            self.model.clear(of, where)

    @rule(pick=picks, where=wheres, at=timestamps)
    def read(self, pick: int, where: tuple[str, int], at: int) -> None:
        self.time.timestamp = at
        of, state, where = self._state(pick, where)
        found = _content(of, state)

        assert found == self.model.read(of, where), of.name

        if of.kind == "map":
            left = self.model.read(of, where)
            assert len(state) == len(left)
            assert state.is_empty() == (not left)
            assert {map_key: state.get(map_key) for map_key in left} == left

    @rule(pick=picks, where=wheres)
    def write_without_a_timestamp(self, pick: int, where: tuple[str, int]) -> None:
        self.time.timestamp = None
        of, state, _ = self._state(pick, where)
        if of.ttl is not None and of.ttl.time is TtlTime.EVENT_TIME:
            with pytest.raises(StateAccessError, match="no timestamp"):
                _write(of, state, 1, "x")

    @rule(key=st.sampled_from(KEYS), at=timestamps, is_kept=st.booleans())
    def set_timer(self, key: str, at: int, is_kept: bool) -> None:
        subtask = self._subtask(key)
        if is_kept:
            subtask.timers.register(at)
            self.timers.add((at, key))
        else:
            subtask.timers.delete(at)
            self.timers.discard((at, key))

    @rule()
    def fire_timers(self) -> None:
        fired = set()
        for subtask in self.subtasks:
            for at in subtask.timers.due(self.time.watermark):
                assert (at, subtask.store.current_key) not in fired
                fired.add((at, subtask.store.current_key))

        assert fired == {timer for timer in self.timers if timer[0] <= self.time.watermark}
        self.timers -= fired

    @rule(clock=st.integers(0, 700), watermark=st.integers(0, 900))
    def time_goes_on(self, clock: int, watermark: int) -> None:
        self.time.clock.advance(clock / 1000)
        self.time.watermark = max(0, self.time.watermark) + watermark

    @rule()
    def a_record_is_processed(self) -> None:
        for subtask in self.subtasks:
            subtask.store.current_key = NO_KEY
            for sweep in subtask.sweeps:
                sweep()

    @rule()
    def end_epoch(self) -> None:
        for subtask in self.subtasks:
            subtask.store.end_epoch()

    @rule(target=pending)
    def snapshot(self) -> int:
        self.end_epoch()
        self.number += 1
        parts = [subtask.store.snapshot(CheckpointId(self.number)) for subtask in self.subtasks]
        self.taken[self.number] = Pending(parts, self._saved(), self.latest[0])
        return self.number

    @rule(number=pending)
    def complete(self, number: int) -> None:
        if number not in self.taken:
            return
        pending = self.taken.pop(number)
        self.latest = ([part.write(self.storage, "shared") for part in pending.parts], pending.saved)
        for subtask in self.subtasks:
            subtask.store.completed(CheckpointId(number))
        for older in [other for other in self.taken if other < number]:
            self.abort(older, is_written=False)
        self._delete_unneeded()

    @rule(number=pending, is_written=st.booleans())
    def abort(self, number: int, is_written: bool) -> None:
        if number not in self.taken:
            return
        pending = self.taken.pop(number)
        if is_written:
            for part in pending.parts:
                part.write(self.storage, "shared")
        for subtask in self.subtasks:
            subtask.store.aborted(CheckpointId(number))
        self._delete_unneeded()

    @rule(parallelism=st.integers(1, 3), claim=st.booleans(), data=st.data())
    def crash_and_restart(self, parallelism: int, claim: bool, data: st.DataObject) -> None:
        self._restart(parallelism, data.draw(st.sampled_from(self.backends)), claim=claim)

    def teardown(self) -> None:
        if self.subtasks:
            self.read_everything()
            self.complete(self.snapshot())
            self._restart(2, self.backends[-1], claim=False)
            self.read_everything()
        for subtask in self.subtasks:
            subtask.store.close()
        self.directory.cleanup()

    def read_everything(self) -> None:
        for pick in range(len(self.declared)):
            for key in KEYS:
                for namespace in (0, 1):
                    self.read(pick, (key, namespace), 2500)
        self.fire_timers()

    def _restart(self, parallelism: int, backend: KeyedStateBackend, *, claim: bool) -> None:
        for subtask in self.subtasks:
            subtask.store.close()
        self.taken.clear()
        self.time.watermark = self.latest[1].watermark  # the clock goes on, event time starts again where it was
        self.model.restore(self.latest[1].model)
        self.timers = set(self.latest[1].timers)
        self._open(parallelism, backend, claim=claim)
        self._delete_unneeded()

    def _open(self, parallelism: int, backend: KeyedStateBackend, *, claim: bool) -> None:
        self.attempt += 1
        self.subtasks = []
        for index in range(parallelism):
            owned = key_group_range(index, parallelism, MAX_PARALLELISM)
            owner = StoreOwner(
                UID,
                SubtaskIndex(index),
                Attempt(f"a{self.attempt}"),
                owned,
                MAX_PARALLELISM,
                type_info(str),
                self._work_directory,
            )
            mine = [handle for handle in self.latest[0] if set(handle.key_groups) & set(owned)]
            store = backend.open(owner, mine, self.storage, claim=claim)
            plain, spaced = (
                OperatorKeyedState(store, self.time, UID),
                OperatorKeyedState(store, self.time, UID, namespace=int),
            )
            asked = {of.name: of.ask(spaced if of.has_namespace else plain) for of in self.declared}
            sweeps = [sweep for keyed in (plain, spaced) if (sweep := keyed.for_every_record())]
            timers = TimerQueue(store, TimeDomain.EVENT_TIME)
            self.subtasks.append(Subtask(store, asked, sweeps, timers))

    def _work_directory(self) -> Path:
        self.directories += 1
        made = Path(self.directory.name) / str(self.directories)
        made.mkdir()
        return made

    def _saved(self) -> Saved:
        return Saved(self.model.copied(), set(self.timers), self.time.watermark)

    def _subtask(self, key: str) -> Subtask:
        """The one that owns the key, with the key set."""
        subtask = self.subtasks[subtask_of(GROUP_OF[key], len(self.subtasks), MAX_PARALLELISM)]
        subtask.store.current_key = key
        return subtask

    def _state(self, pick: int, where: tuple[str, int]) -> tuple[Declared, Any, tuple[str, int]]:
        """A state, its handle with key and namespace set, and where the model keeps the same."""
        of = self.declared[pick % len(self.declared)]
        key, namespace = where
        subtask = self._subtask(key)
        subtask.store.current_namespace = namespace
        return of, subtask.states[of.name], (key, namespace if of.has_namespace else 0)

    def _delete_unneeded(self) -> None:
        """Remove each file that neither the latest completed checkpoint needs nor one that a pending one builds on."""
        kept = [*self.latest[0], *(handle for pending in self.taken.values() for handle in pending.builds_on)]
        needed = {file.path for handle in kept for file in handle.files}
        for status in self.storage.list(""):
            if status.path not in needed:
                self.storage.delete(status.path)


def _write(of: Declared, state: Any, value: int, map_key: str) -> None:
    if of.kind == "map":
        state[map_key] = value
    elif of.kind == "value":
        state.update(value)
    else:
        state.add(value)


def _content(of: Declared, state: Any) -> Any:
    if of.kind == "map":
        return dict(state.items())
    return state.value() if of.kind == "value" else state.get()


class HashMapPrograms(Programs):
    backends: ClassVar[list[KeyedStateBackend]] = [HASHMAP]


class RocksDBPrograms(Programs):
    backends: ClassVar[list[KeyedStateBackend]] = [ROCKSDB]


class ChangingBackendPrograms(Programs):
    """Each restart may take the other backend."""

    backends: ClassVar[list[KeyedStateBackend]] = [HASHMAP, ROCKSDB]


TestHashMap = HashMapPrograms.TestCase
TestHashMap.settings = settings(max_examples=examples(50), stateful_step_count=40, deadline=None)
TestRocksDB = pytest.mark.slow(RocksDBPrograms.TestCase)
TestRocksDB.settings = settings(max_examples=examples(20), stateful_step_count=40, deadline=None)
TestChangingBackend = pytest.mark.slow(ChangingBackendPrograms.TestCase)
TestChangingBackend.settings = settings(max_examples=examples(15), stateful_step_count=40, deadline=None)
