"""When Python looks for reference cycles in a slot.

Nearly all objects of a slot are state: they live long and are in no cycle, but each search visits the new ones among
them. A search is therefore rare while objects are made, and follows the memory that they take.
"""

from __future__ import annotations

import gc
from typing import Final

_NEW_OBJECTS: Final = 2_000_000  # without a search; a large epoch of windows makes and frees as many
_GROWTH: Final = 1.5
_LEAST_GROWTH: Final = 64 << 20  # bytes


def search_rarely() -> None:
    """Let Python search for cycles after millions of new objects, not after hundreds."""
    gc.set_threshold(_NEW_OBJECTS, 20, 20)


class CycleCollector:
    """Searches for cycles when the process has grown by half since the last search.

    Functions that make cycles of few but large objects would otherwise take much memory before Python searches.
    """

    def __init__(self) -> None:
        self._limit: float | None = None

    def epoch_ended(self, resident: int) -> None:
        """Compare the memory of the process, in bytes, with what it was."""
        if self._limit is None:
            self._limit = max(resident * _GROWTH, resident + _LEAST_GROWTH)
        elif resident > self._limit:
            gc.collect()
            self._limit = None  # the next epoch sets it, by what is left
