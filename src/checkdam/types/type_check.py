"""Type checks: the one place that decides whether a value has the declared type.

The exact check encodes a value and decodes the bytes against its type, both in C, which is faster than inspecting each
part in Python. Arrow columns and hashing refuse some values by themselves; their errors are made here as well.
"""

from __future__ import annotations

import operator
import threading
import typing
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from itertools import chain
from typing import Annotated, Any

import msgspec
import numpy as np

from checkdam.errors import JobGraphError
from checkdam.types.conversion import conversion
from checkdam.types.type_info import COMPOUND, Kind, TypeInfo, fields_of

UNCHANGING = frozenset({int, str, bytes, float, bool, datetime, date, Decimal, type(None)})
_CLASSES: dict[Kind, type] = {
    Kind.INT: int,
    Kind.STR: str,
    Kind.BYTES: bytes,
    Kind.FLOAT: float,
    Kind.BOOL: bool,
    Kind.DATETIME: datetime,
    Kind.DATE: date,
    Kind.DECIMAL: Decimal,
    Kind.LIST: list,
    Kind.MAP: dict,
}
_LONG = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
REFUSED = (TypeError, ValueError, OverflowError, AttributeError, KeyError, RecursionError)  # includes ValidationError


def _plain_number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"no durable form for a value of type {type(value).__name__}")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain_number, decimal_format="string")

encode: Callable[[Any], bytes] = _ENCODER.encode
"""Encode any value that has a durable form, whatever its type. Raises one of REFUSED if it has none."""

BUILDING_DECODERS = threading.Lock()
"""Held while decoders are built: msgspec crashes if two threads inspect the same class for the first time."""


class TypeCheck:
    """Checks whether values have one type. For a pickled value only the class is checked."""

    check_one: Callable[[Any], None]
    """Raise JobGraphError if the value does not have the type."""

    decode_one: Callable[[bytes], Any] | None
    """Raises one of REFUSED if the output of `encode` does not match the type; None where bytes cannot decide."""

    decode_all: Callable[[bytes], Any] | None
    """The same for a list of values encoded at once."""

    decode_stored: Callable[[bytes], Any]
    """As `decode_one`, for the bytes of a value in its stored form; only half the check if `check_parts` is set."""

    check_parts: Callable[[Any], None] | None
    """The other half: raises TypeError for text in place of a date or Decimal, whose bytes are the same."""

    def __init__(self, of: TypeInfo) -> None:
        self.type = of
        self.conversion = conversion(of)
        self.stored = of if self.conversion is None else self.conversion.form
        plain = _plain_wire(self.stored)
        with BUILDING_DECODERS:
            self._one: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(plain)
            self._many: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(list[plain])  # type: ignore[valid-type]
        has_text_borne = any(inner.kind in _TEXT_BORNE for inner in fields_of(self.stored))
        bytes_decide = not has_text_borne and self.conversion is None
        self.decode_one = self._one.decode if bytes_decide else None
        self.decode_all = self._many.decode if bytes_decide else None
        self.decode_stored = self._one.decode
        self.check_parts = partial(_check_text_borne, self.stored) if has_text_borne else None
        self.check_one = self._check()

    def check_encoded(self, stored: list[Any], data: bytes) -> None:
        """Raise one of REFUSED if values in their stored form, encoded at once, do not match the type."""
        self._many.decode(data)
        if self.check_parts is not None:
            for value in stored:
                self.check_parts(value)

    def misfit(self, values: list[Any], refusal: Exception) -> JobGraphError:
        """Return the error that names the first value of the wrong type."""
        return misfit(self.type, values, refusal, self._try, REFUSED)

    def _try(self, value: Any) -> None:
        dumped = value if self.conversion is None else self.conversion.dump(value)
        self.decode_stored(encode(dumped))
        if self.check_parts is not None:
            self.check_parts(dumped)

    def _check(self) -> Callable[[Any], None]:
        """Return a closure over only what it needs: a handle may call it for every record."""
        decode, check_parts = self.decode_stored, self.check_parts
        stand_in = None if self.conversion is None else self.conversion.stand_in

        def check_one(value: Any) -> None:
            try:
                dumped = value if stand_in is None else stand_in(value)
                decode(encode(dumped))
                if check_parts is not None:
                    check_parts(dumped)
            except REFUSED as refusal:
                raise self.misfit([value], refusal) from refusal

        return check_one


