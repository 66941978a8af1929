"""The seeded scheduler: runs all work of a job in one thread, and chooses after each pause what comes next.

Each piece of work is a greenlet. It pauses at storage operations and before and after calls to slots, where a thread of
a real job might be interrupted. So work on several lanes interleaves, and a fault can come between any two operations.
"""

from __future__ import annotations

import contextvars
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]  # it has no types

from checkdam.runtime.driver.event_loop import Lane
from checkdam.testing.manual_clock import ManualClock

_MOST_STEPS = 20_000


class HangError(Exception):
    """No work can continue, or there are too many steps, and the job has not ended."""


class Work:
    """Work that another thread or process would do. It runs from pause to pause, each time the scheduler picks it."""

    def __init__(self, name: str, do: Callable[[], None]) -> None:
        self.name = name
        self.is_ready: Callable[[], bool] | None = None  # what it waits for
        self.frozen_until = 0.0  # on the virtual clock: a slow writer
        self.has_ended = False
        self._greenlet: Any = greenlet(do)
        self._greenlet.gr_context = contextvars.copy_context()

    def resume(self) -> None:
        self._greenlet.parent = getcurrent()
        self._greenlet.switch()


class Scheduler:
    """Chooses the next work by a seed. It outlives the attempts and drivers of one run."""

    def __init__(self, rng: random.Random, clock: ManualClock) -> None:
        self.rng = rng
        self.clock = clock
        self.steps = 0
        self.plan: dict[int, Callable[[], None]] = {}  # faults and requests, by step
        self.outside: list[Callable[[], Sequence[Work]]] = []  # the slots' work, collected at each step
        self.calls: list[Work] = []  # calls to slots that the driver waits for
        self.freeze_next = 0.0  # seconds for which the next picked work is frozen
        self.grain = rng.choice([0.0, 0.1, 0.3])  # how often work pauses where it can
        self.haste = rng.choice([0.0, 0.0, 0.002, 0.01])  # how often time leaps to the next deadline though work waits
        self._current: Work | None = None
        self._trace: list[tuple[int, float, str]] = []

    # -- what happens ---------------------------------------------------------------------------------------------

    def note(self, what: str) -> None:
        self._trace.append((self.steps, self.clock.monotonic(), what))

    @property
    def trace(self) -> list[str]:
        return [f"{step:5} {at:8.3f}  {what}" for step, at, what in self._trace]

    def step(self) -> None:
        """Count a step, and do what the seed has planned for it."""
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise HangError(f"the job has not ended after {_MOST_STEPS} steps")
        deed = self.plan.pop(self.steps, None)
        if deed is not None:
            deed()

    def choose(self, works: Sequence[Work], *, has_event: bool, has_moment: bool) -> Literal["event", "time"] | Work:
        """Return what comes next: an event of the loop, a leap of the clock, or the work that continues."""
        drawn = self.rng.random()
        if has_event and (not works or drawn < 0.5):
            return "event"
        if works and not (has_moment and drawn >= 1.0 - self.haste):
            return works[int(self.rng.random() * len(works))]
        if not has_moment:
            raise HangError("nothing can happen any more")
        return "time"

    def able(self, queues: Mapping[Lane, Sequence[Work]]) -> tuple[list[Work], list[float]]:
        """Return the works on lanes and elsewhere that can continue, and until when others are frozen."""
        now = self.clock.monotonic()
        works = [work for work in self.calls if not work.has_ended]
        for lane, queue in queues.items():
            if queue:
                works += queue if lane.threads > 1 else (queue[0],)
        for outside in self.outside:
            works += outside()
        ready = [work for work in works if work.is_ready is None or work.is_ready()]
        frozen = [work.frozen_until for work in ready if work.frozen_until > now]
        return [work for work in ready if work.frozen_until <= now] if frozen else ready, frozen

    def drift(self) -> float:
        """Return the seconds that a piece of work took, mostly none."""
        return self.rng.random() * 0.5 if self.rng.random() < 0.03 else 0.0

    def resume(self, work: Work) -> None:
        if self.freeze_next:
            work.frozen_until, self.freeze_next = self.clock.monotonic() + self.freeze_next, 0.0
            self.note(f"{work.name} is slow")
            return
        work.is_ready = None
        self._current = work
        try:
            work.resume()
        finally:
            self._current = None
        if work.is_ready is None:
            self.note(work.name)

    # -- called by work -------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Let other work come first, if the seed says so. Outside of any work this is a step of the driver itself."""
        if self._current is None:
            self.step()
        elif self.grain and self.rng.random() < self.grain:
            self._switch(None)

    def wait_for(self, is_ready: Callable[[], bool]) -> None:
        """Let other work come first until the condition holds."""
        if not is_ready():
            if self._current is None:
                raise HangError("the driver's loop waits for other work")
            self._switch(is_ready)

    def _switch(self, is_ready: Callable[[], bool] | None) -> None:
        work = self._current
        assert work is not None
        work.is_ready = is_ready
        getcurrent().parent.switch()
        self._current = work

    def call_all(self, calls: Sequence[tuple[str, Callable[[], Any]]]) -> list[tuple[Any, BaseException | None]]:
        """Make calls that run side by side. Return their answers and errors when all have ended."""
        outcomes: list[tuple[Any, BaseException | None]] = [(None, None)] * len(calls)
        started: list[Work] = []
        for number, (name, call) in enumerate(calls):

            def do(number: int = number, call: Callable[[], Any] = call) -> None:
                try:
                    outcomes[number] = call(), None
                except BaseException as failure:  # noqa: BLE001  the outcome of the call
                    outcomes[number] = None, failure
                started[number].has_ended = True

            started.append(Work(name, do))
        self.calls += started
        self.wait_for(lambda: all(work.has_ended for work in started))
        self.calls = [work for work in self.calls if not work.has_ended]
        return outcomes


class CooperativeLock:
    """A lock for work of a simulation: whoever waits for it lets other work come first."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._owner: object = None
        self._depth = 0

    def __enter__(self) -> None:
        here = getcurrent()
        if self._owner is not here:
            self._scheduler.wait_for(lambda: self._owner is None)
            self._owner = here
        self._depth += 1

    def __exit__(self, *exception: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
