"""A headless Chromium, and servers for it to look at: one with a job that really runs, one with a long history."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from benchmarks.history import job_with_history
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from tests.page.rules_job import Payment, match_payments, payments
from tests.page.views import ENDED_ID, FAILING_ID, JOB, Host
from tests.support.windowed_jobs import EPOCHS, Click, WindowedJob

from checkdam import DataStream, StreamExecutionEnvironment
from checkdam.checkpoint.settings import CheckpointConfig, CheckpointRetention
from checkdam.config import Configuration
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_records import (
    CheckpointRecord,
    CheckpointTrouble,
    EndingRecord,
    JobRecord,
    RestartRecord,
)
from checkdam.server.app.rest_server import RestServer
from checkdam.storage.filesystem import open_storage
from checkdam.testing.gate import Gate
from checkdam.testing.local_job import LocalJob

MARKUP = "<img src=x onerror=\"document.title='owned'\"> words"
"""A job's name that would do harm if it were ever taken for HTML."""

READY = "() => performance.getEntriesByName('checkdam:interactive').some((mark) => mark.detail === location.hash)"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shots", metavar="DIRECTORY", help="leave a screenshot of every view of the page there")


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
        self.page.wait_for_function(READY)
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


LOG = f"""\
2026-11-18T14:44:52.224Z INFO  checkdam.job: job "words" started: id {JOB}, 2 slots
2026-11-18T14:44:53.001Z DEBUG rates: looking up EUR
2026-11-18T14:45:01.802Z WARN  rates counts[1]: no rate for EUR, {MARKUP}
2026-11-18T14:45:02.100Z ERROR checkdam.job: Traceback (most recent call last):
  File "job.py", line 7, in process_element
    return int(value)
ValueError: invalid literal for int() with base 10: '{"x" * 200}'
2026-11-18T14:45:03.500Z INFO  checkdam.job: checkpoint 6 completed: epoch 6, 1.25 MB (12.3 kB new), 80 ms
"""


def write_logs(directory: Path) -> None:
    """Write the log files of a job as its processes would."""
    directory.mkdir(parents=True, exist_ok=True)
    steps = "".join(f"2026-11-18T14:44:51.{number:03d}Z INFO  checkdam.job: step {number}\n" for number in range(40))
    (directory / "driver.log").write_text(steps + LOG)
    (directory / "driver.log.1").write_text("2026-11-18T14:40:00.000Z INFO  checkdam.job: long ago\n")
    (directory / "slot-0.log").write_text(LOG)
    (directory / "slot-1.out").write_text(f"counts[1]> seen {MARKUP}\ncounts[1]> seen {{'word': 'x'}}\n")


SERVED = {"rest.port": "0", "web.refresh-interval": "200 ms"}


@contextmanager
def counting_words(directory: Path, settings: Mapping[str, str]) -> Iterator[Words]:
    """Run and serve a job that has counted six epochs of words and waits for its end."""
    with _served(directory, settings, count_words, words_of(6), name=MARKUP) as words:
        yield words


@contextmanager
def matching_payments(directory: Path, settings: Mapping[str, str]) -> Iterator[Words]:
    """Run and serve a job with rules, lists and timers that has done its epochs and waits for its end."""
    with _served(directory, settings, match_payments, payments(), name="payments", record_type=Payment) as served:
        served.job.control.trigger_checkpoint().result(30)
        yield served


CLICKS_FROM = 1_699_999_980_000
"""22:13 on 2023-11-14 in UTC: the page shows times of today's clocks as such, and small ones as numbers."""


@contextmanager
def clicks_in_windows(directory: Path, settings: Mapping[str, str]) -> Iterator[Words]:
    """Run and serve a job whose windows have records, and have not ended."""
    build = WindowedJob().build
    clicks = [[(user, count, CLICKS_FROM + time) for user, count, time in epoch] for epoch in EPOCHS]
    with _served(directory, settings, build, clicks, name="clicks", record_type=Click) as served:
        served.job.control.trigger_checkpoint().result(30)
        yield served


@contextmanager
def _served(directory: Path, settings: Mapping[str, str], build: Any, epochs: Any, **options: Any) -> Iterator[Words]:
    storage = directory / "checkpoints"
    storage.mkdir()
    checkpoints = CheckpointConfig(
        storage=str(storage),
        interval=timedelta(0),
        retention=CheckpointRetention.RETAIN_ON_CANCELLATION,
        num_retained=5,
    )
    with RestServer(Configuration.load(None, settings)) as server:
        gate = Gate()
        stored = open_storage(str(storage))
        logs = Configuration.load(None, {"env.log.dir": str(directory / "logs")})
        job = LocalJob(
            build, epochs, stored, checkpoints=checkpoints, until=gate, host=server, settings=logs, **options
        )
        job.start()
        job.heard.wait_for_epoch(len(epochs))
        write_logs(directory / "logs" / JOB)
        yield Words(server, job, gate, directory)
        gate.open()
        job.join()
        server.close(timedelta(0))  # the page that was open has been closed, so it will not ask for the end


