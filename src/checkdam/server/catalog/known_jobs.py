"""Every job a server knows: those that run in its process, those that ran, and those only the archive tells of."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from checkdam.ids import JobId
from checkdam.runtime.job_control import JobMonitor, RunningJob
from checkdam.runtime.monitor.job_records import JobRecord
from checkdam.server.app.http_errors import RestError, job_not_found

MOST_ENDED = 100


class Archive(Protocol):
    """Jobs that do not run here."""

    def records(self) -> Sequence[JobRecord]: ...

    def record(self, job_id: str) -> JobRecord | None: ...


class Jobs:
    """Safe from any thread. The last jobs that ended here are told of by their own monitors, older ones by the archive.

    Of one that ended nothing but its monitor is kept: a program may run one job after the other for days.
    """

    def __init__(self, archive: Archive | None = None) -> None:
        self._archive = archive
        self._lock = threading.Lock()
        self._running: dict[str, RunningJob] = {}
        self._ended: dict[str, JobMonitor] = {}  # the latest last

    def started(self, job: RunningJob) -> None:
        with self._lock:
            self._running[job.job_id] = job
            self._ended.pop(job.job_id, None)

    def ended(self, job_id: JobId) -> None:
        with self._lock:
            job = self._running.pop(job_id, None)
            if job is None:
                return
            self._ended[job_id] = job.monitor
            if len(self._ended) > MOST_ENDED:
                del self._ended[next(iter(self._ended))]

    def running(self, job_id: str) -> RunningJob | None:
        """The job if it runs in this process."""
        with self._lock:
            return self._running.get(job_id)

    def require_running(self, job_id: str) -> RunningJob:
        """Raises RestError: 404 for a job nobody knows, 409 for one that does not run here."""
        job = self.running(job_id)
        if job is not None:
            return job
        status = self.record(job_id).status
        raise RestError(409, f"Job {job_id} is not running on this server: its status is {status}")

    def record(self, job_id: str) -> JobRecord:
        """What is known of the job. Raises RestError 404."""
        with self._lock:
            here = self._monitors().get(job_id)
        if here is not None:
            return here.record()
        archived = self._archive.record(job_id) if self._archive is not None else None
        if archived is None:
            raise job_not_found(job_id)
        return archived

    def records(self) -> list[JobRecord]:
        """All of them, the latest started first."""
        with self._lock:
            here = self._monitors()
        records = [monitor.record() for monitor in here.values()]
        if self._archive is not None:
            records += [record for record in self._archive.records() if record.id not in here]
        return sorted(records, key=lambda record: record.started_at, reverse=True)

    def running_records(self) -> list[JobRecord]:
        """Those that run in this process, the latest started first; no storage is asked for them."""
        with self._lock:
            monitors = [job.monitor for job in self._running.values()]
        records = [monitor.record() for monitor in monitors]
        return sorted(records, key=lambda record: record.started_at, reverse=True)

    def _monitors(self) -> dict[str, JobMonitor]:
        return self._ended | {job_id: job.monitor for job_id, job in self._running.items()}
