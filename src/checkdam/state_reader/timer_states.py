"""The timers of an operator in a snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from checkdam.state.key_groups import KeyGroupRange
from checkdam.state_reader.content import StateContent
from checkdam.state_reader.descriptions import KeyGroupSize, StateDescription
from checkdam.state_reader.keyed_states import KeyedState

DOMAINS: Final = {"_timers/event": "event time", "_timers/processing": "processing time"}
"""The states that hold timers, by their names in files."""


class TimerContent(StateContent):
    """All timers of an operator. The rows are its timers: `key`, `timestamp`, `time_domain`, `key_group`.

    The timestamp is in milliseconds, of event time or since 1970. Iterating gives pairs of (key, time domain) and
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
        return pa.schema(
            [
                self._key,
                pa.field("timestamp", pa.int64()),
                pa.field("time_domain", domain),
                pa.field("key_group", pa.int32()),
            ]
        )

    def within(self, key_groups: KeyGroupRange) -> TimerContent:
        """Return the same timers restricted to these key groups."""
        narrower = [state.within(key_groups) for state in self._by_domain]
        return TimerContent(self.description, self.path, narrower, self._key)

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
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for state in self._by_domain:
            domain = _domain(state)
            for entry_key, _ in state:
                yield (entry_key[0], domain), entry_key[-1]

    def count(self) -> int:
        return sum(state.count() for state in self._by_domain)

    def get(self, key: Any) -> list[tuple[str, int]]:
        """Return time domain and timestamp of each timer of a key, the earliest of each domain first.

        Raises:
            UsageError: the key is not of the key type.
        """
        found = ((_domain(state), state.get(key, {})) for state in self._by_domain)
        return [(domain, timestamp) for domain, timers in found for timestamp in sorted(timers)]

    def key_groups(self) -> list[KeyGroupSize]:
        """Return timers and uncompressed bytes of each non-empty key group, ascending in each domain."""
        return list(chain.from_iterable(state.key_groups() for state in self._by_domain))


def _domain(state: KeyedState) -> str:
    return DOMAINS.get(state.description.name, state.description.name)
