"""The REST server of a process with the page, the archived jobs, and an entry in the registry of servers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from checkdam.config import CHECKPOINT_DIR, Configuration
from checkdam.ids import JobId
from checkdam.runtime.job import Job
from checkdam.runtime.job_control import RunningJob, WatchedJob
from checkdam.runtime.monitor.job_events import JobListener
from checkdam.runtime.monitor.job_monitor import JobMonitor
from checkdam.runtime.monitor.job_records import JobRecord
from checkdam.server.app.rest_server import RestServer
from checkdam.server.catalog import registry
from checkdam.server.catalog.archive import archiving
from checkdam.server.catalog.job_index import JobIndex

_PATIENCE = timedelta(seconds=1)
"""How long an answer waits for jobs that do not run here: cancelling must work even while their storage hangs."""


class Hosting:
    """A JobHost. Serves this process's jobs, and those found in the same checkpoint directories."""

    def __init__(
        self,
        configuration: Configuration,
        directories: Sequence[str] = (),
        *,
        registry_directory: Path | None = None,
    ) -> None:
        configured = configuration.get(CHECKPOINT_DIR)
        self._lock = threading.Lock()
        self._directories = list(directories) or ([configured] if configured is not None else [])
        self._index = JobIndex(self._directories, patience=_PATIENCE)
        self._server = RestServer(configuration, archive=self)
        self._registry_directory = registry_directory
        self._registration: registry.Registration | None = None

    def start(self) -> None:
        """Start serving and register the server. Raise CheckdamError for an unsafe address, or if no port is free."""
        self._server.start()
        self._registration = registry.register(self._server.url, self._server.token, self._registry_directory)

    @property
    def url(self) -> str:
        return self._server.url

    def job_started(self, job: RunningJob) -> None:
        storage = job.monitor.record().settings.storage
        with self._lock:
            if storage is not None and storage not in self._directories:  # set by the program itself
                self._directories.append(storage)
                self._index = JobIndex(self._directories, patience=_PATIENCE)
        self._server.job_started(job)
        if self._registration is not None:
            self._registration.runs(job.job_id)

    def job_ended(self, job_id: JobId) -> None:
        self._server.job_ended(job_id)

    def watchers(self, job: Job, monitor: WatchedJob) -> Sequence[JobListener]:
        """Return the listeners after the monitor: the one that archives the job next to its checkpoints."""
        if isinstance(monitor, JobMonitor):
            monitor.serve_at(self.url)
        archive = archiving(job.checkpoints.storage, monitor)
        return [archive] if archive is not None else []

    def records(self) -> Sequence[JobRecord]:
        """Return the jobs that do not run here."""
        return self._index.records()

    def record(self, job_id: str) -> JobRecord | None:
        return self._index.record(job_id)

    def close(self) -> None:
        """Stop serving once clients have the results they are waiting for."""
        try:
            self._server.close()
        finally:  # Ctrl-C ends the wait; the server must not be found any more
            if self._registration is not None:
                self._registration.close()

    def __enter__(self) -> Hosting:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
