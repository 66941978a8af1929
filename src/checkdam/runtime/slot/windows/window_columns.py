"""Combines the records of an epoch by window and key as columns, where a built-in sum, minimum or maximum allows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from checkdam.backends.key_index import KeyIndex
from checkdam.graph.keyed_batches import RecordsByKey
from checkdam.runtime.slot.column_aggregates import ColumnAggregate
from checkdam.types.batch import Batch
from checkdam.types.type_info import TypeInfo

Integers = npt.NDArray[np.int64]


class WindowColumns:
    """The records of an epoch so far: for each the number of its key, its value, and the start of its window."""

    def __init__(self, aggregate: ColumnAggregate, key_type: TypeInfo) -> None:
        self._aggregate = aggregate
        self._index = KeyIndex(key_type)
        self._parts: list[tuple[Integers, Integers, Integers]] = []

    def add(self, batch: Batch, keys: Batch, starts: Integers) -> bool:
        """Add records. Return False if they are not columns of numbers: the caller has to combine them."""
        if batch.has_rows:
            return False
        column = batch.columns.column(self._aggregate.field or 0)
        if column.null_count:
            return False
        self._parts.append((self._index.numbers(keys), column.to_numpy(), starts))
        return True

    def take(self) -> Iterator[tuple[int, list[Any], list[Any]]]:
        """Yield the start of each window, its keys in order of arrival, and one record for each key. Begin anew."""
        parts, self._parts = self._parts, []
        if not parts:
            return
        numbers, values, starts = (np.concatenate(each) for each in zip(*parts, strict=True))
        all_keys = self._index.keys
        for start in np.unique(starts).tolist():
            chosen = np.flatnonzero(starts == start)
            of_keys, _, key_index = self._index.distinct(numbers[chosen])
            combined = self._aggregate.combined(RecordsByKey(key_index, len(of_keys)), values[chosen])
            keys = [all_keys[number] for number in of_keys.tolist()]
            yield start, keys, self._aggregate.records(keys, combined)
        self._index.clear()
