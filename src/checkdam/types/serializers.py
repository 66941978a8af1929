"""The durable form of values: msgpack driven by the type, with no pickle in it.

Tuples and named tuples are arrays; dataclasses are maps by field name, so that fields may come and go. The type
itself is kept beside the values as a `spec`, from which they can be read without the job's code.
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
    """The serializer of a type.

    Raises:
        JobGraphError: values of the type cannot be kept without pickle.
    """
    if not of.is_durable:
        culprit = [inner for inner in fields_of(of) if not inner.is_durable][-1]
        name = _name_of(culprit)
        where = "" if culprit is of else f", because of {name} inside it"
        whole = name if culprit is of else of.name
        raise JobGraphError(f"type {whole} has no durable form{where}", hint=_instead_of(culprit))
    return Serializer(of)


def _name_of(of: TypeInfo) -> str:
    """The user's own name for it: the type information of what has no columns is the same for all."""
    if not of.is_opaque:
        return of.name
    return of.hint.__qualname__ if isinstance(of.hint, type) and not typing.get_args(of.hint) else str(of.hint)


_SUPPORTED = (
    "Name a type made of str, int, float, bool, bytes, datetime, date, Decimal, lists, dicts (their keys scalars or "
    "tuples), enums, optionals, tuples, NamedTuples, TypedDicts, dataclasses and registered classes"
)


def _instead_of(culprit: TypeInfo) -> str:
    """What to write where a type has no durable form."""
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
    """The serializer of a type known by its spec alone: dataclasses come as dicts, named tuples as tuples.

    Raises:
        StateNotRestorableError: the text is no spec of this version.
    """
    of = type_from_text(spec)
    try:
        return Serializer(of)
    except (TypeError, ValueError, LookupError) as error:  # a shape that no declared type has
        raise StateNotRestorableError(f"no type can be read from {spec[:200]!r}: {error}") from error


class Serializer:
    """Turns values of one type into bytes and back, many at a time or one by one.

    `encode` gives back equal values, in their own precision and order. `encode_key` gives equal bytes for equal keys,
    also where Python has several forms of one value (0.0 and -0.0, 1.5 and 1.50 as Decimals, two time zones).
    """

    encode_one_checked: Callable[[Any], bytes]
    """As `encode_one`, and the value is known to be of the type. Raises JobGraphError if it is not."""

    decode_one: Callable[[bytes | memoryview], Any]
    """The value of `encode_one`. Raises StateNotRestorableError if the bytes are not of this type."""

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
        """All values as one array, unchecked except for what has no durable form at all."""
        try:
            return encode(self._dumped(values))
        except REFUSED as refusal:
            raise self.check.misfit(values, refusal) from refusal

    def encode_checked(self, values: list[Any]) -> bytes:
        """As `encode`, and every value is known to be of the type.

        Raises:
            JobGraphError: naming the value that is not.
        """
        try:
            dumped = self._dumped(values)
            data = encode(dumped)
            self.check.check_encoded(dumped, data)
        except REFUSED as refusal:
            raise self.check.misfit(values, refusal) from refusal
        return data

    def decode(self, data: bytes | memoryview) -> list[Any]:
        """The values of `encode`.

        Raises:
            StateNotRestorableError: the bytes are not values of this type.
        """
        try:
            values = self._many.decode(data)
        except ValueError as error:  # text that is not UTF-8 is no DecodeError of msgspec
            raise self._not_restorable(error) from error
        return values if self._conversion is None else list(map(self._conversion.load, values))

    def encode_one(self, value: Any) -> bytes:
        try:
            return encode(value if self._conversion is None else self._conversion.dump(value))
        except REFUSED as refusal:
            raise self.check.misfit([value], refusal) from refusal

    def encode_key(self, key: Any) -> bytes:
        """One key; equal keys give equal bytes."""
        if self._canonical is None:
            return self.encode_one(key)
        try:
            return encode(self._canonical(key if self._conversion is None else self._conversion.dump(key)))
        except REFUSED as refusal:
            raise self.check.misfit([key], refusal) from refusal

    def encode_keys(self, keys: list[Any]) -> bytes:
        """As `encode_checked`, with equal bytes for equal lists of keys."""
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
        """A function over what it needs and nothing else: a backend may call it for every record."""
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
            except ValueError as error:  # text that is not UTF-8 is no DecodeError of msgspec
                raise self._not_restorable(error) from error

        return decode_one if conversion is None else lambda data: conversion.load(decode_one(data))

    def _not_restorable(self, error: Exception) -> StateNotRestorableError:
        return StateNotRestorableError(
            f"stored bytes are not of type {self.type.name}: {error}",
            hint="Declare the type under which the state was written.",
        )


def _wire(of: TypeInfo) -> Any:
    """The type to decode into: the user's own classes, where they are known."""
    if of.kind is Kind.INT and not of.nullable:
        return int  # its bounds were checked when it was written
    if of.maker in (None, tuple, dict):
        return wire_shape(of, _wire)
    return typing.Optional[of.maker] if of.nullable else of.maker  # noqa: UP045  # the class may define no |


def _forget_caches(of: TypeInfo) -> None:
    """Take back what msgspec leaves on the user's classes: with it they could not be pickled to a worker."""
    for inner in fields_of(of):
        if "__msgspec_cache__" in getattr(inner.maker, "__dict__", ()):
            del inner.maker.__msgspec_cache__


def _canonical(of: TypeInfo) -> Callable[[Any], Any] | None:
    """A function that gives equal keys one form, or None where Python has only one."""
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
        raise ValueError("NaN cannot be looked up by")
    return value + 0.0  # 1 is 1.0, and -0.0 is 0.0


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
