"""Formats figures for people."""

from __future__ import annotations

from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal

_SECONDS_PER_MINUTE = 60
_SECONDS_PER_HOUR = 3600
_HOURS_PER_DAY = 24
_ONE_DECIMAL = Decimal("0.1")


def size(count: int) -> str:
    """Format bytes in decimal units with one decimal, as the web page does: 812 B, 1.3 MB."""
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in ("kB", "MB", "GB", "TB", "PB", "EB"):
        value /= 1000
        if value < 999.95 or unit == "EB":
            break
    return f"{Decimal(value).quantize(_ONE_DECIMAL, ROUND_HALF_UP)} {unit}"  # rounds as the page does


def instant(at: datetime) -> str:
    """Format a time in the zone of this machine, with its offset: 2026-11-18 15:30:23 +01:00.

    Log lines and `--json` keep UTC.
    """
    return " ".join(_local(at, "seconds"))


def period(start: datetime, end: datetime) -> str:
    """Format two times as `instant` does, with milliseconds if they have any, and the offset once if it is the same."""
    timespec = "milliseconds" if start.microsecond or end.microsecond else "seconds"
    (first, offset), (last, later_offset) = _local(start, timespec), _local(end, timespec)
    return f"{first} – {last} {offset}" if offset == later_offset else f"{first} {offset} – {last} {later_offset}"


def _local(at: datetime, timespec: str) -> tuple[str, str]:
    """Return day and time in the zone of this machine, and the offset of the zone from UTC."""
    local = at.astimezone()
    shown = local.isoformat(sep=" ", timespec=timespec)
    bare = local.replace(tzinfo=None).isoformat(sep=" ", timespec=timespec)
    return bare, shown.removeprefix(bare)


def duration(seconds: float) -> str:
    """Format with one unit below a minute, two above: 85 ms, 2.4 s, 3 min 5 s, 2 h 10 min, 321 d 20 h."""
    if seconds < 0.9995:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _SECONDS_PER_MINUTE:
        return f"{whole} s"
    if whole < _SECONDS_PER_HOUR:
        return f"{whole // _SECONDS_PER_MINUTE} min {whole % _SECONDS_PER_MINUTE} s"
    hours = whole // _SECONDS_PER_HOUR
    if hours < _HOURS_PER_DAY:
        return f"{hours} h {whole % _SECONDS_PER_HOUR // _SECONDS_PER_MINUTE} min"
    return f"{hours // _HOURS_PER_DAY} d {hours % _HOURS_PER_DAY} h"


def number(count: float) -> str:
    return f"{count:,.0f}"


def counted(count: int, noun: str) -> str:
    """Format a count with its noun: 1 slot, 2 slots."""
    return f"{number(count)} {noun}" if count == 1 else f"{number(count)} {noun}s"
