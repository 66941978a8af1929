"""A worker searches for cycles only among what its tasks have made."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from checkdam.runtime.spark import worker_memory
from checkdam.runtime.spark.worker_memory import exempt_modules_from_search


class _Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker_memory, "_is_done", False)
    yield
    gc.unfreeze()


def test_what_a_worker_has_loaded_is_no_longer_searched() -> None:
    exempt_modules_from_search()

    assert gc.get_freeze_count() > 1_000
    assert len(gc.get_objects()) < 1_000


def test_cycles_that_exist_before_are_collected_first() -> None:
    dropped = weakref.ref(_Cycle())

    exempt_modules_from_search()

    assert dropped() is None


def test_what_later_tasks_leave_behind_is_collected() -> None:
    exempt_modules_from_search()
    dropped = weakref.ref(_Cycle())
    exempt_modules_from_search()

    gc.collect()

    assert dropped() is None
