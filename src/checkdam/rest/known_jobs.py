"""Every job a server knows: those that run in its process, those that ran, and those only the archive tells of."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from checkdam.ids import JobId
from checkdam.rest.errors import RestError, job_not_found
from checkdam.runtime.control import RunningJob
from checkdam.runtime.records import JobRecord


class Archive(Protocol):
    """Jobs that do not run here."""

    def records(self) -> Sequence[JobRecord]: ...

    def record(self, job_id: str) -> JobRecord | None: ...


class Jobs:
    """Safe from any thread. A job that ended here is told of by its own monitor for as long as the server lives."""

    def __init__(self, archive: Archive | None = None) -> None:
        self._archive = archive
        self._lock = threading.Lock()
        self._here: dict[str, RunningJob] = {}
        self._ended: set[str] = set()

    def started(self, job: RunningJob) -> None:
        with self._lock:
            self._here[job.job_id] = job
            self._ended.discard(job.job_id)

    def ended(self, job_id: JobId) -> None:
        with self._lock:
            self._ended.add(job_id)

    def running(self, job_id: str) -> RunningJob | None:
        """The job if it runs in this process."""
        with self._lock:
            return None if job_id in self._ended else self._here.get(job_id)

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
            here = self._here.get(job_id)
        if here is not None:
            return here.monitor.record()
        archived = self._archive.record(job_id) if self._archive is not None else None
        if archived is None:
            raise job_not_found(job_id)
        return archived

    def records(self) -> list[JobRecord]:
        """All of them, the latest started first."""
        with self._lock:
            here = dict(self._here)
        records = [job.monitor.record() for job in here.values()]
        if self._archive is not None:
            records += [record for record in self._archive.records() if record.id not in here]
        return sorted(records, key=lambda record: record.started_at, reverse=True)
