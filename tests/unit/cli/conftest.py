"""A real job, really served, that the commands of a test operate; without Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.checkpoint.settings import CheckpointConfig, CheckpointRetention
from checkdam.cli.job_server import Hosting
from checkdam.cli.main import command_line
from checkdam.config import Configuration
from checkdam.ids import JobId
from checkdam.server.catalog import registry
from checkdam.storage.filesystem import open_storage
from checkdam.testing.gate import Gate
from checkdam.testing.local_job import LocalJob

EPOCHS = [["to", "be"], ["or", "not"], ["to", "be"]]


def count_words(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
    counts = stream.map(lambda word: (word, 1), output_type=tuple[str, int]).key_by(0, key_type=str).sum(1)
    counts.uid("counts").print().uid("out")


@dataclass
class Ended:
    """What a command has left."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Terminal:
    """Types commands, and starts jobs for them; each job ends with the test at the latest."""

    directory: Path
    capsys: pytest.CaptureFixture[str]
    stack: ExitStack
    hosts: list[Hosting] = field(default_factory=list)

    def checkdam(self, *words: str) -> Ended:
        self.capsys.readouterr()
        code = command_line(list(words))
        captured = self.capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    def host(self, **settings: str) -> Hosting:
        given = {"rest.port": "0", **{key.replace("_", "."): value for key, value in settings.items()}}
        host = self.stack.enter_context(Hosting(Configuration.load(None, given)))
        self.hosts.append(host)
        return host

    def job(
        self, name: str = "words", job_id: str = "4fa1" + "0" * 28, *, host: Hosting | None = None, stored: bool = True
    ) -> LocalJob:
        """One that has counted all its words and goes on until it is told otherwise."""
        host = host or self.host()
        checkpoints = self.directory / "checkpoints"
        checkpoints.mkdir(exist_ok=True)
        gate = Gate()
        job = LocalJob(
            count_words,
            EPOCHS,
            open_storage(str(checkpoints)) if stored else None,
            checkpoints=CheckpointConfig(
                storage=str(checkpoints),
                interval=timedelta(hours=1),
                retention=CheckpointRetention.RETAIN_ON_CANCELLATION,
                num_retained=3,
            )
            if stored
            else CheckpointConfig(),
            until=gate,
            host=host,
            watchers=host.watchers,
            name=name,
            job_id=JobId(job_id),
        )
        job.start()
        self.stack.callback(job.join)
        self.stack.callback(gate.open)
        job.heard.wait_for_epoch(len(EPOCHS))
        return job


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put this machine into UTC, for tests that compare times."""
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Terminal]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "default_directory", lambda: tmp_path / "checkdam-me" / "servers")
    monkeypatch.delenv("CHECKDAM_REST_TOKEN", raising=False)
    with ExitStack() as stack:
        yield Terminal(tmp_path, capsys, stack)


def lines(text: str) -> Sequence[str]:
    return [line for line in text.splitlines() if line.strip()]
