"""Checks and resolves the arguments of calls on streams: types, keys, functions and uids."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from checkdam.errors import JobGraphError
from checkdam.graph.functions import accumulator_hint, callable_of, is_coroutine_function, output_hint
from checkdam.graph.operators import KeySelector
from checkdam.ids import OperatorUid
from checkdam.types.projection import looked_up_type, projection_of
from checkdam.types.type_info import Kind, TypeInfo, fields_of, result_type, type_info

_NO_COLUMNS = frozenset({Kind.OPAQUE, Kind.PICKLE, Kind.ENUM, Kind.REGISTERED, Kind.AVRO})
"""Kinds whose columns hold an internal form of the values."""


def declared(hint: Any, inferred: TypeInfo | None) -> TypeInfo:
    """Return the declared type, else the inferred one, else the type of pickled values."""
    if hint is not None:
        return type_info(hint)
    return inferred if inferred is not None else type_info(Any)


def produced_type(function: Any, methods: Iterable[str], of: TypeInfo) -> TypeInfo | None:
    """Return the type that several methods of a function yield, by their annotations or its class; None if unknown."""
    found = {result_type(getattr(function, method), of=of, many=True) for method in methods} - {None}
    return found.pop() if len(found) == 1 else _named(output_hint(function))


def yielded_type(function: Any, call: Any, of: TypeInfo) -> TypeInfo | None:
    """Return the type of the records that `call` of a function yields for one record; None if unknown."""
    return result_type(call, of=of, many=True) or _named(output_hint(function))


def returned_type(function: Any, call: Any, of: TypeInfo) -> TypeInfo | None:
    """Return the type of a function's result: from the fields it picks, the annotation of `call`, or its class."""
    projection = projection_of(function, of)
    if projection is not None:
        return projection.result_type(of)
    found = looked_up_type(function, of) or result_type(call, of=of, many=False)
    return found or _named(output_hint(function))


def batch_output_type(function: Any, output_type: Any) -> TypeInfo:
    """Return the output type of a KeyedBatchFunction, which must be one that columns can have."""
    of = declared(output_type, _named(output_hint(function)))
    refused = next((each for each in fields_of(of) if each.kind in _NO_COLUMNS), None)
    if refused is not None:
        given = "is not known" if refused is of and refused.is_opaque else f"has no columns for {refused.name}"
        raise JobGraphError(
            f"the output type of {type(function).__name__} {given}",
            hint="Write process_batch(…, output_type=tuple[str, int]), with plain types that Arrow has.",
        )
    return of


def accumulator_of(function: Any, of: TypeInfo) -> TypeInfo | None:
    """Return the accumulator type of an AggregateFunction over records of type `of`."""
    found = result_type(function.create_accumulator, of=of, many=False)
    return found or _named(accumulator_hint(function))


def _named(hint: Any) -> TypeInfo | None:
    return None if hint is None else type_info(hint)


def key_selector(key: Any, key_type: Any, of: TypeInfo) -> KeySelector:
    """Return the selector of the key in records of type `of`: a function of the record, or a column's name or index."""
    if isinstance(key, str | int) and not isinstance(key, bool):
        index = of.field_index(key)
        if index is None:
            raise JobGraphError(
                f"key_by({key!r}): records of type {of.name} have no such column",
                hint=f"The columns are {', '.join(c.name for c in of.columns)}.",
            )
        return KeySelector(of.field_type(index), None, (index,))
    projection = projection_of(key, of)
    columns = projection.key_columns() if projection is not None else None
    inferred = returned_type(key, key, of)
    chosen = declared(key_type, inferred)
    if chosen.is_opaque:
        raise JobGraphError(
            "the type of the key is not known",
            hint="Write key_by(…, key_type=str), or annotate the function's result.",
        )
    if not chosen.is_immutable:
        raise JobGraphError(
            f"keys of type {chosen.name} are mutable",
            hint="Use plain values or tuples of them as keys, such as key_type=tuple[str, int]; for a class whose "
            "objects never change, write register_type(…, immutable=True).",
        )
    if chosen != inferred:
        columns = None  # the column's type differs from the declared key type
    is_tuple = projection is not None and projection.is_tuple
    return KeySelector(chosen, key, columns, is_tuple)


def check_kind(call: str, function: Any, wanted: type, defines: str, other: str = "") -> None:
    """Raise unless the function is of the class that the call takes; `defines` is what a subclass must have."""
    if isinstance(function, wanted):
        for name, method in inspect.getmembers(wanted, inspect.isfunction):
            if not name.startswith("_"):
                check_parameters(f"{type(function).__name__}.{name}", getattr(function, name), method)
        return
    given = f"the class {function.__name__} itself" if isinstance(function, type) else type(function).__name__
    remedy = f"Subclass {wanted.__name__} and define {defines}."
    if isinstance(function, type) and issubclass(function, wanted):
        remedy = f"Create an object: {function.__name__}()."
    article = "an" if wanted.__name__[0] in "AEIOU" else "a"
    raise JobGraphError(f"{call} takes {article} {wanted.__name__}, not {given}", hint=f"{remedy} {other}".strip())


def check_durable(what: str, of: TypeInfo) -> None:
    if not of.is_durable:
        raise JobGraphError(
            f"{what} keeps records as state, but their type {of.name} has no durable form",
            hint="Give the operator before it an output_type such as tuple[str, int].",
        )


def plain_callable(method: Callable[..., Any], function: Any) -> Callable[..., Any]:
    """Return the callable of a user function given in any form; `method` is the one that a function object defines."""
    try:
        call = callable_of(function)
    except TypeError as error:
        raise JobGraphError(
            f"{method.__name__}: {error}", hint="Pass a function, a lambda or a function object."
        ) from None
    if is_coroutine_function(call):
        name = getattr(call, "__qualname__", repr(call))
        raise JobGraphError(
            f"{method.__name__}() calls a plain function, and {name} is a coroutine function",
            hint="Use map_async(function).",
        )
    check_parameters(f"the function of {method.__name__}()", call, method)
    return call


def check_parameters(title: str, given: Callable[..., Any], method: Callable[..., Any]) -> None:
    """Raise unless the user's callable accepts the arguments of the method of ours that it stands for."""
    expected = [*inspect.signature(method).parameters][1:]  # without self
    try:
        signature = inspect.signature(given, follow_wrapped=False)
    except ValueError:
        return  # a builtin that does not tell
    try:
        signature.bind(*expected)
    except TypeError:
        collects = any(name in ("out", "collector") for name in signature.parameters)
        raise JobGraphError(
            f"{title} takes ({', '.join(signature.parameters)}) and is called with ({', '.join(expected)})",
            hint="There is no collector: yield each output record." if collects else "Change its parameters.",
        ) from None


def checked_uid(uid: str) -> OperatorUid:
    if not isinstance(uid, str) or not uid:
        raise JobGraphError(f"a uid must be a non-empty string, not {uid!r}")
    return OperatorUid(uid)


def checked_number(setting: str, number: int) -> int:
    """Return the value if it is a whole number; its bounds are checked later, with the whole job."""
    if not isinstance(number, int) or isinstance(number, bool):
        raise JobGraphError(f"{setting}() takes a whole number, not {number!r}", hint=f"Write {setting}(4).")
    return number
