"""Which heartbeats the loop of an attempt gets, and which slots are killed for them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import cast

import pytest

from checkdam.errors import JobFailedError
from checkdam.graph.levels import JobPlan
from checkdam.ids import SubtaskIndex
from checkdam.runtime.driver.attempt_state import AttemptState
from checkdam.runtime.driver.epochs import PendingEpoch
from checkdam.runtime.driver.event_loop import Event, EventLoop
from checkdam.runtime.driver.failure_detector import KILLS, WATCHES, FailureDetector
from checkdam.runtime.driver.hang_watch import HangWatch
from checkdam.runtime.engine import Slot
from checkdam.runtime.monitor.job_events import JobListener
from checkdam.runtime.slot.slot_watch import Beat
from checkdam.runtime.stalls import Stall
from checkdam.testing import ManualClock

PATIENCE = timedelta(minutes=10)
INTERVAL = timedelta(seconds=10)
BEAT, SHORT_STALL, HANG = (Beat(1, stall) for stall in (None, Stall("level 1", 599.0, ""), Stall("level 1", 600.0, "")))


class CountingLoop(EventLoop):
    """Counts the events that are posted to it."""

    posted = 0

    def post(self, event: Event) -> bool:
        self.posted += 1
        return super().post(event)


class BeatingSlot:
    """A slot whose heartbeats come when the test wants."""

    def __init__(self, subtask: int) -> None:
        self.subtask = SubtaskIndex(subtask)
        self.beat: Callable[[Beat], None] = lambda beat: None
        self.kills = 0

    def hold(self, on_beat: Callable[[Beat], None]) -> None:
        self.beat = on_beat

    def kill(self) -> None:
        self.kills += 1


class Attempt:
    """An attempt with two slots, as far as the detector sees it."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.loop = CountingLoop()
        self.state = AttemptState(self.loop, JobListener(), lambda failure: None)
        self.slots = [BeatingSlot(0), BeatingSlot(1)]
        hangs = HangWatch(PATIENCE, INTERVAL, clock, lambda: None, lambda: None)
        pending = PendingEpoch(JobPlan("job", (), (), (), (), 128), clock, restored=False)
        detector = FailureDetector(self.state, self.loop, hangs, pending, INTERVAL)
        detector.watch(cast(list[Slot], self.slots))
        self.loop.run_until_idle(WATCHES)

    def events_of(self, beat: Beat, subtask: int = 0) -> int:
        """Let a slot send a heartbeat. Return how many events it was to the loop."""
        before = self.loop.posted
        self.slots[subtask].beat(beat)
        posted = self.loop.posted - before
        self.loop.run(self.loop._events.empty)
        self.loop.run_until_idle(KILLS)
        return posted

    @property
    def kills(self) -> list[int]:
        return [slot.kills for slot in self.slots]


@pytest.mark.parametrize("beat", [BEAT, SHORT_STALL])
def test_heartbeats_are_events_until_the_attempt_is_over(beat: Beat) -> None:
    attempt = Attempt()

    assert attempt.events_of(beat) == 1
    attempt.state.fail(JobFailedError("the job was cancelled"))
    assert attempt.events_of(beat) == 0


def test_a_slot_that_hangs_is_killed_once_though_the_attempt_is_over() -> None:
    attempt = Attempt()
    assert attempt.events_of(HANG, subtask=0) == 1
    assert attempt.state.is_over

    assert attempt.events_of(HANG, subtask=1) == 1
    assert attempt.events_of(HANG, subtask=1) == 0

    assert attempt.kills == [1, 1]


def test_a_slot_that_hangs_is_not_killed_after_its_attempt_has_ended() -> None:
    attempt = Attempt()
    attempt.state.has_ended = True

    assert attempt.events_of(HANG) == 0
    assert attempt.kills == [0, 0]
