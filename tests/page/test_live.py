"""The page follows what happens without a reload, and says so when it cannot."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from playwright.sync_api import expect
from tests.page.conftest import MARKUP, SERVED, Words
from tests.page.views import JOB

from checkdam.config import Configuration
from checkdam.server.app.rest_server import RestServer

pytestmark = pytest.mark.slow


def test_what_others_do_to_the_job_shows_without_a_reload(words: Words, visit: Any) -> None:
    page = visit(words.url).open("jobs", JOB, "checkpoints", "history")
    page.evaluate("() => { window.isTheSame = true }")

    words.job.control.trigger_checkpoint().result(20)

    expect(page.get_by_role("row", name="7 COMPLETED")).to_be_visible()
    words.gate.open()
    expect(page.locator(".job-head .badge")).to_have_text("FINISHED")
    assert page.evaluate("() => window.isTheSame") is True


def test_focus_typed_text_and_scroll_stay_while_the_page_is_refreshed(words: Words, visit: Any) -> None:
    page = visit(words.url, viewport={"width": 900, "height": 400}).open("jobs", JOB, "overview")
    page.get_by_role("button", name="count words").click()
    expect(page.get_by_role("region", name="Subtasks of count words")).to_be_visible()
    page.get_by_role("button", name="Savepoint", exact=True).click()
    page.get_by_label("Directory").fill("/half way thr")
    before = page.evaluate("() => { window.scrollTo(0, 300); return window.scrollY; }")
    assert before > 0

    words.job.control.trigger_checkpoint().result(20)
    page.wait_for_function(
        "() => performance.getEntriesByType('resource').filter((each) => each.name.includes('/series')).length > 4"
    )

    expect(page.get_by_label("Directory")).to_have_value("/half way thr")
    expect(page.get_by_label("Directory")).to_be_focused()
    assert page.evaluate("() => window.scrollY") == before
    page.keyboard.press("Escape")
    expect(page.get_by_role("region", name="Subtasks of count words")).to_be_visible()
    expect(page.get_by_role("button", name="Savepoint", exact=True)).to_be_focused()


def test_a_server_that_is_gone_is_told_and_what_was_known_stays(words: Words, visit: Any) -> None:
    page = visit(words.url).open("jobs", JOB)

    words.server.close(timedelta(0))

    notice = page.get_by_text("The server does not answer.")
    expect(notice).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_have_text(MARKUP)
    expect(page.get_by_role("row", name="count words")).to_be_visible()


def test_it_goes_on_by_itself_when_the_server_is_back(words: Words, visit: Any) -> None:
    page = visit(words.url).open()
    port = words.server.port
    words.server.close(timedelta(0))
    expect(page.get_by_text("The server does not answer.")).to_be_visible()

    with RestServer(Configuration.load(None, {**SERVED, "rest.port": str(port)})):
        expect(page.get_by_text("The server does not answer.")).to_be_hidden()
        expect(page.get_by_text("No job is running.")).to_be_visible()


def test_a_server_with_a_token_is_let_in_to_once_it_is_typed(visit: Any) -> None:
    settings = {**SERVED, "rest.auth.token": "open sesame"}
    with RestServer(Configuration.load(None, settings)) as server:
        visitor = visit(server.url)
        page = visitor.page
        page.goto(server.url)

        page.get_by_role("textbox", name="Token").fill("open sesame")
        page.get_by_role("button", name="Log in").click()

        expect(page.get_by_text("No job is running.")).to_be_visible()


def test_an_unknown_job_is_told_in_words(words: Words, visit: Any) -> None:
    page = visit(words.url).page

    page.goto(f"{words.url}/#/jobs/{'f' * 32}")

    expect(page.get_by_role("alert").filter(has_text="The job cannot be shown.")).to_contain_text("not found")


def test_an_answer_of_somebody_else_is_told_and_the_page_asks_again(words: Words, visit: Any) -> None:
    page = visit(words.url).open("jobs", JOB, "exceptions")
    expect(page.get_by_text("The job has had no failure.")).to_be_visible()
    answers: list[int] = []

    def proxied(route: Any) -> None:
        answers.append(1)
        route.fulfill(status=200, body="<html>log in</html>")

    page.route("**/exceptions", proxied)
    page.wait_for_function("() => true")
    for _ in range(100):
        if len(answers) >= 2:
            break
        page.wait_for_timeout(200)

    assert len(answers) >= 2
