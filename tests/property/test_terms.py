"""Drivers of one job whose steps on storage come in any order: nothing is published twice, and nothing of it lost."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.word_count import UID, WordCount

from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.checkpoint.terms import TERMS
from checkdam.errors import FencedError, JobFailedError
from checkdam.testing import MemoryStorage
from checkdam.testing.local_job import JOB_ID
from checkdam.testing.mounts import Watch, WatchedStorage
from checkdam.testing.trouble import Step, Trouble, kill_slot

pytestmark = pytest.mark.slow

EPOCHS = [["a", "b"], ["a", "c"], ["b"]]
DRIVERS = 3
_PATIENCE_SECONDS = 60


class Schedule:
    """Lets one driver at a time use storage, for as many operations as its turn has."""

    def __init__(self, turns: list[tuple[int, int]]) -> None:
        self._changed = threading.Condition()
        self._turns = turns
        self._left: dict[int, int] = dict.fromkeys(range(DRIVERS), 0)
        self._running = set(range(DRIVERS))
        self._active = 0
        with self._changed:
            self._next_turn()

    def step(self, driver: int) -> None:
        """Wait for the driver's turn, which lasts until it comes for the operation behind its last."""
        with self._changed:
            if self._active == driver and self._left[driver] == 0:
                self._next_turn()
            if not self._changed.wait_for(lambda: self._active == driver and self._left[driver] > 0, _PATIENCE_SECONDS):
                raise AssertionError(f"driver {driver} never had its turn")
            self._left[driver] -= 1

    def ended(self, driver: int) -> None:
        with self._changed:
            self._running.discard(driver)
            if self._active == driver:
                self._next_turn()

    def _next_turn(self) -> None:
        """When the turns are used up, the drivers run one after the other, the last one first."""
        while self._turns:
            driver, operations = self._turns.pop(0)
            if driver in self._running:
                break
        else:
            driver, operations = max(self._running, default=-1), 1_000_000
        self._active = driver
        self._left[driver] = operations
        self._changed.notify_all()


class Scheduled(Watch):
    def __init__(self, schedule: Schedule, driver: int) -> None:
        self._schedule = schedule
        self._driver = driver

    def before(self, operation: str, path: str) -> None:
        self._schedule.step(self._driver)


turns = st.lists(st.tuples(st.integers(0, DRIVERS - 1), st.integers(1, 40)), max_size=12)


@settings(max_examples=examples(40), deadline=None)
@given(turns, st.booleans())
def test_no_interleaving_of_drivers_repeats_or_loses_anything(turns: list[tuple[int, int]], fails_over: bool) -> None:
    storage, sink, schedule = MemoryStorage(), MemoryStorage(), Schedule([(0, 25), *turns])
    failures: dict[int, BaseException] = {}

    def drive(driver: int) -> None:
        watch = Scheduled(schedule, driver)
        words = WordCount(
            EPOCHS,
            storage=WatchedStorage(storage, storage.uri, watch),
            sink=WatchedStorage(sink, sink.uri, watch),
        )
        options: dict[str, Any] = {}
        if fails_over:
            options["troubles"] = [Trouble(Step.EPOCH_DONE, kill_slot(0), number=2)]
        try:
            words.job(**options).run(take_over=True)
        except BaseException as failure:  # noqa: BLE001  looked at below
            failures[driver] = failure
        finally:
            schedule.ended(driver)

    threads = [threading.Thread(target=drive, args=(driver,), daemon=True) for driver in range(DRIVERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_PATIENCE_SECONDS)
        assert not thread.is_alive()

    words = WordCount(EPOCHS, storage=storage, sink=sink)
    for failure in failures.values():
        assert isinstance(failure, FencedError) or "being started" in str(failure), repr(failure)
    store = CheckpointStore(storage, JOB_ID)
    for checkpoint_id in store.completed()[-1:]:
        store.verify(store.load(checkpoint_id))
    last = words.job()
    last.run(take_over=True)
    assert last.state(UID) == words.expected_state()
    assert words.output() == words.expected_output()
    assert [path for path in words.leftovers() if TERMS not in path] == []
    assert all(isinstance(failure, JobFailedError) for failure in failures.values())
