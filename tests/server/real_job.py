"""A real job, with the real master, slots and formats, served by a real server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from tests.support.word_count import WordCount

from checkdam.config import Configuration
from checkdam.server.app.rest_server import RestServer
from checkdam.storage.local_storage import LocalStorage
from checkdam.testing.gate import Gate
from checkdam.testing.local_job import JOB_ID, LocalJob

WORDS = [["a", "b", "a"], ["c", "a"]]


@dataclass
class ServedJob:
    """The job idles once its words are counted, until `gate` opens."""

    job: LocalJob
    gate: Gate
    server: RestServer
    client: httpx.Client
    root: Path

    def operation(self, path: str, **body: Any) -> dict[str, Any]:
        """Trigger with a POST and wait for the end, success or not."""
        answer = self.client.post(path, json=body)
        assert answer.is_success, answer.text
        status = f"{path.replace('/stop', '/savepoints')}/{answer.json()['request-id']}"
        return self.ended(status)

    def ended(self, path: str) -> dict[str, Any]:
        while True:
            body = self.client.get(path).json()
            if body["status"]["id"] == "COMPLETED":
                return dict(body["operation"])

    @property
    def status(self) -> str:
        return str(self.client.get(f"/jobs/{JOB_ID}/status").json()["status"])


@contextmanager
def served_job(root: Path, **options: Any) -> Iterator[ServedJob]:
    gate = Gate()
    server = RestServer(Configuration().with_value("rest.port", 0))
    server.start()
    job = WordCount(WORDS, storage=LocalStorage(str(root / "checkpoints"))).job(until=gate, host=server, **options)
    job.start()
    job.heard.wait_for_epoch(len(WORDS))
    try:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            yield ServedJob(job, gate, server, client, root)
        gate.open()
        job.join()
    finally:
        server.close(timedelta(0))
