"""Arrow columns for values whose durable type alone is known."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from checkdam.errors import StateNotRestorableError
from checkdam.types.hints import PickleType
from checkdam.types.rows import nested_array
from checkdam.types.type_info import Kind, TypeInfo, fields_of, type_info

_REFUSED = (pa.ArrowException, TypeError, ValueError, OverflowError, KeyError)
_NO_IDENTITY = frozenset({Kind.DATACLASS, Kind.LIST, Kind.MAP, Kind.PICKLE, Kind.AVRO})

TIME = pa.timestamp("ms", tz="UTC")


def column(of: TypeInfo, values: Sequence[Any], what: str) -> pa.Array:
    """Build one column of the type's `arrow_type`.

    Dataclasses, named tuples and tuples are structs, pickled values stay bytes, and naive datetimes count as UTC.

    Raises:
        StateNotRestorableError: a value does not fit the Arrow type, such as a Decimal of more than 38 digits;
            `what` names the state.
    """
    try:
        return _build(of, values)
    except _REFUSED as refusal:
        raise StateNotRestorableError(
            f"{what} holds a value that does not fit an Arrow column of type {of.arrow_type}: {str(refusal)[:200]}",
            hint="Iterate over the state instead: that gives Python values just as they were kept.",
        ) from refusal


def _build(of: TypeInfo, values: Sequence[Any]) -> pa.Array:
    if of.codec is not None:  # Avro: a column cannot hold every union that a schema may have
        to = of.codec.to
        return pa.array([None if value is None else to(value) for value in values], of.arrow_type)
    if not of.fields:
        return pa.array(values, of.arrow_type)
    nulls = [value is None for value in values] if of.nullable else []
    mask = pa.array(nulls) if any(nulls) else None
    if of.kind is Kind.LIST or of.kind is Kind.MAP:
        return nested_array(of, values, mask, _build)
    if mask is not None:
        blank: Any = (None,) * len(of.fields)
        blank = dict(zip([name for name, _ in of.fields], blank, strict=True)) if of.kind is Kind.DATACLASS else blank
        values = [blank if value is None else value for value in values]
    columns = [_build(each, list(map(get, values))) for get, (_, each) in zip(_getters(of), of.fields, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=list(of.arrow_type), mask=mask)


def _getters(of: TypeInfo) -> list[Any]:
    if of.kind is Kind.DATACLASS:
        return [operator.itemgetter(name) for name, _ in of.fields]
    return [operator.itemgetter(place) for place in range(len(of.fields))]


def is_hashable(of: TypeInfo) -> bool:
    """Return whether values read by the type alone are hashable; a dataclass is read as a dict and is not."""
    return not any(inner.kind in _NO_IDENTITY for inner in fields_of(of))


def unpickled(of: TypeInfo) -> TypeInfo:
    """Return the type with pickled values read as objects. Unpickling runs code that the file's author chose."""
    fields = tuple((name, unpickled(each)) for name, each in of.fields)
    return replace(of, fields=fields, hint=PickleType(object) if of.kind is Kind.PICKLE else of.hint)


def plain(of: TypeInfo, value: Any) -> Any:
    """Convert a user's value to the form in which values of the type are read.

    Dataclasses become dicts, enum members their names, and objects of registered classes their registered forms.
    """
    if value is None:
        return value
    own = type_info(type(value))
    if own.codec is not None and (own.kind is not Kind.ENUM or of.kind is Kind.ENUM):
        value = own.codec.to(value)
    if not of.fields:
        return value
    if of.kind is Kind.DATACLASS:
        get = value.__getitem__ if isinstance(value, dict) else lambda name: getattr(value, name)
        return {name: plain(each, get(name)) for name, each in of.fields}
    if of.kind is Kind.LIST:
        return [plain(of.fields[0][1], each) for each in value]
    if of.kind is Kind.MAP:
        (_, key), (_, item) = of.fields
        return {plain(key, k): plain(item, v) for k, v in value.items()}
    if len(value) != len(of.fields):
        raise ValueError(f"expected {len(of.fields)} elements, got {len(value)}")
    return tuple(plain(each, part) for (_, each), part in zip(of.fields, value, strict=True))


def positional(of: TypeInfo, value: Any) -> Any:
    """Return a key in the form that is hashed: fields by position, including dicts of a dataclass."""
    if value is None or not of.fields or of.kind is Kind.MAP:
        return value
    if of.kind is Kind.LIST:
        return tuple(positional(of.fields[0][1], each) for each in value)
    parts = value.values() if isinstance(value, dict) else value
    return tuple(positional(each, part) for (_, each), part in zip(of.fields, parts, strict=True))
