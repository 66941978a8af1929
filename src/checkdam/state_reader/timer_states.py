"""The timers of an operator in a snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa

from checkdam.state.key_groups import KeyGroupRange
from checkdam.state_reader.content import StateContent
from checkdam.state_reader.descriptions import KeyGroupSize, StateDescription
from checkdam.state_reader.keyed_states import KeyedState
from checkdam.types.type_info import TypeInfo

DOMAINS: Final = {
    "_timers/event": "event time",
    "_timers/processing": "processing time",
    "_timers/event_window-timers": "event time",
    "_timers/processing_window-timers": "processing time",
}
"""The states that hold timers, by their names in files."""


class TimerContent(StateContent):
    """All timers of an operator. The rows are its timers: `key`, `timestamp`, `time_domain`, `key_group`.

    The timestamp is in milliseconds, of event time or since 1970. Iterating gives pairs of (key, time domain) and
    timestamp. Timers of windows also have the column `window`, and iterating gives (key, window, time domain) and
    timestamp.
    """

    def __init__(self, description: StateDescription, path: str, kept: Sequence[KeyedState], key: pa.Field) -> None:
        self.description = description
        self.path = path
        self._by_domain = kept
        self._key = key

    @property
    def schema(self) -> pa.Schema:
        domain = pa.dictionary(pa.int8(), pa.string())
        of_window = self.window_type
        return pa.schema(
            [
                self._key,
                *([] if of_window is None else [pa.field("window", of_window.arrow_type)]),
                pa.field("timestamp", pa.int64()),
                pa.field("time_domain", domain),
                pa.field("key_group", pa.int32()),
            ]
        )

    @property
    def key_type(self) -> TypeInfo:
        return self._by_domain[0].key_type

    @property
    def window_type(self) -> TypeInfo | None:
        """The type of the windows that timers belong to; None if there are no timers of windows."""
        return next((dict(state.part_types)["window"] for state in self._by_domain if state.has_window), None)

    @property
    def by_domain(self) -> Sequence[tuple[str, KeyedState]]:
        """The timers of each time domain as a map state, whose map keys are their times."""
        return [(_domain(state), state) for state in self._by_domain]

    def within(self, key_groups: KeyGroupRange) -> TimerContent:
        """Return the same timers restricted to these key groups."""
        narrower = [state.within(key_groups) for state in self._by_domain]
        return TimerContent(self.description, self.path, narrower, self._key)

    def of_key(self, key: Any) -> TimerContent:
        """Return the same timers restricted to the key group of a key. Raise UsageError as `get`."""
        group = self._by_domain[0].key_group_of(key)
        return self.within(KeyGroupRange(group, group))

    @property
    def ranges(self) -> tuple[KeyGroupRange, ...]:
        """The key groups of each subtask, ascending."""
        return next((state.ranges for state in self._by_domain), ())

    def _batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        for state in self._by_domain:
            domain = _domain(state)
            for batch in state.to_batches(batch_rows):
                named = pa.array([domain] * batch.num_rows).dictionary_encode()
                named = named.cast(self.schema.field("time_domain").type)
                columns = [batch.column("key"), batch.column("map_key"), named, batch.column("key_group")]
                if self.window_type is not None:
                    columns.insert(1, self._windows(state, batch))
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _windows(self, state: KeyedState, batch: pa.RecordBatch) -> pa.Array:
        """Return the windows of timers; an operator that became a window keeps timers without one."""
        assert self.window_type is not None
        return batch.column("window") if state.has_window else pa.nulls(batch.num_rows, self.window_type.arrow_type)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for state in self._by_domain:
            domain = _domain(state)
            for entry_key, _ in state:
                if self.window_type is None:
                    yield (entry_key[0], domain), entry_key[-1]
                else:
                    yield (entry_key[0], entry_key[1] if state.has_window else None, domain), entry_key[-1]

    def count(self) -> int:
        return sum(state.count() for state in self._by_domain)

    def get(self, key: Any) -> list[tuple[Any, ...]]:
        """Return time domain and timestamp of each timer of a key, the earliest of each domain first.

        Timers of windows are tuples of time domain, timestamp and window.

        Raises:
            UsageError: the key is not of the key type.
        """
        found: list[tuple[Any, ...]] = []
        for state in self._by_domain:
            timers = state.get(key, {})
            if state.has_window:
                pairs = ((timestamp, window) for window, held in timers.items() for timestamp in held)
                found += [(_domain(state), *pair) for pair in sorted(pairs, key=itemgetter(0))]
            else:
                found += [(_domain(state), timestamp) for timestamp in sorted(timers)]
        return found

    def key_groups(self) -> list[KeyGroupSize]:
        """Return timers and uncompressed bytes of each non-empty key group, ascending in each domain."""
        return list(chain.from_iterable(state.key_groups() for state in self._by_domain))


def _domain(state: KeyedState) -> str:
    return DOMAINS.get(state.description.name, state.description.name)
