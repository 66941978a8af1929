"""Windows of one key that merge: which exist, and under which window the contents of each are kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

Merge = Callable[[Any, list[Any], Any, list[Any]], None]
"""Called with the new window, the windows it replaces, the window its contents are kept under, and the windows whose
contents must be moved there."""

MergeWindows = Callable[[Collection[Any]], Iterable[tuple[Any, Collection[Any]]]]
"""`merge_windows` of an assigner."""


class MergingWindows:
    """The windows of the current key.

    The contents of a merged window stay under one of the windows it consists of, so that growing copies nothing.
    """

    __slots__ = ("_kept_under", "_merge_windows", "has_changed")

    def __init__(self, merge_windows: MergeWindows, pairs: Iterable[tuple[Any, Any]]) -> None:
        self._merge_windows = merge_windows
        self._kept_under: dict[Any, Any] = dict(pairs)
        self.has_changed = False

    def add(self, new: Any, on_merge: Merge) -> Any:
        """Add the window of a record, and return the window that it has become part of."""
        kept_under = self._kept_under
        if new in kept_under:
            return new
        self.has_changed = True
        if not kept_under:
            kept_under[new] = new
            return new
        result = new
        for merged, parts in self._merge_windows([*kept_under, new]):
            if new in parts:
                result = merged
            old = [window for window in dict.fromkeys(parts) if window in kept_under]
            if not old:
                continue
            homes = [kept_under.pop(window) for window in old]
            kept_under[merged] = homes[0]
            if old != [merged]:
                on_merge(merged, old, homes[0], homes[1:])
        kept_under.setdefault(result, result)
        return result

    def kept_under(self, window: Any) -> Any:
        """Return the window under which the contents of a window are kept; None if there is no such window."""
        return self._kept_under.get(window)

    def remove(self, window: Any) -> None:
        del self._kept_under[window]
        self.has_changed = True

    @property
    def pairs(self) -> list[tuple[Any, Any]]:
        """Each window with the one its contents are kept under."""
        return list(self._kept_under.items())
