"""Conversion of records to Arrow and back. Every record takes this path, so each step works on whole columns."""

from __future__ import annotations

import dataclasses
import io
import itertools
import pickle
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa

from checkdam.types.type_check import Blank, columns_of, misfit, refuse_other_containers
from checkdam.types.type_info import Kind, TypeInfo, arrow_type_info

_PICKLED = frozenset({Kind.OPAQUE, Kind.PICKLE})
# Arrow's errors for a value of the wrong type; AttributeError: a record lacks a field of the dataclass
_REFUSED = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)


def to_arrow(of: TypeInfo, values: list[Any]) -> pa.RecordBatch:
    """Convert records to the columns of their type.

    Naive datetimes are stored in a column of instants, shifted by `_NAIVE`; `output_columns` gives them a public form.

    Raises:
        JobGraphError: a value does not fit the declared type.
    """
    try:
        arrays = _arrays(of, values)
    except _REFUSED as refusal:
        raise misfit(of, values, refusal, lambda value: _arrays(of, [value]), _REFUSED) from refusal
    return pa.RecordBatch.from_arrays(arrays, schema=of.arrow_schema)


def from_arrow(of: TypeInfo, batch: pa.RecordBatch) -> list[Any]:
    """Convert a batch with columns in the order of the type's to records; nulls become None."""
    if not of.is_compound:
        return _read(of, batch.column(0))
    columns = [_read(each, batch.column(i)) for i, (_, each) in enumerate(of.fields)]
    return _rows_of(of, columns)


def column_to_list(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values of one Arrow column; structs become rows, maps become dicts."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in column_to_list(chunk)]
    return _read(arrow_type_info(array.type), array)


def _arrays(of: TypeInfo, values: list[Any]) -> list[pa.Array]:
    if not of.is_compound:
        return [_build(of, values)]
    return [_build(each, column) for (_, each), column in zip(of.fields, columns_of(of, values), strict=True)]


def _build(of: TypeInfo, values: Iterable[Any]) -> pa.Array:
    kind = of.kind
    if kind in _PICKLED:
        return pa.array(_pickled(values), pa.binary())
    if of.codec is not None and of.form is not None:
        to = of.codec.to
        return _build(of.form, [None if value is None else to(value) for value in values])
    if kind is Kind.DATETIME and of.arrow_type.tz is not None:
        return _build_instants(of, list(values))
    if not of.fields:
        return pa.array(values, of.arrow_type)
    values = list(values)
    nulls = [value is None for value in values]
    mask = pa.array(nulls) if any(nulls) else None
    if kind is Kind.LIST or kind is Kind.MAP:
        return nested_array(of, values, mask, _build)
    if mask is not None:
        blank = Blank(len(of.fields))
        values = [blank if value is None else value for value in values]
    columns = [_build(each, column) for (_, each), column in zip(of.fields, columns_of(of, values), strict=True)]
    return pa.StructArray.from_arrays(columns, fields=list(of.arrow_type), mask=mask)


_NAIVE = 1 << 60
"""The shift in microseconds of a naive datetime in a column of instants: beyond the year 9999."""


def _build_instants(of: TypeInfo, values: list[Any]) -> pa.Array:
    """Convert aware datetimes to instants in UTC, and naive ones to their wall-clock time shifted by `_NAIVE`."""
    is_naive = [isinstance(value, datetime) and value.tzinfo is None for value in values]
    if not any(is_naive):
        return pa.array(values, of.arrow_type)
    if of.arrow_type.unit != "us":
        raise TypeError(f"a naive datetime has no place in {of.arrow_type}")
    import pyarrow.compute as pc  # loaded only where it is used

    micros = pc.add(pa.array(values, of.arrow_type).cast(pa.int64()), pa.array([_NAIVE * each for each in is_naive]))
    return micros.cast(of.arrow_type)


def nested_array(
    of: TypeInfo, values: Sequence[Any], mask: pa.Array | None, build: Callable[[TypeInfo, list[Any]], pa.Array]
) -> pa.Array:
    """Return a column of lists or maps; `build` returns the columns of their parts."""
    lengths = [0 if value is None else len(value) for value in values]
    offsets: Any = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    flat = itertools.chain.from_iterable(value for value in values if value is not None)
    if of.kind is Kind.LIST:
        refuse_other_containers(values)
        items = build(of.fields[0][1], list(flat))
        kind = pa.LargeListArray if pa.types.is_large_list(of.arrow_type) else pa.ListArray
        wide = pa.int64() if kind is pa.LargeListArray else pa.int32()
        return kind.from_arrays(pa.array(offsets, wide), items, type=of.arrow_type, mask=mask)
    keys = build(of.fields[0][1], list(flat))
    of_values = itertools.chain.from_iterable(value.values() for value in values if value is not None)
    items = build(of.fields[1][1], list(of_values))
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, type=of.arrow_type, mask=mask)


