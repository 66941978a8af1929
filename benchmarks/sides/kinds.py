"""Every kind of state in one process, without Spark: the cost of the state itself per record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count

import numpy as np

from benchmarks.sides.stores import BACKENDS, Subtask, as_in_a_slot
from benchmarks.words import SEED, word
from checkdam import AggregateFunction
from checkdam.graph.contexts import TimeDomain
from checkdam.runtime.slot.timers import TimerQueue
from checkdam.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
)

OnRecord = Callable[[str], object]
OnEpochEnd = Callable[[], object]
Record = tuple[str, str]  # a key, and the input of a map or an aggregate


class Mean(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]


def run(*, backend: str, keys: int, maps: int, entries: int, records: int, epochs: int) -> dict[str, list[float]]:
    """Return the seconds of each epoch but the first, by kind. They include the checkpoint at the end of each epoch."""
    as_in_a_slot()
    taken = {}
    for kind, make in _KINDS.items():
        subtask = Subtask(BACKENDS[backend], f"state-{kind}")
        on_record, on_epoch_end = make(subtask)
        batches = _batches(maps if kind == "map" else keys, entries, records, epochs)
        taken[kind] = [_epoch(subtask, batch, on_record, on_epoch_end) for batch in batches][1:]
        subtask.store.close()
    return taken


def _epoch(subtask: Subtask, batch: Sequence[Record], on_record: OnRecord, on_epoch_end: OnEpochEnd) -> float:
    store = subtask.store
    started = time.perf_counter()
    for store.current_key, entry in batch:
        on_record(entry)
    on_epoch_end()
    store.end_epoch()
    subtask.checkpoint()
    return time.perf_counter() - started


def _batches(keys: int, entries: int, records: int, epochs: int) -> Iterator[list[Record]]:
    """Yield the batches, built anew for each epoch, as a slot gets them: no key is the same object twice."""
    rng = np.random.default_rng(SEED)
    for _ in range(epochs):
        drawn = rng.integers(0, keys, records).tolist(), rng.integers(0, entries, records).tolist()
        yield [(word(key), f"e{entry}") for key, entry in zip(*drawn, strict=True)]


def _nothing() -> None:
    pass


def _value(subtask: Subtask) -> tuple[OnRecord, OnEpochEnd]:
    state = subtask.count()
    return lambda entry: state.update(state.value() + 1), _nothing


def _list(subtask: Subtask) -> tuple[OnRecord, OnEpochEnd]:
    return subtask.states.get_list_state(ListStateDescriptor("seen", str)).add, _nothing


def _reducing(subtask: Subtask) -> tuple[OnRecord, OnEpochEnd]:
    state = subtask.states.get_reducing_state(ReducingStateDescriptor("sum", int, lambda kept, added: kept + added))
    return lambda entry: state.add(1), _nothing


def _aggregating(subtask: Subtask) -> tuple[OnRecord, OnEpochEnd]:
    state = subtask.states.get_aggregating_state(AggregatingStateDescriptor("mean", tuple[int, int], Mean()))
    return lambda entry: state.add(len(entry)), _nothing


def _map(subtask: Subtask) -> tuple[OnRecord, OnEpochEnd]:
    state = subtask.states.get_map_state(MapStateDescriptor("counts", str, int))

    def add_one(entry: str) -> None:
        state[entry] = (state.get(entry) or 0) + 1

    return add_one, _nothing


def _timers(subtask: Subtask) -> tuple[OnRecord, OnEpochEnd]:
    """Register a timer per record, which fires at the end of the next epoch: a checkpoint has held it by then."""
    timers, times, ends = TimerQueue(subtask.store, TimeDomain.EVENT_TIME), count(), [-1]

    def fire_those_of_the_last_epoch() -> None:
        for _ in timers.due(ends[-1]):
            pass
        ends.append(next(times))

    return lambda entry: timers.register(next(times)), fire_those_of_the_last_epoch


_KINDS: dict[str, Callable[[Subtask], tuple[OnRecord, OnEpochEnd]]] = {
    "value": _value,
    "list": _list,
    "reducing": _reducing,
    "aggregating": _aggregating,
    "map": _map,
    "timers": _timers,
}
