"""The page of a standing server: one page for jobs of several drivers, which stays when they end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from tests.page.conftest import SERVED, count_words, words_of

from checkdam.checkpoint.settings import CheckpointConfig, CheckpointRetention
from checkdam.cli.job_server import Hosting
from checkdam.config import Configuration
from checkdam.ids import JobId
from checkdam.storage.filesystem import open_storage
from checkdam.testing.gate import Gate
from checkdam.testing.local_job import LocalJob

pytestmark = pytest.mark.slow

FIRST, SECOND = "a1" * 16, "b2" * 16


@dataclass
class Driver:
    """A job that has counted its words and waits for its end, and its own server."""

    host: Hosting
    job: LocalJob
    gate: Gate

    def end(self) -> None:
        self.gate.open()
        self.job.join()
        self.host.close()


@dataclass
class Standing:
    url: str
    first: Driver
    second: Driver


@pytest.fixture
def standing(tmp_path: Path) -> Iterator[Standing]:
    configuration, registry = Configuration.load(None, SERVED), tmp_path / "checkdam-me" / "servers"
    with ExitStack() as stack:

        def driver(name: str, job_id: str) -> Driver:
            storage, gate = tmp_path / name, Gate()
            storage.mkdir()
            host = stack.enter_context(Hosting(configuration, registry_directory=registry))
            job = LocalJob(
                count_words,
                words_of(6),
                open_storage(str(storage)),
                checkpoints=CheckpointConfig(
                    storage=str(storage), interval=timedelta(0), retention=CheckpointRetention.RETAIN_ON_CANCELLATION
                ),
                until=gate,
                host=host,
                watchers=host.watchers,
                name=name,
                job_id=JobId(job_id),
            )
            job.start()
            stack.callback(job.join)
            stack.callback(gate.open)
            job.heard.wait_for_epoch(6)
            return Driver(host, job, gate)

        first, second = driver("first", FIRST), driver("second", SECOND)
        server = stack.enter_context(Hosting(configuration, is_standing=True, registry_directory=registry))
        server.find_jobs()
        yield Standing(server.url, first, second)


def test_jobs_of_all_drivers_are_on_one_page_and_stay_when_they_end(standing: Standing, visit: Any) -> None:
    page = visit(standing.url).open()
    running = page.get_by_role("region", name="Running jobs")
    expect(running.get_by_role("link", name="first")).to_be_visible()
    expect(running.get_by_role("link", name="second")).to_be_visible()

    standing.first.end()

    ended = page.get_by_role("region", name="Jobs that are not running")
    expect(ended.get_by_role("row", name="first")).to_contain_text("FINISHED")
    expect(running.get_by_role("row", name="second")).to_contain_text("RUNNING")
    expect(page.get_by_text("The server does not answer.")).to_be_hidden()


def test_buttons_reach_the_driver_and_the_page_goes_on_when_it_ends(standing: Standing, visit: Any) -> None:
    page = visit(standing.url).open("jobs", SECOND)
    page.get_by_role("button", name="Checkpoint", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Take checkpoint").click()
    expect(page.get_by_role("status", name="Results")).to_contain_text("Checkpoint 7 is complete.")

    standing.second.end()

    expect(page.locator(".job-head .badge")).to_have_text("FINISHED")
    expect(page.get_by_text("The server does not answer.")).to_be_hidden()
    page = visit(standing.url).open("jobs", SECOND, "checkpoints")
    expect(page.locator(".job-head .badge")).to_have_text("FINISHED")
