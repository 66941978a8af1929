"""Every button, pressed on a job that really runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.page.conftest import JOB, Words

from checkdam.runtime.job_control import SavepointFormat

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
    page = visit(words.url).open("jobs", JOB, "savepoints")

    page.get_by_role("button", name="Dispose").click()
    page.get_by_role("button", name="Back").click()
    assert (made / "_metadata").exists()
    page.get_by_role("button", name="Dispose").click()
    page.get_by_role("button", name="Delete the savepoint").click()

    expect(results(page)).to_contain_text("is deleted")
    assert not made.exists()


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
