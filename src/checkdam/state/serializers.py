"""The durable form of values: msgpack driven by the type, with no pickle in it.

Tuples and named tuples are arrays; dataclasses are maps by field name, so that fields may come and go. The type
itself is kept beside the values as a `spec`, from which they can be read without the job's code.
"""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa

from checkdam.errors import JobGraphError, StateNotRestorableError
from checkdam.state.types import (
    COMPOUND,
    Kind,
    TypeInfo,
    arrow_type_info,
    compound_of,
    fields_of,
    list_of,
    map_of,
    optional_of,
    tuple_of,
    type_info,
)

_LONG = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_REFUSED = (TypeError, ValueError, OverflowError, AttributeError, RecursionError)  # a ValidationError is a ValueError
_DIGITS = Context(prec=1000)


def _plain_number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"no durable form for a value of type {type(value).__name__}")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain_number, decimal_format="string")


def serializer(of: TypeInfo) -> Serializer:
    """The serializer of a type.

    Raises:
        JobGraphError: values of the type cannot be kept without pickle.
    """
    if not of.is_durable:
        culprit = [inner for inner in fields_of(of) if not inner.is_durable][-1]
        where = "" if culprit is of else f", because of {culprit.name} inside it"
        raise JobGraphError(
            f"type {of.name} has no durable form{where}",
            hint="Name a type made of str, int, float, bool, bytes, datetime, date, Decimal, lists, dicts (their keys "
            "scalars or tuples), optionals, tuples, NamedTuples and dataclasses.",
        )
    return Serializer(of)


def serializer_from_spec(spec: str) -> Serializer:
    """The serializer of a type known by its spec alone: dataclasses come as dicts, named tuples as tuples.

    Raises:
        StateNotRestorableError: the text is no spec of this version.
    """
    try:
        return Serializer(_of_node(json.loads(spec)))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise StateNotRestorableError(
            f"type description {spec[:200]!r} is not understood", hint="It may be from a newer version."
        ) from error


class Serializer:
    """Turns values of one type into bytes and back, many at a time or one by one.

    `encode` gives back equal values, in their own precision and order. `encode_key` gives equal bytes for equal keys,
    also where Python has several forms of one value (0.0 and -0.0, 1.5 and 1.50 as Decimals, two time zones).
    """

    def __init__(self, of: TypeInfo) -> None:
        self.type = of
        wire, plain = _wire(of), _plain_wire(of)
        self._one: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(wire)
        self._many: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[wire])  # type: ignore[valid-type]
        self._check_one: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(plain)
        self._check_many: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(list[plain])  # type: ignore[valid-type]
        _forget_caches(of)
        self._canonical = _canonical(of)
        self._has_text_borne = any(inner.kind in _TEXT_BORNE for inner in fields_of(of))
        self.spec: str = json.dumps(_node(of), separators=(",", ":"), ensure_ascii=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Serializer, (self.type,)

    def encode(self, values: list[Any]) -> bytes:
        """All values as one array, unchecked except for what has no durable form at all."""
        try:
            return _ENCODER.encode(values)
        except _REFUSED as refusal:
            raise self._misfit(values, refusal) from refusal

    def encode_checked(self, values: list[Any]) -> bytes:
        """As `encode`, and every value is known to be of the type.

        Raises:
            JobGraphError: naming the value that is not.
        """
        data = self.encode(values)
        try:
            self._check_many.decode(data)
            if self._has_text_borne:
                for value in values:
                    _check_text_borne(self.type, value)
        except _REFUSED as refusal:
            raise self._misfit(values, refusal) from refusal
        return data

    def decode(self, data: bytes | memoryview) -> list[Any]:
        """The values of `encode`.

        Raises:
            StateNotRestorableError: the bytes are not values of this type.
        """
        try:
            return self._many.decode(data)
        except msgspec.DecodeError as error:
            raise self._not_restorable(error) from error

    def encode_one(self, value: Any) -> bytes:
        try:
            return _ENCODER.encode(value)
        except _REFUSED as refusal:
            raise self._misfit([value], refusal) from refusal

    def decode_one(self, data: bytes | memoryview) -> Any:
        try:
            return self._one.decode(data)
        except msgspec.DecodeError as error:
            raise self._not_restorable(error) from error

    def encode_key(self, key: Any) -> bytes:
        """One key; equal keys give equal bytes."""
        return self.encode_one(key if self._canonical is None else self._canonicalised(key))

    def encode_keys(self, keys: list[Any]) -> bytes:
        """As `encode_checked`, with equal bytes for equal lists of keys."""
        return self.encode_checked(keys if self._canonical is None else [self._canonicalised(key) for key in keys])

    def _canonicalised(self, key: Any) -> Any:
        assert self._canonical is not None
        try:
            return self._canonical(key)
        except _REFUSED as refusal:
            raise self._misfit([key], refusal) from refusal

    def _misfit(self, values: list[Any], refusal: Exception) -> JobGraphError:
        offender: Any = values
        for value in values:
            try:
                self._check_one.decode(_ENCODER.encode(value))
                _check_text_borne(self.type, value)
            except _REFUSED as why:
                offender, refusal = value, why
                break
        return JobGraphError(
            f"value {ascii(offender)[:200]} does not fit the declared type {self.type.name}: {refusal}",
            hint="Declare the type that the values have, or convert them.",
        )

    def _not_restorable(self, error: Exception) -> StateNotRestorableError:
        return StateNotRestorableError(
            f"stored bytes are not of type {self.type.name}: {error}",
            hint="Declare the type under which the state was written.",
        )


_PYTHON: dict[Kind, Any] = {
    Kind.INT: _LONG,
    Kind.STR: str,
    Kind.BYTES: bytes,
    Kind.FLOAT: float,
    Kind.BOOL: bool,
    Kind.DATETIME: datetime,
    Kind.DATE: date,
    Kind.DECIMAL: Decimal,
    Kind.NONE: None,
}


def _wire(of: TypeInfo) -> Any:
    """The type to decode into: the user's own classes, where they are known."""
    if of.maker in (None, tuple, dict):
        return _shape(of, _wire)
    return typing.Optional[of.maker] if of.nullable else of.maker  # noqa: UP045  # the class may define no |


def _forget_caches(of: TypeInfo) -> None:
    """Take back what msgspec leaves on the user's classes: with it they could not be pickled to a worker."""
    for inner in fields_of(of):
        if "__msgspec_cache__" in getattr(inner.maker, "__dict__", ()):
            del inner.maker.__msgspec_cache__


def _plain_wire(of: TypeInfo) -> Any:
    """The type to check against: builtins only, so that no code of the user runs and every bound is exact."""
    return _shape(of, _plain_wire)


def _shape(of: TypeInfo, inner: Callable[[TypeInfo], Any]) -> Any:
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


_TEXT_BORNE = {Kind.DATETIME: datetime, Kind.DATE: date, Kind.DECIMAL: Decimal}


def _check_text_borne(of: TypeInfo, value: Any) -> None:
    """Refuse text where a date or number is declared: both have the same bytes, so decoding cannot tell."""
    expected = _TEXT_BORNE.get(of.kind)
    if value is None:
        return  # whether it may be None, decoding has told
    if expected is not None and not isinstance(value, expected):
        raise TypeError(f"expected {expected.__name__}, got {type(value).__name__}")
    if of.kind is Kind.MAP:
        for key, item in value.items():
            _check_text_borne(of.fields[0][1], key)
            _check_text_borne(of.fields[1][1], item)
    elif of.kind is Kind.LIST:
        for item in value:
            _check_text_borne(of.fields[0][1], item)
    else:
        for position, (name, each) in enumerate(of.fields):
            _check_text_borne(each, _field_of(of, value, position, name))


def _field_of(of: TypeInfo, value: Any, position: int, name: str) -> Any:
    if of.kind is not Kind.DATACLASS:
        return value[position]
    return value.get(name) if isinstance(value, dict) else getattr(value, name)


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
            for part in [_field_of(of, value, position, name)]
        ]
        if of.kind is Kind.DATACLASS:
            return dict(zip([name for name, _ in inner], parts, strict=True))
        return tuple(parts)

    return canonical


