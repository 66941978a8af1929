"""Every job a server knows: of its own process, of this user's other processes, and archived ones."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from checkdam.ids import JobId
from checkdam.runtime.job_control import RunningJob, WatchedJob
from checkdam.runtime.monitor.figure_history import FigureSample
from checkdam.runtime.monitor.job_records import JobRecord
from checkdam.server.app.http_errors import RestError, job_not_found
from checkdam.server.catalog.neighbours import Neighbours
from checkdam.server.catalog.registry import Server
from checkdam.server.catalog.savepoint_files import SavepointFiles
from checkdam.server.catalog.viewers import ViewerId, Viewers

MOST_ENDED = 100


class Archive(Protocol):
    """Jobs that do not run here."""

    def records(self) -> Sequence[JobRecord]: ...

    def record(self, job_id: str) -> JobRecord | None: ...


class Jobs:
    """The jobs of this process, of its neighbours and of the archive. Thread-safe.

    Of ended jobs only the monitors of the latest are kept, because a program may run one job after another for days.
    Older jobs come from the archive.
    """

    def __init__(self, archive: Archive | None = None, neighbours: Neighbours | None = None) -> None:
        self._archive = archive
        self.neighbours = neighbours
        self.savepoint_files = SavepointFiles()
        self._lock = threading.Lock()
        self._running: dict[str, RunningJob] = {}
        self._ended: dict[str, WatchedJob] = {}  # most recent last
        self.viewers = Viewers()

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

    def is_looked_at(self, viewer: ViewerId, record: JobRecord) -> None:
        """Note that a page shows the job. Of jobs in other processes, those tell how they ended."""
        with self._lock:
            is_here = record.id in self._monitors()
        if is_here:
            self.viewers.seen(viewer, record)

    def record_as_stored(self, job_id: str) -> JobRecord:
        """Return the job's record without savepoints that were deleted. Raise RestError 404. Looks at storage."""
        return self.savepoint_files.as_stored(self.record(job_id))

    def figure_history(self, job_id: str) -> Sequence[FigureSample]:
        """Return the figures of the job's operators over time; nothing of a job that is not of this process."""
        with self._lock:
            here = self._monitors().get(job_id)
        return here.figure_history() if here is not None else ()

    def records(self) -> list[JobRecord]:
        """Return all records, most recently started first."""
        with self._lock:
            here = self._monitors()
        records = [monitor.record() for monitor in here.values()]
        if self._archive is not None:
            records += [record for record in self._archive.records() if record.id not in here]
        return sorted(records, key=lambda record: record.started_at, reverse=True)

    def own_records(self) -> list[JobRecord]:
        """Return the records of jobs that run, or ended, in this process. Does not touch storage."""
        with self._lock:
            here = self._monitors()
        return [monitor.record() for monitor in here.values()]

    def elsewhere(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the jobs of this user's other processes, by id, each as in GET /jobs/overview.

        A standing server shows all of them; a job's own server those whose checkpoints are beside its job's.
        """
        if self.neighbours is None:
            return {}
        found = {job_id: entry for job_id, entry in self.neighbours.overviews().items() if self.running(job_id) is None}
        if self.neighbours.shows_all:
            return found
        archived = {record.id for record in self._archive.records()} if self._archive is not None and found else set()
        return {job_id: entry for job_id, entry in found.items() if job_id in archived}

    def server_elsewhere(self, job_id: str) -> Server | None:
        """Return the server of the other process that runs the job; None if it runs here, or nowhere."""
        if self.neighbours is None or self.running(job_id) is not None:
            return None
        return self.neighbours.server_of(job_id)

    def driver_gone(self) -> None:
        """Note that the driver of another process does not answer any more."""
        if self.neighbours is not None:
            self.neighbours.on_gone()

    def slots_elsewhere(self) -> Sequence[tuple[Server, Mapping[str, Any]]]:
        """Return the slots of the jobs that a standing server shows, each as in GET /taskmanagers."""
        return self.neighbours.slots() if self.neighbours is not None and self.neighbours.shows_all else ()

    def metrics_elsewhere(self) -> Sequence[bytes]:
        """Return what the drivers that a standing server shows answer to GET /metrics."""
        if self.neighbours is None or not self.neighbours.shows_all:
            return ()
        return list(self.neighbours.ask("/metrics").values())

    def running_records(self) -> list[JobRecord]:
        """Return the records of jobs running in this process, most recently started first. Does not touch storage."""
        with self._lock:
            monitors = [job.monitor for job in self._running.values()]
        records = [monitor.record() for monitor in monitors]
        return sorted(records, key=lambda record: record.started_at, reverse=True)

    def _monitors(self) -> dict[str, WatchedJob]:
        return self._ended | {job_id: job.monitor for job_id, job in self._running.items()}
