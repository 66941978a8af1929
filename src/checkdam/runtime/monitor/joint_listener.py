"""Several listeners as one."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from checkdam.runtime.monitor.job_events import EVENTS, JobListener

_log = logging.getLogger(__name__)


class Together(JobListener):
    """Tells each listener of every event, in order.

    What the first raises is the job's to bear, as if it were alone: it is the one that shows output. The others only
    watch: one that raises is logged, and stops neither the rest nor the job.
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
                except Exception:  # noqa: BLE001  whatever a watcher gets wrong, the job goes on
                    _log.warning("%s failed in %s", type(watcher).__name__, event, exc_info=True)
