"""The arguments of `process_batch`: records as columns, grouped by key, and the state of their keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]
Positions = npt.NDArray[np.intp]


class RecordsByKey:
    """Calculations over records that are grouped by key.

    `values` has an element per record, and `before` one per key, or is one value for all.
    """

    def __init__(self, key_index: Positions, num_keys: int) -> None:
        self.key_index = key_index
        """For each record the position of its key among the distinct keys. Read-only."""
        self.num_keys = num_keys
        key_index.flags.writeable = False

    def __len__(self) -> int:
        return len(self.key_index)

    # ---- one result per key

    def count(self) -> npt.NDArray[np.int64]:
        """Return how many records each key has in this batch; at least one."""
        return self._sizes.copy()

    def sum(self, values: npt.ArrayLike) -> Array:
        """Return each key's sum. Integers wrap around at 64 bits, as everywhere in NumPy."""
        return self._reduced(np.add, values)

    def min(self, values: npt.ArrayLike) -> Array:
        return self._reduced(np.minimum, values)

    def max(self, values: npt.ArrayLike) -> Array:
        return self._reduced(np.maximum, values)

    def first(self, values: npt.ArrayLike) -> Array:
        """Return the value of each key's first record."""
        array: Array = np.asarray(values)[self._order[self._starts]]
        return array

    def last(self, values: npt.ArrayLike) -> Array:
        """Return the value of each key's last record."""
        array: Array = np.asarray(values)[self._order[self._starts + self._sizes - 1]]
        return array

    def _reduced(self, reduce: np.ufunc, values: npt.ArrayLike) -> Array:
        grouped = _numbers(values)[self._order]
        return np.asarray(reduce.reduceat(grouped, self._starts, axis=0)) if len(grouped) else grouped

    # ---- one result per record

    def running_count(self, before: npt.ArrayLike = 0) -> npt.NDArray[np.int64]:
        """Return, for each record, how many its key has had so far, this one included."""
        ranks = np.arange(1, len(self) + 1) - np.repeat(self._starts - self._per_key(before), self._sizes)
        return self._in_order_of_records(ranks)

    def running_sum(self, values: npt.ArrayLike, before: npt.ArrayLike = 0) -> Array:
        """Return, for each record, the sum of its key's values so far, this one included.

        Sums of floats are rounded as if the values were added in another order.
        """
        grouped = _numbers(values)[self._order]
        if grouped.dtype.kind == "f":
            return self._in_order_of_records(self._scanned(np.add, grouped, before))
        sums = np.cumsum(grouped, axis=0)
        offsets = self._per_key(before) - (sums[self._starts] - grouped[self._starts])
        return self._in_order_of_records(sums + np.repeat(offsets, self._sizes, axis=0))

    def running_min(self, values: npt.ArrayLike, before: npt.ArrayLike | None = None) -> Array:
        """Return, for each record, the smallest of its key's values so far, this one included."""
        return self._in_order_of_records(self._scanned(np.minimum, _numbers(values)[self._order], before))

    def running_max(self, values: npt.ArrayLike, before: npt.ArrayLike | None = None) -> Array:
        """Return, for each record, the largest of its key's values so far, this one included."""
        return self._in_order_of_records(self._scanned(np.maximum, _numbers(values)[self._order], before))

    def steps(self) -> Iterator[Positions]:
        """Yield positions of records: first those of each key's first record, then those of the second ones, and so on.

        In one step no key occurs twice, so any calculation that goes from record to record can be done step by step
        for all keys at once.
        """
        if not len(self):
            return
        by_size = np.argsort(-self._sizes, kind="stable")
        starts, sizes = self._starts[by_size], self._sizes[by_size]
        for step in range(int(sizes[0])):
            keys = int(np.searchsorted(-sizes, -step, side="left"))
            yield np.sort(self._order[starts[:keys] + step])

    def _scanned(self, combine: np.ufunc, grouped: Array, before: npt.ArrayLike | None) -> Array:
        """Return the running results of grouped values, in as many steps as the largest group has binary digits."""
        if before is not None and len(grouped):
            first = grouped[self._starts]
            grouped[self._starts] = combine(self._per_key(before), first)
        ranks = np.arange(len(grouped)) - np.repeat(self._starts, self._sizes)
        width, largest = 1, int(self._sizes.max(initial=0))
        while width < largest:
            reached = np.flatnonzero(ranks >= width)
            grouped[reached] = combine(grouped[reached - width], grouped[reached])
            width *= 2
        return grouped

    def _per_key(self, before: npt.ArrayLike) -> Array:
        values = np.asarray(before)
        return values if values.ndim else np.broadcast_to(values, self.num_keys)

    def _in_order_of_records(self, grouped: Array) -> Array:
        ordered = np.empty_like(grouped)
        ordered[self._order] = grouped
        return ordered

    @cached_property
    def _order(self) -> Positions:
        """The positions of the records in the order of their keys."""
        narrow = self.num_keys < 2**16  # NumPy sorts 16 bits in linear time
        return np.argsort(self.key_index.astype(np.uint16) if narrow else self.key_index, kind="stable")

    @cached_property
    def _sizes(self) -> npt.NDArray[np.int64]:
        return np.bincount(self.key_index, minlength=self.num_keys)

    @cached_property
    def _starts(self) -> npt.NDArray[np.int64]:
        return np.cumsum(self._sizes) - self._sizes


