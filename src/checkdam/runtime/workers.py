"""Threads that never keep the process from exiting, and waits with a timeout."""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, TypeVar

from checkdam.clock import Clock, SystemClock
from checkdam.runtime.stalls import StackWatch, Stall

T = TypeVar("T")

_LONGEST_LOOK = timedelta(minutes=1)


def settle(done: Future[T], work: Callable[[], T]) -> None:
    """Do work and put its result, or the error it raises, into a future."""
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001  raised by the caller that waits for the future
        done.set_exception(error)
    else:
        done.set_result(result)


class Workers:
    """A few threads that do the work submitted to them, in order of arrival.

    Like ThreadPoolExecutor, but Python does not wait for them when it exits: one of them may hang for ever.
    """

    def __init__(self, name: str, count: int = 1, clock: Clock | None = None) -> None:
        self._name = name
        self._count = count
        self._clock = clock or SystemClock()
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._idle = 0  # waiting threads, less the work that waits for them
        self._is_shut_down = False
        self._busy: dict[int, StackWatch] = {}

    def submit(self, work: Callable[..., T], *arguments: Any) -> Future[T]:
        done: Future[T] = Future()

        def do() -> None:
            done.set_running_or_notify_cancel()
            settle(done, lambda: work(*arguments))

        with self._lock:
            if self._is_shut_down:
                raise RuntimeError(f"{self._name}: no more work is taken")
            self._work.put(do)
            self._idle -= 1
            if self._idle < 0 and len(self._threads) < self._count:
                thread = threading.Thread(target=self._run, daemon=True, name=f"{self._name}-{len(self._threads)}")
                self._threads.append(thread)
                self._idle += 1
                thread.start()
        return done

    def shut_down(self) -> None:
        """Accept no more work; work already submitted is still done."""
        with self._lock:
            if not self._is_shut_down:
                self._is_shut_down = True
                for _ in self._threads:
                    self._work.put(None)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until all work is done. Return False if it is not within the timeout."""
        self.shut_down()
        ends = None if timeout is None else time.monotonic() + timeout
        for thread in self._threads:
            thread.join(None if ends is None else max(0.0, ends - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def stall(self, work: str) -> Stall | None:
        """Look at the threads. Describe the busy one that has stood still for longest, None if all are idle."""
        with self._lock:
            still = [(watch.seconds_still(), watch) for watch in self._busy.values()]
            return max(still, key=lambda each: each[0])[1].stall(work) if still else None

    def _run(self) -> None:
        me = threading.get_ident()
        while (do := self._work.get()) is not None:
            with self._lock:
                self._busy[me] = StackWatch(self._clock, _LONGEST_LOOK)
            do()
            del do
            with self._lock:
                del self._busy[me]
                self._idle += 1


def within(
    seconds: float,
    what: str,
    work: Callable[[], T],
    if_late: Callable[[Future[T]], object] = lambda done: None,
) -> T:
    """Do work that may hang for ever, in a thread of its own.

    Raises:
        TimeoutError: the work did not end in time; it continues, and `if_late` gets its outcome.
    """
    done: Future[T] = Future()
    here = contextvars.copy_context()

    threading.Thread(target=lambda: settle(done, lambda: here.run(work)), daemon=True, name=what).start()
    try:
        return done.result(seconds)
    except TimeoutError as timeout:
        if done.done() and done.exception() is timeout:
            raise  # the work's own
        done.add_done_callback(if_late)
        raise TimeoutError(f"{what} has not ended within {seconds:g} s") from None
