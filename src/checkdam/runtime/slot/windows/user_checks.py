"""Checks what assigners and evictors of users return, so that an error names the method that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from checkdam.graph.windowing.assigners import MergingWindowAssigner, WindowAssigner, WindowAssignerContext
from checkdam.graph.windowing.evictors import Evictor, EvictorContext, TimestampedValue
from checkdam.runtime.slot.windows.merging_windows import MergeWindows
from checkdam.state.handle_checks import Fit
from checkdam.types.type_info import TypeInfo

Assign = Callable[[Any, int, WindowAssignerContext], Collection[Any]]

Evict = Callable[[list[TimestampedValue[Any]], Any, EvictorContext], list[TimestampedValue[Any]]]


def checked_assign(assigner: WindowAssigner[Any, Any], window: TypeInfo) -> Assign:
    """Return `assign_windows` of an assigner; of a user's, with a check that it returns windows of its type."""
    if _is_built_in(assigner, WindowAssigner):
        return assigner.assign_windows
    name = f"assign_windows() of {type(assigner).__name__}"
    check = _check_of(name, assigner, window)

    def assign(value: Any, timestamp: int, ctx: WindowAssignerContext) -> list[Any]:
        windows = _listed(assigner.assign_windows(value, timestamp, ctx), f"{name} must return a list of windows")
        for each in windows:
            check(each)
        return windows

    return assign


def checked_merge(assigner: MergingWindowAssigner[Any, Any], window: TypeInfo) -> MergeWindows:
    """Return `merge_windows` of an assigner; of a user's, with a check that it returns windows with their parts."""
    if _is_built_in(assigner, WindowAssigner):
        return assigner.merge_windows
    name = f"merge_windows() of {type(assigner).__name__}"
    expected = f"{name} must return pairs of a merged window and the list of those that it replaces"
    check = _check_of(name, assigner, window)

    def merge(windows: Collection[Any]) -> Iterator[tuple[Any, list[Any]]]:
        for each in _listed(assigner.merge_windows(windows), expected):
            if not isinstance(each, tuple) or len(each) != 2:
                raise TypeError(f"{expected}, and returned {each!r} among them")
            merged, parts = each
            check(merged)
            yield merged, _listed(parts, expected)

    return merge


def checked_evictor(evictor: Evictor[Any, Any]) -> tuple[Evict, Evict]:
    """Return `evict_before` and `evict_after`; of a user's evictor, with a check that they return records."""
    if _is_built_in(evictor, Evictor):
        return evictor.evict_before, evictor.evict_after
    return _checked_evict(evictor, "evict_before"), _checked_evict(evictor, "evict_after")


def _checked_evict(evictor: Evictor[Any, Any], method: str) -> Evict:
    call: Evict = getattr(evictor, method)
    expected = f"{method}() of {type(evictor).__name__} must return the list of those of its elements that stay"

    def evict(elements: list[TimestampedValue[Any]], window: Any, ctx: EvictorContext) -> list[TimestampedValue[Any]]:
        left = _listed(call(elements, window, ctx), expected)
        for each in left:
            if not isinstance(each, TimestampedValue):
                raise TypeError(f"{expected}, each with value and timestamp, and returned {each!r} among them")
        return left

    return evict


def _is_built_in(part: object, base: type) -> bool:
    return type(part).__module__ == base.__module__


def _check_of(name: str, assigner: WindowAssigner[Any, Any], window: TypeInfo) -> Callable[[Any], None]:
    """Return a function that refuses what is not a window of the assigner's class."""
    hint = f"The class is the window_type of {type(assigner).__name__}."
    kind = assigner.window_type
    fit = Fit(window, f"a window that {name} returns", hint=hint)

    def check(each: Any) -> None:
        if not isinstance(each, kind):
            raise TypeError(f"{name} returned {each!r}, which is not a {kind.__name__}. {hint}")
        fit.check(each)

    return check


def _listed(some: Any, expected: str) -> list[Any]:
    """Return what a function of the user returned as a list. A window is a tuple, but not a list of windows."""
    if not isinstance(some, Iterable) or isinstance(some, str) or hasattr(some, "max_timestamp"):
        raise TypeError(f"{expected}, and returned {some!r}")
    return list(some)
