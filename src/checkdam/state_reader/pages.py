"""Pages of a snapshot's states: keys, elements of operator state, timers; all of them, or those that a filter finds.

A page that a filter makes looks at no more than `MOST_SCANNED` entries, so it may be empty before the last.
Cursors stay valid, because snapshots never change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from checkdam.errors import UsageError
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state_reader.keyed_states import KeyedState
from checkdam.state_reader.operator_states import BroadcastState, OperatorListState
from checkdam.state_reader.timer_states import TimerContent
from checkdam.types.text_filter import MOST_SCANNED, TextFilter


def page(
    content: KeyedState, cursor: str | None, limit: int, text: str | None = None
) -> tuple[list[tuple[Any, Any, int, int]], str | None, int]:
    """Return up to `limit` keys, the next cursor (None at the end), and how many keys a filter has looked at.

    Each has its value, key group and subtask. Of window state these are pairs of key and window. The cursor is a key
    group and the number of its keys already read.

    Raises:
        UsageError: the cursor is invalid.
    """
    first, behind = _position(cursor, content.max_parallelism)
    matches = _filter(content, text)
    found: list[tuple[Any, Any, int, int]] = []
    scanned = 0
    for group in content.within(KeyGroupRange(first, content.max_parallelism - 1)).groups():
        keys = content.by_holder(group)
        start = behind if group.number == first else 0
        for place, (key, value) in islice(enumerate(keys), start, None):
            if len(found) == limit or (text is not None and scanned == MOST_SCANNED):
                return found, f"{group.number}:{place}", scanned
            scanned += 1
            if matches(key):
                found.append((key, value, group.number, group.subtask))
    return found, None, scanned


def elements_page(
    content: BroadcastState | OperatorListState, cursor: str | None, limit: int, text: str | None = None
) -> tuple[list[tuple[int, Any]], str | None, int]:
    """Return up to `limit` elements with their subtasks, the next cursor, and how many elements were looked at.

    Elements of broadcast state are pairs, which a filter finds by their keys. The cursor is the number of elements
    already read.
    """
    start = _number(cursor)
    matches = _element_filter(content, text)
    found: list[tuple[int, Any]] = []
    scanned = 0
    elements: Iterable[tuple[int, Any]] = content
    if isinstance(content, BroadcastState):
        elements = ((0, pair) for pair in content)
    for subtask, element in islice(elements, start, None):
        if len(found) == limit or (text is not None and scanned == MOST_SCANNED):
            return found, str(start + scanned), scanned
        scanned += 1
        if matches(element):
            found.append((subtask, element))
    return found, None, scanned


def timers_page(
    content: TimerContent, cursor: str | None, limit: int, text: str | None = None
) -> tuple[list[tuple[Any, Any, int, str, int]], str | None, int]:
    """Return the timers of up to `limit` keys, the next cursor, and how many keys a filter has looked at.

    A timer is its key, its window or None, its time, time domain and key group. The cursor is the number of a time
    domain and a cursor of its keys.
    """
    number, _, place = (cursor or "0.").partition(".")
    domains = content.by_domain
    if not (number.isdecimal() and len(number) < 3 and int(number) < len(domains)):
        raise _no_cursor(cursor or "")
    domain, state = domains[int(number)]
    keys, following, scanned = page(state, place or None, limit, text)
    found = []
    for holder, times, group, _ in keys:
        key, window = holder if state.has_window else (holder, None)
        found += [(key, window, time, domain, group) for time in sorted(times)]
    if following is not None:
        return found, f"{number}.{following}", scanned
    return found, f"{int(number) + 1}." if int(number) + 1 < len(domains) else None, scanned


def _filter(content: KeyedState, text: str | None) -> Callable[[Any], bool]:
    if text is None:
        return lambda _: True
    matches = TextFilter(text, content.key_type)
    return (lambda holder: matches(holder[0])) if content.has_window else matches


def _element_filter(content: BroadcastState | OperatorListState, text: str | None) -> Callable[[Any], bool]:
    if text is None:
        return lambda _: True
    if not isinstance(content, BroadcastState):
        return TextFilter(text, content.element_type)
    matches = TextFilter(text, content.element_type.fields[0][1])
    return lambda pair: matches(pair[0])


def _position(cursor: str | None, max_parallelism: int) -> tuple[int, int]:
    if not cursor:
        return 0, 0
    group, _, behind = cursor.partition(":")
    if group.isdecimal() and behind.isdecimal() and len(cursor) < 40 and int(group) < max_parallelism:
        return int(group), int(behind)
    raise _no_cursor(cursor)


def _number(cursor: str | None) -> int:
    if not cursor:
        return 0
    if cursor.isdecimal() and len(cursor) < 19:
        return int(cursor)
    raise _no_cursor(cursor)


def _no_cursor(cursor: str) -> UsageError:
    return UsageError(f"{cursor[:100]!r} is not a cursor of this state", hint='Pass the "next" of the previous page.')
