"""The hashmap backend by itself, in a process with the garbage collector set as in a slot."""

from __future__ import annotations

import gc
import os
import pickle
import resource
import time
import tracemalloc
from pathlib import Path
from typing import Any

from benchmarks.words import word
from checkdam.backends.contract import StoreOwner
from checkdam.backends.hashmap import HashMapStateBackend, HashMapStore, HashMapTable
from checkdam.ids import Attempt, CheckpointId, OperatorUid, SubtaskIndex
from checkdam.state.descriptors import ValueStateDescriptor
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshots import KeyedStateHandle
from checkdam.state.types import type_info
from checkdam.storage.filesystem import open_storage

_MAX_PARALLELISM = 128
_FIRST_COUNT = 1_000  # beyond the small integers that all of Python shares


def write(*, directory: str, keys: int, changed: int, checkpoints: int) -> None:
    """Checkpoints of so many keys: the first is full, each later one holds some changes."""
    store, table = _open([], directory)
    handle = _fill(store, table, keys, directory)
    for number in range(2, checkpoints + 1):
        for key in range(0, keys, max(1, keys // changed)):
            _add_one(store, table, key)
        handle = _checkpoint(store, CheckpointId(number), directory)
    (Path(directory) / "handle").write_bytes(pickle.dumps(handle))


def restore(*, directory: str, keys: int) -> dict[str, Any]:
    """How long one slot takes from files to state that can be read."""
    handle = pickle.loads((Path(directory) / "handle").read_bytes())
    _as_in_a_slot()
    started = time.perf_counter()
    _, table = _open([handle], directory)
    seconds = time.perf_counter() - started
    if len(table.entries) != keys:
        raise AssertionError(f"{len(table.entries)} keys restored, not {keys}")
    return {"seconds": seconds}


def memory_of_dict(*, keys: int, traced: bool) -> dict[str, int]:
    measure = _Memory(traced=traced)
    counts = {word(number): _FIRST_COUNT + number for number in range(keys)}
    return measure.since(counts)


def memory_of_store(*, keys: int, traced: bool) -> dict[str, int]:
    """State that has been through two checkpoints, the second with some changes."""
    _as_in_a_slot()
    warm, warm_table = _open([], "warm")
    _fill(warm, warm_table, 1_000, "warm")
    measure = _Memory(traced=traced)
    store, table = _open([], "state")
    _fill(store, table, keys, "state")
    for key in range(0, keys, 100):
        _add_one(store, table, key)
    _checkpoint(store, CheckpointId(2), "state")
    return measure.since(store, table)


class _Memory:
    """Bytes that have come to be in use: as Python counts them, or as the operating system does."""

    def __init__(self, *, traced: bool) -> None:
        self._traced = traced
        gc.collect()
        if traced:
            tracemalloc.start()
        self._before = self._now()

    def since(self, *alive: object) -> dict[str, int]:
        """What `alive` has cost; the peak is that of the whole process, and only the system's."""
        gc.collect()
        grown = self._now() - self._before
        return {"bytes": grown, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - self._before}

    def _now(self) -> int:
        if self._traced:
            return tracemalloc.get_traced_memory()[0]
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _open(handles: list[KeyedStateHandle], directory: str) -> tuple[HashMapStore, HashMapTable]:
    owner = StoreOwner(
        OperatorUid("count"),
        SubtaskIndex(0),
        Attempt("bench"),
        KeyGroupRange(0, _MAX_PARALLELISM - 1),
        _MAX_PARALLELISM,
        type_info(str),
    )
    store = HashMapStateBackend().open(owner, handles, open_storage(os.path.abspath(directory)), "", claim=True)
    return store, store.value_table(ValueStateDescriptor("count", int, default=0))


def _fill(store: HashMapStore, table: HashMapTable, keys: int, directory: str) -> KeyedStateHandle:
    for number in range(keys):
        store.current_key = word(number)
        table.handle.update(_FIRST_COUNT + number)
    return _checkpoint(store, CheckpointId(1), directory)


def _add_one(store: HashMapStore, table: HashMapTable, number: int) -> None:
    store.current_key = word(number)
    table.handle.update(table.handle.value() + 1)


def _checkpoint(store: HashMapStore, checkpoint_id: CheckpointId, directory: str) -> KeyedStateHandle:
    handle = store.seal(checkpoint_id).write(open_storage(os.path.abspath(directory)), "shared")
    store.completed(checkpoint_id)
    return handle


def _as_in_a_slot() -> None:
    gc.set_threshold(100_000, 20, 20)
