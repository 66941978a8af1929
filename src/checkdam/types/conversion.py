"""Values that are stored as another type: enums, registered classes and pickled classes, at any depth of a type.

A class that holds such a value is converted too: a dataclass into a dict of its fields, a named tuple into a tuple.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cloudpickle

from checkdam.types.hints import PickleType
from checkdam.types.type_info import (
    Kind,
    TypeInfo,
    compound_of,
    fields_of,
    list_of,
    map_of,
    optional_of,
    tuple_of,
    type_info,
)

_Step = Callable[[Any], Any]


@dataclass(frozen=True)
class Conversion:
    """Conversion between values of a type and those of its `form`: `dump` converts to the form, `load` converts back.

    `stand_in` works like `dump`, but checks only the class of pickled values and puts empty bytes in their place.
    """

    form: TypeInfo
    dump: _Step
    load: _Step
    stand_in: _Step


def conversion(of: TypeInfo) -> Conversion | None:
    """Return the conversion of values of the type; None if they need none."""
    if not is_converted(of):
        return None
    return Conversion(form_of(of), _through(of, _dump), _through(of, _load), _through(of, _stand_in))


def is_converted(of: TypeInfo) -> bool:
    """Return whether the type, or a type inside it, is stored as another type."""
    return any(each.kind is Kind.PICKLE or each.codec is not None for each in fields_of(of))


def form_of(of: TypeInfo) -> TypeInfo:
    """Return the type of the converted values; the type itself if nothing in it is converted."""
    if not is_converted(of):
        return of
    form = _form_of_present(of)
    return optional_of(form, form.hint) if of.nullable else form


def _form_of_present(of: TypeInfo) -> TypeInfo:
    if of.kind is Kind.PICKLE:
        return type_info(bytes)
    if of.form is not None:
        return form_of(of.form)
    parts = [(name, form_of(each)) for name, each in of.fields]
    if of.kind is Kind.LIST:
        return list_of(parts[0][1], list)
    if of.kind is Kind.MAP:
        return map_of(parts[0][1], parts[1][1], dict)
    if of.kind is Kind.TUPLE:
        return tuple_of([each for _, each in parts])
    return compound_of(of.kind, of.name, dict if of.kind is Kind.DATACLASS else tuple, parts)


def _through(of: TypeInfo, leaf: Callable[[TypeInfo], _Step]) -> _Step:
    step = _present(of, leaf)
    return (lambda value: None if value is None else step(value)) if of.nullable else step


def _present(of: TypeInfo, leaf: Callable[[TypeInfo], _Step]) -> _Step:
    if of.kind is Kind.PICKLE:
        return leaf(of)
    if of.codec is not None and of.form is not None:
        return _registered(of, leaf)
    if not is_converted(of):
        return _same
    parts = [_through(each, leaf) for _, each in of.fields]
    if of.kind is Kind.LIST:
        return lambda value: list(map(parts[0], value))
    if of.kind is Kind.MAP:
        return lambda value: {parts[0](key): parts[1](each) for key, each in value.items()}
    if of.kind is Kind.DATACLASS:
        return _dataclass(of, parts, is_load=leaf is _load)
    make = tuple if leaf is not _load or of.kind is Kind.TUPLE else getattr(of.maker, "_make", tuple)
    return lambda value: make([part(each) for part, each in zip(parts, _sequence(value), strict=True)])


def _registered(of: TypeInfo, leaf: Callable[[TypeInfo], _Step]) -> _Step:
    assert of.codec is not None
    assert of.form is not None
    to, from_, inner = of.codec.to, of.codec.from_, _through(of.form, leaf)
    if inner is _same:
        return from_ if leaf is _load else to
    return (lambda value: from_(inner(value))) if leaf is _load else (lambda value: inner(to(value)))


def _dataclass(of: TypeInfo, parts: list[_Step], *, is_load: bool) -> _Step:
    named = [(name, part) for (name, _), part in zip(of.fields, parts, strict=True)]
    if is_load:
        make = of.maker
        return lambda value: make(**{name: part(value[name]) for name, part in named})

    def dump(value: Any) -> dict[str, Any]:
        if isinstance(value, dict):
            if len(value) > len(named):
                raise TypeError(f"expected no other keys than {', '.join(name for name, _ in named)}")
            return {name: part(value[name]) for name, part in named}
        return {name: part(getattr(value, name)) for name, part in named}

    return dump


def _sequence(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return value
    raise TypeError(f"expected a tuple, got {type(value).__name__}")


def _same(value: Any) -> Any:
    return value


def _dump(of: TypeInfo) -> _Step:
    """Pickle with cloudpickle, because a job's own classes cannot be imported in a slot."""
    is_known = isinstance(of.hint, PickleType)
    check = _stand_in(of)

    def dump(value: Any) -> bytes:
        if is_known:
            check(value)
        elif isinstance(value, bytes):
            return value
        data: bytes = cloudpickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
        return data

    return dump


def _stand_in(of: TypeInfo) -> _Step:
    declared = of.hint.of.__qualname__ if isinstance(of.hint, PickleType) else None

    def stand_in(value: Any) -> bytes:
        # by name: a class sent by cloudpickle is a different object after a restart
        if declared is not None and all(kind.__qualname__ != declared for kind in type(value).__mro__):
            raise TypeError(f"expected {declared}, got {type(value).__qualname__}")
        return b""

    return stand_in


def _load(of: TypeInfo) -> _Step:
    """Unpickle if the job declares the class; a type known only by its text leaves the bytes as they are."""
    return pickle.loads if isinstance(of.hint, PickleType) else _same
