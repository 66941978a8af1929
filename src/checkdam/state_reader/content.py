"""The common interface of all states of a snapshot: columns, batches, pairs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from checkdam.errors import UsageError
from checkdam.state_reader.descriptions import StateDescription

if TYPE_CHECKING:
    import pandas as pd

    from checkdam.state_reader.spark_source import DataFrame, SparkSession

BATCH_ROWS = 65_536


class StateContent(ABC):
    """One state of a snapshot. Every call reads it anew; nothing is kept in memory.

    Iterating gives pairs of Python values as stored: dataclasses as dicts, named tuples as tuples.
    """

    description: StateDescription
    path: str
    """The path of the snapshot."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema: ...

    @abstractmethod
    def _batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]: ...

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[Any, Any]]: ...

    @abstractmethod
    def count(self) -> int:
        """Return the number of rows, from the files' indexes where these have it."""

    def to_batches(self, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Iterate over the rows, at most `batch_rows` in a batch, in memory independent of their number.

        Raises:
            CheckpointDamagedError, FormatTooNewError: a file is damaged, or of a newer version.
            StateNotRestorableError: a value does not fit its Arrow column.
        """
        if batch_rows < 1:
            raise UsageError(f"a batch must have at least one row, not {batch_rows}")
        return self._batches(batch_rows)

    def to_arrow(self) -> pa.Table:
        """Return all rows at once."""
        return pa.Table.from_batches(self.to_batches(), self.schema)

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows at once; structs are dicts."""
        found: pd.DataFrame = self.to_arrow().to_pandas()
        return found

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """Return a DataFrame that Spark reads lazily and in parallel by key groups. Its workers need Checkdam too."""
        from checkdam.state_reader.spark_source import dataframe  # loads Spark only when needed

        return dataframe(spark, self)
