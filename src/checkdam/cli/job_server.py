"""The REST server of a process with the page, the archived jobs, and an entry in the registry of servers."""

from __future__ import annotations

import logging
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from checkdam.client.rest_client import RestClient
from checkdam.config import CHECKPOINT_DIR, Configuration
from checkdam.errors import CheckdamError
from checkdam.ids import JobId
from checkdam.runtime.job import Job
from checkdam.runtime.job_control import RunningJob, WatchedJob
from checkdam.runtime.monitor.job_events import JobListener
from checkdam.runtime.monitor.job_monitor import JobMonitor
from checkdam.runtime.monitor.job_records import JobRecord
from checkdam.runtime.monitor.masking import without_credentials
from checkdam.server.app.rest_server import RestServer
from checkdam.server.app.security import rest_token
from checkdam.server.catalog import registry
from checkdam.server.catalog.archive import archiving
from checkdam.server.catalog.driver_answers import DriverAnswers, LiveStatus, Place, live_statuses
from checkdam.server.catalog.job_index import JobIndex
from checkdam.server.catalog.neighbours import Neighbours
from checkdam.storage.filesystem import open_storage
from checkdam.storage.memory_storage import is_in_memory

_PATIENCE = timedelta(seconds=1)
"""How long an answer waits for jobs that do not run here: cancelling must work even while their storage hangs."""
_MOST_DIRECTORIES = 100
_SEEN_WITHIN = timedelta(seconds=5)
_LOOK_AGAIN_SECONDS = 0.2
_log = logging.getLogger(__name__)


class Hosting:
    """A JobHost. Serves this process's jobs, and those found in the same checkpoint directories.

    A standing one serves the jobs of all this user's processes, and what is left of them in their directories.
    """

    def __init__(
        self,
        configuration: Configuration,
        directories: Sequence[str] = (),
        *,
        is_standing: bool = False,
        registry_directory: Path | None = None,
        resume: Callable[[str | None, int | None], str] | None = None,
    ) -> None:
        """`resume` gives the command that resumes a job of this process from a path, at a parallelism."""
        configured = configuration.get(CHECKPOINT_DIR)
        self._lock = threading.Lock()
        self._directories = list(directories) or ([configured] if configured is not None else [])
        self._is_standing = is_standing
        self._registry_directory = registry_directory
        self._neighbours = Neighbours(
            registry_directory,
            token=rest_token(configuration),
            shows_all=is_standing,
            on_gone=lambda: self._index.expire(),
        )
        self._answers = DriverAnswers()
        self._server = RestServer(configuration, archive=self, neighbours=self._neighbours)
        self._index = self._indexed()
        self._registration: registry.Registration | None = None
        self._archived_in: dict[str, str] = {}  # by job: its checkpoint directory, which other processes can read
        self._resume = resume

    def start(self) -> None:
        """Start serving and register the server. Raise CheckdamError for an unsafe address, or if no port is free."""
        self._server.start()
        self._neighbours.own_url = self._server.url
        self._registration = registry.register(
            self._server.url, self._server.token, self._registry_directory, is_standing=self._is_standing
        )

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def urls_for_others(self) -> Sequence[str]:
        """The URLs for clients on other machines; none if the server listens on loopback."""
        return self._server.urls_for_others

    def job_started(self, job: RunningJob) -> None:
        storage = job.monitor.record().settings.storage
        if storage is not None:
            self._add([storage])  # it may be set by the program itself
        self._server.job_started(job)
        if self._registration is not None:
            is_durable = storage is not None and not is_in_memory(storage)
            self._registration.runs(job.job_id, open_storage(storage).uri if storage and is_durable else None)

    def job_ended(self, job_id: JobId) -> None:
        self._server.job_ended(job_id)

    def watchers(self, job: Job, monitor: WatchedJob) -> Sequence[JobListener]:
        """Return the listeners after the monitor: the one that archives the job next to its checkpoints."""
        if isinstance(monitor, JobMonitor):
            monitor.serve_at(self.url)
            monitor.resumed_by(self._resume)
        archive = archiving(job.checkpoints.storage, monitor)
        if archive is None or job.checkpoints.storage is None:
            return []
        if not is_in_memory(job.checkpoints.storage):
            self._archived_in[job.job_id] = job.checkpoints.storage
        return [archive]

    def find_jobs(self) -> Sequence[registry.Server]:
        """Look for jobs of this user's other processes, and remember where they keep their checkpoints.

        Returns the servers whose jobs are not shown, because they need a token and this server has none.
        """
        self._add([directory for server in self._neighbours.servers() for directory in server.directories])
        return self._neighbours.guarded()

    def records(self) -> Sequence[JobRecord]:
        """Return the jobs that do not run here."""
        return self._index.records()

    def record(self, job_id: str) -> JobRecord | None:
        return self._index.record(job_id)

    def page_afterwards(self, job_id: JobId) -> str | None:
        """Return how the page of a job can be seen after this process has ended; None if nothing is left of the job."""
        directory = self._archived_in.get(job_id)
        if directory is None:
            return None
        for server in registry.servers(self._registry_directory):
            if server.is_standing and _knows(server, job_id):
                return f"the job's page: {server.url}/#/jobs/{job_id}"
        shown = without_credentials(open_storage(directory).uri).removeprefix("file://")
        return f"to see the job's page: {shlex.join(['checkdam', 'serve', '--dir', shown])}"

    def close(self) -> None:
        """Stop serving once clients have the results they are waiting for."""
        try:
            self._server.close()
            self._wait_until_seen()
        finally:  # Ctrl-C ends the wait; the server must not be found any more
            if self._registration is not None:
                self._registration.close()

    def _wait_until_seen(self) -> None:
        """Wait until a standing server knows the jobs of this process: it looks for new ones every second."""
        has_token = self._server.token is not None
        for server in registry.servers(self._registry_directory) if self._archived_in else ():
            if server.is_standing and (server.token is not None or not has_token):
                deadline = time.monotonic() + _SEEN_WITHIN.total_seconds()
                while not all(_knows(server, JobId(each)) for each in self._archived_in):
                    if time.monotonic() > deadline:
                        break
                    time.sleep(_LOOK_AGAIN_SECONDS)

    def __enter__(self) -> Hosting:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _add(self, directories: Sequence[str]) -> None:
        with self._lock:
            new = [each for each in dict.fromkeys(directories) if each not in self._directories]
            if not new:
                return
            if len(self._directories) + len(new) > _MOST_DIRECTORIES:
                _log.warning("jobs in %s are not shown: there are too many directories", ", ".join(new))
                return
            self._directories += new
            self._index = self._indexed()

    def _indexed(self) -> JobIndex:
        return JobIndex(self._directories, patience=_PATIENCE, ask=self._ask)

    def _ask(self, records: Sequence[JobRecord]) -> Mapping[str, LiveStatus]:
        """Ask the drivers that records name. A token is sent to none of them: anybody may have written a record."""
        return live_statuses(
            self._answers,
            {each.id: Place(each.address) for each in records if each.address and each.address != self._server.url},
        )


def _knows(server: registry.Server, job_id: JobId) -> bool:
    client = RestClient(server.url, token=server.token, timeout=_PATIENCE)
    try:
        client.get(f"/jobs/{job_id}/status")
    except CheckdamError:
        return False
    return True
