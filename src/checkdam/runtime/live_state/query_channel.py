"""The channel of queries to one slot: queries are batched, so that they share the cost of a call."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from checkdam.errors import CheckdamError
from checkdam.runtime.engine import Slot
from checkdam.runtime.live_state.query_messages import Answer, Ask, Refused, pack, unpack_answers

_LOG = logging.getLogger(__name__)

Done = Callable[[Answer], None]

_IDLE_SECONDS = 5.0
_BETWEEN_CALLS_SECONDS = 0.003
"""Shortest time between the starts of two calls: a busy slot is interrupted at most 333 times a second."""

_AT_ONCE = 2000


class SlotChannel:
    """Queries one slot, one call at a time; queries that arrive meanwhile go with the next call. Thread-safe.

    The calling thread ends when there are no queries for a while, and starts again with the next one.
    """

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self._changed = threading.Condition(threading.Lock())
        self._waiting: list[tuple[Ask, Done]] = []
        self._is_running = False
        self._not_before = 0.0

    def ask(self, ask: Ask, done: Done) -> None:
        """Queue a query and return at once. `done` gets the answer in another thread, and must not block or raise."""
        with self._changed:
            self._waiting.append((ask, done))
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, daemon=True, name=f"queries-{self._slot.subtask}").start()
            elif len(self._waiting) == 1:
                self._changed.notify()

    def _run(self) -> None:
        while taken := self._next():
            self._not_before = time.monotonic() + _BETWEEN_CALLS_SECONDS
            answers = self._answers([ask for ask, _ in taken])
            for (_, done), answer in zip(taken, answers, strict=True):
                try:
                    done(answer)
                except Exception:  # noqa: BLE001  one requester may be gone; the others still wait
                    _LOG.exception("live state: an answer could not be handed over")

    def _next(self) -> list[tuple[Ask, Done]]:
        """Return the queries to send next; an empty list when the thread may end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting, _IDLE_SECONDS)
            if not self._waiting:
                self._is_running = False
                return []
        early = self._not_before - time.monotonic()
        if early > 0:
            time.sleep(early)  # more queries join meanwhile
        with self._changed:
            taken, self._waiting = self._waiting[:_AT_ONCE], self._waiting[_AT_ONCE:]
            return taken

    def _answers(self, asks: list[Ask]) -> list[Answer]:
        try:
            return unpack_answers(self._slot.query(pack(asks)))
        except CheckdamError as lost:
            hint = "The job fails over or ends: ask again."
            return [Refused(is_wrong=False, message=lost.message, hint=hint)] * len(asks)
        except Exception:  # noqa: BLE001  every waiting requester must get an answer, and the next queries be sent
            _LOG.exception("live state: slot %s could not be asked", self._slot.subtask)
            message = f"slot {self._slot.subtask} could not be asked"
            return [Refused(is_wrong=False, message=message, hint="The log of the job tells why.")] * len(asks)
