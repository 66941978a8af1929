"""Which keys no record may have: None, and NaN. Columns are looked at as a whole, so that good keys cost nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from checkdam.errors import CheckdamError, StateAccessError
from checkdam.graph.operators import Operator
from checkdam.runtime.failures import user_error
from checkdam.types.batch import Batch
from checkdam.types.rows import columns_of
from checkdam.types.type_check import has_floats, has_nan
from checkdam.types.type_info import COMPOUND, TypeInfo

_HINT = "Leave such records out with filter(), or let key_by give another value for them."


def check_keys(values: Batch, keys: Batch, operator: Operator | str) -> None:
    """Refuse a key that is None, that has None in a part whose type is not optional, or that is or holds NaN.

    NaN is not equal to itself, so it would be another key with every record.

    Raises:
        UserFunctionError: with the first record that has such a key.
    """
    of, columns = keys.type, keys.columns.columns
    if _has_stray_none(of, columns):
        at = next(at for at, key in enumerate(keys.rows) if holds_stray_none(of, key))
        raise refused_none(operator, keys.rows[at], values.rows[at])
    if has_floats(of) and any(map(_has_nan, columns)):
        at = next(at for at, key in enumerate(keys.rows) if has_nan(of, key))
        told = f"the key is {keys.rows[at]!r}, and NaN cannot be a key"
        raise user_error(operator, values.rows[at], StateAccessError(told, hint=_HINT))


def refused_none(operator: Operator | str, key: Any, record: Any) -> CheckdamError:
    """The error of a record whose key is None, or has None in a part that must not be."""
    told = "the key is None" if key is None else f"the key is {key!r}, and None is in a part that is not optional"
    return user_error(operator, record, StateAccessError(told, hint=_HINT))


def holds_stray_none(of: TypeInfo, key: Any) -> bool:
    """Whether a key is None, or has None in a part whose type is not optional."""
    if key is None or of.kind not in COMPOUND:
        return key is None
    parts = zip(of.fields, columns_of(of, [key]), strict=True)
    return any(not (part is None and each.nullable) and holds_stray_none(each, part) for (_, each), (part,) in parts)


def _has_stray_none(of: TypeInfo, columns: Sequence[pa.Array]) -> bool:
    """The same for columns; a compound that is not optional has one for each field."""
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
