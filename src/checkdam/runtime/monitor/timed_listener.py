"""Wraps the listener of a job: measures the time it takes, and calls it no more once the job was given up."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

from checkdam.runtime.monitor.job_events import EVENTS, JobListener


class Telling(JobListener):
    """Passes every event on to one listener.

    `is_waiting` says that a thread of the job waits for the listener, such as a terminal that was paused: that is the
    listener's time, and no hang of the job.
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
        """Pass nothing on from now on; return the listener, for the last that it is to hear."""
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
