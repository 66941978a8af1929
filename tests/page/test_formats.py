"""Values as people read them: Flink's forms. Run where they run: in the browser."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page

pytestmark = pytest.mark.slow


@pytest.fixture
def page(history: str, visit: Any) -> Page:
    page: Page = visit(history, timezone_id="Europe/Berlin").page
    page.goto(history)
    return page


def shown(page: Page, form: str, value: Any) -> Any:
    return page.evaluate(
        "async ([form, value]) => (await import(new URL('ui/format.js', location.href).href))[form](value)",
        [form, value],
    )


@pytest.mark.parametrize(
    ("form", "values"),
    [
        ("date", {0: "-", -1: "-", 1_700_000_000_007: "2023-11-14 23:13:20.007"}),
        (
            "duration",
            {
                -1: "-",
                0: "0ms",
                0.25: "0.25ms",
                850: "850ms",
                12_040: "12s 40ms",
                12_000: "12s",
                185_012: "3m 5s 12ms",
                7_448_000: "2h 4m 8s",
                93_784_000: "1d 2h 3m 4s",
                999.7: "1s",
            },
        ),
        (
            "bytes",
            {
                -1: "-",
                0: "0 B",
                999: "999 B",
                1000: "0.977 KB",
                1_520_435: "1.45 MB",
                1_023_900: "0.976 MB",
                2**40: "1.00 TB",
            },
        ),
        ("short", {-1: "-", 9_999: "9\u202f999", 12_345: "12.3k", 999_999: "1.00M", 20_000_000: "20.0M"}),
        ("percent", {-1: "-", 0.944: "94%"}),
    ],
)
def test_values_are_written_as_flink_writes_them(page: Page, form: str, values: dict[float, str]) -> None:
    assert {value: shown(page, form, value) for value in values} == values


def test_a_watermark_that_never_came_or_is_the_last_is_told_in_words(page: Page) -> None:
    values = [None, -(2**63), 2**63 - 1, 17]

    assert [shown(page, "watermark", value) for value in values] == ["none", "none", "end of time", "17"]


def test_words_of_an_error_are_told_apart_from_its_trace(page: Page) -> None:
    split = "async (text) => (await import(new URL('ui/api.js', location.href).href)).splitMessage(text)"
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: no'

    assert page.evaluate(split, "cannot write\nName another.") == ["cannot write\nName another.", ""]
    assert page.evaluate(split, f"it failed\n{trace}") == ["it failed", trace]
    assert page.evaluate(split, trace) == ["ValueError: no", trace]


def test_whole_numbers_of_state_are_shown_digit_by_digit(page: Page) -> None:
    shown_again = """async ([text, path]) => {
        const [api, format] = await Promise.all(['api', 'format'].map((name) => import(`/ui/${name}.js`)));
        return format.json(api.parse(text, path));
    }"""
    text = '{"key":1234567890123456789,"value":[-9007199254740993,9007199254740991,0.5,1e+30]}'

    assert page.evaluate(shown_again, [text, "jobs/a/state/uid/name"]) == text
    assert page.evaluate(shown_again, ['{"interval":5}', "jobs/a/checkpoints/config"]) == '{"interval":5}'


def test_a_window_is_shown_as_what_it_is(page: Page) -> None:
    windows = [{"start": 1_700_000_000_000, "end": 1_700_000_060_000}, {"start": 0, "end": 10}, {"id": 0}, {"day": 5}]

    assert [shown(page, "windowText", window) for window in windows] == [
        "2023-11-14 23:13:20.000 – 2023-11-14 23:14:20.000",
        "0 – 10",
        "global",
        '{"day":5}',
    ]
