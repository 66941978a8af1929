"""Refuses records before a function sees them: keys that are None or NaN, and text that is not UTF-8.

Whole columns are checked, so that valid records cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from checkdam.errors import CheckdamError, StateAccessError
from checkdam.graph.operators import Operator
from checkdam.runtime.failures import user_error
from checkdam.types.batch import Batch
from checkdam.types.type_check import has_floats, has_nan, holds_stray_none
from checkdam.types.type_info import COMPOUND, Kind, TypeInfo

_KEY_HINT = "Leave such records out with filter(), or let key_by give another value for them."
_TEXT_HINT = 'Read it with errors="replace" (read_text), or make it valid in Spark: make_valid_utf8(column)'


def check_keys(values: Batch, keys: Batch, operator: Operator | str) -> None:
    """Refuse a key that is None, that has None in a part whose type is not optional, or that is or holds NaN.

    NaN is not equal to itself, so every record would have a new key.

    Raises:
        UserFunctionError: with the first record that has such a key.
    """
    of, columns = keys.type, keys.columns.columns
    if _has_stray_none(of, columns):
        at = next(at for at, key in enumerate(keys.rows) if holds_stray_none(of, key))
        raise refused_none(operator, keys.rows[at], values.rows[at])
    if has_floats(of) and any(map(_has_nan, columns)):
        at = next(at for at, key in enumerate(keys.rows) if has_nan(of, key))
        reason = f"the key is {keys.rows[at]!r}, and NaN cannot be a key"
        raise user_error(operator, values.rows[at], StateAccessError(reason, hint=_KEY_HINT))


def refused_none(operator: Operator | str, key: Any, record: Any) -> CheckdamError:
    """Return the error for a record whose key is None, or has None in a part that is not optional."""
    reason = "the key is None" if key is None else f"the key is {key!r}, and None is in a part that is not optional"
    return user_error(operator, record, StateAccessError(reason, hint=_KEY_HINT))


def _has_stray_none(of: TypeInfo, columns: Sequence[pa.Array]) -> bool:
    """Return whether columns hold such a None; a compound that is not optional has one column for each field."""
    if not of.is_compound:
        [column] = columns
        return column.null_count > 0 or (of.kind in COMPOUND and _fields_have_stray_none(of, column.flatten()))
    return _fields_have_stray_none(of, columns)


def _fields_have_stray_none(of: TypeInfo, columns: Sequence[pa.Array]) -> bool:
    for (_, each), column in zip(of.fields, columns, strict=True):
        if column.null_count and not each.nullable:
            return True
        if each.kind in COMPOUND and _fields_have_stray_none(each, column.drop_null().flatten()):
            return True
    return False


def _has_nan(column: pa.Array) -> bool:
    if pa.types.is_struct(column.type):
        return any(map(_has_nan, column.flatten()))
    return pa.types.is_floating(column.type) and bool(pc.any(pc.is_nan(column)).as_py())


def check_text(source: str, of: TypeInfo, records: pa.RecordBatch) -> None:
    """Refuse records of a source with text that is not UTF-8, which Spark does not check.

    Raises:
        UserFunctionError: with the first such record, in which that text is shown as bytes.
    """
    if all(map(_is_valid, records.columns)):
        return
    for at in range(records.num_rows):
        row = [column.take(pa.array([at])) for column in records.columns]  # of a slice Arrow checks other rows, too
        wrong = next((column for column in row if not _is_valid(column)), None)
        if wrong is not None:
            values = list(map(_shown, row))
            record = values[0] if not of.is_compound else of.maker._make(values) if _is_row(of) else tuple(values)
            raise user_error(source, record, UnicodeError(f"the text is not UTF-8: {_reason(wrong)}. {_TEXT_HINT}"))


def _is_row(of: TypeInfo) -> bool:
    return of.kind is Kind.NAMED_TUPLE


def _is_valid(column: pa.Array) -> bool:
    if not _has_text(column.type):
        return True
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _reason(column: pa.Array) -> str:
    try:
        column.to_pylist()
    except UnicodeDecodeError as refusal:
        return str(refusal)
    return "Arrow refuses it"


def _shown(column: pa.Array) -> Any:
    """Return the value of a column of one row; text that is not UTF-8 becomes bytes, and so does all text around it."""
    return (column if _is_valid(column) else column.cast(_with_bytes(column.type))).to_pylist()[0]


def _has_text(of: pa.DataType) -> bool:
    return _is_text(of) or any(_has_text(of.field(i).type) for i in range(of.num_fields))


def _is_text(of: pa.DataType) -> bool:
    return bool(pa.types.is_string(of) or pa.types.is_large_string(of))


def _with_bytes(of: pa.DataType) -> pa.DataType:
    """Return the same type with bytes for text."""
    if _is_text(of):
        return pa.binary() if pa.types.is_string(of) else pa.large_binary()
    if pa.types.is_struct(of):
        return pa.struct([of.field(i).with_type(_with_bytes(of.field(i).type)) for i in range(of.num_fields)])
    if pa.types.is_map(of):
        return pa.map_(_with_bytes(of.key_type), of.item_field.with_type(_with_bytes(of.item_type)))
    if pa.types.is_list(of):
        return pa.list_(of.value_field.with_type(_with_bytes(of.value_type)))
    return of
