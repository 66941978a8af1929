"""The log files of running slots on other machines: the driver asks the slots for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from checkdam.runtime.driver.slot_group import LiveSlots
from checkdam.runtime.logs.log_reader import LogFile, LogPart, LogSource
from checkdam.runtime.slot.slot_client import RemoteSlot


class LiveLogs:
    """Finds the logs of running slots. `live` returns the slots of the running attempt; None while there is none."""

    def __init__(self, live: Callable[[], LiveSlots | None]) -> None:
        self._live = live

    def __call__(self, subtask: int) -> LogSource | None:
        live = self._live()
        slots = live.slots if live is not None else ()
        slot = next((each for each in slots if each.subtask == subtask), None)
        return RemoteLogs(slot) if isinstance(slot, RemoteSlot) else None


class RemoteLogs:
    """A LogSource over a slot's control calls; also raises SlotLostError."""

    def __init__(self, slot: RemoteSlot) -> None:
        self._slot = slot

    def files(self) -> Sequence[LogFile]:
        return self._slot.log_files()

    def read(self, name: str, offset: int, length: int, id: int | None = None) -> bytes:
        found = self._slot.read_log(name, offset, length, id)
        if found is None:
            raise FileNotFoundError(name)
        return found

    def tail(self, name: str, cursor: str | None, limit: int) -> LogPart:
        found = self._slot.tail_log(name, cursor, limit)
        if found is None:
            raise FileNotFoundError(name)
        return found
