"""State without a job: from files, to files, and in memory."""

from __future__ import annotations

import gc
import pickle
import time
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.sides.stores import BACKENDS, EPOCH, Subtask, as_in_a_slot, most_resident, resident, subtasks_of
from benchmarks.words import SEED, word
from checkdam.state.handles import ValueState
from checkdam.state.snapshot_handles import KeyedStateHandle

_FIRST_COUNT = 1_000  # beyond the small integers that Python caches
_LOOKED_AT = 1_000


class Counts:
    """A count for every word, in one subtask."""

    def __init__(self, subtask: Subtask) -> None:
        self.subtask = subtask
        self._store = subtask.store
        self._count: ValueState[int] = subtask.count()

    def fill(self, numbers: list[int]) -> None:
        for done, number in enumerate(numbers, 1):
            self._store.current_key = word(number)
            self._count.update(_FIRST_COUNT + number)
            if done % EPOCH == 0:
                self._store.end_epoch()
        self._store.end_epoch()

    def add_one(self, numbers: list[int]) -> None:
        for number in numbers:
            self._store.current_key = word(number)
            self._count.update(self._count.value() + 1)
        self._store.end_epoch()

    def of(self, key: str) -> int:
        self._store.current_key = key
        return self._count.value()


def write(
    *, directory: str, backend: str, keys: int, changed: int, checkpoints: int, parallelism: int = 1
) -> dict[str, Any]:
    """Take checkpoints: a full one, then one after each set of changes. Return the bytes written."""
    as_in_a_slot()
    rng = np.random.default_rng(SEED)
    where = np.array(subtasks_of([word(number) for number in range(keys)], parallelism))
    counts = [
        Counts(Subtask(BACKENDS[backend], directory, index=index, parallelism=parallelism))
        for index in range(parallelism)
    ]
    handles: list[KeyedStateHandle] = []
    written: list[int] = []
    for number in range(checkpoints):
        chosen = np.arange(keys) if number == 0 else rng.choice(keys, changed, replace=False)
        handles, new = [], 0
        for index, each in enumerate(counts):
            own = chosen[where[chosen] == index].tolist()
            each.add_one(own) if number else each.fill(own)
            handle, snapshot = each.subtask.checkpoint()
            handles.append(handle)
            new += sum(file.size for file in snapshot.new_files)
        written.append(new)
    for each in counts:
        each.subtask.store.close()
    (Path(directory) / "handles").write_bytes(pickle.dumps(handles))
    return {"bytes": written}


def restore(*, directory: str, backend: str, keys: int, parallelism: int = 1) -> dict[str, Any]:
    """Return the time from files to readable state, all subtasks one after the other in one process."""
    handles = pickle.loads((Path(directory) / "handles").read_bytes())
    looked_at = [word(number) for number in range(0, keys, max(1, keys // _LOOKED_AT))]
    where = subtasks_of(looked_at, parallelism)
    firsts = [looked_at[where.index(index)] for index in range(parallelism)]
    as_in_a_slot()
    restored: list[Counts] = []
    ready_at = [time.perf_counter()]
    for index, first in enumerate(firsts):
        counts = Counts(Subtask(BACKENDS[backend], directory, handles, index=index, parallelism=parallelism))
        counts.of(first)
        restored.append(counts)
        ready_at.append(time.perf_counter())
    missing = [key for key, index in zip(looked_at, where, strict=True) if restored[index].of(key) < _FIRST_COUNT]
    if missing:
        raise AssertionError(f"{len(missing)} of {len(looked_at)} keys are not there, {missing[0]} among them")
    held = sum(counts.subtask.store.count().entries for counts in restored)
    if backend == "hashmap" and held != keys:  # RocksDB only estimates the number
        raise AssertionError(f"{held} keys restored, not {keys}")
    for counts in restored:
        counts.subtask.store.close()
    return {"seconds": ready_at[-1] - ready_at[0], "each": [after - before for before, after in pairwise(ready_at)]}


def memory_of_dict(*, keys: int, traced: bool) -> dict[str, int]:
    measure = _Memory(traced=traced)
    counts = {word(number): _FIRST_COUNT + number for number in range(keys)}
    return measure.since(counts)


def memory_of_store(*, keys: int, traced: bool) -> dict[str, int]:
    """Measure state after two checkpoints, the second with some changes."""
    as_in_a_slot()
    warm = _filled(1_000, "warm")
    measure = _Memory(traced=traced)
    counts = _filled(keys, "state")
    counts.add_one(list(range(0, keys, 100)))
    counts.subtask.checkpoint()
    return measure.since(warm, counts)


def _filled(keys: int, directory: str) -> Counts:
    counts = Counts(Subtask(BACKENDS["hashmap"], directory))
    counts.fill(list(range(keys)))
    counts.subtask.checkpoint()
    return counts


class _Memory:
    """The growth of memory in use, as counted by Python or by the operating system."""

    def __init__(self, *, traced: bool) -> None:
        self._traced = traced
        gc.collect()
        if traced:
            tracemalloc.start()
        self._before = self._now()

    def since(self, *alive: object) -> dict[str, int]:
        """Return the memory that `alive` costs; the peak is that of the whole process, counted by the system only."""
        gc.collect()
        return {"bytes": self._now() - self._before, "peak": most_resident() - self._before}

    def _now(self) -> int:
        return tracemalloc.get_traced_memory()[0] if self._traced else resident()
