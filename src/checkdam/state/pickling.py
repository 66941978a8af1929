"""The pickled values of a PickleType, wherever they stand in a type: bytes in the durable form."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cloudpickle

from checkdam.errors import JobGraphError
from checkdam.state.hints import PickleType
from checkdam.state.types import Kind, TypeInfo, fields_of

_Step = Callable[[Any], Any]


@dataclass(frozen=True)
class Pickling:
    """`dump` puts bytes in place of pickled values, `load` puts the values back."""

    dump: _Step
    load: _Step


def pickling(of: TypeInfo) -> Pickling | None:
    """How values of the type are pickled; None if nothing in it is.

    Raises:
        JobGraphError: a pickled value stands inside a class, which is not possible.
    """
    if all(inner.kind is not Kind.PICKLE for inner in fields_of(of)):
        return None
    return Pickling(_through(of, _dump), _through(of, _load))


def stand_ins(of: TypeInfo) -> _Step | None:
    """A step that puts empty bytes in place of pickled values, and refuses those of another class; None if none is.

    Raises:
        JobGraphError: as `pickling`.
    """
    if all(inner.kind is not Kind.PICKLE for inner in fields_of(of)):
        return None
    return _through(of, _stand_in)


def _through(of: TypeInfo, leaf: Callable[[TypeInfo], _Step]) -> _Step:
    step = _present(of, leaf)
    return (lambda value: None if value is None else step(value)) if of.nullable else step


def _present(of: TypeInfo, leaf: Callable[[TypeInfo], _Step]) -> _Step:
    if of.kind is Kind.PICKLE:
        return leaf(of)
    if all(inner.kind is not Kind.PICKLE for inner in fields_of(of)):
        return _same
    parts = [_through(each, leaf) for _, each in of.fields]
    if of.kind is Kind.LIST:
        return lambda value: list(map(parts[0], value))
    if of.kind is Kind.MAP:
        return lambda value: {key: parts[1](each) for key, each in value.items()}
    if of.kind is Kind.TUPLE:
        return lambda value: tuple([part(each) for part, each in zip(parts, value, strict=True)])
    raise JobGraphError(
        f"type {of.name} has a field that is a PickleType",
        hint=f"Keep {of.name} pickled as a whole, or the field in a state of its own.",
    )


def _same(value: Any) -> Any:
    return value


def _dump(of: TypeInfo) -> _Step:
    """Pickle by cloudpickle, since a job's own classes cannot be imported in a slot."""
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
        # by name: a class that travelled by cloudpickle is another object after a restart
        if declared is not None and all(kind.__qualname__ != declared for kind in type(value).__mro__):
            raise TypeError(f"expected {declared}, got {type(value).__qualname__}")
        return b""

    return stand_in


def _load(of: TypeInfo) -> _Step:
    """Unpickle where the job's code asks; a type known by its text alone leaves the bytes as they are."""
    return pickle.loads if isinstance(of.hint, PickleType) else _same