_CANONICAL: dict[Kind, Callable[[Any], Any]] = {
    Kind.FLOAT: lambda value: value + 0.0,  # 1 is 1.0, and -0.0 is 0.0
    Kind.DECIMAL: lambda value: value.normalize(_DIGITS) if value else Decimal(0),
    Kind.DATETIME: lambda value: value.astimezone(UTC) if value.tzinfo else value,
}


def _node(of: TypeInfo) -> Any:
    if of.nullable:
        return {"optional": _shape_node(of)}
    return _shape_node(of)


def _shape_node(of: TypeInfo) -> Any:
    if of.kind is Kind.LIST:
        return {"list": _node(of.fields[0][1])}
    if of.kind is Kind.MAP:
        return {"map": [_node(of.fields[0][1]), _node(of.fields[1][1])]}
    if of.kind is Kind.TUPLE:
        return {"tuple": [_node(each) for _, each in of.fields]}
    if of.fields:
        name = of.name.removesuffix(" | None")
        return {of.kind.value: name, "fields": [[field_name, _node(each)] for field_name, each in of.fields]}
    name = of.name.removesuffix(" | None")
    return name if name in _NAMED else {"arrow": name}


_NAMED = {each.name: each for each in map(type_info, (int, str, bytes, float, bool, datetime, date, Decimal, None))}
_WITH_PARAMETERS = re.compile(
    r"decimal128\((\d+), (-?\d+)\)|timestamp\[(s|ms|us|ns), tz=(.+)\]|fixed_size_binary\[(\d+)\]"
)


def _of_node(node: Any) -> TypeInfo:
    if isinstance(node, str):
        return _NAMED[node]
    if "optional" in node:
        of = _of_node(node["optional"])
        return optional_of(of, typing.Optional[of.hint])  # noqa: UP045
    if "list" in node:
        return list_of(_of_node(node["list"]), list)
    if "map" in node:
        key, value = node["map"]
        return map_of(_of_node(key), _of_node(value), dict)
    if "tuple" in node:
        return tuple_of([_of_node(each) for each in node["tuple"]])
    if "arrow" in node:
        return arrow_type_info(_arrow_type(node["arrow"]))
    kind, maker = (Kind.DATACLASS, dict) if Kind.DATACLASS.value in node else (Kind.NAMED_TUPLE, tuple)
    return compound_of(kind, node[kind.value], maker, [(name, _of_node(each)) for name, each in node["fields"]])


def _arrow_type(text: str) -> pa.DataType:
    found = _WITH_PARAMETERS.fullmatch(text)
    if found is None:
        return pa.type_for_alias(text)
    precision, scale, unit, zone, width = found.groups()
    if precision:
        return pa.decimal128(int(precision), int(scale))
    return pa.timestamp(unit, tz=zone) if unit else pa.binary(int(width))
