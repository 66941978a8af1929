"""A driver freezes at any moment, another takes its job over, and the first one wakes: nothing is lost or repeated."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.support.word_count import UID, WordCount

from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.checkpoint.settings import CheckpointingMode, CheckpointRetention, JobEnd
from checkdam.checkpoint.terms import TERMS, TermFile
from checkdam.errors import FencedError, JobFailedError
from checkdam.processes import Owner
from checkdam.runtime.job_status import JobStatus
from checkdam.testing import MemoryStorage
from checkdam.testing.local_job import EVERY_EPOCH, JOB_ID, LocalJob
from checkdam.testing.mounts import Watch, WatchedStorage
from checkdam.testing.trouble import DriverKilled, Step, Trouble, kill_driver, kill_slot

EPOCHS = [["a", "b", "a", "c"], ["d", "a", "e"], ["b", "f", "a"], ["a", "g"]]
ABORTS = {Step.BEFORE_ABORTED, Step.AFTER_ABORTED}
STEPS = [step for step in Step if step not in ABORTS and "SAVEPOINT" not in step.name]
_PATIENCE_SECONDS = 60


class Freezer(Watch):
    """Stops a whole driver, its slots included, at its n-th operation of storage, until it is thawed."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.count = 0
        self._lock = threading.Lock()
        self._thawed = threading.Event()
        self.frozen = threading.Event()

    def before(self, operation: str, path: str) -> None:
        with self._lock:
            if self.count == self._at:
                self.frozen.set()
            self.count += 1
        if self.frozen.is_set() and not self._thawed.wait(_PATIENCE_SECONDS):
            raise AssertionError("the test never thawed the driver")

    def freeze(self) -> None:
        self.frozen.set()

    def thaw(self) -> None:
        self._thawed.set()


class FreezableDriver:
    """A driver in a thread of its own, in the same place as others."""

    def __init__(self, storage: MemoryStorage, sink: MemoryStorage, freezer: Freezer) -> None:
        self.freezer = freezer
        self._words = WordCount(
            EPOCHS,
            storage=WatchedStorage(storage, storage.uri, freezer),
            sink=WatchedStorage(sink, sink.uri, freezer),
        )
        self._thread: threading.Thread | None = None
        self.job: LocalJob | None = None
        self.failure: BaseException | None = None

    def start(self, *troubles: Trouble, take_over: bool = False, **options: Any) -> None:
        """Run until it is frozen, or has ended."""
        job = self.job = self._words.job(troubles=troubles, **options)

        def work() -> None:
            try:
                job.run(take_over=take_over)
            except BaseException as failure:  # noqa: BLE001  the test looks at it
                self.failure = failure
            finally:
                self.freezer.frozen.set()

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()
        assert self.freezer.frozen.wait(_PATIENCE_SECONDS)

    def wake(self) -> None:
        """Let it go on to its end."""
        self.freezer.thaw()
        assert self._thread is not None
        self._thread.join(_PATIENCE_SECONDS)
        assert not self._thread.is_alive(), "the driver never ended"


class TwoDrivers:
    """One job in one place, and a driver of it that can be frozen."""

    def __init__(self, at: int = -1) -> None:
        storage, sink = MemoryStorage(), MemoryStorage()
        self.words = WordCount(EPOCHS, storage=storage, sink=sink)
        self.freezer = Freezer(at)
        self.first = FreezableDriver(storage, sink, self.freezer)
        self._places = storage, sink

    def second(self, *troubles: Trouble, **options: Any) -> LocalJob:
        job = self.words.job(troubles=troubles, **options)
        job.run(take_over=True)
        return job

    def frozen_second(self, at: int, *troubles: Trouble) -> FreezableDriver:
        """Another driver, which takes over and stops at its n-th operation of storage."""
        driver = FreezableDriver(*self._places, Freezer(at))
        driver.start(*troubles, take_over=True)
        return driver

    def seem_elsewhere(self) -> None:
        """Let the first driver look as if it ran on another machine: nobody knows whether it lives."""
        for each in self.words.storage.list(f"{JOB_ID}/{TERMS}"):
            term = msgspec.json.decode(self.words.storage.read(each.path), type=TermFile)
            owner = Owner("another-machine its-boot its-namespace", 1, "1")
            self.words.storage.write(each.path, msgspec.json.encode(msgspec.structs.replace(term, owner=owner)))

    def must_be_exact(self) -> None:
        """Whoever comes next finds whole checkpoints and exact output, and what the first left late is swept."""
        assert self.words.output() == self.words.expected_output()
        store = CheckpointStore(self.words.storage, JOB_ID)
        store.verify(store.load(store.completed()[-1]))

        last = self.words.job()
        last.run(take_over=True)

        assert last.state(UID) == self.words.expected_state()
        assert self.words.output() == self.words.expected_output()
        assert [path for path in self.words.leftovers() if TERMS not in path] == []


def finishes(drivers: TwoDrivers) -> None:
    """The second driver ends before the first one wakes."""
    drivers.second()
    drivers.first.wake()


def is_at_work(drivers: TwoDrivers) -> None:
    """The first driver wakes, and ends, while the second is between two steps."""
    drivers.second(Trouble(Step.SNAPSHOT_TAKEN, lambda engine, moment: drivers.first.wake()))
    drivers.first.wake()


def is_killed(drivers: TwoDrivers) -> None:
    """The second driver dies behind its first checkpoint; then the first one wakes, and a third one follows."""
    try:
        drivers.second(Trouble(Step.METADATA_WRITTEN, kill_driver))
    except DriverKilled:
        drivers.first.wake()
    else:
        drivers.first.wake()
    drivers.second()


MEANWHILE: dict[str, Callable[[TwoDrivers], None]] = {each.__name__: each for each in (finishes, is_at_work, is_killed)}


