"""Records as columns for readers outside the job: files, and DataFrames of Spark.

Inside a job, a column of instants can also hold naive datetimes, in an internal encoding (see `rows`). Here they
become what other readers understand: text in JSON, a column without a time zone in parquet, and instants in UTC for
Spark, whose timestamp columns hold nothing but instants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain, count
from typing import Any

import pyarrow as pa

from checkdam.errors import JobGraphError
from checkdam.types.batch import Batch
from checkdam.types.rows import to_arrow
from checkdam.types.type_check import columns_of
from checkdam.types.type_info import Codec, Kind, TypeInfo, fields_of, type_info

_Leaf = Callable[[TypeInfo, Sequence[Any]], TypeInfo]


def spark_columns(batch: Batch) -> pa.RecordBatch:
    """Return columns of the type's own Arrow types. Naive datetimes are read as UTC."""
    return _columns(batch, lambda of, _: _kept_as(of, Codec(_as_instant, _same), of))


class ParquetColumns:
    """The columns of one parquet file. A column is either naive (no time zone) or aware in the whole file."""

    def __init__(self) -> None:
        self._are_naive: dict[
            int, bool | None
        ] = {}  # by the position of the datetimes in the type; None: no value seen yet

    def look_at(self, batch: Batch) -> bool:
        """Examine a batch. Return whether every datetime column is now known to be naive or aware.

        Raises:
            JobGraphError: a column would hold naive datetimes and aware ones.
        """
        self._changed(batch)
        return None not in self._are_naive.values()

    def columns(self, batch: Batch) -> pa.RecordBatch:
        """Return the batch as columns of the file. A datetime column without values so far counts as aware.

        Raises:
            JobGraphError: as `look_at`.
        """
        of = self._changed(batch)
        self._are_naive = {place: bool(is_naive) for place, is_naive in self._are_naive.items()}
        return batch.columns if of is batch.type else to_arrow(of, batch.rows)

    def _changed(self, batch: Batch) -> TypeInfo:
        if not has_instants(batch.type):
            return batch.type
        places = count()
        return _changed(batch.type, batch.rows, lambda of, values: self._leaf(next(places), of, values))

    def _leaf(self, place: int, of: TypeInfo, values: Sequence[datetime]) -> TypeInfo:
        known = self._are_naive.get(place)
        seen = {value.tzinfo is None for value in values} | ({known} - {None})
        if len(seen) > 1:
            raise JobGraphError(
                "a parquet column cannot hold both naive and aware datetimes",
                hint="Give all of them a time zone in a map first, or write JSON.",
            )
        is_naive = self._are_naive[place] = next(iter(seen), None)
        return replace(of, arrow_type=pa.timestamp("us")) if is_naive else of


def json_columns(batch: Batch) -> pa.RecordBatch:
    """Return columns in which datetimes are ISO text: aware ones in UTC, naive ones without an offset."""
    return _columns(batch, lambda of, _: _kept_as(of, Codec(_iso_text, _same), type_info(str)))


def _columns(batch: Batch, leaf: _Leaf) -> pa.RecordBatch:
    if not has_instants(batch.type):
        return batch.columns
    of = _changed(batch.type, batch.rows, leaf)
    return to_arrow(of, batch.rows)


def has_instants(of: TypeInfo) -> bool:
    """Return whether a column of the type, at any depth, holds instants."""
    return any(_is_instant(each) or (each.form is not None and has_instants(each.form)) for each in fields_of(of))


def _is_instant(of: TypeInfo) -> bool:
    return of.kind is Kind.DATETIME and of.arrow_type.tz is not None


def _changed(of: TypeInfo, values: Sequence[Any], leaf: _Leaf) -> TypeInfo:
    """Return the type with every instant type in it replaced by `leaf` of that type."""
    if not has_instants(of):
        return of
    present = [value for value in values if value is not None]
    if _is_instant(of):
        return leaf(of, present)
    if of.form is not None and of.codec is not None:
        form = _changed(of.form, list(map(of.codec.to, present)), leaf)
        return replace(of, form=form, arrow_type=form.arrow_type)
    if of.kind is Kind.LIST:
        parts: list[Any] = [list(chain.from_iterable(present))]
    elif of.kind is Kind.MAP:
        parts = [list(chain.from_iterable(present)), list(chain.from_iterable(map(dict.values, present)))]
    else:
        parts = columns_of(of, present)
    fields = tuple((name, _changed(each, part, leaf)) for (name, each), part in zip(of.fields, parts, strict=True))
    return replace(of, fields=fields, arrow_type=_arrow_type(of, [each.arrow_type for _, each in fields]))


def _arrow_type(of: TypeInfo, parts: list[pa.DataType]) -> pa.DataType:
    if parts == [each.arrow_type for _, each in of.fields]:
        return of.arrow_type
    if of.kind is Kind.LIST:
        return pa.list_(parts[0])
    if of.kind is Kind.MAP:
        return pa.map_(*parts)
    return pa.struct([pa.field(name, part) for (name, _), part in zip(of.fields, parts, strict=True)])


def _kept_as(of: TypeInfo, codec: Codec, form: TypeInfo) -> TypeInfo:
    return replace(of, kind=Kind.REGISTERED, form=form, codec=codec, arrow_type=form.arrow_type)


def _as_instant(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _iso_text(moment: datetime) -> str:
    if moment.tzinfo is None:
        return moment.isoformat()
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def _same(value: Any) -> Any:
    return value
