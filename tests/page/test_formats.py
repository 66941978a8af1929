"""Values as people read them. Run where they run: in the browser."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

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
                1000: "1.0 kB",
                53_456: "53.5 kB",
                999_949: "999.9 kB",
                999_950: "1.0 MB",
                1_250_000: "1.3 MB",
                1_520_435: "1.5 MB",
                2**40: "1.1 TB",
            },
        ),
        ("short", {-1: "-", 9_999: "9\u202f999", 12_345: "12.3k", 999_999: "1.00M", 20_000_000: "20.0M"}),
        ("percent", {-1: "-", 0.944: "94%"}),
    ],
)
def test_values_are_written_as_people_read_them(page: Page, form: str, values: dict[float, str]) -> None:
    assert {value: shown(page, form, value) for value in values} == values


@pytest.mark.parametrize(
    ("zone", "offset"),
    [("Europe/Berlin", "UTC+01:00"), ("America/St_Johns", "UTC−03:30"), ("UTC", "UTC")],
)
def test_the_head_names_the_time_zone_of_all_times(history: str, visit: Any, zone: str, offset: str) -> None:
    page = visit(history, timezone_id=zone).open()

    winter = "async () => (await import('/ui/format.js')).zone(new Date('2026-01-15T12:00:00Z'))"

    assert page.evaluate(winter) == {"offset": offset, "name": zone}
    expect(page.locator("header .zone")).to_contain_text(zone)


def test_a_watermark_that_never_came_or_is_the_last_is_told_in_words(page: Page) -> None:
    values = [None, -(2**63), 2**63 - 1, 17]

    assert [shown(page, "watermark", value) for value in values] == ["none", "none", "end of time", "17"]


def test_how_far_event_time_is_behind_fits_into_a_node_of_the_graph(page: Page) -> None:
    lag = "async (ms) => (await import(new URL('ui/health.js', location.href).href)).lag(ms)"
    lags = {400: "400ms behind", 12_345: "12s behind", 27_793_424_227: "321d 16h behind", -7_448_000: "2h 4m ahead"}

    assert {ms: page.evaluate(lag, ms) for ms in lags} == lags


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
