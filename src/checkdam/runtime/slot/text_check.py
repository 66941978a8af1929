"""Text that is not UTF-8: Spark takes any bytes of a source for text without a check, and Python cannot read them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from checkdam.runtime.failures import user_error
from checkdam.types.type_info import Kind, TypeInfo

_HINT = 'Read it with errors="replace" (read_text), or make it valid in Spark: make_valid_utf8(column)'


def check_text(source: str, of: TypeInfo, records: pa.RecordBatch) -> None:
    """Refuse records of a source with text that is not UTF-8.

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
            raise user_error(source, record, UnicodeError(f"the text is not UTF-8: {_reason(wrong)}. {_HINT}"))


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
    """The value of a column of one row; text that is not UTF-8 comes as bytes, and so does all text around it."""
    return (column if _is_valid(column) else column.cast(_with_bytes(column.type))).to_pylist()[0]


def _has_text(of: pa.DataType) -> bool:
    return _is_text(of) or any(_has_text(of.field(i).type) for i in range(of.num_fields))


def _is_text(of: pa.DataType) -> bool:
    return bool(pa.types.is_string(of) or pa.types.is_large_string(of))


def _with_bytes(of: pa.DataType) -> pa.DataType:
    """The same type with bytes for text."""
    if _is_text(of):
        return pa.binary() if pa.types.is_string(of) else pa.large_binary()
    if pa.types.is_struct(of):
        return pa.struct([of.field(i).with_type(_with_bytes(of.field(i).type)) for i in range(of.num_fields)])
    if pa.types.is_map(of):
        return pa.map_(_with_bytes(of.key_type), of.item_field.with_type(_with_bytes(of.item_type)))
    if pa.types.is_list(of):
        return pa.list_(of.value_field.with_type(_with_bytes(of.value_type)))
    return of
