"""From sources as data to DataFrames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own custom
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StringType

from checkdam.connectors.sources import CollectionSource, DataFrameSource, SourceSpec, StreamSource
from checkdam.errors import JobGraphError
from checkdam.state.rows import to_arrow
from checkdam.state.types import TypeInfo, named_tuple_type


def describe(spec: SourceSpec) -> str:
    """What kind of source it is: a position of one cannot be given to another."""
    if isinstance(spec, StreamSource):
        return spec.format
    if isinstance(spec, DataFrameSource):
        return "streaming DataFrame" if spec.dataframe.isStreaming else "DataFrame"
    return "collection"


def is_bounded(spec: SourceSpec) -> bool:
    return spec.is_static or (isinstance(spec, StreamSource) and spec.bounded)


def open_source(session: SparkSession, spec: SourceSpec, type: TypeInfo) -> DataFrame:
    """A DataFrame whose columns are the type's."""
    if isinstance(spec, DataFrameSource):
        return spec.dataframe
    if isinstance(spec, CollectionSource):
        one = session.range(0, 1, 1, 1)  # one partition, so that records arrive in the order the program gave them
        return one.mapInArrow(_bringing(to_arrow(type, list(spec.values))), from_arrow_schema(type.arrow_schema))
    return open_stream(session, spec)


def _bringing(records: pa.RecordBatch) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Columns travel as they are: as rows of Spark they would lose what its types cannot tell."""

    def run(ticks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for tick in ticks:
            for first in range(0, records.num_rows if tick.num_rows else 0, _AT_ONCE):
                yield records.slice(first, _AT_ONCE)

    return run


_AT_ONCE = 10_000


def open_stream(session: SparkSession, spec: StreamSource) -> DataFrame:
    options = dict(spec.options)
    if spec.format == "socket":
        options.setdefault("numPartitions", "1")  # else Spark deals the lines out, and their order is lost
    reader = session.readStream.format(spec.format).options(**options)
    if spec.schema is not None:
        reader = reader.schema(spec.schema)
    try:
        dataframe = reader.load()
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise JobGraphError(f'source "{spec.format}" cannot be opened: {reason}') from error
    if spec.errors == "strict":
        return dataframe
    return dataframe.select(
        *(
            F.make_valid_utf8(field.name).alias(field.name) if field.dataType == StringType() else F.col(field.name)
            for field in dataframe.schema
        )
    )


def row_type(dataframe: Any) -> TypeInfo:
    """How the rows of a DataFrame arrive: as named tuples."""
    schema = to_arrow_schema(dataframe.schema, timezone="UTC")
    return named_tuple_type(schema)
