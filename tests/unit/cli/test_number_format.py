from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from checkdam.cli import number_format

AT = datetime(2026, 11, 18, 14, 30, 23, 250_000, tzinfo=UTC)


@pytest.fixture(params=["UTC", "Asia/Kolkata"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The zone of the machine."""
    with monkeypatch.context() as changed:
        changed.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


def test_a_time_is_local_and_shows_its_offset(zone: str) -> None:
    shown = {"UTC": "2026-11-18 14:30:23 +00:00", "Asia/Kolkata": "2026-11-18 20:00:23 +05:30"}

    assert number_format.instant(AT) == shown[zone]


def test_a_period_shows_the_offset_once_and_milliseconds_if_it_has_any(zone: str) -> None:
    whole = AT.replace(microsecond=0)
    shown = {
        "UTC": ("2026-11-18 14:30:23 – 2026-11-18 14:31:23 +00:00", "2026-11-18 14:30:23.250 – "),
        "Asia/Kolkata": ("2026-11-18 20:00:23 – 2026-11-18 20:01:23 +05:30", "2026-11-18 20:00:23.250 – "),
    }

    assert number_format.period(whole, whole + timedelta(minutes=1)) == shown[zone][0]
    assert number_format.period(AT, whole + timedelta(minutes=1)).startswith(shown[zone][1])


def test_a_period_over_a_change_of_the_clocks_shows_both_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "Europe/Berlin")
        time.tzset()
        start = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
        shown = number_format.period(start, start + timedelta(hours=1))
    time.tzset()

    assert shown == "2026-10-25 02:30:00 +02:00 – 2026-10-25 02:30:00 +01:00"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (12_345, "12.3 kB"),
        (1_250_000, "1.3 MB"),
        (999_960, "1.0 MB"),
        (3 * 10**15, "3.0 PB"),
    ],
)
def test_a_size_has_one_decimal_and_a_decimal_unit(count: int, text: str) -> None:
    assert number_format.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-0.1, "0 ms"),
        (0.085, "85 ms"),
        (0.9999, "1.0 s"),
        (9.96, "10 s"),
        (59.7, "1 min 0 s"),
        (185.0, "3 min 5 s"),
        (7800.0, "2 h 10 min"),
        (86_399.0, "23 h 59 min"),
        (27_809_280.0, "321 d 20 h"),
    ],
)
def test_a_duration_reads_at_a_glance(seconds: float, text: str) -> None:
    assert number_format.duration(seconds) == text
