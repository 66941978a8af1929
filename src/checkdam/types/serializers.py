"""The durable form of values: msgpack driven by the type, without pickle.

Tuples and named tuples are arrays; dataclasses are maps by field name, so that fields can be added and removed. The
type is stored beside the values as a `spec`, so that they can be read without the job's code.
"""

from __future__ import annotations

import enum
import typing
from collections.abc import Callable
from datetime import UTC, timedelta
from decimal import Context, Decimal
from typing import Any

import msgspec

from checkdam.errors import JobGraphError, StateNotRestorableError
from checkdam.types.type_check import BUILDING_DECODERS, REFUSED, TypeCheck, encode, field_of, wire_shape
from checkdam.types.type_info import COMPOUND, Kind, TypeInfo, fields_of
from checkdam.types.type_text import text_of, type_from_text

_DIGITS = Context(prec=1000)


def serializer(of: TypeInfo) -> Serializer:
    """Return the serializer of a type.

    Raises:
        JobGraphError: values of the type cannot be stored without pickle.
    """
    if not of.is_durable:
        culprit = [inner for inner in fields_of(of) if not inner.is_durable][-1]
        name = _name_of(culprit)
        where = "" if culprit is of else f", because of {name} inside it"
        whole = name if culprit is of else of.name
        raise JobGraphError(f"type {whole} has no durable form{where}", hint=_instead_of(culprit))
    return Serializer(of)


def _name_of(of: TypeInfo) -> str:
    """Return the user's own name for a type: all types without columns share one type information."""
    if not of.is_opaque:
        return of.name
    return of.hint.__qualname__ if isinstance(of.hint, type) and not typing.get_args(of.hint) else str(of.hint)


_SUPPORTED = (
    "Name a type made of str, int, float, bool, bytes, datetime, date, Decimal, lists, dicts (their keys scalars or "
    "tuples), enums, optionals, tuples, NamedTuples, TypedDicts, dataclasses and registered classes"
)


def _instead_of(culprit: TypeInfo) -> str:
    """Return a suggestion for replacing a type that has no durable form."""
    hint = culprit.hint
    origin = typing.get_origin(hint) or hint
    bare = {list: "list[int]", dict: "dict[str, int]", tuple: "tuple[str, int]"}.get(hint)
    if bare is not None:
        return f"Say what is in it, as in {bare}."
    if origin in (set, frozenset):
        return "Write dict[T, bool] or list[T] instead of a set, or a MapState with an entry for each element."
    if origin is tuple:
        return "Write list[T] instead of a tuple of any length."
    if hint is timedelta:
        return "Write int and keep milliseconds, or float and keep total_seconds()."
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return "Write int and keep the value, or register_type(…, schema=int)."
    if isinstance(hint, type) and hint is not object and culprit.is_opaque:
        return (
            f"{_SUPPORTED}; or register_type({hint.__name__}, …), or PickleType({hint.__name__}), to keep it pickled."
        )
    return f"{_SUPPORTED}."


def serializer_from_spec(spec: str) -> Serializer:
    """Return the serializer of a type known only by its spec: dataclasses are read as dicts, named tuples as tuples.

    Raises:
        StateNotRestorableError: the text is not a spec of this version.
    """
    of = type_from_text(spec)
    try:
        return Serializer(of)
    except (TypeError, ValueError, LookupError) as error:  # a shape that no declared type has
        raise StateNotRestorableError(f"no type can be read from {spec[:200]!r}: {error}") from error