def misfit(
    of: TypeInfo,
    values: Sequence[Any],
    refusal: Exception,
    attempt: Callable[[Any], object],
    refused: tuple[type[Exception], ...],
    *,
    what: str = "value",
    hint: str = "Declare the type that the values have, or convert them.",
) -> JobGraphError:
    """Return the error for values that were refused together; it names the first that `attempt` refuses alone."""
    offender: Any = values[0] if len(values) == 1 else values
    for value in values:
        try:
            attempt(value)
        except refused as why:
            offender, refusal = value, why
            break
    declared = "type" if what == "value" else f"{what} type"
    shown, why_not = _short(ascii(offender)), _short(str(refusal))
    return JobGraphError(f"{what} {shown} does not fit the declared {declared} {of.name}: {why_not}", hint=hint)


def _short(text: str) -> str:
    return text if len(text) <= 200 else text[:200] + "…"


def are_exact(of: TypeInfo, values: Sequence[Any]) -> bool:
    """Return whether all values have exactly the classes that the type names, at every depth.

    Any immutable class is accepted for a scalar: the serializer checks whether it is the right one.
    """
    kinds = set(map(type, values))
    if of.nullable and type(None) in kinds:
        values = [value for value in values if value is not None]
        kinds.discard(type(None))
    if not kinds or of.kind in (Kind.PICKLE, Kind.AVRO):
        return True
    if of.codec is not None:
        return kinds == {of.maker}
    if not of.fields:
        return kinds <= UNCHANGING
    if kinds != {class_of(of)}:
        return False
    if of.kind is Kind.LIST:
        return are_exact(of.fields[0][1], list(chain.from_iterable(values)))
    if of.kind is Kind.MAP:
        items = chain.from_iterable(map(dict.values, values))
        return are_exact(of.fields[0][1], list(chain.from_iterable(values))) and are_exact(of.fields[1][1], list(items))
    if of.kind is not Kind.DATACLASS:
        if not any(each.fields or each.kind is Kind.PICKLE or each.codec is not None for _, each in of.fields):
            # The snapshot's synchronous part waits for this: one pass for all.
            return set(map(type, chain.from_iterable(values))) <= UNCHANGING
        if set(map(len, values)) != {len(of.fields)}:
            return False
    columns = columns_of(of, values)
    return all(are_exact(each, column) for (_, each), column in zip(of.fields, columns, strict=True))


def has_floats(of: TypeInfo) -> bool:
    return any(each.kind is Kind.FLOAT or (each.form is not None and has_floats(each.form)) for each in fields_of(of))


def has_nan(of: TypeInfo, value: Any) -> bool:
    """Return whether a value of the type is NaN, or a compound that holds NaN."""
    if value is None:
        return False
    if of.codec is not None and of.form is not None:
        return has_nan(of.form, of.codec.to(value))
    if of.kind in COMPOUND:
        inner = zip(of.fields, columns_of(of, [value]), strict=True)
        return any(has_nan(each, part) for (_, each), (part,) in inner)
    return of.kind is Kind.FLOAT and bool(value != value)


def holds_stray_none(of: TypeInfo, value: Any) -> bool:
    """Return whether a value is None, or has None in a part whose type is not optional."""
    if value is None or of.kind not in COMPOUND:
        return value is None
    parts = zip(of.fields, columns_of(of, [value]), strict=True)
    return any(not (part is None and each.nullable) and holds_stray_none(each, part) for (_, each), (part,) in parts)


def is_hashable(of: TypeInfo) -> bool:
    """Return whether values of the type are hashable."""
    return not any(
        each.kind in (Kind.LIST, Kind.MAP, Kind.PICKLE, Kind.AVRO)
        or (each.kind in (Kind.DATACLASS, Kind.REGISTERED) and getattr(each.maker, "__hash__", None) is None)
        for each in fields_of(of)
    )


def class_of(of: TypeInfo) -> type | None:
    """Return the class of the type's values; None if it is not known here."""
    if of.kind is Kind.PICKLE:
        kept: type = of.hint.of
        return kept
    found = of.maker if of.kind in COMPOUND or of.codec is not None else _CLASSES.get(of.kind)
    return found if isinstance(found, type) else None


def columns_of(of: TypeInfo, values: Sequence[Any]) -> list[list[Any]]:
    """Return the fields of compound values, column by column; refuse values of another shape."""
    if of.kind is Kind.DATACLASS:
        if of.maker is dict:
            return _values_by_name(of, values)
        return [list(map(operator.attrgetter(name), values)) for name, _ in of.fields]
    refuse_other_containers(values)
    width = len(of.fields)
    for length in set(map(len, values)) - {width}:
        raise ValueError(f"expected {width} elements, got {length}")
    return [list(map(operator.itemgetter(i), values)) for i in range(width)]  # far faster than zip(*values)


