"""Counts what a state holds, a little at the end of each epoch: RocksDB itself only estimates it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from checkdam.backends.rocksdb.database import ColumnFamily
from checkdam.backends.state_file import split_array
from checkdam.state.state_count import StateCount

SMALL: Final = 1024
"""A state of up to so many entries, as RocksDB estimates them, is counted whole when it has changed."""
LARGEST: Final = 2_000_000
"""A larger state stays an estimate: its tables would have to be kept for minutes as they were when the count began."""
_CHUNK = 256
_BEFORE_KEY = 3  # the key group, and the first byte of a msgpack tuple
_MOST_CREDIT = 0.02  # seconds
_SECONDS_PER_ENTRY = 5e-6  # at most, for a small state: the rest went to other processes
_LOAN = 0.005  # what a small state, and a new one, may take before it has passed


class EntryCounter:
    """Counts the keys and entries of one state again and again, in a share of the time that passes.

    RocksDB's estimate counts an entry once for each version that is not merged yet, so it goes up and down by any
    factor. A count takes one to two microseconds an entry. It is exact as of its begin, whatever is written meanwhile.
    """

    def __init__(
        self, column: ColumnFamily, *, has_compound_keys: bool, monotonic: Callable[[], float] = time.perf_counter
    ) -> None:
        self.last: StateCount | None = None  # the latest complete count
        self._column = column
        self._has_compound_keys = has_compound_keys
        self._monotonic = monotonic
        self._looked_at = monotonic()
        self._credit = _LOAN  # seconds that may be spent; less than 0 after a count of a small state
        self._scan: Iterator[bytes] | None = None
        self._is_changed = True  # since the count began that is complete or in progress
        self._entries = self._keys = 0
        self._prefix = b""

    @property
    def is_exact(self) -> bool:
        """Whether nothing has changed since the latest count."""
        return self.last is not None and self._scan is None and not self._is_changed

    def changed(self) -> None:
        """Note that the state was written to."""
        self._is_changed = True

    def advance(self, share: float) -> None:
        """Go on counting for this share of the time since the last call; count a small state whole."""
        now = self._monotonic()
        self._credit = min(self._credit + (now - self._looked_at) * share, _MOST_CREDIT)
        self._looked_at = now
        if self.is_exact:
            return
        estimate = self._column.estimated_entries
        is_small = estimate <= SMALL
        if self._credit <= (-_LOAN if is_small else 0.0):
            return
        if self._scan is None:
            if estimate > LARGEST:
                self.last = None
                return
            self._begin()
        counted = 0
        while self._scan is not None:
            counted += self._count_some(self._scan)
            is_allowed = is_small and counted < 4 * SMALL
            if not is_allowed and self._monotonic() - now >= self._credit:
                break
        self._looked_at = self._monotonic()
        spent = self._looked_at - now
        self._credit -= min(spent, counted * _SECONDS_PER_ENTRY) if is_small else spent

    def close(self) -> None:
        """Release the database, which stays open as long as a count is in progress."""
        self._scan = None

    def _begin(self) -> None:
        self._scan = self._column.keys()
        self._is_changed = False
        self._entries = self._keys = 0
        self._prefix = b""

    def _count_some(self, scan: Iterator[bytes]) -> int:
        chunk = list(islice(scan, _CHUNK))
        self._entries += len(chunk)
        if self._has_compound_keys:
            self._count_keys(chunk)
        if len(chunk) < _CHUNK:
            self._scan = None
            self.last = StateCount(self._entries, self._keys if self._has_compound_keys else self._entries)
        return len(chunk)

    def _count_keys(self, stored: list[bytes]) -> None:
        """Count the keys of these entries; all entries of a key are adjacent."""
        prefix = self._prefix
        for each in stored:
            if not prefix or not each.startswith(prefix):
                prefix = each[: _BEFORE_KEY + len(split_array(each[2:])[0])]
                self._keys += 1
        self._prefix = prefix
