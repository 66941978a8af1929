"""Calls the functions of a window that fires, whatever their form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from checkdam.graph.windowing.window_contents import (
    Aggregated,
    FieldAggregated,
    Reduced,
    WindowCalls,
    WindowContents,
)
from checkdam.graph.windowing.window_functions import (
    AllWindowFunction,
    CoGroupFunction,
    FlatJoinFunction,
    JoinFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from checkdam.runtime.slot.windows.window_contexts import WindowCallContext
from checkdam.runtime.slot.windows.window_state import combiner
from checkdam.types.record_copies import copier

Call = Callable[[Any, WindowCallContext, Sequence[Any]], Iterable[Any] | None]
"""Takes the key, the context and the elements of a window; returns its output."""


@dataclass(frozen=True)
class Emission:
    """The calls when a window fires, and when it ends."""

    call: Call
    clear: Callable[[WindowCallContext], None] | None = None


def emission(functions: WindowCalls, contents: WindowContents, *, is_evicted: bool) -> Emission:
    """Return the calls of a window operator. With an evictor, records are combined when the window fires."""
    call = _call(functions.window_function)
    if is_evicted:
        call = _combining(contents, call)
    clear = getattr(functions.window_function, "clear", None)
    does_nothing = getattr(clear, "__func__", None) in (ProcessWindowFunction.clear, ProcessAllWindowFunction.clear)
    return Emission(call, None if does_nothing else clear)


def _call(function: Any) -> Call:
    if function is None:
        return lambda key, ctx, elements: elements
    if isinstance(function, ProcessWindowFunction):
        return function.process
    if isinstance(function, ProcessAllWindowFunction):
        return lambda key, ctx, elements: function.process(ctx, elements)
    if isinstance(function, WindowFunction):
        return lambda key, ctx, elements: function.apply(key, ctx.window, elements)
    if isinstance(function, AllWindowFunction):
        return lambda key, ctx, elements: function.apply(ctx.window, elements)
    if isinstance(function, CoGroupFunction):
        return lambda key, ctx, elements: function.co_group(*_sides(elements))
    if isinstance(function, FlatJoinFunction):
        return lambda key, ctx, elements: _flat_joined(function.join, *_sides(elements))
    if isinstance(function, JoinFunction):
        return lambda key, ctx, elements: _joined(function.join, *_sides(elements))
    return lambda key, ctx, elements: _joined(function, *_sides(elements))


def _combining(contents: WindowContents, call: Call) -> Call:
    """Return a call that gets the combined record, or the result of an aggregate, instead of all records."""
    if isinstance(contents, Reduced | FieldAggregated):
        combine, copied = combiner(contents), copier(contents.record)

        def combined(key: Any, ctx: WindowCallContext, elements: Sequence[Any]) -> Iterable[Any] | None:
            if not elements:
                return None
            first = elements[0] if copied is None else copied.copy(elements[0])  # the window keeps the record itself
            return call(key, ctx, [reduce(combine, elements[1:], first)])

        return combined
    if isinstance(contents, Aggregated):
        function = contents.function

        def aggregated(key: Any, ctx: WindowCallContext, elements: Sequence[Any]) -> Iterable[Any] | None:
            accumulator = function.create_accumulator()
            for element in elements:
                accumulator = function.add(element, accumulator)
            return call(key, ctx, [function.get_result(accumulator)])

        return aggregated
    return call


def _sides(elements: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    first = [one for side, one, _ in elements if side == 0]
    return first, [other for side, _, other in elements if side == 1]


def _joined(join: Callable[[Any, Any], Any], first: list[Any], second: list[Any]) -> Iterator[Any]:
    return (join(one, other) for one in first for other in second)


def _flat_joined(
    join: Callable[[Any, Any], Iterable[Any] | None], first: list[Any], second: list[Any]
) -> Iterator[Any]:
    for one in first:
        for other in second:
            yield from join(one, other) or ()
