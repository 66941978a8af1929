"""Every button, pressed on a job that really runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.page.conftest import Words
from tests.page.views import JOB

from checkdam.runtime.job_control import SavepointFormat
from checkdam.runtime.monitor.job_monitor import JobMonitor

pytestmark = pytest.mark.slow


def results(page: Page) -> Any:
    return page.get_by_role("status", name="Results")


def test_a_checkpoint_is_taken_and_its_number_told(words: Words, visit: Any) -> None:
    page = visit(words.url).open("jobs", JOB)

    page.get_by_role("button", name="Checkpoint", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Take checkpoint").click()

    expect(results(page)).to_contain_text("Checkpoint 7 is complete.")


def test_a_full_checkpoint_is_asked_for_with_the_box_ticked(words: Words, visit: Any) -> None:
    page = visit(words.url).open("jobs", JOB, "checkpoints", "history")

    page.get_by_role("button", name="Checkpoint", exact=True).click()
    page.get_by_label("Full").check()
    with page.expect_request(lambda request: request.method == "POST") as asked:
        page.get_by_role("button", name="Take checkpoint").click()

    assert asked.value.post_data_json == {"checkpointType": "FULL"}
    expect(page.get_by_role("row", name="7 COMPLETED")).to_be_visible()


def test_a_savepoint_goes_where_it_was_told_and_is_listed(words: Words, visit: Any) -> None:
    target = words.directory / "savepoints"
    page = visit(words.url).open("jobs", JOB, "savepoints")

    page.get_by_role("button", name="Savepoint", exact=True).click()
    page.get_by_label("Directory").fill(str(target))
    page.get_by_role("button", name="Take savepoint").click()

    expect(results(page)).to_contain_text("Savepoint is complete:")
    [made] = target.iterdir()
    assert (made / "_metadata").exists()
    expect(page.get_by_role("region", name="Savepoints")).to_contain_text(made.name)


def test_a_savepoint_without_any_directory_is_not_sent(words: Words, visit: Any) -> None:
    page = visit(words.url).open("jobs", JOB)

    page.get_by_role("button", name="Savepoint", exact=True).click()
    page.get_by_role("button", name="Take savepoint").click()

    expect(page.get_by_role("dialog")).to_be_visible()
    assert page.get_by_label("Directory").evaluate("(field) => field.validity.valueMissing")


def test_a_savepoint_that_fails_tells_why_and_the_job_goes_on(words: Words, visit: Any) -> None:
    blocked = words.directory / "a file"
    blocked.write_text("not a directory")
    page = visit(words.url).open("jobs", JOB)

    page.get_by_role("button", name="Savepoint", exact=True).click()
    page.get_by_label("Directory").fill(str(blocked))
    page.get_by_role("button", name="Take savepoint").click()

    expect(results(page)).to_contain_text("Savepoint failed:")
    expect(results(page)).to_contain_text("a file")
    expect(page.locator(".job-head .badge")).to_have_text("RUNNING")


def test_a_savepoint_is_deleted_only_when_confirmed(words: Words, visit: Any) -> None:
    target = words.directory / "savepoints"
    made = Path(words.job.control.trigger_savepoint(str(target), SavepointFormat.CANONICAL).result(20))
    visitor = visit(words.url)
    page = visitor.open("jobs", JOB, "savepoints")

    page.get_by_role("button", name="Dispose").click()
    page.get_by_role("button", name="Back").click()
    assert (made / "_metadata").exists()
    page.get_by_role("button", name="Dispose").click()
    page.get_by_role("button", name="Delete the savepoint").click()

    expect(results(page)).to_contain_text("is deleted")
    assert not made.exists()
    expect(page.get_by_text("No savepoint of this job is known.")).to_be_visible()
    page = visitor.open("jobs", JOB, "state")
    expect(page.get_by_label("As of").locator("option").first).to_have_text("now, live")
    expect(page.locator(f'option[value="{made.name}"]')).to_have_count(0)


def test_a_rescale_changes_the_parallelism_on_show(words: Words, visit: Any) -> None:
    page = visit(words.url).open("jobs", JOB)

    page.get_by_role("button", name="Rescale").click()
    page.get_by_label("Parallelism").fill("3")
    page.get_by_role("dialog").get_by_role("button", name="Rescale").click()

    expect(results(page)).to_contain_text("The job runs with parallelism 3.")
    expect(page.locator("dl.facts").first).to_contain_text("3 of at most 128")


def test_more_than_the_max_parallelism_cannot_be_asked_for(words: Words, visit: Any) -> None:
    page = visit(words.url).open("jobs", JOB)

    page.get_by_role("button", name="Rescale").click()
    page.get_by_label("Parallelism").fill("129")
    page.get_by_role("dialog").get_by_role("button", name="Rescale").click()

    expect(page.get_by_role("dialog")).to_be_visible()


@pytest.mark.parametrize("drain", [False, True])
def test_stopping_with_a_savepoint_ends_the_job_and_its_buttons(words: Words, visit: Any, drain: bool) -> None:
    target = words.directory / "last"
    page = visit(words.url).open("jobs", JOB)

    page.get_by_role("button", name="Stop with savepoint").click()
    page.get_by_label("Directory").fill(str(target))
    page.get_by_label("Drain").set_checked(drain)
    page.get_by_role("button", name="Stop the job").click()

    expect(results(page)).to_contain_text("The job has stopped. Its savepoint:")
    expect(page.locator(".job-head .badge")).to_have_text("FINISHED")
    assert len(list(target.iterdir())) == 1
    for button in page.get_by_role("group", name="What can be done").get_by_role("button").all():
        expect(button).to_be_disabled()


def test_cancelling_asks_first(words: Words, visit: Any) -> None:
    page = visit(words.url).open("jobs", JOB)

    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Back").click()
    expect(page.locator(".job-head .badge")).to_have_text("RUNNING")
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel the job").click()

    expect(page.locator(".job-head .badge")).to_have_text("CANCELED")


def test_a_cancelled_job_tells_what_it_left_and_how_to_go_on(words: Words, visit: Any) -> None:
    monitor = words.server.jobs.require_running(JOB).monitor
    assert isinstance(monitor, JobMonitor)
    monitor.resumed_by(lambda path, _: f"checkdam run words.py -s {path}")
    page = visit(words.url).open("jobs", JOB)

    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel the job").click()

    ending = page.locator(".ending")
    expect(ending).to_contain_text("Cancelled, as asked")
    expect(ending.get_by_role("button", name="Copy")).to_have_count(2)
    expect(ending).to_contain_text("checkdam run words.py -s")
    expect(ending).to_contain_text(f"{JOB}/chk-6")


def test_the_end_is_told_before_the_server_ends_with_the_job_and_its_silence_is_no_alarm(
    words: Words, visit: Any
) -> None:
    page = visit(words.url).open("jobs", JOB)
    expect(page.locator(".job-head .badge")).to_have_text("RUNNING")

    words.job.control.cancel()  # another client asked for it
    words.job.join()
    words.server.close()

    expect(page.locator(".job-head .badge")).to_have_text("CANCELED")
    expect(page.get_by_text("The job has ended, and its server with it.")).to_be_visible()
    expect(page.get_by_text("The server does not answer.")).to_be_hidden()


def test_a_server_that_goes_away_while_its_job_is_stopped_as_asked_is_no_alarm(words: Words, visit: Any) -> None:
    page = visit(words.url).open("jobs", JOB)
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.route("**/*", lambda route: route.abort() if route.request.method == "GET" else route.continue_())
    expect(page.get_by_text("The server does not answer.")).to_be_visible()

    page.get_by_role("button", name="Cancel the job").click()

    expect(page.get_by_text("how it ended was not heard here")).to_be_visible()
    expect(page.get_by_text("The server does not answer.")).to_be_hidden()


def test_a_drained_job_is_not_offered_to_be_resumed(words: Words, visit: Any) -> None:
    page = visit(words.url).open("jobs", JOB)

    words.job.control.stop_with_savepoint(str(words.directory / "last"), SavepointFormat.CANONICAL, drain=True).result(
        20
    )

    ending = page.locator(".ending")
    expect(ending).to_contain_text("Stopped with a savepoint")
    expect(ending).to_contain_text("should not be resumed")
    expect(ending).not_to_contain_text("checkdam run")
