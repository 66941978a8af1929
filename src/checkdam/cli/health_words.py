"""The health of a job in a few words, as `checkdam list` shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkdam.cli import number_format


def health_words(overview: Mapping[str, Any]) -> str:
    """Return the health in an answer of GET /jobs/overview; "-" for a job that has ended, or of an older server."""
    health = overview.get("health") or {"level": "ended"}
    if health["level"] == "ended":
        return "-"
    now = overview["start-time"] + overview["duration"]
    words = [*_restart(health, now), *_checkpoints(health), *_lag(health)]
    return ", ".join(words if health["level"] != "ok" else ["ok", *words])


def _restart(health: Mapping[str, Any], now: int) -> list[str]:
    restart = health["restart"]
    if restart is None or health["level"] == "ok":
        return []
    if health["level"] == "warning":
        return [f"restarted {_seconds(now - restart['failed-at'])} ago"]
    attempt = f"attempt {restart['attempt']}" + (f" of {restart['most']}" if restart["most"] is not None else "")
    left = restart["next-at"] - now
    return [f"{attempt} in {_seconds(left)}" if left > 0 else f"{attempt} now"]


def _checkpoints(health: Mapping[str, Any]) -> list[str]:
    trouble = health["checkpoints"]
    return [] if trouble is None else [f"{number_format.counted(trouble['failed-in-a-row'], 'checkpoint')} failed"]


def _lag(health: Mapping[str, Any]) -> list[str]:
    lag = health["watermark-lag"]
    return [] if lag is None or lag < 1000 else [f"{_seconds(lag)} behind"]


def _seconds(milliseconds: int) -> str:
    return number_format.duration(max(round(milliseconds / 1000), 0))
