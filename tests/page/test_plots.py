"""Plots share one time axis: zoom and marks are the same in all, and stay while new data comes."""

from __future__ import annotations

import re
from datetime import time
from typing import Any

import pytest
from benchmarks.history import JOB_ID
from playwright.sync_api import Locator, Page, expect
from tests.page.conftest import Words
from tests.page.views import JOB

pytestmark = pytest.mark.slow

WRITTEN = """() => {
    window.written = new Map();
    const write = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...where) {
        const title = this.canvas.closest("figure")?.querySelector("strong").textContent;
        window.written.set(title, [...(window.written.get(title) ?? []), text]);
        return write.call(this, text, ...where);
    };
    const clear = CanvasRenderingContext2D.prototype.clearRect;
    CanvasRenderingContext2D.prototype.clearRect = function (...area) {
        window.written.delete(this.canvas.closest("figure")?.querySelector("strong").textContent);
        return clear.call(this, ...area);
    };
}"""
"""Keeps what is written on the canvas of each plot."""

TITLES = ["Records a second", "Epoch duration", "Checkpoint duration", "Checkpoint size", "State size", "Entries held"]


def opened(visit: Any, url: str, *path: str) -> Page:
    visitor = visit(url, viewport={"width": 1400, "height": 1800}, timezone_id="Europe/Berlin")
    visitor.page.add_init_script(f"({WRITTEN})()")
    page: Page = visitor.open(*path)
    expect(page.locator("figure.plot canvas")).to_have_count(6)
    return page


def written(page: Page) -> dict[str, list[str]]:
    found: dict[str, list[str]] = page.evaluate("() => Object.fromEntries(window.written)")
    return found


def on_show(page: Page) -> Locator:
    return page.locator(".axis > .muted").first


