"""RocksDB with state larger than its memory."""

from __future__ import annotations

import random
import time
from typing import Any

from benchmarks.sides.stores import Subtask, as_in_a_slot, most_resident, resident
from benchmarks.words import SEED, word
from checkdam.backends import RocksDBStateBackend
from checkdam.state.descriptors import ValueStateDescriptor

_EPOCH = 20_000
_CHECKPOINT_EVERY = 5  # epochs


def larger_than_memory(*, budget: int, times: int, value_bytes: int, accesses: int) -> dict[str, Any]:
    """Fill state with incompressible values, then read and write keys at random, taking checkpoints."""
    as_in_a_slot()
    draw = random.Random(SEED)
    keys = budget * times // value_bytes
    before = resident()
    subtask = Subtask(RocksDBStateBackend(budget), "state")
    store = subtask.store
    kept = subtask.states.get_state(ValueStateDescriptor("kept", bytes))

    started = time.perf_counter()
    for number in range(keys):
        store.current_key = word(number)
        kept.update(draw.randbytes(value_bytes))
        if number % _EPOCH == _EPOCH - 1:
            store.end_epoch()
    subtask.checkpoint()
    filled = time.perf_counter()
    for done in range(1, accesses + 1):
        store.current_key = word(draw.randrange(keys))
        value = kept.value()
        if len(value) != value_bytes:
            raise AssertionError(f"{store.current_key} has {len(value)} bytes, not {value_bytes}")
        kept.update(value[8:] + draw.randbytes(8))
        if done % _EPOCH == 0:
            store.end_epoch()
            if done % (_EPOCH * _CHECKPOINT_EVERY) == 0:
                subtask.checkpoint()
    ended = time.perf_counter()
    grown = most_resident() - before
    store.close()
    return {"grown": grown, "filled": keys / (filled - started), "accessed": accesses / (ended - filled)}
