"""Every job a server knows: jobs running in its process, jobs that ended in it, and archived jobs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from checkdam.ids import JobId
from checkdam.runtime.job_control import RunningJob, WatchedJob
from checkdam.runtime.monitor.job_records import JobRecord
from checkdam.server.app.http_errors import RestError, job_not_found

MOST_ENDED = 100


class Archive(Protocol):
    """Jobs that do not run here."""

    def records(self) -> Sequence[JobRecord]: ...

    def record(self, job_id: str) -> JobRecord | None: ...


class Jobs:
    """The jobs of this process and of the archive. Thread-safe.

    Of ended jobs only the monitors of the latest are kept, because a program may run one job after another for days.
    Older jobs come from the archive.
    """

    def __init__(self, archive: Archive | None = None) -> None:
        self._archive = archive
        self._lock = threading.Lock()
        self._running: dict[str, RunningJob] = {}
        self._ended: dict[str, WatchedJob] = {}  # most recent last

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
        """Return the job if it runs in this process."""
        with self._lock:
            return self._running.get(job_id)

    def require_running(self, job_id: str) -> RunningJob:
        """Return the job. Raise RestError: 404 if it is unknown, 409 if it does not run here."""
        job = self.running(job_id)
        if job is not None:
            return job
        status = self.record(job_id).status
        raise RestError(409, f"Job {job_id} is not running on this server: its status is {status}")

    def record(self, job_id: str) -> JobRecord:
        """Return the job's record. Raise RestError 404."""
        with self._lock:
            here = self._monitors().get(job_id)
        if here is not None:
            return here.record()
        archived = self._archive.record(job_id) if self._archive is not None else None
        if archived is None:
            raise job_not_found(job_id)
        return archived

    def records(self) -> list[JobRecord]:
        """Return all records, most recently started first."""
        with self._lock:
            here = self._monitors()
        records = [monitor.record() for monitor in here.values()]
        if self._archive is not None:
            records += [record for record in self._archive.records() if record.id not in here]
        return sorted(records, key=lambda record: record.started_at, reverse=True)

    def running_records(self) -> list[JobRecord]:
        """Return the records of jobs running in this process, most recently started first. Does not touch storage."""
        with self._lock:
            monitors = [job.monitor for job in self._running.values()]
        records = [monitor.record() for monitor in monitors]
        return sorted(records, key=lambda record: record.started_at, reverse=True)

    def _monitors(self) -> dict[str, WatchedJob]:
        return self._ended | {job_id: job.monitor for job_id, job in self._running.items()}
