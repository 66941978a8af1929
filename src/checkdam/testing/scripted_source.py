"""A source that brings what a test says, epoch by epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ScriptedSource:
    """Records of a test, cut into epochs by the test; a position is the index of the epoch that comes next."""

    epochs: tuple[tuple[Any, ...], ...]
    kind: str = "script"
    place: str = ""
    relations: int = 1
    content: str = ""

    @property
    def is_static(self) -> bool:
        return False
