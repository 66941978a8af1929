"""The tab of logs: which process and kind, levels, following, and text that stays text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect
from tests.page.conftest import MARKUP, Words
from tests.page.views import JOB

DRIVER = "Last lines of driver.log"


def _log(page: Page, name: str = DRIVER) -> Any:
    return page.get_by_role("region", name=name)


def _append(words: Words, name: str, text: str) -> None:
    with (words.directory / "logs" / JOB / name).open("a") as file:
        file.write(text)


def test_what_is_written_is_shown_as_text_and_followed(words: Words, visit: Any) -> None:
    page = visit(words.url).open("jobs", JOB, "logs")
    expect(_log(page)).to_contain_text("checkpoint 6 completed")
    expect(_log(page)).to_contain_text(MARKUP)
    assert page.locator(".log img").count() == 0

    _append(words, "driver.log", "2026-11-18T15:00:00.000Z INFO  checkdam.job: a new line\n")

    expect(_log(page)).to_contain_text("a new line")
    assert page.evaluate("() => { const log = document.querySelector('.log'); return log.scrollTop > 0; }")


def test_a_log_that_is_not_followed_stays_as_it_is(words: Words, visit: Any) -> None:
    page = visit(words.url).open("jobs", JOB, "logs")
    expect(_log(page)).to_contain_text("checkpoint 6 completed")

    page.get_by_label("Follow").uncheck()
    _append(words, "driver.log", "2026-11-18T15:00:00.000Z INFO  checkdam.job: while away\n")
    page.get_by_label("Process").select_option("slot-1")
    expect(_log(page, "Last lines of slot-1.log")).to_contain_text("Nothing is written yet.")
    page.get_by_label("Process").select_option("driver")

    expect(_log(page)).to_contain_text("while away")  # it is fetched anew


def test_following_goes_on_where_it_was_left(words: Words, visit: Any) -> None:
    page = visit(words.url).open("jobs", JOB, "logs")
    expect(_log(page)).to_contain_text("checkpoint 6 completed")

    page.get_by_label("Follow").uncheck()
    _append(words, "driver.log", "2026-11-18T15:00:00.000Z INFO  checkdam.job: while away\n")
    page.get_by_label("Level").select_option("INFO")
    expect(_log(page)).not_to_contain_text("while away")
    page.get_by_label("Follow").check()

    expect(_log(page)).to_contain_text("while away")
    expect(_log(page).get_by_text("step 7", exact=False)).to_have_count(1)


def test_a_level_leaves_out_what_is_below_it_and_keeps_tracebacks_whole(words: Words, visit: Any) -> None:
    page = visit(words.url).open("jobs", JOB, "logs")
    expect(_log(page)).to_contain_text("looking up EUR")

    page.get_by_label("Level").select_option("WARN")
    expect(_log(page)).not_to_contain_text("looking up EUR")
    expect(_log(page)).not_to_contain_text("checkpoint 6")
    expect(_log(page)).to_contain_text("no rate for EUR")

    page.get_by_label("Level").select_option("ERROR")
    expect(_log(page)).not_to_contain_text("no rate for EUR")
    expect(_log(page)).to_contain_text("return int(value)")


def test_the_log_is_followed_across_a_file_that_is_set_aside(words: Words, visit: Any) -> None:
    page = visit(words.url).open("jobs", JOB, "logs")
    expect(_log(page)).to_contain_text("checkpoint 6 completed")
    directory = words.directory / "logs" / JOB

    (directory / "driver.log").rename(directory / "driver.log.1")
    _append(words, "driver.log", "2026-11-18T15:00:00.000Z INFO  checkdam.job: in the next file\n")

    expect(_log(page)).to_contain_text("in the next file")
    expect(_log(page)).to_contain_text("checkpoint 6 completed")


def test_what_a_slot_printed_is_one_click_away_and_files_can_be_fetched(
    words: Words, visit: Any, tmp_path: Path
) -> None:
    page = visit(words.url).open("jobs", JOB, "logs")

    page.get_by_label("Process").select_option("slot-1")
    page.get_by_role("link", name="Printed").click()
    expect(_log(page, "Last lines of slot-1.out")).to_contain_text("counts[1]> seen")
    assert page.get_by_label("Level").count() == 0
    with page.expect_download() as fetched:
        page.get_by_role("button", name="Download driver.log.1").click()
    fetched.value.save_as(tmp_path / "fetched")

    assert (tmp_path / "fetched").read_text() == (words.directory / "logs" / JOB / "driver.log.1").read_text()
