"""Instants and durations as milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkdam.clock import from_milliseconds, milliseconds_in, to_milliseconds


def test_milliseconds_are_exact_and_rounded_down() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    assert to_milliseconds(at) == 1_767_323_045_000
    assert all(to_milliseconds(at + timedelta(milliseconds=ms)) == 1_767_323_045_000 + ms for ms in range(1000))
    assert to_milliseconds(at + timedelta(microseconds=80_999)) == 1_767_323_045_080
    assert to_milliseconds(datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC)) == -1
    assert milliseconds_in(timedelta(seconds=1, microseconds=999)) == 1000


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_an_instant_is_what_its_milliseconds_say(milliseconds: int) -> None:
    assert to_milliseconds(from_milliseconds(milliseconds)) == milliseconds


def test_a_number_that_is_no_instant_is_refused() -> None:
    with pytest.raises(OverflowError):
        from_milliseconds(2**63)