class KeyedBatch(RecordsByKey):
    """Some records of a keyed stream as columns, in order. The distinct keys among them are numbered from 0.

    What has one element per record can be combined with what has one per key by `key_index`:
    `values[batch.key_index]` repeats each key's value for its records.
    """

    def __init__(
        self,
        records: pa.RecordBatch,
        distinct_keys: pa.RecordBatch,
        key_index: Positions,
        timestamps: Sequence[int | None] | None = None,
    ) -> None:
        super().__init__(key_index, int(distinct_keys.num_rows))
        self.records = records
        """The records: a column for each field of the type, under its name; one column "value" for other types."""
        self.distinct_keys = distinct_keys
        """Each key once, in order of its first record; with the columns of the key's type."""
        self.timestamps = timestamps
        """The event time of each record in milliseconds since 1970, None for one without; None if no record has any."""

    @property
    def keys(self) -> pa.Array:
        """The distinct keys of a type with one column."""
        if self.distinct_keys.num_columns != 1:
            raise ValueError("the key has several columns: use distinct_keys")
        return self.distinct_keys.column(0)

    def column(self, field: str | int) -> Array:
        """Return a column of the records as a read-only NumPy array, without a copy where that is possible.

        NumPy has no nulls: among floats and integers they become NaN, and the integers floats.
        """
        values: Array = self.records.column(field).to_numpy(zero_copy_only=False)
        values.flags.writeable = False
        return values


def _numbers(values: npt.ArrayLike) -> Array:
    array = np.asarray(values)
    return array.astype(np.int64) if array.dtype == np.bool_ else array


class ColumnState(Protocol):
    """A state of the keys of one batch, in the order of `batch.distinct_keys`. Valid until the batch is done."""

    @property
    def values(self) -> Array:
        """The value of each key, the default for a key without one. Read-only: only `write` changes the state."""

    @property
    def exists(self) -> npt.NDArray[np.bool_]:
        """Whether each key has a value."""

    def write(self, values: npt.ArrayLike, where: npt.ArrayLike | None = None) -> None:
        """Set the value of each key, or of those for which `where` is true. The values are copied.

        `values` has an element for each key of the batch, also with `where`; or is one value for all.
        """

    def clear(self, where: npt.ArrayLike | None = None) -> None:
        """Remove the value of each key, or of those for which `where` is true."""


class BatchContext(Protocol):
    """The context of a batch, for `process_batch`."""

    def get_column_state(self, name: str, dtype: npt.DTypeLike, default: Any = 0) -> ColumnState:
        """Return the state of that name for the keys of the batch.

        `dtype` is int, float or bool, or a vector of a fixed length such as `(float, 8)`. The state is the same one as
        that of a `ValueStateDescriptor` with this name and the type int, float, bool or list[float], without TTL.
        """

    @property
    def current_processing_time(self) -> int: ...

    @property
    def current_watermark(self) -> int:
        """The current watermark; the smallest 64-bit number before the first one."""
