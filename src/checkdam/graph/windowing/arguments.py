"""Checks of the numbers and durations that describe windows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from checkdam.clock import milliseconds_in
from checkdam.errors import JobGraphError


def checked_duration(what: str, given: Any, *, at_least: int = 1) -> int:
    """Return a duration in milliseconds.

    Raises:
        JobGraphError: it is not a timedelta, or too short.
    """
    if not isinstance(given, timedelta):
        raise JobGraphError(f"{what} must be a timedelta, not {given!r}", hint="Write timedelta(seconds=10).")
    milliseconds = milliseconds_in(given)
    if milliseconds < at_least:
        least = "one millisecond" if at_least else "zero"
        raise JobGraphError(f"{what} must be at least {least}, not {given}")
    return milliseconds


def checked_count(what: str, given: Any) -> int:
    """Return a number of records.

    Raises:
        JobGraphError: it is not a whole number, or less than 1.
    """
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise JobGraphError(f"{what} must be a whole number of at least 1, not {given!r}")
    return given
