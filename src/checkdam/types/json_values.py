"""State values as JSON, for people and for programs in any language; and keys parsed from JSON.

Different values stay distinguishable to a reader, but this is not a durable form: a tuple looks like a list, and a
Decimal like its text.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import enum
import json
import math
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from checkdam.errors import UsageError
from checkdam.types.type_info import COMPOUND, Kind, TypeInfo

_SHOWN = 200
_PLAIN = frozenset({int, str, bool, type(None)})
_FROM_WORDS = frozenset({Kind.STR, Kind.ENUM, Kind.DATETIME, Kind.DATE, Kind.DECIMAL, Kind.FLOAT})
_LONG = range(-(2**63), 2**63)


def to_json(value: Any, of: TypeInfo | None = None) -> Any:
    """Convert a value to what `json.dumps` accepts.

    Bytes become {"base64": …}; dataclasses and named tuples become objects; tuples become arrays; dates, Decimals and
    non-finite floats become text; enum members become their names; registered classes become their forms; dicts with
    keys other than text become arrays of pairs. Anything else becomes {"repr": …}. If the type is given, a named tuple
    that was read without its class also becomes an object.
    """
    if of is not None and of.kind is Kind.AVRO:
        return to_json(value)
    if of is not None and of.form is not None:
        return to_json(value if of.codec is None or value is None else of.codec.to(value), of.form)
    if of is None and isinstance(value, enum.Enum):
        return value.name
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is float:
        return value if math.isfinite(value) else _not_finite(value)
    if of is not None and of.kind is Kind.NAMED_TUPLE and isinstance(value, tuple):
        return {name: to_json(part, each) for part, (name, each) in zip(value, of.fields, strict=True)}
    if isinstance(value, tuple | list):
        return _array(value, of)
    if isinstance(value, dict):
        return _mapping(value, of)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        types = dict(of.fields) if of is not None else {}
        return {
            each.name: to_json(getattr(value, each.name), types.get(each.name)) for each in dataclasses.fields(value)
        }
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    return _of_subclass(value)


def _not_finite(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _array(value: Any, of: TypeInfo | None) -> Any:
    fields = getattr(value, "_fields", None)
    if fields is not None:
        return {name: to_json(part) for name, part in zip(fields, value, strict=True)}
    if of is not None and of.kind is Kind.LIST:
        return [to_json(part, of.fields[0][1]) for part in value]
    if of is not None and of.kind is Kind.TUPLE and len(of.fields) == len(value):
        return [to_json(part, each) for part, (_, each) in zip(value, of.fields, strict=True)]
    return [to_json(part) for part in value]


def _mapping(value: dict[Any, Any], of: TypeInfo | None) -> Any:
    if of is not None and of.kind is Kind.DATACLASS:
        types = dict(of.fields)
        return {str(name): to_json(part, types.get(name)) for name, part in value.items()}
    of_key, of_value = (each for _, each in of.fields) if of is not None and of.kind is Kind.MAP else (None, None)
    if all(type(key) is str for key in value):
        return {key: to_json(part, of_value) for key, part in value.items()}
    return [[to_json(key, of_key), to_json(part, of_value)] for key, part in value.items()]


def _of_subclass(value: Any) -> Any:
    """Convert a subclass of int, a NumPy number, or an unknown object such as an unpickled one."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return to_json(float(value))
    if isinstance(value, str):
        return str(value)
    item = getattr(value, "item", None)
    if callable(item) and type(value).__module__ == "numpy":
        return to_json(item())
    return {"repr": repr(value)[:_SHOWN]}


def key_from_text(text: str, of: TypeInfo) -> Any:
    """Parse a key from text: JSON, or a bare word where the type is text, a date or a number.

    Raises:
        UsageError: the text is not a key of this type.
    """
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        parsed = _NOT_JSON
    if of.kind is Kind.STR and not isinstance(parsed, str) and not (parsed is None and of.nullable):
        parsed = text  # a bare word, even if it is valid JSON, such as 12 or true
    elif parsed is _NOT_JSON and of.kind in _FROM_WORDS:
        parsed = text
    if parsed is _NOT_JSON:
        raise UsageError(
            f"{text[:_SHOWN]!r} is not a key of type {of.name}", hint=f"Write it as JSON, like {_example(of)}."
        )
    return key_from_json(parsed, of)


