"""An event loop whose time jumps to the next timer when nothing else is to do, so that no test has to wait."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Starts at 0.0."""

    def __init__(self) -> None:
        self._virtual = 0.0
        super().__init__(_JumpingSelector(self._advance))

    def time(self) -> float:
        return self._virtual

    def _advance(self, seconds: float) -> None:
        self._virtual += seconds


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, advance: Callable[[float], None]) -> None:
        super().__init__()
        self._advance = advance

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(0)
        if not ready:
            self._advance(timeout)
        return ready
