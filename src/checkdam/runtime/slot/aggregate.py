"""Running sum, min and max: record by record, and for integers whole batches at a time with the same output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from checkdam.backends.contract import ValueTable
from checkdam.state.batch import Batch
from checkdam.state.rows import column_to_list
from checkdam.state.types import TypeInfo

_INT64_SAFE = 2**62
_ROUND = 262_144
"""Records in a round: enough that most keys of a busy stream occur more than once, at some ten megabytes."""


def record_combiner(how: str, field: int | None, type: TypeInfo) -> Callable[[Any, Any], Any]:
    """Combine the record kept so far with a new one: all fields stay the first record's but the aggregated one."""
    choose: dict[str, Callable[[Any, Any], Any]] = {"sum": lambda a, b: a + b, "min": min, "max": max}
    combine = choose[how]
    if field is None:
        return combine
    position: int = field
    if hasattr(type.hint, "_make"):
        make: Callable[[list[Any]], Any] = type.hint._make
    else:
        make = tuple

    def combine_field(kept: Any, new: Any) -> Any:
        fields = list(kept)
        fields[position] = combine(kept[position], new[position])
        return make(fields)

    return combine_field


class VectorisedSum:
    """Sums an integer column per key for many records at once, and emits what record by record would have emitted.

    The state is touched once per key and round, so records are gathered until there are enough for a round.
    """

    def __init__(self, field: int, type: TypeInfo, table: ValueTable) -> None:
        self._field = field
        self._type = type
        self._entries = table.entries
        self._put_all = table.put_all
        self._names = [column.name for column in type.columns]
        self._gathered: list[pa.RecordBatch] = []
        self._rows = 0

    @staticmethod
    def applies(how: str, field: int | None, type: TypeInfo, key_columns: Sequence[int] | None) -> bool:
        """Whether the record is the key and an integer to sum, so that columns alone tell the result."""
        if how != "sum" or field is None or key_columns is None or len(key_columns) != 1:
            return False
        columns = type.columns
        return (
            getattr(type.hint, "__origin__", None) is tuple
            and len(columns) == 2
            and {field, key_columns[0]} == {0, 1}
            and bool(pa.types.is_int64(columns[field].arrow_type))
        )

    def gather(self, batch: Batch) -> bool:
        """Take records in; True when it is time for a round."""
        self._gathered.append(batch.columns.rename_columns(self._names))  # each edge has its own names
        self._rows += len(batch)
        return self._rows >= _ROUND

    def take(self) -> Batch | None:
        """The records gathered so far, as one batch; None if there are none."""
        gathered, self._gathered, self._rows = self._gathered, [], 0
        return Batch(self._type, columns=pa.concat_batches(gathered)) if gathered else None

    def process(self, batch: Batch) -> Batch | None:
        """The output batch; None if this batch needs the record-by-record way (nulls, huge numbers)."""
        columns = batch.columns
        amounts_column, keys_column = columns.column(self._field), columns.column(1 - self._field)
        if amounts_column.null_count or keys_column.null_count or not len(batch):
            return None
        amounts = amounts_column.to_numpy(zero_copy_only=False)
        encoded = keys_column.dictionary_encode()
        keys = column_to_list(encoded.dictionary)
        get, field = self._entries.get, self._field
        before = [entry[field] if (entry := get(key)) is not None else 0 for key in keys]
        largest = max(max(before), -min(before), int(amounts.max()), -int(amounts.min()))
        if largest * (len(batch) + 1) >= _INT64_SAFE:
            return None

        running, last = running_sums(encoded.indices.to_numpy(), amounts, np.array(before, dtype=np.int64))
        totals = last.tolist()
        pairs = zip(keys, totals, strict=True) if field == 1 else zip(totals, keys, strict=True)
        self._put_all(dict(zip(keys, pairs, strict=True)))
        summed = columns.set_column(field, columns.schema.field(field), pa.array(running))
        return Batch(self._type, columns=summed)


def running_sums(codes: Any, amounts: Any, before: Any) -> tuple[Any, Any]:
    """For each record the sum of its group so far, in the records' order; and each group's total.

    `codes` number the groups of the records from 0 without gaps; `before` is what each group starts from.
    """
    order = np.argsort(codes, kind="stable")
    grouped = amounts[order]
    sums = np.cumsum(grouped)
    sizes = np.bincount(codes, minlength=len(before))
    ends = np.cumsum(sizes)
    starts = ends - sizes
    offset = before - (sums[starts] - grouped[starts])
    sums += np.repeat(offset, sizes)
    running = np.empty_like(sums)
    running[order] = sums
    return running, sums[ends - 1]
