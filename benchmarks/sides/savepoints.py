"""A savepoint of large state: written, restored, and read without a running job."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.sides.stores import BACKENDS, as_in_a_slot
from checkdam.backends import KeyedStateStore, StoreOwner
from checkdam.checkpoint.completed import CompletedCheckpoint, OperatorEntry
from checkdam.checkpoint.savepoints import SavepointDirectory
from checkdam.ids import Attempt, CheckpointId, Epoch, JobId, OperatorUid, SubtaskIndex
from checkdam.state.key_groups import key_group_range, key_groups, subtask_of
from checkdam.state.snapshot_handles import KeyedStateHandle, SavepointFormat
from checkdam.state.spec import StateKind, StateSpec
from checkdam.state_reader import Savepoint
from checkdam.storage import open_storage
from checkdam.types.type_info import type_info

_UID = OperatorUid("count")
_JOB = JobId("be" * 16)
_MAX_PARALLELISM = 128
_COUNT = StateSpec("count", StateKind.VALUE, type_info(int))
_LOOKED_AT = 1_000
_AT_ONCE = 100_000


def taken(
    *, directory: str, backend: str, format: str, keys: int, parallelism: int, has_checkpoint: bool
) -> dict[str, Any]:
    """Take a savepoint of counts by number, one subtask after the other in one process.

    With a checkpoint before it, the state is already in files, as in a running job.
    """
    as_in_a_slot()
    checkpoints = open_storage(os.path.abspath("checkpoints"))
    stores = [_filled(backend, index, parallelism, keys) for index in range(parallelism)]
    for store in stores if has_checkpoint else ():
        store.snapshot(CheckpointId(1)).write(checkpoints, "shared")
        store.completed(CheckpointId(1))
    started = time.perf_counter()
    place = SavepointDirectory.prepare(directory, _JOB, name="savepoint")
    handles = {
        SubtaskIndex(index): store.snapshot(CheckpointId(2)).write_whole(
            open_storage(place.uri), checkpoints, canonical=format == SavepointFormat.CANONICAL
        )
        for index, store in enumerate(stores)
    }
    path, _ = place.complete(_completed(handles, SavepointFormat(format), parallelism))
    seconds = time.perf_counter() - started
    for store in stores:
        store.close()
    return {"seconds": seconds, "path": path, "bytes": sum(f.size for h in handles.values() for f in h.files)}


def _filled(backend: str, index: int, parallelism: int, keys: int) -> KeyedStateStore:
    store = BACKENDS[backend].open(_owner(index, parallelism), (), None, claim=True)
    table = store.table(_COUNT)
    numbers = np.arange(keys)
    groups = key_groups(numbers.tolist(), type_info(int), _MAX_PARALLELISM)
    own = numbers[groups * parallelism // _MAX_PARALLELISM == index].tolist()
    for start in range(0, len(own), _AT_ONCE):
        some = own[start : start + _AT_ONCE]
        table.put_all(dict(zip(some, [number + 1_000 for number in some], strict=True)))
        store.end_epoch()
    return store


def _owner(index: int, parallelism: int) -> StoreOwner:
    return StoreOwner(
        _UID,
        SubtaskIndex(index),
        Attempt("bench"),
        key_group_range(index, parallelism, _MAX_PARALLELISM),
        _MAX_PARALLELISM,
        type_info(int),
        lambda: Path("work") / os.urandom(4).hex(),
    )


def _completed(
    handles: dict[SubtaskIndex, KeyedStateHandle], format: SavepointFormat, parallelism: int
) -> CompletedCheckpoint:
    now = datetime.now(UTC)
    operator = OperatorEntry(_UID, "count", parallelism, _MAX_PARALLELISM, handles)
    checkpoint = CompletedCheckpoint(
        CheckpointId(2), _JOB, "bench", Epoch(1), now, now, parallelism, _MAX_PARALLELISM, (operator,)
    )
    return replace(checkpoint, savepoint_format=format)


def restored(*, path: str, backend: str, keys: int, parallelism: int) -> dict[str, Any]:
    """Return the time from the savepoint to readable state, one subtask after the other."""
    as_in_a_slot()
    started = time.perf_counter()
    savepoint = Savepoint.load(path)
    handles = list(savepoint.handles(_UID).values())
    storage = open_storage(path)
    held = []
    for index in range(parallelism):
        owner = _owner(index, parallelism)
        wanted = [each for each in handles if each.key_groups == owner.key_groups]
        store = BACKENDS[backend].open(owner, wanted, storage, claim=False)
        held.append((store, store.table(_COUNT)))
        held[-1][1].get_all([0])
    seconds = time.perf_counter() - started
    for number in range(0, keys, max(1, keys // _LOOKED_AT)):
        group = int(key_groups([number], type_info(int), _MAX_PARALLELISM)[0])
        if held[subtask_of(group, parallelism, _MAX_PARALLELISM)][1].get_all([number]) != [number + 1_000]:
            raise AssertionError(f"key {number} is not there")
    for store, _ in held:
        store.close()
    return {"seconds": seconds}


def read(*, path: str, keys: int) -> dict[str, Any]:
    """Return the time to read all of it as Arrow batches, and as Python pairs."""
    pa.array([0])  # the first array makes pyarrow load pandas, which must not be measured
    started = time.perf_counter()
    state = Savepoint.load(path).keyed_state(_UID, "count")
    rows = total = 0
    for batch in state.to_batches():
        rows += batch.num_rows
        total += pc.sum(batch.column("value")).as_py()
    in_batches = time.perf_counter() - started
    if (rows, total) != (keys, keys * (keys - 1) // 2 + 1_000 * keys):
        raise AssertionError(f"{rows} entries that add up to {total}")
    started = time.perf_counter()
    if sum(1 for _ in state) != keys:
        raise AssertionError("iterating misses keys")
    return {"seconds": in_batches, "pairs_seconds": time.perf_counter() - started}
