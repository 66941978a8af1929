"""Aggregates sessions in event time epoch by epoch, with the same results as record by record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial, reduce
from itertools import chain
from operator import attrgetter
from typing import Any, cast

import numpy as np

from checkdam.backends.contract import KeyedStateStore, ValueTable
from checkdam.backends.keyed_state import OperatorKeyedState
from checkdam.graph.operators import Operator
from checkdam.graph.watermarks import MAX_WATERMARK
from checkdam.graph.windowing.assigners import EventTimeSessionWindows
from checkdam.graph.windowing.windows import TimeWindow
from checkdam.runtime.failures import user_error
from checkdam.runtime.slot.context import OperatorTime
from checkdam.runtime.slot.side_outputs import SideOutputs
from checkdam.runtime.slot.windows.epoch_aggregation import EpochAggregation
from checkdam.types.batch import Batch

_window = partial(tuple.__new__, TimeWindow)  # of start and end; a fraction of the cost of TimeWindow(start, end)

Pairs = list[tuple[TimeWindow, TimeWindow]]
"""The sessions of a key, each with the window under which its contents are kept."""


class _Session:
    """A session of one key while records are added to it."""

    __slots__ = ("end", "has_records", "home", "kept", "start", "stored")

    def __init__(self, start: int, end: int, kept: Any, home: TimeWindow, stored: TimeWindow | None) -> None:
        self.start = start
        self.end = end
        self.kept = kept  # what its records were combined to
        self.home = home  # the window under which the state keeps that
        self.stored = stored  # the session as it is in the state; None if it is new
        self.has_records = stored is None  # whether it got records in this epoch


class SessionAggregation(EpochAggregation):
    """Sessions whose records are combined in memory until the end of the epoch.

    Records are added in the order of their arrival, and sessions that grow together are merged as `WindowProcess`
    merges them, so results are the same for every function.
    """

    def __init__(
        self,
        operator: Operator,
        store: KeyedStateStore,
        time: OperatorTime,
        states: OperatorKeyedState,
        *,
        outputs: SideOutputs,
        is_stamped: bool,
    ) -> None:
        super().__init__(operator, store, time, states, outputs=outputs, is_stamped=is_stamped)
        assigner = self._kind.assigner
        assert isinstance(assigner, EventTimeSessionWindows)
        self._assigner = assigner
        self._sessions_of = cast(ValueTable, self._merging)
        self._held: dict[Any, list[_Session]] = {}  # by key: all its sessions, for keys with records in this epoch
        self._gone: list[tuple[Any, _Session]] = []  # key and session that became part of another one

    # ---- records

    def _bounds(self, batch: Batch, stamps: Any) -> Any:
        """Return the end of the window of each record."""
        if self._assigner.fixed_gap is not None:
            return stamps + self._assigner.fixed_gap
        ends, value, window_of = [], None, self._assigner.window_of
        try:
            for value, stamp in zip(batch.rows, stamps.tolist(), strict=True):
                ends.append(window_of(value, stamp).end)
        except Exception as cause:
            raise user_error(self._operator, value, cause) from cause
        return np.asarray(ends, dtype=np.int64)

    def _are_on_time(self, bounds: Any) -> Any:
        return bounds - 1 > self._time.current_watermark

    def _gather(self, keys: list[Any], rows: list[Any], stamps: Any, bounds: Any) -> None:
        self._load(keys)
        held, combine = self._held, self._combine
        value = None
        try:
            for key, value, start, end in zip(keys, rows, stamps.tolist(), bounds.tolist(), strict=True):
                found = None
                sessions = held[key]
                for session in sessions:
                    if start <= session.end and end >= session.start:
                        if found is not None:
                            found = self._merged(key, start, end)
                            break
                        found = session
                if found is None:
                    home = _window((start, end))
                    sessions.append(_Session(start, end, combine(None, value), home, None))
                    continue
                if start < found.start:
                    found.start = start
                if end > found.end:
                    found.end = end
                found.kept = combine(found.kept, value)
                found.has_records = True
        except Exception as cause:
            raise user_error(self._operator, value, cause) from cause

    def _load(self, keys: list[Any]) -> None:
        """Load the sessions of keys that occur for the first time in this epoch."""
        held = self._held
        unknown = [key for key in dict.fromkeys(keys) if key not in held]
        pairs_of: list[Pairs | None] = self._sessions_of.get_all(unknown)
        homes = [(key, home) for key, pairs in zip(unknown, pairs_of, strict=True) for _, home in pairs or ()]
        contents = iter(self._table.get_all(homes) if homes else ())
        for key, pairs in zip(unknown, pairs_of, strict=True):
            held[key] = [_Session(*window, next(contents), home, window) for window, home in pairs or ()]

    def _merged(self, key: Any, start: int, end: int) -> _Session:
        """Replace all sessions of a key that a window touches by one."""
        sessions = self._held[key]
        touched = [session for session in sessions if start <= session.end and end >= session.start]
        touched.sort(key=attrgetter("start"))
        first, *others = touched
        kept = [session.kept for session in touched if session.kept is not None]  # a former trigger may have purged it
        first.kept = reduce(self._merge_two, kept) if kept else None
        first.end = max(session.end for session in touched)
        for session in others:
            sessions.remove(session)
            self._gone.append((key, session))
        return first

    def _apply(self) -> None:
        held, self._held = self._held, {}
        gone, self._gone = self._gone, []
        changed: dict[Any, Pairs] = {}
        kept_under: dict[tuple[Any, TimeWindow], Any] = {}
        over = [(key, session.stored) for key, session in gone if session.stored is not None]
        due: list[tuple[Any, TimeWindow]] = []  # key and session, whose timers may be missing
        may_be_restored = self._restored_until is not None
        for key, sessions in held.items():
            pairs: Pairs = []
            for session in sessions:
                window = self._bounds_of(session)
                pairs.append((window, session.home))
                if not session.has_records:
                    continue
                holder = home = key, session.home
                if window is not session.home:
                    holder = key, window
                kept_under[home] = session.kept
                if window is not session.stored:
                    due.append(holder)
                    if session.stored is not None:
                        over.append((key, session.stored))
                elif may_be_restored and self._may_be_restored(window):
                    due.append(holder)
            changed[key] = pairs
        self._check(list(kept_under.values()), self._with_records(held))
        self._table.remove_all(self._filled((key, each.home) for key, each in gone if each.stored is not None))
        self._table.put_all(kept_under)
        self._sessions_of.put_all(changed)
        self._timers.event.delete_each(self._timers_of(over))
        self._timers.event.register_each(self._timers_of(due))

    @staticmethod
    def _bounds_of(session: _Session) -> TimeWindow:
        """Return the window of a session: the same object as in the state, or as its first one, if it has not grown."""
        start, end = session.start, session.end
        for known in (session.stored, session.home):
            if known is not None and known[0] == start and known[1] == end:
                return known
        return _window((start, end))

    def _with_records(self, held: dict[Any, list[_Session]]) -> Iterator[tuple[Any, TimeWindow]]:
        """Yield key and window of each session that got records."""
        for key, sessions in held.items():
            yield from ((key, self._bounds_of(each)) for each in sessions if each.has_records)

    def _timers_of(self, holders: list[tuple[Any, TimeWindow]]) -> Iterable[tuple[int, Any]]:
        """Return the timers of windows: the one that fires each, and the one that clears it."""
        ends = [(holder[1][1] - 1, holder) for holder in holders]
        return chain(ends, self._timers_of_ends(holders)) if self._lateness else ends

    def _timers_of_ends(self, holders: list[tuple[Any, TimeWindow]]) -> Iterator[tuple[int, Any]]:
        """Yield the timers that clear windows."""
        for holder in holders:
            end = self._end_of(holder[1])
            if end != MAX_WATERMARK:
                yield end, holder

    def _filled(self, holders: Iterable[tuple[Any, TimeWindow]]) -> list[tuple[Any, TimeWindow]]:
        """Return those that have contents."""
        asked = list(holders)
        return [each for each, kept in zip(asked, self._table.get_all(asked), strict=True) if kept is not None]

    # ---- sessions that end

    def _end_due(self, watermark: int) -> None:
        while due := self._timers.event.take_due(watermark):
            self._end_sessions([(time, holder) for time, holders in due for holder in holders])

    def _end_sessions(self, due: list[tuple[int, tuple[Any, TimeWindow]]]) -> None:
        """Fire the sessions whose last timestamp is the time of their timer, and clear those whose end it is."""
        keys = list(dict.fromkeys(holder[0] for _, holder in due))
        left: dict[Any, Pairs] = dict(zip(keys, self._sessions_of.get_all(keys), strict=True))
        found: list[tuple[tuple[Any, TimeWindow], bool, bool]] = []  # key and session, whether it fires, and ends
        homes: list[tuple[Any, TimeWindow]] = []
        ended: dict[Any, None] = {}
        lateness, again = self._lateness, []
        for time, holder in due:
            key, window = holder
            pair = next((each for each in left[key] or () if each[0] == window), None)
            if pair is None:
                continue  # the timer of a session that has grown or ended under another trigger or lateness
            last = window[1] - 1
            ends = time == min(last + lateness, MAX_WATERMARK) if lateness else time == last
            found.append((holder, time == last, ends))
            homes.append((key, pair[1]))
            if ends:
                left[key] = [each for each in left[key] if each is not pair]
                ended[key] = None
            elif time == last and self._may_be_restored(window):
                again.append(holder)  # the lateness may be a new one
        contents = self._table.get_all(homes)
        with self._errors_named():
            self._fire_and_clear(found, contents)
        self._timers.event.register_each(self._timers_of_ends(again))
        self._table.remove_all(
            home for home, (_, _, ends), kept in zip(homes, found, contents, strict=True) if ends and kept is not None
        )
        self._sessions_of.put_all({key: left[key] for key in ended if left[key]})
        self._sessions_of.remove_all([key for key in ended if not left[key]])

    def _fire_and_clear(self, found: list[tuple[tuple[Any, TimeWindow], bool, bool]], contents: list[Any]) -> None:
        emit, clear, store, ctx = self._emitter(), self._emission.clear, self._store, self._window_ctx
        time = self._time
        for (holder, fires, ends), kept in zip(found, contents, strict=True):
            time.timestamp = holder[1][1] - 1
            if fires:
                emit(holder, kept)
            if ends and clear is not None:
                store.current_key, store.current_namespace = _, ctx.window = holder
                clear(ctx)