def drag(page: Page, title: str, start: float, stop: float) -> None:
    over = page.locator("figure.plot").filter(has_text=title).locator(".u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + start * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + (start + stop) / 2 * box["width"], middle)
    page.mouse.move(box["x"] + stop * box["width"], middle)
    page.mouse.up()


def wait_for_answers(page: Page, more: int) -> None:
    count = "() => performance.getEntriesByType('resource').filter((each) => each.name.includes('/series')).length"
    before = page.evaluate(count)
    page.wait_for_function(f"(before) => ({count})() >= before + {more}", arg=before)


def test_all_plots_show_the_same_time(history: str, visit: Any) -> None:
    page = opened(visit, history, "jobs", JOB_ID)

    moments = [[text for text in texts if re.fullmatch(r"\d\d:\d\d", text)] for texts in written(page).values()]

    assert len(moments) == 6
    assert len(moments[0]) >= 2
    assert all(each == moments[0] for each in moments)


def test_every_axis_has_at_least_two_marks_beside_zero(history: str, visit: Any) -> None:
    page = opened(visit, history, "jobs", JOB_ID)

    texts = written(page)

    for title in TITLES:
        ticks = [text for text in texts[title] if re.search(r"\d", text) and ":" not in text]
        assert len(set(ticks)) >= 3, (title, ticks)
    assert {"0 B", "500 kB", "1 MB"} <= set(texts["Checkpoint size"])


def test_a_zoom_holds_for_all_plots_and_survives_refreshes(history: str, visit: Any) -> None:
    page = opened(visit, history, "jobs", JOB_ID)
    before = on_show(page).inner_text()

    drag(page, "State size", 0.4, 0.6)
    expect(on_show(page)).to_contain_text("zoomed")
    page.mouse.move(0, 0)
    expect(page.locator("figure.plot figcaption").first).to_contain_text("last ")
    zoomed, captions = on_show(page).inner_text(), page.locator("figure.plot figcaption").all_inner_texts()
    wait_for_answers(page, 3)

    assert zoomed.split(",")[0] != before
    assert on_show(page).inner_text() == zoomed
    assert page.locator("figure.plot figcaption").all_inner_texts()[1:4] == captions[1:4]
    moments = [[text for text in texts if ":" in text] for texts in written(page).values()]
    assert all(each == moments[0] for each in moments)
    start, end = _ends(on_show(page))
    assert all(_seconds(start, moment) <= _seconds(start, end) for moment in moments[0])

    page.get_by_role("button", name="Follow again").click()
    expect(on_show(page)).not_to_contain_text("zoomed")


def test_a_double_click_follows_again(history: str, visit: Any) -> None:
    page = opened(visit, history, "jobs", JOB_ID)
    drag(page, "Records a second", 0.2, 0.5)
    expect(on_show(page)).to_contain_text("zoomed")

    page.locator("figure.plot .u-over").first.dblclick()

    expect(on_show(page)).not_to_contain_text("zoomed")


def test_a_stretch_of_time_is_chosen_by_button(history: str, visit: Any) -> None:
    page = opened(visit, history, "jobs", JOB_ID)

    page.get_by_role("button", name="10 min").click()

    expect(page.get_by_role("button", name="10 min")).to_have_attribute("aria-pressed", "true")
    assert _seconds(*_ends(on_show(page))) in (599, 600, 601)


def _ends(place: Locator) -> tuple[str, str]:
    start, end = re.findall(r"\d\d:\d\d:\d\d", place.inner_text())
    return start, end


def _seconds(start: str, end: str) -> int:
    """Return the time between two moments of a clock, the second of which may be on the next day."""
    first, second = (time.fromisoformat(moment) for moment in (start, end))
    return (_second_of_day(second) - _second_of_day(first)) % 86_400


def _second_of_day(moment: time) -> int:
    return 3_600 * moment.hour + 60 * moment.minute + moment.second


def test_events_are_marked_in_each_plot_and_told_in_words(history: str, visit: Any) -> None:
    page = opened(visit, history, "jobs", JOB_ID)

    for texts in written(page).values():
        assert {"S", "×"} <= set(texts)
    page.get_by_text("4 failed checkpoints").click()
    events = page.get_by_role("region", name="Events on show").locator("tbody tr")
    expect(events).to_have_count(11)
    expect(events.filter(has_text="No space left on device")).to_have_count(4)
    expect(events.filter(has_text="rescaled to parallelism 4")).to_have_count(1)
    expect(events.filter(has_text="restarted after a failure")).to_have_count(1)


def test_what_happens_now_is_marked_without_a_reload(words: Words, visit: Any) -> None:
    page = opened(visit, words.url, "jobs", JOB)

    words.job.control.rescale(3).result(20)

    expect(page.get_by_text("1 rescale")).to_be_visible()
    page.wait_for_function("() => [...window.written.values()].every((texts) => texts.includes('R'))")


def test_hours_of_history_are_asked_for_once_and_then_only_what_is_new(words: Words, visit: Any) -> None:
    page = opened(visit, words.url, "jobs", JOB)
    wait_for_answers(page, 3)

    asked: list[str] = page.evaluate("() => performance.getEntriesByType('resource').map(({ name }) => name)")
    series = [name for name in asked if "/series" in name and not name.endswith(".js")]

    assert ["since=" in each for each in series[:3]] == [False, True, True]


def test_answers_are_joined_without_gaps_or_repeats(history: str, visit: Any) -> None:
    page = visit(history).open()
    known = {"now": 9, "start": [0, 1, 2, 3], "keys": [1, 2, 3, 4], "events": [{"at": 1}, {"at": 3}]}
    answer = {"now": 12, "start": [3, 4], "keys": [40, 50], "events": [{"at": 3}, {"at": 4}]}

    joined = page.evaluate(
        "async ([known, answer]) => (await import('/ui/series.js')).joined(known, answer, 2)", [known, answer]
    )

    assert joined == {
        "now": 12,
        "start": [0, 1, 2, 3, 4],
        "keys": [1, 2, 3, 40, 50],
        "events": [{"at": 1}, {"at": 3}, {"at": 4}],
    }
