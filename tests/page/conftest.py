"""A headless Chromium, and servers for it to look at: one with a job that really runs, one with a long history."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from benchmarks.history import job_with_history
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from checkdam import DataStream, StreamExecutionEnvironment
from checkdam.checkpoint.settings import CheckpointConfig, CheckpointRetention
from checkdam.config import Configuration
from checkdam.runtime.monitor.job_records import JobRecord
from checkdam.server.app.rest_server import RestServer
from checkdam.storage.filesystem import open_storage
from checkdam.testing.gate import Gate
from checkdam.testing.local_job import JOB_ID, LocalJob

MARKUP = "<img src=x onerror=\"document.title='owned'\"> words"
"""A job's name that would do harm if it were ever taken for HTML."""

_READY = "() => performance.getEntriesByName('checkdam:interactive').some((mark) => mark.detail === location.hash)"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.fail("There is no Chromium to show the page in: sh tools/chromium.sh installs it.")
    with sync_playwright() as playwright:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        launched = playwright.chromium.launch(executable_path=chromium, args=sandbox)
        yield launched
        launched.close()


@dataclass
class Visitor:
    """Somebody with a browser. What the page complained of is kept."""

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)

    def open(self, *parts: str) -> Page:
        """Show a view and wait until it can be used."""
        self.page.goto(f"{self.url}/#/{'/'.join(parts)}")
        self.page.wait_for_function(_READY)
        return self.page


@pytest.fixture
def visit(browser: Browser) -> Iterator[Any]:
    """`visit(url, **options of the browser)` gives a Visitor; a page that throws fails the test."""
    contexts: list[BrowserContext] = []
    visitors: list[Visitor] = []

    def come(url: str, **options: Any) -> Visitor:
        context = browser.new_context(**options)
        contexts.append(context)
        context.set_default_timeout(15_000)
        visitor = Visitor(context.new_page(), url)
        visitor.page.on("pageerror", lambda error: visitor.complaints.append(str(error)))
        visitors.append(visitor)
        return visitor

    yield come
    for context in contexts:
        context.close()
    assert [complaint for visitor in visitors for complaint in visitor.complaints] == []


@dataclass
class Words:
    """A job that counts words, as far as it was let, and the server it is served by."""

    server: RestServer
    job: LocalJob
    gate: Gate
    directory: Path

    @property
    def url(self) -> str:
        return self.server.url


def count_words(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
    counts = stream.map(lambda word: (word, 1), output_type=tuple[str, int]).key_by(0, key_type=str).sum(1)
    counts.uid("counts").name("count words").print().uid("out")


def words_of(epochs: int) -> list[list[str]]:
    """One word more in each epoch, beside those that come at random."""
    draw = random.Random(7)
    return [[f"new {n}", *(f"word {draw.randrange(120)}" for _ in range(200))] for n in range(1, epochs + 1)]


SERVED = {"rest.port": "0", "web.refresh-interval": "200 ms"}


@pytest.fixture
def words(tmp_path: Path) -> Iterator[Words]:
    storage = tmp_path / "checkpoints"
    storage.mkdir()
    checkpoints = CheckpointConfig(
        storage=str(storage),
        interval=timedelta(0),
        retention=CheckpointRetention.RETAIN_ON_CANCELLATION,
        num_retained=5,
    )
    with RestServer(Configuration.load(None, SERVED)) as server:
        gate = Gate()
        job = LocalJob(
            count_words,
            words_of(6),
            open_storage(str(storage)),
            checkpoints=checkpoints,
            until=gate,
            host=server,
            name=MARKUP,
        )
        job.start()
        job.heard.wait_for_epoch(6)
        yield Words(server, job, gate, tmp_path)
        gate.open()
        job.join()


JOB = str(JOB_ID)


@dataclass(frozen=True)
class Kept:
    """Jobs that ran somewhere else."""

    jobs: Sequence[JobRecord]

    def records(self) -> Sequence[JobRecord]:
        return self.jobs

    def record(self, job_id: str) -> JobRecord | None:
        return next((job for job in self.jobs if job.id == job_id), None)


@pytest.fixture
def history() -> Iterator[str]:
    """The address of a server that knows one job, with 200 checkpoints behind it."""
    record = job_with_history(checkpoints=200, now=time.time_ns() // 1_000_000)
    with RestServer(Configuration.load(None, SERVED), Kept([record])) as server:
        yield server.url
