"""State without a job: stores of either backend, in a process set up like a slot."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from checkdam.backends import (
    HashMapStateBackend,
    KeyedStateBackend,
    KeyedStateStore,
    PendingSnapshot,
    RocksDBStateBackend,
    StoreOwner,
)
from checkdam.backends.keyed_state import OperatorKeyedState
from checkdam.ids import Attempt, CheckpointId, OperatorUid, SubtaskIndex
from checkdam.runtime.slot.context import OperatorTime
from checkdam.runtime.slot.cycle_collection import search_rarely
from checkdam.state.descriptors import ValueStateDescriptor
from checkdam.state.handles import ValueState
from checkdam.state.key_groups import key_group_range, key_groups, subtask_of
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.storage import open_storage
from checkdam.types.type_info import type_info

BACKENDS: dict[str, KeyedStateBackend] = {"hashmap": HashMapStateBackend(), "rocksdb": RocksDBStateBackend()}
EPOCH = 100_000
"""Records per epoch when state runs without a job."""

_MAX_PARALLELISM = 128
_UID = OperatorUid("count")


class Subtask:
    """The keyed state of one subtask, with files in and below a directory."""

    def __init__(
        self,
        backend: KeyedStateBackend,
        directory: str,
        handles: Sequence[KeyedStateHandle] = (),
        *,
        index: int = 0,
        parallelism: int = 1,
    ) -> None:
        self._storage = open_storage(os.path.abspath(directory))
        owned = key_group_range(index, parallelism, _MAX_PARALLELISM)
        owner = StoreOwner(
            _UID,
            SubtaskIndex(index),
            Attempt("bench"),
            owned,
            _MAX_PARALLELISM,
            type_info(str),
            lambda: Path(tempfile.mkdtemp()),
        )
        wanted = [
            each for each in handles if each.key_groups.first <= owned.last and owned.first <= each.key_groups.last
        ]
        self.store: KeyedStateStore = backend.open(owner, wanted, self._storage, claim=True)
        self.states = OperatorKeyedState(self.store, OperatorTime(), _UID)
        self._checkpoints = 0

    def count(self) -> ValueState[int]:
        return self.states.get_state(ValueStateDescriptor("count", int, default=0))

    def checkpoint(self) -> tuple[KeyedStateHandle, PendingSnapshot]:
        """Take a checkpoint and complete it."""
        self._checkpoints += 1
        snapshot = self.store.snapshot(CheckpointId(self._checkpoints))
        handle = snapshot.write(self._storage, "shared")
        self.store.completed(CheckpointId(self._checkpoints))
        return handle, snapshot


def subtasks_of(words: Sequence[str], parallelism: int) -> list[int]:
    """Return the subtask that owns the state of each word."""
    groups: list[Any] = key_groups(words, type_info(str), _MAX_PARALLELISM).tolist()
    return [subtask_of(group, parallelism, _MAX_PARALLELISM) for group in groups]


def as_in_a_slot() -> None:
    search_rarely()


def resident() -> int:
    """Return the bytes of memory that the process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def most_resident() -> int:
    """Return the peak memory of the process in bytes."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024