def _rows_of(of: TypeInfo, columns: list[list[Any]]) -> list[Any]:
    rows = zip(*columns, strict=True)
    if of.maker is tuple:
        return list(rows)
    if of.kind is Kind.NAMED_TUPLE:
        return list(map(of.maker._make, rows))
    names = [name for name, _ in of.fields]
    if of.maker is dict:  # a dataclass whose code is not available here
        return [dict(zip(names, row, strict=True)) for row in rows]
    if any(each.kw_only for each in dataclasses.fields(of.maker)):
        return [of.maker(**dict(zip(names, row, strict=True))) for row in rows]
    return list(itertools.starmap(of.maker, rows))


def _read(of: TypeInfo, array: pa.Array) -> list[Any]:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if of.kind in _PICKLED:
        return [None if payload is None else pickle.loads(payload) for payload in _plain(array)]
    if of.codec is not None and of.form is not None:
        from_ = of.codec.from_
        return [None if value is None else from_(value) for value in _read(of.form, array)]
    if not of.fields:
        return _plain(array)
    if of.kind is Kind.LIST or of.kind is Kind.MAP:
        rows = _read_nested(of, array)
    else:
        columns = [_read(each, column) for (_, each), column in zip(of.fields, array.flatten(), strict=True)]
        rows = _rows_of(of, columns)
    if array.null_count:
        rows = [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
    return rows


def _read_nested(of: TypeInfo, array: pa.Array) -> list[Any]:
    if of.kind is Kind.MAP:  # as a list of entries, a map can be flattened
        entry = pa.struct([pa.field("key", array.type.key_type, nullable=False), array.type.item_field])
        array = array.cast(pa.list_(pa.field("entries", entry, nullable=False)))
    ends = np.cumsum(array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)).tolist()
    spans = zip([0, *ends[:-1]], ends, strict=True) if ends else ()
    flat = array.flatten()
    if of.kind is Kind.LIST:
        items = _read(of.fields[0][1], flat)
        return [items[first:last] for first, last in spans]
    keys, values = (_read(each, column) for (_, each), column in zip(of.fields, flat.flatten(), strict=True))
    return [dict(zip(keys[first:last], values[first:last], strict=True)) for first, last in spans]


def _plain(array: pa.Array) -> list[Any]:
    """Return the values of a column without fields, in the fastest way for its type."""
    arrow_type = array.type
    if pa.types.is_dictionary(arrow_type):
        return _plain(array.dictionary_decode())
    if pa.types.is_binary(arrow_type) or pa.types.is_date32(arrow_type):
        return list(array.to_numpy(zero_copy_only=False).tolist())
    if array.null_count:
        # numpy would convert these numbers to floats; Arrow handles the others best, with or without nulls
        return list(_instants(array) if pa.types.is_timestamp(arrow_type) else array.to_pylist())
    if pa.types.is_integer(arrow_type) or pa.types.is_floating(arrow_type):
        return list(array.to_numpy(zero_copy_only=False).tolist())
    return list(_instants(array) if pa.types.is_timestamp(arrow_type) else array.to_pylist())


def _instants(array: pa.Array) -> list[Any]:
    zone = array.type.tz
    moments = array.cast(pa.timestamp("us", tz=zone)).to_numpy(zero_copy_only=False).tolist()
    if zone is None:
        return list(moments)
    return [
        moment if moment is None else moment.replace(tzinfo=UTC) if isinstance(moment, datetime) else _naive(moment)
        for moment in moments
    ]


def microseconds(moment: datetime, arrow_type: pa.DataType) -> int:
    """Return the number that stands for a datetime in a column of this type."""
    if moment.tzinfo is not None:
        return (moment - _EPOCH.replace(tzinfo=UTC)) // _MICROSECOND
    return (moment - _EPOCH) // _MICROSECOND + (0 if arrow_type.tz is None else _NAIVE)


def _naive(moment: int) -> datetime:
    """Decode a naive datetime: NumPy returns a number because its year is beyond 9999."""
    return _EPOCH + timedelta(microseconds=moment - _NAIVE)


_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  naive datetimes have none
_MICROSECOND = timedelta(microseconds=1)


def _pickled(values: Iterable[Any]) -> list[bytes | None]:
    """Return one payload per value, made by cloudpickle, because a slot cannot import a job's own classes."""
    buffer = io.BytesIO()
    pickler = cloudpickle.Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL)
    payloads: list[bytes | None] = []
    for value in values:
        if value is None:
            payloads.append(None)
            continue
        pickler.dump(value)
        payloads.append(buffer.getvalue())
        pickler.clear_memo()
        buffer.seek(0)
        buffer.truncate()
    return payloads
