"""Looking into the state of a job that runs, and into its checkpoints."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect
from tests.page.conftest import CLICKS_FROM, Words, words_of
from tests.page.rules_job import UID
from tests.page.views import JOB
from tests.support.windowed_jobs import UID as WINDOWS

from checkdam.graph.operators import OP_STATE

pytestmark = pytest.mark.slow


def test_the_states_of_every_operator_are_listed(words: Words, visit: Any) -> None:
    page = visit(words.url).open("jobs", JOB, "state")

    row = page.get_by_role("region", name="Keyed states").get_by_role("row", name="count words")
    expect(row).to_contain_text(OP_STATE)
    expect(row).to_contain_text("str")
    page.get_by_role("link", name=OP_STATE).click()
    expect(page.get_by_role("heading", name=f"{OP_STATE} of count words")).to_be_visible()


@pytest.mark.parametrize("source", ["live", "chk-6"])
def test_a_key_is_looked_up(words: Words, visit: Any, source: str) -> None:
    expected = sum(epoch.count("word 1") for epoch in words_of(6))
    page = visit(words.url).open("jobs", JOB, "state", source, "counts", OP_STATE)

    page.get_by_label("Key", exact=True).fill("word 1")
    page.get_by_role("button", name="Look up").click()

    answer = page.locator(".answer")
    expect(answer).to_contain_text(f'"word 1" holds ["word 1",{expected}]')
    expect(answer).to_contain_text("epoch 6")


def test_a_key_that_is_not_there_is_no_error(words: Words, visit: Any) -> None:
    page = visit(words.url).open("jobs", JOB, "state", "live", "counts", OP_STATE)

    page.get_by_label("Key", exact=True).fill("<b>nobody</b>")
    page.get_by_role("button", name="Look up").click()

    expect(page.locator(".answer")).to_contain_text('"<b>nobody</b>" holds nothing')


@pytest.mark.parametrize("source", ["live", "chk-6"])
def test_keys_are_paged_through_and_none_comes_twice(words: Words, visit: Any, source: str) -> None:
    page = visit(words.url).open("jobs", JOB, "state", source, "counts", OP_STATE)
    keys = page.get_by_role("region", name="Keys and values").locator("tbody th")
    everything = {f'"{word}"' for epoch in words_of(6) for word in epoch}
    seen: list[str] = []

    while len(seen) < len(everything):  # a page of live state ends where a slot does
        expect(page.get_by_text(re.compile(rf"^{len(seen) + 1} to "))).to_be_visible()
        seen += keys.all_inner_texts()
        if len(seen) < len(everything):
            page.get_by_role("button", name="Next").click()

    assert sorted(seen) == sorted(everything)
    expect(page.get_by_role("button", name="Next")).to_be_disabled()
    page.get_by_role("button", name="Previous").click()
    expect(page.get_by_role("button", name="Next")).to_be_enabled()


def test_the_heat_map_has_a_cell_for_every_key_group_and_tells_its_largest(words: Words, visit: Any) -> None:
    page = visit(words.url).open("jobs", JOB, "state", "chk-6", "counts", OP_STATE)

    heat = page.locator("figure.heat")
    expect(heat.locator(".cells i")).to_have_count(128)
    expect(heat.locator("figcaption")).to_contain_text("128 key groups")
    heat.get_by_text("As a table").click()
    expect(page.get_by_role("region", name="Size by key group").locator("tbody tr")).to_have_count(100)


def test_two_checkpoints_are_compared(words: Words, visit: Any) -> None:
    page = visit(words.url).open("jobs", JOB, "state", "compare", "chk-5", "chk-6")

    row = page.get_by_role("region", name="Differences by state").get_by_role("row", name="counts")
    before, after = ({word for epoch in words_of(n) for word in epoch} for n in (5, 6))
    changed = before & set(words_of(6)[5])
    figures = [len(after - before), len(changed), 0, len(before - changed)]
    expect(row.locator("td.end")).to_have_text([str(figure) for figure in figures])
    expect(page.get_by_role("row", name='added "new 6"')).to_be_visible()

    page.get_by_role("button", name="Swap").click()
    expect(page.get_by_role("row", name='removed "new 6"')).to_be_visible()


def test_a_state_that_is_not_there_is_told_in_words(words: Words, visit: Any) -> None:
    page = visit(words.url).open("jobs", JOB, "state", "live", "nobody", "nothing")

    expect(page.get_by_text("Operator “nobody” has no state “nothing” here.")).to_be_visible()


@pytest.mark.parametrize("source", ["live", "chk-4"])
def test_the_rules_in_force_are_shown_and_found_by_a_filter(rules: Words, visit: Any, source: str) -> None:
    page = visit(rules.url).open("jobs", JOB, "state", source)

    page.get_by_role("link", name="rules").click()
    keys = page.get_by_role("region", name="Keys and values").locator("tbody th")
    expect(keys).to_have_text(['"above 100"', '"above 250"', '"above 1000"'])

    page.get_by_label("Filter", exact=True).fill("ABOVE 25")
    page.get_by_role("button", name="Filter").click()
    expect(keys).to_have_text(['"above 250"'])
    page.get_by_role("button", name="Show all").click()
    expect(keys).to_have_count(3)


@pytest.mark.parametrize("source", ["live", "chk-4"])
def test_keys_are_found_by_a_filter_in_every_subtask(rules: Words, visit: Any, source: str) -> None:
    page = visit(rules.url).open("jobs", JOB, "state", source, UID, "paid")

    page.get_by_label("Filter", exact=True).fill("R 11")
    page.get_by_role("button", name="Filter").click()

    keys = page.get_by_role("region", name="Keys and values").locator("tbody th")
    expect(keys).to_have_count(10)
    assert sorted(keys.all_inner_texts()) == [f'"customer {number}"' for number in range(110, 120)]
    expect(page.get_by_text("1 to 10, the last, 120 looked at")).to_be_visible()
    page.get_by_label("Filter", exact=True).fill("nobody")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_text("No key fits, 120 looked at")).to_be_visible()


def test_a_long_value_is_folded_and_can_be_read_and_copied(rules: Words, visit: Any) -> None:
    page = visit(rules.url, permissions=["clipboard-read", "clipboard-write"]).open(
        "jobs", JOB, "state", "live", UID, "rules", "operator"
    )
    folded = page.locator("details.value").first
    expect(folded.locator("summary")).to_contain_text("160 characters")
    expect(folded.locator("pre")).to_be_hidden()

    folded.locator("summary").click()
    folded.get_by_role("button", name="Copy value").click()

    expect(folded.locator("pre")).to_contain_text('"countries"')
    expect(folded.get_by_role("button", name="Copy value")).to_have_text("copied")
    assert '"above": 100' in page.evaluate("() => navigator.clipboard.readText()")


@pytest.mark.parametrize(("source", "words"), [("live", "The next 50 of 120"), ("chk-4", "1 to 50")])
def test_pending_timers_are_shown_with_their_keys(rules: Words, visit: Any, source: str, words: str) -> None:
    page = visit(rules.url).open("jobs", JOB, "state", source)
    next_one = page.get_by_role("region", name="Timers", exact=True).locator("td[data-label=Next]")
    expect(next_one).to_have_count(1 if source == "live" else 0)  # a snapshot does not tell it by itself

    page.get_by_role("link", name="in event time").click()

    expect(page.get_by_text(words)).to_be_visible()
    timers = page.get_by_role("region", name="Pending timers")
    expect(timers.locator("tbody tr")).to_have_count(50)
    if source == "live":
        expect(timers.locator("tbody tr").first).to_contain_text('"customer 000"')
    page.get_by_label("Filter", exact=True).fill("customer 000")
    page.get_by_role("button", name="Filter").click()
    expect(timers.locator("tbody tr")).to_have_count(1)


def test_lists_of_an_operator_are_shown_by_subtask(rules: Words, visit: Any) -> None:
    page = visit(rules.url).open("jobs", JOB, "state", "live", "recent", "recent payments", "operator")

    expect(page.get_by_role("region", name="Elements").locator("tbody tr").first).to_contain_text('["rule",100,')
    expect(page.get_by_text("1 to 50,")).to_be_visible()


FIRST = "2023-11-14 22:13:00.000 – 2023-11-14 22:14:00.000"
SECOND = "2023-11-14 22:14:00.000 – 2023-11-14 22:15:00.000"
SOURCES = pytest.mark.parametrize("source", ["live", "chk-4"])


@SOURCES
def test_keys_of_window_state_are_shown_with_their_window(windowed: Words, visit: Any, source: str) -> None:
    page = visit(windowed.url, timezone_id="UTC").open("jobs", JOB, "state", source)
    listed = page.get_by_role("region", name="Keyed states").get_by_role("row", name="window-contents")
    expect(listed).to_contain_text("by window")

    page.get_by_role("link", name="window-contents").click()

    table = page.get_by_role("region", name="Keys and values")
    expect(table.locator("thead th")).to_have_text(["Key", "Window", "Value", "Key group"])
    expect(table.locator("tbody tr")).to_have_count(4)
    rows = [row.locator("th, td").all_inner_texts()[:3] for row in table.locator("tbody tr").all()]
    assert sorted(rows) == [
        ['"ada"', FIRST, f'["ada",13,{CLICKS_FROM + 5_000}]'],
        ['"ada"', SECOND, f'["ada",2,{CLICKS_FROM + 61_000}]'],
        ['"bob"', FIRST, f'["bob",1,{CLICKS_FROM + 20_000}]'],
        ['"bob"', SECOND, f'["bob",3,{CLICKS_FROM + 62_000}]'],
    ]


@SOURCES
def test_a_key_of_window_state_is_looked_up_in_all_its_windows(windowed: Words, visit: Any, source: str) -> None:
    page = visit(windowed.url, timezone_id="UTC").open("jobs", JOB, "state", source, WINDOWS, "window-contents")

    page.get_by_label("Key", exact=True).fill("ada")
    page.get_by_role("button", name="Look up").click()

    table = page.get_by_role("region", name="By window")
    expect(table.locator("thead th")).to_have_text(["Window", "Value"])
    expect(table.locator("tbody tr")).to_have_count(2)
    rows = [row.locator("th, td").all_inner_texts() for row in table.locator("tbody tr").all()]
    assert sorted(rows) == [
        [FIRST, f'["ada",13,{CLICKS_FROM + 5_000}]'],
        [SECOND, f'["ada",2,{CLICKS_FROM + 61_000}]'],
    ]


@SOURCES
def test_pending_timers_of_windows_are_shown_with_their_window(windowed: Words, visit: Any, source: str) -> None:
    page = visit(windowed.url, timezone_id="UTC").open("jobs", JOB, "state", source)

    page.get_by_role("link", name="in event time").click()

    table = page.get_by_role("region", name="Pending timers")
    expect(table.locator("thead th")).to_have_text(["Time", "Time domain", "Key", "Window", "Key group"])
    expect(table.locator("tbody tr")).to_have_count(4)
    rows = [row.locator("th, td").all_inner_texts()[2:4] for row in table.locator("tbody tr").all()]
    assert sorted(rows) == [['"ada"', FIRST], ['"ada"', SECOND], ['"bob"', FIRST], ['"bob"', SECOND]]


@SOURCES
def test_state_that_belongs_to_no_window_has_no_column_for_it(rules: Words, visit: Any, source: str) -> None:
    page = visit(rules.url).open("jobs", JOB, "state", source, UID, "paid")

    heads = page.get_by_role("region", name="Keys and values").locator("thead th")
    expect(heads).to_have_text(["Key", "Value", "Key group"])
