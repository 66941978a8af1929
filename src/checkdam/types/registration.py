"""Durable forms for the user's own classes."""

from __future__ import annotations

import enum
import typing
from collections.abc import Callable
from functools import partial
from typing import Any

from checkdam.errors import JobGraphError
from checkdam.types.type_info import SCALARS, Codec, Kind, TypeInfo, register, type_info


def register_type(
    of: type, *, to: Callable[[Any], Any], from_: Callable[[Any], Any], schema: Any, immutable: bool = False
) -> None:
    """Store values of a class as values of another type: `register_type(Money, to=str, from_=Money.parse,
    schema=str)`.

    `to` converts a value of the class to the type `schema`, `from_` converts it back; both must return equal results
    for equal values. From then on the class may be used like any type: in records, in state and, if it is `immutable`,
    in keys. Snapshots contain only the type `schema`, whose evolution rules apply. Register a class in the job file
    before a stream or descriptor names it; slots learn of it automatically.

    Raises:
        JobGraphError: `schema` has no durable form, or the class cannot be registered.
    """
    if not isinstance(of, type) or of in SCALARS or of in (tuple, list, dict, object):
        raise JobGraphError(
            f"register_type takes a class of your own, not {of!r}", hint="Wrap such values in a class to register it."
        )
    if not callable(to) or not callable(from_):
        raise JobGraphError(
            f"register_type({of.__name__}) needs functions to and from_",
            hint=f"Write register_type({of.__name__}, to=…, from_=…, schema=…).",
        )
    form = type_info(schema)
    if not form.is_durable or form.nullable or form.kind is Kind.NONE:
        raise JobGraphError(
            f"register_type({of.__name__}): schema is {_shown(schema)}, which cannot be a durable form",
            hint="Name a type such as str, tuple[str, int] or a dataclass, that is not optional.",
        )
    register(of, _registered(of, to, from_, form, is_immutable=immutable))


def _shown(schema: Any) -> str:
    return schema.__name__ if isinstance(schema, type) and not typing.get_args(schema) else str(schema)


def _registered(
    of: type, to: Callable[[Any], Any], from_: Callable[[Any], Any], form: TypeInfo, *, is_immutable: bool
) -> TypeInfo:
    codec = Codec(partial(_to_form, of, to), partial(_from_form, of, from_))
    is_frozen = is_immutable or issubclass(of, enum.Enum)
    return TypeInfo(
        Kind.REGISTERED, of.__qualname__, form.arrow_type, of, frozen=is_frozen, maker=of, form=form, codec=codec
    )


def _to_form(of: type, to: Callable[[Any], Any], value: Any) -> Any:
    if not isinstance(value, of):
        raise TypeError(f"expected {of.__name__}, got {type(value).__name__}")
    try:
        return to(value)
    except Exception as error:  # whatever the user's code raises: the value has no durable form
        raise TypeError(f"to() of register_type({of.__name__}) failed: {type(error).__name__}: {error}") from error


def _from_form(of: type, from_: Callable[[Any], Any], form: Any) -> Any:
    try:
        return from_(form)
    except Exception as error:
        raise JobGraphError(
            f"from_() of register_type({of.__name__}) failed for {ascii(form)[:200]}: {type(error).__name__}: {error}",
            hint="It must accept every value that to() returns, including those in the checkpoint.",
        ) from error
