"""Listeners made of others: several as one, one whose time is measured, and one that is called later."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from checkdam.runtime.monitor.job_events import EVENTS, JobListener

_log = logging.getLogger(__name__)


class JointListener(JobListener):
    """Passes every event to each listener, in order.

    An error of the first listener fails the job, as if it were alone: it shows the output. The others only observe: an
    error of theirs is logged, and stops neither the other listeners nor the job.
    """

    def __init__(self, first: JobListener, *watchers: JobListener) -> None:
        self._first = first
        self._watchers = watchers
        for event in EVENTS:
            setattr(self, event, partial(self._tell, event))

    def _tell(self, event: str, *arguments: Any) -> None:
        try:
            getattr(self._first, event)(*arguments)
        finally:
            for watcher in self._watchers:
                try:
                    getattr(watcher, event)(*arguments)
                except Exception:  # noqa: BLE001  an observer's error must not stop the job
                    _log.warning("%s failed in %s", type(watcher).__name__, event, exc_info=True)


class TimedListener(JobListener):
    """Passes every event on to one listener.

    `is_waiting` is set while a thread of the job waits for the listener, such as a paused terminal: that time is the
    listener's, and not a hang of the job.
    """

    def __init__(self, listener: JobListener) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._under_way = 0
        self._is_silenced = False
        for event in EVENTS:
            setattr(self, event, partial(self._tell, event))

    @property
    def is_waiting(self) -> bool:
        return self._under_way > 0

    def silence(self) -> JobListener:
        """Stop passing events on. Return the listener, for its last events."""
        self._is_silenced = True
        return self._listener

    def _tell(self, event: str, *arguments: Any) -> None:
        if self._is_silenced:
            return
        with self._lock:
            self._under_way += 1
        try:
            getattr(self._listener, event)(*arguments)
        finally:
            with self._lock:
                self._under_way -= 1


class DeferredListener(JobListener):
    """Turns every event into a call of a listener, for `report` to make when it is time."""

    def __init__(self, listener: JobListener, report: Callable[[Callable[[], None]], object]) -> None:
        self._listener = listener
        self._report = report
        for event in EVENTS:
            setattr(self, event, partial(self._defer, event))

    def _defer(self, event: str, *arguments: Any) -> None:
        self._report(partial(getattr(self._listener, event), *arguments))
