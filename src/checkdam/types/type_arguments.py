"""The type arguments that a class gives its generic base."""

from __future__ import annotations

import typing
from typing import Any


def type_argument(of: type, base: type, variable: Any) -> Any:
    """Return the type that `of` gives for a type variable of its base; None if it gives none.

    `class Sum(KeyedProcessFunction[str, int, float])` gives float for the output, and so do its subclasses.
    """
    found = _arguments(of, base).get(variable)
    is_known = found not in (Any, object, typing.Never, type(None)) and not isinstance(found, typing.ForwardRef)
    return found if is_known and not _variables(found) else None


def _arguments(of: type, base: type) -> dict[Any, Any]:
    if of is base:
        return {variable: variable for variable in _variables(base)}
    for each in of.__dict__.get("__orig_bases__", of.__bases__):  # the class's own: `__orig_bases__` is inherited
        origin = typing.get_origin(each) or each
        if not isinstance(origin, type) or not issubclass(origin, base):
            continue
        given = dict(zip(_variables(origin), typing.get_args(each), strict=False))
        return {variable: _replaced(hint, given) for variable, hint in _arguments(origin, base).items()}
    return {}


def _replaced(hint: Any, given: dict[Any, Any]) -> Any:
    """Return the hint with its type variables replaced where their types are given."""
    if isinstance(hint, typing.TypeVar):
        return given.get(hint, hint)
    variables = _variables(hint)
    return hint[tuple(given.get(each, each) for each in variables)] if variables else hint


def _variables(hint: Any) -> tuple[Any, ...]:
    return (hint,) if isinstance(hint, typing.TypeVar) else getattr(hint, "__parameters__", ())
