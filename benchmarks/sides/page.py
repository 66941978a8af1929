"""The web page in a browser: the time until it can be used."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.history import JOB_ID, job_with_history
from checkdam.config import Configuration
from checkdam.runtime.monitor.job_records import JobRecord
from checkdam.server.app.rest_server import RestServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_VIEWS = {
    "overview": f"jobs/{JOB_ID}",
    "history": f"jobs/{JOB_ID}/checkpoints/history",
    "one checkpoint": f"jobs/{JOB_ID}/checkpoints/{{last}}",
}
_READY = "() => performance.getEntriesByName('checkdam:interactive').length > 0"
_WHEN = "() => performance.getEntriesByName('checkdam:interactive')[0].startTime"


@dataclass(frozen=True)
class _Kept:
    job: JobRecord

    def records(self) -> Sequence[JobRecord]:
        return [self.job]

    def record(self, job_id: str) -> JobRecord | None:
        return self.job if job_id == self.job.id else None


def interactive(*, checkpoints: int, rounds: int) -> dict[str, Any]:
    """Return the milliseconds from entering the address, without a cache, until a view has its data and is usable."""
    from playwright.sync_api import sync_playwright  # the other sides do not need it

    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("There is no Chromium: sh tools/chromium.sh installs it.")
    record = job_with_history(checkpoints=checkpoints, now=time.time_ns() // 1_000_000)
    settings = Configuration.load(None, {"rest.port": "0"})
    with RestServer(settings, _Kept(record)) as server, sync_playwright() as playwright:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=chromium, args=sandbox)
        views = {
            name: [_open(browser, f"{server.url}/#/{path.format(last=checkpoints - 1)}") for _ in range(rounds)]
            for name, path in _VIEWS.items()
        }
        browser.close()
    return {"milliseconds": views}


def _open(browser: Browser, address: str) -> float:
    context = browser.new_context()
    page = context.new_page()
    page.goto(address)
    page.wait_for_function(_READY)
    taken = float(page.evaluate(_WHEN))
    context.close()
    return taken
