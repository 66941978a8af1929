"""A source with scripted records, epoch by epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ScriptedSource:
    """Records that a test divides into epochs; a position is the index of the next epoch."""

    epochs: tuple[tuple[Any, ...], ...]
    kind: str = "script"
    place: str = ""
    relations: int = 1
    content: str = ""

    @property
    def is_static(self) -> bool:
        return False
