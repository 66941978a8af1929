"""The checkpoint directory goes away under a running job: no checkpoint is complete that cannot be restored."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.savepoint_places import SavepointPlace
from tests.support.word_count import UID, WordCount

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.backends import HashMapStateBackend, RocksDBStateBackend
from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.checkpoint.settings import JobEnd, RestoreMode
from checkdam.errors import CheckdamError, StorageError
from checkdam.ids import JobId
from checkdam.runtime.job_control import SavepointFormat
from checkdam.runtime.restart import Restart
from checkdam.storage.filesystem import open_storage
from checkdam.testing import MemoryStorage
from checkdam.testing.local_job import EVERY_EPOCH, JOB_ID, Heard
from checkdam.testing.mounts import Watch, WatchedStorage
from checkdam.testing.trouble import Deed, DriverKilled, Step, Trouble, ask, kill_driver, kill_slot

pytestmark = pytest.mark.slow

WORDS = [f"word{n}" for n in range(30)]
EPOCHS = [WORDS, ["a", WORDS[0]], ["a", WORDS[1]], ["b", WORDS[2]], ["a"]]  # a base, and deltas on it
BACKENDS: dict[str, Callable[[], Any]] = {"hashmap": HashMapStateBackend, "rocksdb": RocksDBStateBackend}


class OnDisk(WordCount):
    """The word count with checkpoints in a real directory."""

    def __init__(self, root: Path, backend: str = "hashmap") -> None:
        self.root = root
        self._backend = backend
        super().__init__(EPOCHS, storage=open_storage(str(root)))

    def build(self, environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        environment.set_state_backend(BACKENDS[self._backend]())
        super().build(environment, stream)

    @property
    def directory(self) -> Path:
        return self.root / JOB_ID

    def remove(self, *_: object) -> None:
        gone = self.directory.rename(self.root.parent / f"{self.root.name}-gone")  # at once: the job may be at it, too
        shutil.rmtree(gone, ignore_errors=True)

    def must_be_whole(self) -> None:
        store = CheckpointStore(self.storage, JOB_ID)
        for checkpoint_id in store.completed():
            store.verify(store.load(checkpoint_id))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_directory_that_is_removed_costs_one_checkpoint_and_the_next_is_full(backend: str, tmp_path: Path) -> None:
    words = OnDisk(tmp_path, backend)
    job = words.job(troubles=[Trouble(Step.BEFORE_EPOCH, words.remove, number=3)])

    heard = job.run()

    [(failed, reason)] = heard.failed_checkpoints
    assert failed == 3
    assert "is gone; the next one will be full" in reason
    assert heard.restarts == []
    assert [each.is_full for each in heard.triggered] == [False, False, False, True, False]
    words.must_be_whole()
    assert words.output() == words.expected_output()  # each word leaves with its count, so state is exact, too
    assert words.leftovers() == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_checkpoint_behind_a_removed_directory_can_be_resumed(backend: str, tmp_path: Path) -> None:
    words = OnDisk(tmp_path, backend)
    troubles = [
        Trouble(Step.BEFORE_EPOCH, words.remove, number=3),
        Trouble(Step.BEFORE_EPOCH, kill_driver, number=5),
    ]
    with pytest.raises(DriverKilled):
        words.job(troubles=troubles).run()
    words.must_be_whole()

    heard = words.job().run()

    assert [epoch for _, epoch in heard.restored_from] == [4]
    assert words.output() == words.expected_output()


@pytest.mark.parametrize(
    "step",
    [
        Step.BEFORE_SNAPSHOT,
        Step.BEFORE_WRITING,
        Step.WRITING,
        Step.SNAPSHOT_TAKEN,
        Step.COMMITTING,
        Step.BEFORE_DISCARD,
    ],
)
@pytest.mark.parametrize("number", [3, 5])
def test_a_directory_that_is_removed_at_any_step_loses_nothing(step: Step, number: int, tmp_path: Path) -> None:
    words = OnDisk(tmp_path)
    trouble = Trouble(step, words.remove, number=number - 1 if step is Step.BEFORE_DISCARD else number)

    job = words.job(troubles=[trouble])
    heard = job.run()

    assert trouble.happened.is_set()
    assert heard.restarts == []
    words.must_be_whole()
    if number == 3 or step is not Step.BEFORE_DISCARD:  # which comes after the job's last look
        assert job.state(UID) == words.expected_state()
    assert words.output() == words.expected_output()


def test_without_the_directory_a_failover_has_nothing_to_go_back_to_and_never_begins_anew(tmp_path: Path) -> None:
    words = OnDisk(tmp_path)

    def lose(engine: Any, moment: Any) -> None:
        words.remove()
        kill_slot(0)(engine, moment)

    job = words.job(troubles=[Trouble(Step.BEFORE_EPOCH, lose, number=3)])

    with pytest.raises(StorageError, match="holds no checkpoint any more, and to begin anew would repeat output"):
        job.run()

    assert len(job.heard.restarts) == 5  # it may have come back
    assert sum(words.output().values()) == len(EPOCHS[0]) + len(EPOCHS[1])


@pytest.mark.parametrize("mode", RestoreMode)
def test_without_the_directory_a_failover_never_goes_back_to_the_savepoint_it_started_from(
    mode: RestoreMode, tmp_path: Path
) -> None:
    words, place = OnDisk(tmp_path), SavepointPlace()
    asked: list[Future[Any]] = []
    save = ask(lambda: first.control.trigger_savepoint(place.uri, SavepointFormat.CANONICAL), asked)
    troubles = [
        Trouble(Step.BEFORE_EPOCH, save, number=2),
        Trouble(Step.BEFORE_EPOCH, lambda *_: first.cancel(), number=3),
    ]
    first = words.job(troubles=troubles)
    first.run()
    second, other = OnDisk(tmp_path), JobId("d" * 32)

    def lose(engine: Any, moment: Any) -> None:
        (tmp_path / other).rename(tmp_path / "away")
        kill_slot(0)(engine, moment)

    def mount_again() -> None:
        shutil.rmtree(tmp_path / other, ignore_errors=True)
        (tmp_path / "away").rename(tmp_path / other)

    job = second.job(job_id=other, troubles=[Trouble(Step.BEFORE_EPOCH, lose, number=5)])
    job.heard = Returning(3, mount_again)

    heard = job.run(restore=asked[0].result(0), mode=mode)

    assert [epoch for _, epoch in heard.restored_from] == [1, 4]
    assert "holds no checkpoint any more" in str(heard.restarts[-1])
    assert heard.withdrawn == []


class Returning(Heard):
    """Does something when the job is restarted for the n-th time."""

    def __init__(self, nth: int, do: Callable[[], object]) -> None:
        super().__init__()
        self._nth = nth
        self._do = do

    def restarting(self, failure: CheckdamError, restart: Restart) -> None:
        super().restarting(failure, restart)
        if len(self.restarts) == self._nth:
            self._do()


def test_a_directory_that_comes_back_is_gone_on_from(tmp_path: Path) -> None:
    words = OnDisk(tmp_path)
    away = tmp_path / "away"

    def unmount(engine: Any, moment: Any) -> None:
        words.directory.rename(away)
        kill_slot(0)(engine, moment)

    def mount_again() -> None:
        shutil.rmtree(words.directory, ignore_errors=True)  # the term that was written into the empty place
        away.rename(words.directory)

    job = words.job(troubles=[Trouble(Step.BEFORE_EPOCH, unmount, number=3)])
    job.heard = Returning(3, mount_again)

    heard = job.run()

    assert [epoch for _, epoch in heard.restored_from] == [2]
    assert job.state(UID) == words.expected_state()
    assert words.output() == words.expected_output()
    assert words.leftovers() == []


NEVER: Future[Any] = Future()
ON_REQUEST = replace(EVERY_EPOCH, interval=None)


@pytest.mark.parametrize("checkpoints", [EVERY_EPOCH, ON_REQUEST], ids=["covered", "not covered"])
def test_a_suspension_behind_a_removed_directory_keeps_the_state(checkpoints: Any, tmp_path: Path) -> None:
    words = OnDisk(tmp_path)

    def suspend(engine: Any, moment: Any) -> None:
        words.remove()
        job.suspend()
        engine.wait_for(NEVER)

    base = Trouble(Step.BEFORE_EPOCH, ask(lambda: job.control.trigger_checkpoint()), number=2)
    job = words.job(troubles=[base, Trouble(Step.BEFORE_EPOCH, suspend, number=4)], checkpoints=checkpoints)

    heard = job.run()

    assert (heard.end, heard.missed) == (JobEnd.SUSPENDED, [])
    words.must_be_whole()
    assert [epoch for _, epoch in words.job().run().restored_from] == [3]
    assert words.output() == words.expected_output()


@pytest.mark.parametrize("checkpoints", [EVERY_EPOCH, ON_REQUEST], ids=["covered", "not covered"])
def test_a_rescaling_behind_a_removed_directory_loses_nothing(checkpoints: Any, tmp_path: Path) -> None:
    words = OnDisk(tmp_path)

    def rescale(engine: Any, moment: Any) -> None:
        words.remove()
        ask(lambda: job.control.rescale(3))(engine, moment)

    base = Trouble(Step.BEFORE_EPOCH, ask(lambda: job.control.trigger_checkpoint()), number=2)
    job = words.job(troubles=[base, Trouble(Step.BEFORE_EPOCH, rescale, number=4)], checkpoints=checkpoints)

    heard = job.run()

    assert (heard.restarts, heard.rescales) == ([], [(3, None)])
    assert words.output() == words.expected_output()


class Refusing(Watch):
    """Refuses every operation for a while."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left = 0

    def begin(self, operations: int) -> Deed:
        def do(*_: object) -> None:
            with self._lock:
                self._left = operations

        return do

    def end(self) -> None:
        with self._lock:
            self._left = 0

    def before(self, operation: str, path: str) -> None:
        with self._lock:
            if self._left > 0:
                self._left -= 1
                raise StorageError(f'cannot {operation} "{path}": the place is gone for now')


