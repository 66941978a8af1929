"""The state that the parts of an attempt share: whether it is over, and which activity uses its slots."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from checkdam.runtime.driver.event_loop import EventLoop, Lane
from checkdam.runtime.driver.job_requests import StopRequest
from checkdam.runtime.monitor.job_events import JobListener
from checkdam.runtime.monitor.listeners import DeferredListener

LISTENER = Lane("calling the listener")


class AttemptState:
    """The state of one attempt. Only the loop of the attempt changes it; any thread may report to the listener.

    At most one activity at a time may use all slots: an epoch, a barrier, or a request that ends the attempt. It is the
    *holder*; nothing else begins until the holder releases the slots.
    """

    def __init__(self, loop: EventLoop, listener: JobListener, on_failure: Callable[[BaseException], None]) -> None:
        self._loop = loop
        self._on_failure = on_failure
        self.reports: JobListener = DeferredListener(listener, self.report)
        self._holder: str | None = None
        self._waiting: list[tuple[Callable[[], bool], Callable[[], None]]] = []
        self.failure: BaseException | None = None
        self.has_begun = False  # the slots have their state
        self.is_ending = False  # no more epochs, only the final checkpoint
        self.stopped_with: tuple[StopRequest, str] | None = None  # the request that ends the job, and its savepoint
        self.is_done = False  # the input is exhausted and all output published
        self.has_ended = False  # the slots are no longer used

    @property
    def is_over(self) -> bool:
        return self.has_ended or self.failure is not None

    def fail(self, failure: BaseException) -> bool:
        """Stop the attempt. Return False if it was already stopping for another reason."""
        if self.is_over:
            return False
        self.failure = failure
        self._on_failure(failure)
        return True

    @property
    def is_held(self) -> bool:
        return self._holder is not None

    def hold(self, holder: str) -> None:
        assert self._holder is None, f"{holder} begins while {self._holder} uses the slots"
        self._holder = holder

    def release(self) -> None:
        self._holder = None

    def when(self, condition: Callable[[], bool], then: Callable[[], None]) -> None:
        """Call `then` as soon as `condition` holds, unless the attempt ends first."""
        self._waiting.append((condition, then))

    def begin_waiting(self) -> bool:
        """Begin the first waiting activity whose condition holds. Return False if there is none."""
        for waiting in self._waiting:
            condition, then = waiting
            if condition():
                self._waiting.remove(waiting)
                then()
                return True
        return False

    def do(self, lane: Lane, work: Callable[[], object], then: Callable[[], None]) -> bool:
        """Do work that the attempt depends on: a failure ends the attempt. Return False if the loop is closed."""
        return self._loop.start(lane, work, lambda done: self.go_on(done, then))

    def report(self, event: Callable[[], None], then: Callable[[], None] = lambda: None) -> bool:
        """Call the listener, in the order of these calls. A slow listener delays no decision.

        Any thread may call this. Return False if the attempt is over and its loop closed: there was no call.
        """
        return self.do(LISTENER, event, then)

    def go_on(self, done: Future[object] | Future[None], then: Callable[[], None]) -> None:
        """Call `then` after work that succeeded, unless the attempt is over. A failure ends the attempt."""
        failure = done.exception()
        if failure is not None:
            self.fail(failure)
        elif not self.is_over:
            then()

    def unless_over(self, then: Callable[[], None]) -> Callable[[], None]:
        return lambda: None if self.is_over else then()
