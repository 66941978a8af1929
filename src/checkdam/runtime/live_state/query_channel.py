"""Questions on their way to one slot: many go together, so that what a call costs is shared by all who ask."""

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
"""At least so long between the starts of two calls: a slot at work is interrupted 333 times a second at most."""

_AT_ONCE = 2000


class SlotChannel:
    """Asks one slot, one call at a time; what is asked meanwhile goes with the next. Safe from any thread.

    The thread that calls ends when nobody has asked for a while, and begins again with the next question.
    """

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self._changed = threading.Condition(threading.Lock())
        self._waiting: list[tuple[Ask, Done]] = []
        self._is_running = False
        self._not_before = 0.0

    def ask(self, ask: Ask, done: Done) -> None:
        """Returns at once; `done` hears the answer in another thread, and must not take long or raise."""
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
                except Exception:  # noqa: BLE001  whoever asked may be gone; the others still wait
                    _LOG.exception("live state: an answer could not be handed over")

    def _next(self) -> list[tuple[Ask, Done]]:
        """What to ask next; nothing when the thread may end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting, _IDLE_SECONDS)
            if not self._waiting:
                self._is_running = False
                return []
        early = self._not_before - time.monotonic()
        if early > 0:
            time.sleep(early)  # others join meanwhile
        with self._changed:
            taken, self._waiting = self._waiting[:_AT_ONCE], self._waiting[_AT_ONCE:]
            return taken

    def _answers(self, asks: list[Ask]) -> list[Answer]:
        try:
            return unpack_answers(self._slot.query(pack(asks)))
        except CheckdamError as lost:
            hint = "The job fails over or ends: ask again."
            return [Refused(is_wrong=False, message=lost.message, hint=hint)] * len(asks)
        except Exception:  # noqa: BLE001  whatever it is, those who wait must hear, and the next be asked for
            _LOG.exception("live state: slot %s could not be asked", self._slot.subtask)
            message = f"slot {self._slot.subtask} could not be asked"
            return [Refused(is_wrong=False, message=message, hint="The log of the job tells why.")] * len(asks)
