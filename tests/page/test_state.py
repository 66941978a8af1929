"""Looking into the state of a job that runs, and into its checkpoints."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect
from tests.page.conftest import JOB, Words, words_of

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