class Serializer:
    """Converts values of one type to bytes and back, one by one or many at a time.

    `encode` preserves the precision and order of values. `encode_key` gives equal bytes for equal keys, also where
    Python has several representations of one value (0.0 and -0.0, Decimals 1.5 and 1.50, two time zones).
    """

    encode_one_checked: Callable[[Any], bytes]
    """As `encode_one`, but checks the value's type. Raises JobGraphError if it is wrong."""

    decode_one: Callable[[bytes | memoryview], Any]
    """The inverse of `encode_one`. Raises StateNotRestorableError if the bytes do not match the type."""

    def __init__(self, of: TypeInfo) -> None:
        self.type = of
        self.check = TypeCheck(of)
        self._conversion = self.check.conversion
        stored = self.check.stored
        wire = _wire(stored)
        with BUILDING_DECODERS:
            self._one: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(wire)
            self._many: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[wire])  # type: ignore[valid-type]
            _forget_caches(stored)
        self._canonical = _no_key if _has_pickled(of) else _canonical(stored)
        self.spec: str = text_of(of)
        self.encode_one_checked = self._checked_encoder()
        self.decode_one = self._decoder()

    def __reduce__(self) -> tuple[Any, ...]:
        return Serializer, (self.type,)

    def encode(self, values: list[Any]) -> bytes:
        """Encode all values as one array; checks only that they have a durable form."""
        try:
            return encode(self._dumped(values))
        except REFUSED as refusal:
            raise self.check.misfit(values, refusal) from refusal

    def encode_checked(self, values: list[Any]) -> bytes:
        """Encode like `encode`, and check the type of every value.

        Raises:
            JobGraphError: a value has another type; the error names it.
        """
        try:
            dumped = self._dumped(values)
            data = encode(dumped)
            self.check.check_encoded(dumped, data)
        except REFUSED as refusal:
            raise self.check.misfit(values, refusal) from refusal
        return data

    def decode(self, data: bytes | memoryview) -> list[Any]:
        """Decode what `encode` returned.

        Raises:
            StateNotRestorableError: the bytes are not values of this type.
        """
        try:
            values = self._many.decode(data)
        except ValueError as error:  # msgspec raises no DecodeError for text that is not UTF-8
            raise self._not_restorable(error) from error
        return values if self._conversion is None else list(map(self._conversion.load, values))

    def encode_one(self, value: Any) -> bytes:
        try:
            return encode(value if self._conversion is None else self._conversion.dump(value))
        except REFUSED as refusal:
            raise self.check.misfit([value], refusal) from refusal

    def encode_key(self, key: Any) -> bytes:
        """Encode one key; equal keys give equal bytes."""
        if self._canonical is None:
            return self.encode_one(key)
        try:
            return encode(self._canonical(key if self._conversion is None else self._conversion.dump(key)))
        except REFUSED as refusal:
            raise self.check.misfit([key], refusal) from refusal

    def encode_keys(self, keys: list[Any]) -> bytes:
        """Encode like `encode_checked`; equal lists of keys give equal bytes."""
        if self._canonical is None:
            return self.encode_checked(keys)
        try:
            dumped = list(map(self._canonical, self._dumped(keys)))
            data = encode(dumped)
            self.check.check_encoded(dumped, data)
        except REFUSED as refusal:
            raise self.check.misfit(keys, refusal) from refusal
        return data

    def _dumped(self, values: list[Any]) -> list[Any]:
        return values if self._conversion is None else list(map(self._conversion.dump, values))

    def _checked_encoder(self) -> Callable[[Any], bytes]:
        """Return a closure over only what it needs: a backend may call it for every record."""
        check, check_parts = self.check.decode_stored, self.check.check_parts
        dump = None if self._conversion is None else self._conversion.dump

        def encode_one_checked(value: Any) -> bytes:
            try:
                dumped = value if dump is None else dump(value)
                data = encode(dumped)
                check(data)
                if check_parts is not None:
                    check_parts(dumped)
            except REFUSED as refusal:
                raise self.check.misfit([value], refusal) from refusal
            return data

        return encode_one_checked

    def _decoder(self) -> Callable[[bytes | memoryview], Any]:
        decode, conversion = self._one.decode, self._conversion

        def decode_one(data: bytes | memoryview) -> Any:
            try:
                return decode(data)
            except ValueError as error:  # msgspec raises no DecodeError for text that is not UTF-8
                raise self._not_restorable(error) from error

        return decode_one if conversion is None else lambda data: conversion.load(decode_one(data))

    def _not_restorable(self, error: Exception) -> StateNotRestorableError:
        return StateNotRestorableError(
            f"stored bytes are not of type {self.type.name}: {error}",
            hint="Declare the type under which the state was written.",
        )


def _wire(of: TypeInfo) -> Any:
    """Return the type to decode into: the user's own classes where they are known."""
    if of.kind is Kind.INT and not of.nullable:
        return int  # its bounds were checked when it was written
    if of.maker in (None, tuple, dict):
        return wire_shape(of, _wire)
    return typing.Optional[of.maker] if of.nullable else of.maker  # noqa: UP045  # the class may define no |


def _forget_caches(of: TypeInfo) -> None:
    """Remove the caches that msgspec leaves on the user's classes: they would prevent pickling to a worker."""
    for inner in fields_of(of):
        if "__msgspec_cache__" in getattr(inner.maker, "__dict__", ()):
            del inner.maker.__msgspec_cache__


def _canonical(of: TypeInfo) -> Callable[[Any], Any] | None:
    """Return a function that normalises equal keys to one representation; None where Python has only one."""
    if of.kind in _CANONICAL:
        one_form = _CANONICAL[of.kind]
        return lambda value: None if value is None else one_form(value)
    inner = [(name, _canonical(each)) for name, each in of.fields]
    if of.kind not in COMPOUND or all(function is None for _, function in inner):
        return None

    def canonical(value: Any) -> Any:
        if value is None:
            return None
        parts = [
            part if function is None else function(part)
            for position, (name, function) in enumerate(inner)
            for part in [field_of(of, value, position, name)]
        ]
        if of.kind is Kind.DATACLASS:
            return dict(zip([name for name, _ in inner], parts, strict=True))
        return tuple(parts)

    return canonical


def _one_number(value: Any) -> Any:
    if value != value:
        raise ValueError("NaN cannot be a key")
    return value + 0.0  # 1 becomes 1.0, and -0.0 becomes 0.0


def _has_pickled(of: TypeInfo) -> bool:
    return any(
        each.kind is Kind.PICKLE or (each.form is not None and _has_pickled(each.form)) for each in fields_of(of)
    )


def _no_key(_: Any) -> Any:
    raise JobGraphError("a pickled value cannot be a key", hint="Equal values need not have equal pickles.")


_CANONICAL: dict[Kind, Callable[[Any], Any]] = {
    Kind.FLOAT: _one_number,
    Kind.DECIMAL: lambda value: value.normalize(_DIGITS) if value else Decimal(0),
    Kind.DATETIME: lambda value: value.astimezone(UTC) if value.tzinfo else value,
}
