"""Checks the arguments of `map_async`, and finds the type of its records."""

from __future__ import annotations

import inspect
from datetime import timedelta
from typing import Any, get_args

from checkdam.api.declarations import check_parameters, declared
from checkdam.errors import JobGraphError
from checkdam.graph.async_calls import AsyncRetry, is_whole
from checkdam.graph.functions import AsyncFunction, callable_of, is_coroutine_function, output_hint
from checkdam.graph.operators import AsyncMapKind
from checkdam.types.type_info import TypeInfo, result_type


def check_async(kind: AsyncMapKind) -> None:
    """Raise unless all arguments of `map_async` are possible."""
    _check_function(kind.function)
    _check_number("capacity", kind.capacity)
    if not isinstance(kind.is_ordered, bool):
        raise JobGraphError(f"map_async: ordered must be True or False, not {kind.is_ordered!r}")
    _check_duration("timeout", kind.timeout)
    _check_duration("max_delay", kind.max_delay)
    if kind.retry is not None and not isinstance(kind.retry, AsyncRetry):
        raise JobGraphError(
            f"map_async: retry must be an AsyncRetry, not {kind.retry!r}", hint="Write retry=AsyncRetry(attempts=3)."
        )
    _check_on_timeout(kind)
    if kind.batch_size is not None:
        _check_number("batch_size", kind.batch_size)
    elif kind.max_delay is not None:
        raise JobGraphError(
            "map_async: max_delay is how long a batch waits until it is full, and there is no batch_size",
            hint="Write batch_size=32 as well; the function then takes and returns lists.",
        )


def async_output_type(kind: AsyncMapKind, output_type: Any, of: TypeInfo) -> TypeInfo:
    """Return the type of the records that the function returns: with batches, of the elements of its list."""
    is_batched = kind.batch_size is not None
    inferred = None if output_type is not None else result_type(callable_of(kind.function), of=of, many=is_batched)
    if output_type is None and inferred is None:
        hint = output_hint(kind.function)
        output_type = next(iter(get_args(hint)), None) if is_batched else hint
    return declared(output_type, inferred)


def _check_function(function: Any) -> None:
    if isinstance(function, type):
        remedy = f"Make one: {function.__name__}()." if issubclass(function, AsyncFunction) else _REMEDY
        raise JobGraphError(f"map_async takes an instance, not the class {function.__name__} itself", hint=remedy)
    call = function.async_invoke if isinstance(function, AsyncFunction) else function
    if is_coroutine_function(call):
        check_parameters("the function of map_async()", call, AsyncFunction.async_invoke)
        return
    name = getattr(call, "__qualname__", None) or repr(call)
    if not callable(call):
        raise JobGraphError(f"map_async takes a coroutine function or an AsyncFunction, not {call!r}", hint=_REMEDY)
    if inspect.isasyncgenfunction(call):
        raise JobGraphError(f"map_async: {name} yields, and must return one record", hint="Return the record.")
    raise JobGraphError(
        f"map_async takes a coroutine function, and {name} is not one",
        hint=f"{_REMEDY} For a plain function use map().",
    )


_REMEDY = "Write async def f(value): …, or subclass AsyncFunction and define async def async_invoke(self, value)."


def _check_on_timeout(kind: AsyncMapKind) -> None:
    if kind.on_timeout is None:
        return
    if not callable(kind.on_timeout) or is_coroutine_function(kind.on_timeout):
        raise JobGraphError(
            f"map_async: on_timeout must be a plain function of the record, not {kind.on_timeout!r}",
            hint="Write on_timeout=lambda value: …; what it returns is emitted for the record.",
        )
    if kind.timeout is None:
        raise JobGraphError(
            "map_async: on_timeout without a timeout is never called", hint="Write timeout=timedelta(seconds=10)."
        )


def _check_number(name: str, number: Any) -> None:
    if not is_whole(number) or number < 1:
        raise JobGraphError(f"map_async: {name} must be a whole number from 1, not {number!r}")


def _check_duration(name: str, duration: Any) -> None:
    if duration is not None and (not isinstance(duration, timedelta) or duration <= timedelta(0)):
        raise JobGraphError(
            f"map_async: {name} must be a timedelta of more than zero, not {duration!r}",
            hint=f"Write {name}=timedelta(seconds=10).",
        )
