"""Records on their way through a slot, as rows or as columns; each form is computed at most once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa

from checkdam.types.record_copies import copier
from checkdam.types.rows import from_arrow, to_arrow
from checkdam.types.type_info import TypeInfo


class Batch:
    """Records of one type, in order, with their event times if any record has one."""

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
        self.timestamps = timestamps  # milliseconds since 1970, one per record; None for a record without event time
        self._rows = rows
        self._columns = columns
        self._make_rows = make_rows

    def __len__(self) -> int:
        return len(self._rows) if self._rows is not None else int(self.columns.num_rows)

    @property
    def has_rows(self) -> bool:
        """Whether the records have been made as Python objects."""
        return self._rows is not None

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
        """Return this batch once per reader: the same object for all if the records are immutable, else copies.

        Consume all of them: the last one is the batch itself, which must not change before it is reached.
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
        """Return the same records with other event times; both batches share the rows and columns computed so far."""
        return Batch(
            self.type, rows=self._rows, columns=self._columns, make_rows=self._make_rows, timestamps=timestamps
        )
