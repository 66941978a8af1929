"""Slots of a job without Spark that can be asked for live state on a socket, as those on Spark can."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from checkdam.runtime.driver.slot_group import LiveSlots
from checkdam.runtime.engine import Slot
from checkdam.runtime.live_state.query_connection import QueryAccess
from checkdam.runtime.live_state.query_server import QueryServer


class AskableSlots:
    """Returns the slots that `live` returns, each with a socket for queries. Counts the messages that come by these."""

    def __init__(self, live: Callable[[], LiveSlots | None]) -> None:
        self._live = live
        self._open = ExitStack()
        self._directory = self._open.enter_context(tempfile.TemporaryDirectory())  # short: it is part of an address
        self._attempts: dict[str, list[Any]] = {}
        self.servers: dict[str, list[QueryServer]] = {}
        self.messages = 0

    def __call__(self) -> LiveSlots | None:
        live = self._live()
        if live is None:
            return None
        if live.attempt not in self._attempts:
            token = secrets.token_hex(16)
            self._attempts[live.attempt] = [self._askable(live.attempt, slot, token) for slot in live.slots]
        return replace(live, slots=self._attempts[live.attempt])

    def close(self) -> None:
        self._open.close()

    def _askable(self, attempt: str, slot: Slot, token: str) -> _Askable:
        access = QueryAccess(f"unix:{self._directory}/{attempt}-{slot.subtask}", token)

        def answer(request: bytes) -> bytes:
            self.messages += 1
            return slot.query(request)

        server = QueryServer(access, answer)
        self._open.callback(server.close)
        self.servers.setdefault(attempt, []).append(server)
        return _Askable(slot, access)


class _Askable:
    def __init__(self, slot: Slot, access: QueryAccess) -> None:
        self._slot = slot
        self.query_access = access

    def __getattr__(self, name: str) -> Any:
        return getattr(self._slot, name)
