"""The slots of one attempt, called concurrently."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from typing import TypeVar

from checkdam.graph.levels import JobPlan
from checkdam.ids import Attempt
from checkdam.runtime.engine import Slot
from checkdam.runtime.workers import Workers

T = TypeVar("T")

_CLOSING_SECONDS = 5.0
"""How long the functions of a failed or cancelled attempt may take to close before their slots are killed."""


@dataclass(frozen=True)
class LiveSlots:
    """The slots of an attempt that have their state, by subtask, and their plan."""

    attempt: Attempt
    plan: JobPlan
    slots: Sequence[Slot]


class SlotGroup:
    """Calls every slot and waits for the answers. Never used in the thread of the loop."""

    def __init__(self, size: int) -> None:
        self.slots: Sequence[Slot] = ()
        self._pool = Workers("slots", 3 * size + 2)

    def call(self, call: Callable[[Slot], T]) -> list[T]:
        """Call every slot. Return when all have answered; raise the first error."""
        futures = [self._pool.submit(call, slot) for slot in self.slots]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        return [future.result() for future in futures]

    def close_soon(self) -> None:
        """Let functions close. A slot that is gone, or busy for too long, is not waited for."""
        wait([self._pool.submit(slot.close) for slot in self.slots], timeout=_CLOSING_SECONDS)

    def kill(self) -> None:
        """Kill every slot, all concurrently: one on an unresponsive host must not keep the others alive.

        Uses new threads, since those of the group may be waiting for the slots.
        """
        threads = [threading.Thread(target=slot.kill, daemon=True, name="slot-kill") for slot in self.slots]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def dispose(self) -> None:
        """Wait for calls in progress: they end with their slots, or with the heartbeats of unreachable ones."""
        self._pool.join()

    def disconnect(self) -> None:
        for slot in self.slots:
            slot.disconnect()
