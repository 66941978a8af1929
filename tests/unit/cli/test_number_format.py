from __future__ import annotations

import pytest

from checkdam.cli import number_format


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (12_345, "12.3 kB"), (999_600, "1.00 MB"), (3 * 10**15, "3000 TB")],
)
def test_a_size_has_three_digits_and_a_unit(count: int, text: str) -> None:
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
    ],
)
def test_a_duration_reads_at_a_glance(seconds: float, text: str) -> None:
    assert number_format.duration(seconds) == text
