"""How a job is doing, above its graph and in the list of jobs: quiet while all is well."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.history import JOB_ID
from playwright.sync_api import expect
from tests.page.views import FAILING_ID, Host

pytestmark = pytest.mark.slow


def test_a_job_in_trouble_tells_why_which_attempt_and_when(hosts: dict[Host, str], visit: Any) -> None:
    page = visit(hosts[Host.RECORDS]).open("jobs", FAILING_ID)

    strip = page.get_by_role("status", name="Health")
    expect(strip).to_contain_text("Failing")
    expect(strip).to_contain_text("Restarting: attempt 2 of 5, next try in")
    expect(strip).to_contain_text("slot 0 (process 4242 on host-1) does not answer")
    expect(strip).to_contain_text("3 checkpoints failed in a row since")
    expect(strip).to_contain_text("it took longer than execution.checkpointing.timeout")
    strip.get_by_role("link", name="3 checkpoints failed in a row").click()
    expect(page).to_have_url(f"{hosts[Host.RECORDS]}/#/jobs/{FAILING_ID}/checkpoints")


def test_a_job_that_is_well_has_one_quiet_line(hosts: dict[Host, str], visit: Any) -> None:
    page = visit(hosts[Host.RECORDS]).open("jobs", JOB_ID)

    strip = page.get_by_role("status", name="Health")
    expect(strip).to_contain_text("Healthy event time")
    expect(strip).to_contain_text("behind")
    expect(strip.locator("p")).to_have_count(1)
    expect(page.get_by_role("table", name="Operators")).to_contain_text("behind")


def test_the_list_of_jobs_tells_of_each_how_it_is(hosts: dict[Host, str], visit: Any) -> None:
    page = visit(hosts[Host.RECORDS]).open()

    running = page.get_by_role("table", name="Running jobs")
    expect(running.get_by_role("row").filter(has_text=JOB_ID)).to_contain_text("Healthy")
    failing = running.get_by_role("row").filter(has_text=FAILING_ID)
    expect(failing).to_contain_text("Failing attempt 2 of 5, next try in")
    expect(failing).to_contain_text("3 checkpoints failed in a row")