@pytest.fixture
def words(tmp_path: Path) -> Iterator[Words]:
    with counting_words(tmp_path, SERVED) as words:
        yield words


@pytest.fixture
def rules(tmp_path: Path) -> Iterator[Words]:
    with matching_payments(tmp_path, SERVED) as rules:
        yield rules


@pytest.fixture
def windowed(tmp_path: Path) -> Iterator[Words]:
    with clicks_in_windows(tmp_path, SERVED) as windowed:
        yield windowed


@dataclass(frozen=True)
class Kept:
    """Jobs that ran somewhere else."""

    jobs: Sequence[JobRecord]

    def records(self) -> Sequence[JobRecord]:
        return self.jobs

    def record(self, job_id: str) -> JobRecord | None:
        return next((job for job in self.jobs if job.id == job_id), None)


def with_savepoints(record: JobRecord, directory: Path) -> JobRecord:
    """The job with savepoints that exist, as far as a list of them can tell."""

    def kept(checkpoint: CheckpointRecord) -> CheckpointRecord:
        if not checkpoint.kind.is_savepoint or checkpoint.path is None:
            return checkpoint
        place = directory / Path(checkpoint.path).name
        place.mkdir(exist_ok=True)
        (place / "_metadata").touch()
        return msgspec.structs.replace(checkpoint, path=str(place))

    return msgspec.structs.replace(
        record,
        checkpoints=tuple(kept(each) for each in record.checkpoints),
        savepoints=tuple(kept(each) for each in record.savepoints),
    )


@pytest.fixture
def history(tmp_path: Path) -> Iterator[str]:
    """The address of a server that knows one job, with 200 checkpoints behind it."""
    record = with_savepoints(job_with_history(checkpoints=200, now=time.time_ns() // 1_000_000), tmp_path)
    with RestServer(Configuration.load(None, SERVED), Kept([record])) as server:
        yield server.url


def in_trouble(record: JobRecord, now: int) -> JobRecord:
    """The job as it waits for its restart, with checkpoints that fail."""
    return msgspec.structs.replace(
        record,
        status=JobStatus.RESTARTING,
        timestamps={**record.timestamps, JobStatus.RESTARTING: now},
        restart=RestartRecord(2, 5, f"slot 0 (process 4242 on host-1) does not answer: {MARKUP}", now, now + 3_600_000),
        checkpoint_trouble=CheckpointTrouble(3, now - 60_000, "it took longer than execution.checkpointing.timeout"),
    )


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Host, str]]:
    """The addresses of the servers that views are looked at on; nothing is done to their jobs."""
    now = time.time_ns() // 1_000_000
    long, other = (job_with_history(checkpoints=200, now=now), job_with_history(checkpoints=20, now=now - 10**7))
    long = with_savepoints(long, tmp_path_factory.mktemp("savepoints"))
    ended = msgspec.structs.replace(
        other,
        id=ENDED_ID,
        status=JobStatus.CANCELED,
        timestamps={**other.timestamps, JobStatus.CANCELLING: now - 10**7, JobStatus.CANCELED: now - 10**7 + 800},
        slots=(),
        logs=str(tmp_path_factory.mktemp("ended") / ENDED_ID),
        ending=EndingRecord(
            checkpoint=f"file:///checkpoints/{ENDED_ID}/chk-20",
            resume=f"checkdam run -D parallelism.default=4 orders.py -s file:///checkpoints/{ENDED_ID}/chk-20",
        ),
    )
    assert ended.logs is not None
    write_logs(Path(ended.logs))
    failing = in_trouble(msgspec.structs.replace(other, id=FAILING_ID), now)
    settings = {**SERVED, "web.refresh-interval": "1 s"}
    with (
        RestServer(Configuration.load(None, settings), Kept([long, ended, failing])) as records,
        counting_words(tmp_path_factory.mktemp("live"), settings) as live,
        matching_payments(tmp_path_factory.mktemp("rules"), settings) as rules,
        clicks_in_windows(tmp_path_factory.mktemp("clicks"), settings) as clicks,
    ):
        yield {Host.RECORDS: records.url, Host.LIVE: live.url, Host.RULES: rules.url, Host.CLICKS: clicks.url}