def _values_by_name(of: TypeInfo, values: Sequence[Any]) -> list[list[Any]]:
    """Return the values of dicts that have exactly the type's keys."""
    names = [name for name, _ in of.fields]
    for value in values:
        if not isinstance(value, Blank) and (not isinstance(value, dict) or value.keys() != set(names)):
            raise TypeError(f"expected a dict with the keys {', '.join(names)}")
    return [[None if isinstance(value, Blank) else value[name] for value in values] for name in names]


def refuse_other_containers(values: Sequence[Any]) -> None:
    """Refuse text and dicts: they are iterable too, but their items are never what was declared."""
    for kind in set(map(type, values)) & {str, bytes, dict}:
        raise TypeError(f"expected a sequence of elements, got {kind.__name__}")


class Blank(tuple[None, ...]):
    """Stands in for a null struct: all its fields are None, by position and by name."""

    def __new__(cls, length: int) -> Blank:
        return super().__new__(cls, (None,) * length)

    def __getattr__(self, name: str) -> None:
        return None


_PYTHON: dict[Kind, Any] = {
    **_CLASSES,
    Kind.INT: _LONG,
    Kind.NONE: None,
    Kind.PICKLE: bytes,
    Kind.ENUM: str,  # if its class is not known
}


def _plain_wire(of: TypeInfo) -> Any:
    """Return the type to check against: runs no user code, has exact bounds, and is cheap to build."""
    shape: Any
    if of.kind in COMPOUND:
        names = {f"f{place}": name for place, (name, _) in enumerate(of.fields)}
        fields = [(own, _plain_wire(each)) for own, (_, each) in zip(names, of.fields, strict=True)]
        is_array = of.kind is not Kind.DATACLASS
        is_closed = is_array or of.maker is dict  # extra attributes of a dataclass's subclass are ignored
        shape = msgspec.defstruct(
            "Checked", fields, rename=names, array_like=is_array, forbid_unknown_fields=is_closed, gc=False
        )
    elif of.kind is Kind.MAP:
        (_, key), (_, value) = of.fields
        shape = dict[_plain_key(key), _plain_wire(value)]  # type: ignore[misc]
    else:
        return wire_shape(of, _plain_wire)
    return typing.Optional[shape] if of.nullable else shape  # noqa: UP045


def _plain_key(of: TypeInfo) -> Any:
    """Return the type to check against for values that must be hashable."""
    return wire_shape(of, _plain_key)


def wire_shape(of: TypeInfo, inner: Callable[[TypeInfo], Any]) -> Any:
    """Return the type, of plain classes, that msgspec decodes bytes into; `inner` returns the types of its parts."""
    parts = [inner(each) for _, each in of.fields]
    shape: Any
    if of.kind is Kind.DATACLASS:
        make: Any = typing.TypedDict  # mypy knows only its literal form
        shape = make(of.name, {name: part for (name, _), part in zip(of.fields, parts, strict=True)})
    elif of.kind in COMPOUND:
        shape = tuple[tuple(parts)]  # type: ignore[misc]
    elif of.kind is Kind.LIST:
        shape = list[parts[0]]  # type: ignore[valid-type]
    elif of.kind is Kind.MAP:
        shape = dict[parts[0], parts[1]]  # type: ignore[valid-type]
    else:
        shape = _PYTHON[of.kind]
    return typing.Optional[shape] if of.nullable else shape  # noqa: UP045


_TEXT_BORNE = frozenset({Kind.DATETIME, Kind.DATE, Kind.DECIMAL})


def _check_text_borne(of: TypeInfo, value: Any) -> None:
    """Refuse text where a date or number is declared: both have the same bytes, so decoding cannot distinguish them."""
    if value is None:
        return  # decoding has checked whether None is allowed
    if of.kind in _TEXT_BORNE and not isinstance(value, _CLASSES[of.kind]):
        raise TypeError(f"expected {_CLASSES[of.kind].__name__}, got {type(value).__name__}")
    if of.kind is Kind.MAP:
        for key, item in value.items():
            _check_text_borne(of.fields[0][1], key)
            _check_text_borne(of.fields[1][1], item)
    elif of.kind is Kind.LIST:
        for item in value:
            _check_text_borne(of.fields[0][1], item)
    else:
        for position, (name, each) in enumerate(of.fields):
            _check_text_borne(each, field_of(of, value, position, name))


def field_of(of: TypeInfo, value: Any, position: int, name: str) -> Any:
    """Return one field of a compound value, by position or by name depending on its type."""
    if of.kind is not Kind.DATACLASS:
        return value[position]
    return value.get(name) if isinstance(value, dict) else getattr(value, name)
