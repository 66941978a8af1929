"""Charts of metrics: the reader chooses operator and metric; what was chosen stays."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect
from tests.page.conftest import Words
from tests.page.views import JOB

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("width", [1400, 390])
def test_a_chart_of_any_metric_is_added_stays_and_is_removed(words: Words, visit: Any, width: int) -> None:
    visitor = visit(words.url, viewport={"width": width, "height": 900})
    page = visitor.open("jobs", JOB, "overview")
    region = page.get_by_role("region", name="Metrics of an operator")
    region.get_by_label("Operator").select_option(label="count words")
    region.get_by_label("Metric").select_option("count_words.numRecordsIn")
    region.get_by_label("Shown").select_option("max")

    region.get_by_role("button", name="Add chart").click()

    title = "count words: count_words.numRecordsIn (largest subtask)"
    chart = region.locator("figure", has_text=title)
    expect(chart).to_be_visible()
    expect(chart.get_by_text("no values yet")).to_have_count(0)
    expect(chart.locator("canvas")).to_be_visible()
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    page.reload()
    expect(chart).to_be_visible()
    region.get_by_role("button", name=f"Remove the chart of {title}").click()
    expect(chart).to_have_count(0)
    assert visitor.complaints == []


def test_what_the_browser_kept_is_checked(words: Words, visit: Any) -> None:
    visitor = visit(words.url)
    page = visitor.open("jobs", JOB, "overview")
    for nonsense in ("{", "[1, null]", '[{"vertex": "x", "metric": "y", "agg": "sum"}]', '[{"vertex": 1}]'):
        page.evaluate("([key, text]) => sessionStorage.setItem(key, text)", [f"checkdam.charts.{JOB}", nonsense])
        page.reload()
        expect(page.get_by_role("heading", name="Metrics of an operator")).to_be_visible()
    assert visitor.complaints == []
