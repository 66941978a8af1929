"""Reference cycles in a slot are found when memory grows."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from checkdam.runtime.slot.cycle_collection import CycleCollector, search_rarely

MB = 1 << 20


class _Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _usual_thresholds() -> Iterator[None]:
    usual = gc.get_threshold()
    yield
    gc.set_threshold(*usual)


def test_a_cycle_is_collected_once_the_process_has_grown() -> None:
    search_rarely()
    collector = CycleCollector()
    collector.epoch_ended(100 * MB)
    dropped = weakref.ref(_Cycle())

    collector.epoch_ended(163 * MB)
    is_kept_after_little_growth = dropped() is not None
    collector.epoch_ended(165 * MB)

    assert is_kept_after_little_growth
    assert dropped() is None


def test_the_next_search_waits_for_growth_over_what_the_last_one_left() -> None:
    search_rarely()
    collector = CycleCollector()
    collector.epoch_ended(1000 * MB)
    collector.epoch_ended(1501 * MB)
    collector.epoch_ended(1400 * MB)
    dropped = weakref.ref(_Cycle())

    collector.epoch_ended(2099 * MB)
    is_kept_after_little_growth = dropped() is not None
    collector.epoch_ended(2101 * MB)

    assert is_kept_after_little_growth
    assert dropped() is None
