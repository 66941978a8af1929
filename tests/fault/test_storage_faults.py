"""Each change of storage refused in turn, and each one done with its reply lost: the result is the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.support.word_count import UID, WordCount

from checkdam.backends import compaction
from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.checkpoint.settings import CheckpointRetention
from checkdam.errors import StorageError, StorageUncertainError
from checkdam.testing import Fault, FaultyStorage, MemoryStorage
from checkdam.testing.local_job import EVERY_EPOCH, JOB_ID

WORDS = [f"word{n}" for n in range(30)]
DELTAS = [["a", WORDS[3 * n], WORDS[3 * n + 1], "a"] for n in range(4)]
EPOCHS = [[*WORDS, "a"], *DELTAS, WORDS, DELTAS[0]]  # a base, deltas that are merged, and a new base
OPTIONS = {"keeps two": replace(EVERY_EPOCH, num_retained=2), "tolerates": replace(EVERY_EPOCH, tolerable_failures=2)}


pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _merge_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "CHAIN_LENGTH", 2)


def faulty_each_in_turn(fault: Fault) -> Iterator[FaultyStorage]:
    for nth in itertools.count():
        storage = FaultyStorage(MemoryStorage(), at=nth, fault=fault)
        yield storage
        if not storage.has_failed:
            return


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("fault", Fault)
def test_one_failed_change_of_checkpoint_storage_neither_loses_nor_repeats_nor_leaves_anything(
    fault: Fault, options: str
) -> None:
    for storage in faulty_each_in_turn(fault):
        words = WordCount(EPOCHS, storage=storage)

        job = words.run(checkpoints=OPTIONS[options])

        assert job.state(UID) == words.expected_state(), storage.at
        assert words.output() == words.expected_output(), storage.at
        assert words.leftovers() == [], storage.at
    assert storage.at > 20


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("fault", Fault)
def test_one_failed_change_of_the_sinks_storage_neither_loses_nor_repeats_nor_leaves_anything(
    fault: Fault, options: str
) -> None:
    for sink in faulty_each_in_turn(fault):
        words = WordCount(EPOCHS, sink=sink)

        job = words.run(checkpoints=OPTIONS[options])

        assert job.state(UID) == words.expected_state(), sink.at
        assert words.output() == words.expected_output(), sink.at
        assert words.leftovers() == [], sink.at
    assert sink.at > 10


@pytest.mark.parametrize("fault", Fault)
def test_one_failed_change_while_a_finished_job_deletes_its_checkpoints_repeats_no_output(fault: Fault) -> None:
    checkpoints = replace(EVERY_EPOCH, num_retained=2, retention=CheckpointRetention.RETAIN_ON_FAILURE)
    for storage in faulty_each_in_turn(fault):
        words = WordCount(EPOCHS, storage=storage)

        words.run(checkpoints=checkpoints)

        assert words.output() == words.expected_output(), storage.at
        assert storage.list("") == [], storage.at


class _UnreadableMetadata(FaultyStorage):
    """Loses the reply to the second creation of metadata, and fails to read the file back."""

    def __init__(self) -> None:
        super().__init__(MemoryStorage(), at=-1, fault=Fault.REPLY_LOST)
        self._created: list[str] = []
        self._unreadable: str | None = None

    def write_new(self, path: str, data: bytes) -> None:
        super().write_new(path, data)
        self._created += [path] if path.endswith("_metadata") else []
        if len(self._created) == 2 and self._created[-1] == path:
            self._unreadable = path
            raise StorageUncertainError(f'the reply to "{path}" was lost')

    def read(self, path: str) -> bytes:
        if path == self._unreadable:
            self._unreadable = None
            raise StorageError(f'"{path}" cannot be read')
        return super().read(path)


def test_a_checkpoint_that_may_be_complete_goes_before_files_that_it_shares_with_others() -> None:
    storage = _UnreadableMetadata()
    words = WordCount(EPOCHS, storage=storage)

    job = words.run(checkpoints=replace(EVERY_EPOCH, tolerable_failures=2))

    assert [number for number, _ in job.heard.failed_checkpoints] == [2]
    assert CheckpointStore(storage, JOB_ID).completed() == [job.checkpoint().checkpoint_id]
    assert words.leftovers() == []
