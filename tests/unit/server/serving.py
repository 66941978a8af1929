"""A real server on a port of its own, with one running job and an archive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx
from tests.unit.server.made_jobs import JOB, RECORD, AskedControl, MadeArchive, MadeMonitor, running_job

from checkdam.config import Configuration
from checkdam.runtime.monitor.job_records import JobRecord
from checkdam.server.app.rest_server import RestServer


@dataclass
class Served:
    """`client` speaks to the server; `control` and `monitor` are those of job JOB. Tests share a server, not a job."""

    server: RestServer
    client: httpx.Client
    control: AskedControl
    monitor: MadeMonitor
    archive: MadeArchive
    disposed: list[str] = field(default_factory=list)

    def renew(self) -> Served:
        """As just started: the job has told nothing new and been asked nothing."""
        job = running_job(RECORD, AskedControl())
        assert isinstance(job.control, AskedControl)
        assert isinstance(job.monitor, MadeMonitor)
        self.control, self.monitor = job.control, job.monitor
        self.archive.kept.clear()
        self.disposed.clear()
        self.client.cookies.clear()
        self.server.jobs.savepoint_files.expire()
        self.server.job_started(job)
        return self

    def get(self, path: str, **query: Any) -> Any:
        """The JSON of an answer that must be a success."""
        answer = self.client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def of_job(self, path: str = "", **query: Any) -> Any:
        return self.get(f"/jobs/{JOB}{path}", **query)

    def errors(self, method: str, path: str, status: int, **more: Any) -> list[str]:
        """The messages of an answer that must fail with this status, in Flink's form."""
        answer = self.client.request(method, path, **more)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/json; charset=UTF-8"
        body = answer.json()
        assert list(body) == ["errors"]
        return list(body["errors"])

    def tells(self, record: JobRecord) -> None:
        self.monitor.now = record


def serving(configuration: Configuration) -> Iterator[Served]:
    archive = MadeArchive()
    disposed: list[str] = []
    server = RestServer(configuration.with_value("rest.port", 0), archive, dispose=disposed.append)
    server.start()
    try:
        with httpx.Client(base_url=f"http://localhost:{server.port}", timeout=30, verify=False) as client:
            yield Served(server, client, AskedControl(), MadeMonitor(RECORD), archive, disposed).renew()
    finally:
        server.close(timedelta(0))
