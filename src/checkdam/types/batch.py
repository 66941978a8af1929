"""Records on their way through a slot: as rows or as columns, turned from one into the other at most once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa

from checkdam.types.record_copies import copier
from checkdam.types.rows import from_arrow, to_arrow
from checkdam.types.type_info import TypeInfo


class Batch:
    """Some records of one type, in order, and beside them their event time, where one was assigned to any."""

    __slots__ = ("_columns", "_make_rows", "_rows", "timestamps", "type")

    def __init__(
        self,
        type: TypeInfo,
        *,
        rows: list[Any] | None = None,
        columns: pa.RecordBatch | None = None,
        make_rows: Callable[[], list[Any]] | None = None,
        timestamps: Sequence[int | None] | None = None,
    ) -> None:
        self.type = type
        self.timestamps = timestamps  # milliseconds since 1970, one a record; None for a record without
        self._rows = rows
        self._columns = columns
        self._make_rows = make_rows

    def __len__(self) -> int:
        return len(self._rows) if self._rows is not None else int(self.columns.num_rows)

    @property
    def rows(self) -> list[Any]:
        """The records as Python objects."""
        if self._rows is None:
            self._rows = self._make_rows() if self._make_rows else from_arrow(self.type, self._columns)
        return self._rows

    @property
    def columns(self) -> pa.RecordBatch:
        """The records as Arrow columns, in the order of the type's columns."""
        if self._columns is None:
            self._columns = to_arrow(self.type, self._rows or [])
        return self._columns

    def copies(self, count: int) -> Iterator[Batch]:
        """This batch for so many readers: the same for all if no record can change, else one of its own for each.

        Take all of them: the last is the batch itself, which stays as it is until then.
        """
        copied = copier(self.type) if count > 1 else None
        if copied is None or (copied.exact is not None and self._is_all(copied.exact)):
            yield from repeat(self, count)
            return
        for left in reversed(range(count)):
            if left == 0:
                yield self
            elif self._columns is not None:
                yield Batch(self.type, columns=self._columns, timestamps=self.timestamps)
            else:
                yield Batch(self.type, rows=list(map(copied.copy, self.rows)), timestamps=self.timestamps)

    def _is_all(self, kind: type) -> bool:
        return self._rows is None or set(map(type, self._rows)) <= {kind}

    def with_timestamps(self, timestamps: Sequence[int | None] | None) -> Batch:
        """The same records with other event times; both batches share what was made of them so far."""
        return Batch(
            self.type, rows=self._rows, columns=self._columns, make_rows=self._make_rows, timestamps=timestamps
        )
