"""The event loop of a running attempt: one queue, handled by one thread.

Whatever takes time runs on a lane, in threads of its own, and its outcome comes back as an event. So the state of the
attempt needs no lock, and a simulation can choose the order of events (`simulation/`).
"""

from __future__ import annotations

import contextvars
import heapq
import itertools
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from checkdam.runtime.stalls import Stall
from checkdam.runtime.workers import Workers, within

T = TypeVar("T")

Event = Callable[[], object]

_SHORTEST_WAIT = 0.001


@dataclass(frozen=True)
class Lane:
    """A kind of work: its name in error messages, and how much of it may run concurrently."""

    name: str
    threads: int = 1


def _raise(failure: BaseException) -> None:
    raise failure


class EventLoop:
    """Handles one event after another. Any thread may call `post` and `start`; only the loop's own calls the rest."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._posting = threading.Lock()
        self._is_closed = False
        self._lanes: dict[Lane, Workers] = {}
        self._under_way: Counter[Lane] = Counter()
        self._timers: list[tuple[float, int, Event]] = []
        self._order = itertools.count()
        self.advance: Callable[[], float | None] = lambda: None
        """Called after each event: begins what can begin, and returns the seconds until more may be due."""
        self.failed: Callable[[BaseException], object] = _raise
        """Called with the error that an event or `advance` raises; the loop continues."""

    def post(self, event: Event) -> bool:
        """Add an event. Return False if the loop is closed: the event will never be handled."""
        with self._posting:
            if not self._is_closed:
                self._events.put(event)
            return not self._is_closed

    def start(
        self,
        lane: Lane,
        work: Callable[[], T],
        then: Callable[[Future[T]], object],
        if_closed: Callable[[Future[T]], object] = lambda done: None,
    ) -> bool:
        """Do work on a lane, in order of arrival; `then` gets the outcome as an event.

        If the loop has closed before the work ends, `if_closed` gets the outcome instead, in the thread of the lane.
        Return False if the loop is closed already: the work is not done.
        """
        context = contextvars.copy_context()
        with self._posting:
            if self._is_closed:
                return False
            self._under_way[lane] += 1
            started = self._workers(lane).submit(context.run, work)

        def ended(done: Future[T]) -> None:
            if not self.post(lambda: self._end(lane, then, done)):
                if_closed(done)

        started.add_done_callback(ended)
        return True

    def _end(self, lane: Lane, then: Callable[[Future[T]], object], done: Future[T]) -> None:
        with self._posting:
            self._under_way[lane] -= 1
        then(done)

    def after(self, seconds: float, event: Event) -> None:
        """Handle an event after this time, regardless of the job's clock."""
        heapq.heappush(self._timers, (self._now() + seconds, next(self._order), event))

    def is_idle(self, *lanes: Lane) -> bool:
        """Return whether all work of these lanes is done and its outcome handled."""
        return not any(self._under_way[lane] for lane in lanes)

    def run_until_idle(self, *lanes: Lane, seconds: float | None = None) -> bool:
        """Handle events until these lanes are idle. Return False if they are not within the given time."""
        return self.run(lambda: self.is_idle(*lanes), seconds)

    def run(self, until: Callable[[], bool], seconds: float | None = None) -> bool:
        """Handle events until `until` holds. Return False if it does not within the given time."""
        end = None if seconds is None else self._now() + seconds
        wait = self._handle(None)
        while not until():
            if end is not None and self._now() >= end:
                return False
            wait = self._handle(self._next(wait, end))
        return True

    def _handle(self, event: Event | None) -> float | None:
        try:
            if event is not None:
                event()
            return self.advance()
        except BaseException as failure:  # noqa: BLE001  callers that wait for the loop must not wait for ever
            self.failed(failure)
            return None

    def _next(self, wait: float | None, end: float | None) -> Event | None:
        """Wait for the next event; return None if there is none within `wait` or before `end`."""
        due = self._due_timer()  # first, so that no stream of events delays it
        if due is not None:
            return due
        now = self._now()
        moments = [self._timers[0][0]] if self._timers else []
        moments += [] if wait is None else [now + max(wait, _SHORTEST_WAIT)]
        moments += [] if end is None else [end]
        first = min(moments, default=None)
        try:
            return self._events.get(timeout=None if first is None else max(0.0, first - now))
        except queue.Empty:
            return self._due_timer()

    def _due_timer(self) -> Event | None:
        is_due = self._timers and self._timers[0][0] <= self._now()
        return heapq.heappop(self._timers)[2] if is_due else None

    def close(self, *lanes: Lane) -> None:
        """Handle events until there are none and these lanes are idle, and refuse later ones.

        Idle threads of all lanes end.
        """
        while not self._is_closed:
            self.run(lambda: self._is_quiet(*lanes))
            with self._posting:
                self._is_closed = self._is_quiet(*lanes)
        for workers in self._lanes.values():
            workers.shut_down()

    def _is_quiet(self, *lanes: Lane) -> bool:
        return self._events.empty() and self.is_idle(*lanes)

    def stall(self, *lanes: Lane) -> Stall | None:
        """Describe the work on these lanes: one that moves if one does, else the one that stood still for longest.

        None if all lanes wait for work. May be called by any thread.
        """
        found = [(lane, self._lanes.get(lane)) for lane in lanes]
        stalls = [stall for lane, each in found if each is not None and (stall := each.stall(lane.name)) is not None]
        moving = [stall for stall in stalls if stall.seconds == 0.0]
        return moving[0] if moving else max(stalls, key=lambda stall: stall.seconds, default=None)

    def within(
        self,
        seconds: float,
        what: str,
        work: Callable[[], T],
        if_late: Callable[[Future[T]], object] = lambda done: None,
    ) -> T:
        """Do work that may hang for ever, on behalf of work on a lane.

        Raises:
            TimeoutError: the work did not end in time; it continues, and `if_late` gets its outcome.
        """
        return within(seconds, what, work, if_late)

    def _workers(self, lane: Lane) -> Workers:
        workers = self._lanes.get(lane)
        if workers is None:
            workers = self._lanes[lane] = Workers(lane.name, lane.threads)
        return workers

    def _now(self) -> float:
        return time.monotonic()
