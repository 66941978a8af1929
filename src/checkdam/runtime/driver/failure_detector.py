"""Detects lost slots and hangs of an attempt, and fails it over."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import timedelta
from functools import partial

from checkdam.errors import CheckdamError, SlotLostError
from checkdam.ids import SubtaskIndex
from checkdam.runtime.driver.attempt_state import AttemptState
from checkdam.runtime.driver.epochs import PendingEpoch
from checkdam.runtime.driver.event_loop import EventLoop, Lane
from checkdam.runtime.driver.hang_watch import HangWatch
from checkdam.runtime.engine import Slot
from checkdam.runtime.slot.slot_watch import Beat

_log = logging.getLogger(__name__)

WATCHES = Lane("watching the slots", threads=1000)
KILLS = Lane("killing slots", threads=1000)


class FailureDetector:
    """Watches every slot by its heartbeats, and the whole attempt for progress."""

    def __init__(
        self, state: AttemptState, loop: EventLoop, hangs: HangWatch, pending: PendingEpoch, interval: timedelta
    ) -> None:
        self._state = state
        self._loop = loop
        self._hangs = hangs
        self._pending = pending
        self._interval = interval.total_seconds()
        self._killed: set[SubtaskIndex] = set()

    def look_for_hangs_later(self) -> None:
        self._loop.after(self._interval, self._look_for_hangs)

    def _look_for_hangs(self) -> None:
        """Check regularly whether the attempt makes progress."""
        if self._state.is_over:
            return
        try:
            reason = self._hangs.look()
        except Exception:  # noqa: BLE001  a fault of the watch must not fail the job
            _log.warning("the attempt cannot be watched for hangs", exc_info=True)
            reason = None
        if reason is not None:
            self._state.fail(reason)
        self.look_for_hangs_later()

    def watch(self, slots: Sequence[Slot]) -> None:
        """Keep a call to every slot open, to notice its death and receive its heartbeats also while no epoch runs."""
        for slot in slots:
            self._loop.start(WATCHES, partial(self._watch, slot), partial(self._watch_ended, slot))

    def _watch(self, slot: Slot) -> None:
        def on_beat(beat: Beat) -> None:
            if self._matters(slot, beat):
                self._loop.post(partial(self._beat, slot, beat))

        slot.hold(on_beat)

    def _matters(self, slot: Slot, beat: Beat) -> bool:
        """Return whether the loop must handle a heartbeat. Called in the thread that watches the slot.

        After the attempt is over, only the heartbeat that shows a hanging slot matters. All others are dropped: to
        EndWatch every event of the loop is progress, so heartbeats would keep it from giving up an end that hangs.
        """
        if not self._state.is_over:
            return True
        if self._state.has_ended or slot.subtask in self._killed:
            return False
        return isinstance(self._hangs.beat(slot.subtask, beat), SlotLostError)

    def _watch_ended(self, slot: Slot, done: Future[None]) -> None:
        failure = done.exception()
        if isinstance(failure, CheckdamError):
            self._lose(slot, failure)
        elif failure is not None:
            self._state.fail(failure)

    def _beat(self, slot: Slot, beat: Beat) -> None:
        self._pending.signalled(slot.subtask, beat.signals)
        reason = self._hangs.beat(slot.subtask, beat)
        if isinstance(reason, SlotLostError):
            self._lose(slot, reason)
        elif reason is not None:
            self._state.fail(reason)

    def _lose(self, slot: Slot, reason: CheckdamError) -> None:
        """Fail over. A slot that hangs is killed at once, so that every call that waits for it returns."""
        self._state.fail(reason)
        if not self._state.has_ended:
            self._killed.add(slot.subtask)
            self._loop.start(KILLS, slot.kill, lambda done: None)