@pytest.mark.parametrize("operations", [1, 3, 10, 10**9])
def test_a_place_that_refuses_everything_fails_the_job_over_until_it_comes_back(operations: int) -> None:
    storage, refusing = MemoryStorage(), Refusing()
    words = WordCount(EPOCHS, storage=WatchedStorage(storage, storage.uri, refusing))
    job = words.job(troubles=[Trouble(Step.BEFORE_EPOCH, refusing.begin(operations), number=3)])
    job.heard = Returning(4, refusing.end)

    heard = job.run()

    assert heard.restarts
    assert job.state(UID) == words.expected_state()
    assert words.output() == words.expected_output()
    assert words.leftovers() == []


def test_a_place_that_refuses_everything_at_the_end_is_told_from_one_without_checkpoints() -> None:
    storage, refusing = MemoryStorage(), Refusing()
    words = WordCount(EPOCHS, storage=WatchedStorage(storage, storage.uri, refusing))

    def suspend(engine: Any, moment: Any) -> None:
        refusing.begin(10**9)(engine, moment)
        job.suspend()
        engine.wait_for(NEVER)

    job = words.job(troubles=[Trouble(Step.BEFORE_EPOCH, suspend, number=3)])

    heard = job.run()

    assert (heard.end, heard.last_checkpoint) == (JobEnd.SUSPENDED, None)
    assert "the place is gone for now" in str(heard.unknown)


