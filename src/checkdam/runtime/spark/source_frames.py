"""Turns source descriptions into DataFrames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StringType

from checkdam.connectors.sources import (
    IDENTIFYING_OPTIONS,
    CollectionSource,
    DataFrameSource,
    SourceSpec,
    StreamSource,
    place_of,
)
from checkdam.errors import JobGraphError
from checkdam.runtime.spark.offsets import Streams
from checkdam.types.rows import to_arrow
from checkdam.types.type_info import TypeInfo, named_tuple_type


def dataframe_source(dataframe: DataFrame) -> DataFrameSource:
    """Wrap a DataFrame as a source; its plan gives the origin of its streams."""
    streams = _streams_of(dataframe)
    return DataFrameSource(dataframe, " + ".join(map(_described, streams)), len(streams))


def _streams_of(dataframe: DataFrame) -> list[Any]:
    """Return the relations of a DataFrame that Spark reads as streams, in the order in which it logs their offsets."""
    leaves = dataframe._jdf.queryExecution().analyzed().collectLeaves()
    return [leaf for leaf in (leaves.apply(i) for i in range(leaves.size())) if leaf.isStreaming()]


def _described(stream: Any) -> str:
    """Return format and place of a streaming relation of either of Spark's two kinds."""
    if stream.getClass().getSimpleName() == "StreamingRelation":
        options = stream.dataSource().options()
        found = [(key, options.get(key)) for key in IDENTIFYING_OPTIONS]
        given = [(key, str(value.get())) for key, value in found if value.isDefined()]
        name = str(stream.dataSource().className())
    else:
        options = stream.extraOptions()
        given = [(key, str(options.get(key))) for key in IDENTIFYING_OPTIONS if options.containsKey(key)]
        name = str(stream.sourceName())
    place = place_of(given)
    return f"{name}({place})" if place else name


def streams_in(flow: DataFrame, sources: Sequence[DataFrame]) -> Streams:
    """Return the streams that Spark reads for a query over these sources.

    Spark gives every relation a directory of its own, in the order in which it finds them; a relation that occurs again
    is read once.
    """
    met: list[Any] = []
    directories: list[int] = []
    for stream in _streams_of(flow):
        known = next((number for number, each in enumerate(met) if each.equals(stream)), None)
        if known is None:
            known = len(met)
            met.append(stream)
        directories.append(known)
    counts = [len(_streams_of(source)) for source in sources]
    if sum(counts) != len(directories):
        raise AssertionError(f"Spark reads {len(directories)} streams for sources that have {counts}")
    ends = [0, *accumulate(counts)]
    return Streams(tuple(tuple(directories[begin:end]) for begin, end in pairwise(ends)))


def is_bounded(spec: SourceSpec) -> bool:
    return spec.is_static or (isinstance(spec, StreamSource) and spec.bounded)


def open_source(session: SparkSession, spec: SourceSpec, type: TypeInfo) -> DataFrame:
    """Open a source as a DataFrame with the type's columns."""
    if isinstance(spec, DataFrameSource):
        return spec.dataframe
    if isinstance(spec, CollectionSource):
        one = session.range(0, 1, 1, 1)  # one partition keeps the records in the order of the program
        return one.mapInArrow(_bringing(to_arrow(type, list(spec.values))), from_arrow_schema(type.arrow_schema))
    return open_stream(session, spec)


def _bringing(records: pa.RecordBatch) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a task that yields these columns. As rows of Spark they would lose what its types cannot express."""

    def run(ticks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for tick in ticks:
            for first in range(0, records.num_rows if tick.num_rows else 0, _AT_ONCE):
                yield records.slice(first, _AT_ONCE)

    return run


_AT_ONCE = 10_000


def open_stream(session: SparkSession, spec: StreamSource) -> DataFrame:
    options = dict(spec.options)
    if spec.format == "socket":
        options.setdefault("numPartitions", "1")  # else Spark distributes the lines, and their order is lost
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
    """Return the type of a DataFrame's rows: named tuples."""
    schema = to_arrow_schema(dataframe.schema, timezone="UTC")
    return named_tuple_type(schema)