_NOT_JSON: Any = object()


def key_from_json(value: Any, of: TypeInfo) -> Any:
    """Convert a JSON value, in the form that `to_json` returns, to a key.

    Raises:
        UsageError: the value is not a key of this type.
    """
    try:
        return _built(value, of)
    except (TypeError, ValueError, ArithmeticError, KeyError, RecursionError) as refusal:
        raise UsageError(
            f"{_shown(value)} is not a key of type {of.name}", hint=f"Write it as JSON, like {_example(of)}."
        ) from refusal


def _shown(value: Any) -> str:
    return json.dumps(value, default=repr)[:_SHOWN]


def _built(value: Any, of: TypeInfo) -> Any:
    if value is None:
        if of.nullable or of.kind is Kind.NONE:
            return None
        raise TypeError("null")
    if of.form is not None:
        form = _built(value, of.form)
        if of.members and form not in of.members:
            raise ValueError("no member")
        return form if of.codec is None else of.codec.from_(form)
    if of.kind in COMPOUND:
        return _compound(value, of)
    if of.kind is Kind.LIST:
        return [_built(each, of.fields[0][1]) for each in _checked(value, list)]
    make = _SCALARS.get(of.kind)
    if make is None:
        raise TypeError(f"a {of.name} cannot be a key")
    return make(value)


def _compound(value: Any, of: TypeInfo) -> Any:
    if isinstance(value, dict) and of.kind is not Kind.TUPLE:
        if set(value) != {name for name, _ in of.fields}:
            raise ValueError("other fields")
        value = [value[name] for name, _ in of.fields]
    if len(_checked(value, list)) != len(of.fields):
        raise ValueError("another number of fields")
    parts = [_built(part, each) for part, (_, each) in zip(value, of.fields, strict=True)]
    if of.kind is Kind.DATACLASS:
        return of.maker(**dict(zip([name for name, _ in of.fields], parts, strict=True)))
    return of.maker._make(parts) if hasattr(of.maker, "_make") else tuple(parts)


def _checked(value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise TypeError(f"not a {kinds[0].__name__}")
    return value


def _integer(value: Any) -> int:
    if _checked(value, int) not in _LONG:
        raise ValueError("beyond 64 bits")
    return int(value)


def _float(value: Any) -> float:
    number = float(_checked(value, int, float, str))
    if number != number:
        raise ValueError("NaN is equal to nothing")
    return number


def _bytes(value: Any) -> bytes:
    [(name, text)] = _checked(value, dict).items()
    if name != "base64":
        raise ValueError("not base64")
    try:
        return base64.b64decode(_checked(text, str), validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error


def _instant(value: Any) -> datetime:
    return datetime.fromisoformat(_checked(value, str))  # naive if it has no offset


def _decimal(value: Any) -> Decimal:
    number = Decimal(str(_checked(value, str, int, float)))
    if not number.is_finite():
        raise ValueError("not finite")
    return number


_SCALARS: dict[Kind, Callable[[Any], Any]] = {
    Kind.INT: _integer,
    Kind.STR: lambda value: _checked(value, str),
    Kind.BYTES: _bytes,
    Kind.FLOAT: _float,
    Kind.BOOL: lambda value: _checked(value, bool),
    Kind.DATETIME: _instant,
    Kind.DATE: lambda value: date.fromisoformat(_checked(value, str)),
    Kind.DECIMAL: _decimal,
}

_EXAMPLES: dict[Kind, Any] = {
    Kind.INT: 42,
    Kind.STR: "word",
    Kind.BYTES: {"base64": "AAEC"},
    Kind.FLOAT: 1.5,
    Kind.BOOL: True,
    Kind.DATETIME: "2024-05-01T12:00:00+00:00",
    Kind.DATE: "2024-05-01",
    Kind.DECIMAL: "1.50",
    Kind.NONE: None,
}


def _example(of: TypeInfo) -> str:
    return json.dumps(_example_value(of))


def _example_value(of: TypeInfo) -> Any:
    if of.form is not None:
        return of.members[0] if of.members else _example_value(of.form)
    if of.kind is Kind.DATACLASS:
        return {name: _example_value(each) for name, each in of.fields}
    if of.fields:
        return [_example_value(each) for _, each in of.fields]
    return _EXAMPLES.get(of.kind)