def freeze(drivers: TwoDrivers) -> Callable[..., None]:
    def do(*_: object) -> None:
        drivers.freezer.freeze()

    return do


@pytest.mark.parametrize("step", [Step.BEFORE_METADATA, Step.METADATA_WRITTEN, Step.COMMITTING, Step.BEFORE_DISCARD])
def test_a_driver_that_wakes_behind_its_successor_stops_and_touches_nothing(step: Step) -> None:
    drivers = TwoDrivers()
    drivers.first.start(Trouble(step, freeze(drivers), number=2 if "DISCARD" not in step.name else 1))
    drivers.second()
    before = [(each.path, each.size) for each in drivers.words.storage.list("")]
    visible = drivers.words.output()

    drivers.first.wake()

    assert isinstance(drivers.first.failure, FencedError)
    assert "has taken over job" in str(drivers.first.failure)
    assert drivers.first.job is not None
    heard = drivers.first.job.heard
    assert (heard.end, heard.statuses[-1], heard.restarts) == (JobEnd.SUSPENDED, JobStatus.SUSPENDED, [])
    after = [(each.path, each.size) for each in drivers.words.storage.list("")]
    # At the very step it had checked its term already: what it does there is of no consequence.
    assert set(before) - set(after) <= {(f"{JOB_ID}/chk-1/_metadata", dict(before).get(f"{JOB_ID}/chk-1/_metadata"))}
    assert drivers.words.output() == visible == drivers.words.expected_output()
    drivers.must_be_exact()


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize("step", STEPS)
def test_a_driver_frozen_at_any_step_neither_repeats_nor_loses(step: Step, meanwhile: str, number: int) -> None:
    drivers = TwoDrivers()
    drivers.first.start(Trouble(step, freeze(drivers), number=number))

    MEANWHILE[meanwhile](drivers)

    assert drivers.first.failure is None or isinstance(drivers.first.failure, FencedError)
    drivers.must_be_exact()


def some_operations(every: int, first: int) -> Iterator[int]:
    """Every so many of the operations that a job has which fails over once."""
    drivers = TwoDrivers()
    drivers.first.start(Trouble(Step.BEFORE_EPOCH, kill_slot(0), number=3))
    yield from range(first, drivers.freezer.count, every)


@pytest.mark.slow
@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_a_driver_frozen_at_any_operation_of_storage_neither_repeats_nor_loses(meanwhile: str) -> None:
    fenced = 0
    for at in some_operations(2 * len(MEANWHILE), list(MEANWHILE).index(meanwhile)):
        drivers = TwoDrivers(at)
        drivers.first.start(Trouble(Step.BEFORE_EPOCH, kill_slot(0), number=3))

        MEANWHILE[meanwhile](drivers)

        # Frozen before it had the job, it is refused like any other.
        assert drivers.first.failure is None or isinstance(drivers.first.failure, FencedError) or at < 10, at
        fenced += isinstance(drivers.first.failure, FencedError)
        drivers.must_be_exact()
    assert fenced > 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "fate"),
    [(Step.BEFORE_METADATA, "lives"), (Step.BEFORE_METADATA, "dies"), (Step.METADATA_WRITTEN, "dies")],
)
def test_a_driver_that_wakes_in_the_middle_of_a_take_over_neither_repeats_nor_loses(step: Step, fate: str) -> None:
    """The second one may die before its first epoch: then a third must not go on from what the first left late."""
    for at in range(1, 50, 2):
        drivers = TwoDrivers()
        drivers.first.start(Trouble(step, freeze(drivers), number=2))
        dies = [Trouble(Step.BEFORE_EPOCH, kill_driver)] if fate == "dies" else []
        second = drivers.frozen_second(at, *dies)

        drivers.first.wake()
        second.wake()

        if second.failure is not None:
            assert isinstance(second.failure, DriverKilled) or "being started" in str(second.failure), at
            drivers.second()
        drivers.must_be_exact()


@pytest.mark.slow
def test_a_driver_that_wakes_at_its_end_deletes_nothing_of_its_successor() -> None:
    deletes = replace(EVERY_EPOCH, retention=CheckpointRetention.RETAIN_ON_FAILURE)
    refused: list[str] = []
    whole = TwoDrivers()
    whole.first.start(checkpoints=deletes)
    for at in range(whole.freezer.count - 30, whole.freezer.count):
        drivers = TwoDrivers(at)
        drivers.first.start(checkpoints=deletes)
        store = CheckpointStore(drivers.words.storage, JOB_ID)
        if not store.completed():
            break  # nobody could take over any more
        drivers.seem_elsewhere()
        try:
            drivers.words.job().run()
        except JobFailedError as refusal:
            refused.append(str(refusal))
            drivers.first.wake()
            assert drivers.first.failure is None
            assert drivers.words.output() == drivers.words.expected_output()
            continue
        kept = store.completed()

        drivers.first.wake()

        assert store.completed() == kept, at
        drivers.must_be_exact()
    assert refused
    assert all("may be deleting its checkpoints" in each for each in refused)


def test_output_of_every_epoch_is_published_by_the_owner_only() -> None:
    """At least once: a replaced driver adds nothing any more."""
    checkpoints = replace(EVERY_EPOCH, mode=CheckpointingMode.AT_LEAST_ONCE)
    drivers = TwoDrivers()
    drivers.first.start(Trouble(Step.BEFORE_EPOCH, freeze(drivers), number=3), checkpoints=checkpoints)
    drivers.second(checkpoints=checkpoints)
    visible = drivers.words.output()

    drivers.first.wake()

    assert isinstance(drivers.first.failure, FencedError)
    assert drivers.words.output() == visible