def test_failures_that_are_tolerated_outlast_a_place_that_is_gone_for_a_while() -> None:
    storage, refusing = MemoryStorage(), Refusing()
    words = WordCount(EPOCHS, storage=WatchedStorage(storage, storage.uri, refusing))
    troubles = [
        Trouble(Step.BEFORE_EPOCH, refusing.begin(10**9), number=2),
        Trouble(Step.BEFORE_EPOCH, lambda *_: refusing.end(), number=5),
    ]
    job = words.job(troubles=troubles, checkpoints=replace(EVERY_EPOCH, tolerable_failures=3))

    heard = job.run()

    assert heard.restarts == []
    assert [failed for failed, _ in heard.failed_checkpoints] == [2, 3, 4]
    assert job.state(UID) == words.expected_state()
    assert words.output() == words.expected_output()


def test_a_savepoint_behind_a_removed_directory_is_whole_or_refused(tmp_path: Path) -> None:
    words, place = OnDisk(tmp_path), SavepointPlace()
    asked: list[Future[Any]] = []
    save = ask(lambda: job.control.trigger_savepoint(place.uri, SavepointFormat.CANONICAL), asked)

    def remove_and_save_twice(engine: Any, moment: Any) -> None:
        words.remove()
        save(engine, moment)
        save(engine, moment)

    job = words.job(troubles=[Trouble(Step.BEFORE_EPOCH, remove_and_save_twice, number=3)])

    job.run()

    first, second = asked
    assert "is gone" in str(first.exception(0))
    assert place.complete() == [second.result(0)]
    assert words.output() == words.expected_output()
