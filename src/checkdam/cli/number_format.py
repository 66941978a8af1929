"""Formats figures for people."""

from __future__ import annotations

_SECONDS_PER_MINUTE = 60
_SECONDS_PER_HOUR = 3600


def size(count: int) -> str:
    """Format bytes with three significant digits: 812 B, 1.25 MB."""
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 999.5 or unit == "TB":
            break
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{decimals}f} {unit}"


def duration(seconds: float) -> str:
    """Format with one unit below a minute, two above: 85 ms, 2.4 s, 3 min 5 s, 2 h 10 min."""
    if seconds < 0.9995:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _SECONDS_PER_MINUTE:
        return f"{whole} s"
    if whole < _SECONDS_PER_HOUR:
        return f"{whole // _SECONDS_PER_MINUTE} min {whole % _SECONDS_PER_MINUTE} s"
    return f"{whole // _SECONDS_PER_HOUR} h {whole % _SECONDS_PER_HOUR // _SECONDS_PER_MINUTE} min"


def number(count: float) -> str:
    return f"{count:,.0f}"


def counted(count: int, noun: str) -> str:
    """Format a count with its noun: 1 slot, 2 slots."""
    return f"{number(count)} {noun}" if count == 1 else f"{number(count)} {noun}s"
