"""A slot's part of a savepoint: whole in its own place, beside checkpoints that go on, and settled one way or other."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from tests.support.word_count import WordCount

from checkdam.backends import RocksDBStateBackend
from checkdam.connectors.file_sink import STAGING, FileCommitter
from checkdam.errors import CheckpointDeclinedError, StorageError
from checkdam.ids import Attempt, CheckpointId, Epoch, OperatorUid, SubtaskIndex
from checkdam.runtime.driver_memory import DriverMemory
from checkdam.runtime.exchange_rows import Wire
from checkdam.runtime.slot.messages import SlotSetup
from checkdam.runtime.slot.task import SlotTask
from checkdam.state.snapshot_handles import OperatorSnapshot, SavepointFormat, SavepointTarget, SlotSnapshot
from checkdam.storage.contract import Storage
from checkdam.testing import Fault, FaultyStorage, MemoryStorage
from checkdam.testing.mounts import mount
from checkdam.types.rows import to_arrow

ONE, TWO, THREE = CheckpointId(1), CheckpointId(2), CheckpointId(3)
WORDS = [f"w{i}" for i in range(20)]


class Slot:
    """Slot 0 of 1 of a word count, and a place for a savepoint."""

    def __init__(
        self, *, has_storage: bool = True, target: Storage | None = None, memory: DriverMemory | None = None
    ) -> None:
        self.words = WordCount([["a"]])
        self.files = target or MemoryStorage()
        self._mounted = mount(self.files)
        self.place = SavepointTarget(f"{self._mounted}/savepoint", SavepointFormat.CANONICAL)
        job = self.words.job(parallelism=1).job()
        self._edge = job.plan.edges[0]
        self._uri = mount(self.words.storage)
        self.epoch_done = 0
        self.job_id = job.job_id
        self.task = SlotTask(
            SlotSetup(
                job_id=job.job_id,
                attempt=Attempt("try"),
                subtask=SubtaskIndex(0),
                plan=job.plan.for_slots(),
                backend=job.backend,
                last_epoch=Epoch(0),
                storage=self._uri if has_storage else None,
                driver_memory=memory,
            )
        )

    def epoch(self, *words: str) -> None:
        self.epoch_done += 1
        run = self.task.begin_level(1, Epoch(self.epoch_done))
        rows = to_arrow(self._edge.type, [(word, 1) for word in words])
        list(run.process(Wire([self._edge]).pack(self._edge, rows)))
        list(run.finish())
        self.task.end_epoch(Epoch(self.epoch_done), commit=False)

    def checkpoint(self, checkpoint_id: CheckpointId, *, full: bool = False) -> SlotSnapshot:
        self.task.begin_snapshot(checkpoint_id, Epoch(self.epoch_done), full=full)
        snapshot = self.task.snapshot(checkpoint_id)
        self.task.completed(checkpoint_id)
        return snapshot

    def savepoint(self, checkpoint_id: CheckpointId) -> SlotSnapshot:
        self.task.begin_snapshot(checkpoint_id, Epoch(self.epoch_done), savepoint=self.place)
        return self.task.snapshot(checkpoint_id)

    def in_savepoint(self) -> dict[str, int]:
        return {status.path.removeprefix("savepoint/"): status.size for status in self.files.list("savepoint")}

    def publish(self, snapshot: SlotSnapshot) -> None:
        [out] = [operator for operator in snapshot.operators if operator.uid == "out"]
        FileCommitter(self.words.sink, self.job_id, OperatorUid("out")).commit(out.committables)


def files_of(snapshot: SlotSnapshot) -> dict[str, int]:
    return {file.path: file.size for operator in snapshot.operators for file in operator.files()}


def keyed(snapshot: SlotSnapshot) -> OperatorSnapshot:
    [count] = [operator for operator in snapshot.operators if operator.uid == "count"]
    return count


def test_in_memory_the_limit_is_on_a_state_whole_and_not_on_each_of_its_files() -> None:
    slot = Slot(memory=DriverMemory("memory://driver", "", "", max_state_size=500))
    for number in range(1, 5):
        slot.epoch(f"{number}-1", f"{number}-2")
        if number < 4:
            kept = slot.checkpoint(CheckpointId(number))

    with pytest.raises(CheckpointDeclinedError, match=r'"count"\) in subtask 0 has \d+ bytes or more') as declined:
        slot.checkpoint(CheckpointId(4))

    assert len(keyed(kept).files()) > 1
    assert keyed(kept).state_bytes <= 500
    assert "memory-storage.max-state-size" in (declined.value.hint or "")
    assert not [each for each in slot.words.storage.list("") if each.path.endswith(f"-{slot.epoch_done}-try")]
    slot.task.begin_snapshot(CheckpointId(20), Epoch(slot.epoch_done), savepoint=slot.place)
    assert keyed(slot.task.snapshot(CheckpointId(20))).state_bytes > 0  # a savepoint has no limit


@pytest.mark.parametrize("has_storage", [True, False])
def test_the_files_of_a_savepoint_lie_flat_in_its_own_directory(has_storage: bool) -> None:
    slot = Slot(has_storage=has_storage)
    slot.epoch(*WORDS)
    if has_storage:
        slot.checkpoint(ONE)
        slot.epoch("w1")
    in_storage = [status.path for status in slot.words.storage.list("")]

    snapshot = slot.savepoint(TWO)

    assert files_of(snapshot) == slot.in_savepoint() != {}
    assert {file.path: file.size for file in snapshot.new_files} == slot.in_savepoint()
    assert [status.path for status in slot.words.storage.list("")] == in_storage
    assert len(snapshot.operators[-1].committables) == 1


def test_a_savepoint_that_is_released_stays_and_the_slot_goes_on_without_it() -> None:
    slot = Slot()
    slot.epoch(*WORDS)
    slot.checkpoint(ONE)
    slot.epoch("w1")
    slot.savepoint(TWO)
    before = slot.in_savepoint()
    slot.task.released(TWO)

    after = slot.checkpoint(THREE)

    slot.task.close()
    assert slot.in_savepoint() == before
    assert all(path.startswith("shared/") for path in files_of(after))
    assert len(after.new_files) == 1  # what changed before the savepoint, and only that
    assert len(files_of(after)) == 2


def test_a_savepoint_released_before_anybody_asked_for_it_stays_too() -> None:
    slot = Slot()
    slot.epoch(*WORDS)
    slot.task.begin_snapshot(ONE, Epoch(1), savepoint=slot.place)
    slot.task._snapshots._saving.submit(lambda: None).result()

    slot.task.released(ONE)

    slot.task.close()
    assert slot.in_savepoint() != {}


@pytest.mark.parametrize("when", ["written", "reported"])
def test_what_an_aborted_savepoint_wrote_is_removed_unless_the_driver_knows_of_it(when: str) -> None:
    slot = Slot()
    slot.epoch(*WORDS)
    slot.task.begin_snapshot(ONE, Epoch(1), savepoint=slot.place)
    if when == "reported":
        slot.task.snapshot(ONE)
    slot.task._snapshots._saving.submit(lambda: None).result()
    assert slot.in_savepoint() != {}

    slot.task.aborted(ONE)

    slot.task.close()
    assert (slot.in_savepoint() == {}) == (when == "written")


def test_a_savepoint_followed_by_a_checkpoint_publishes_its_output_once() -> None:
    slot = Slot()
    slot.epoch("a", "b")
    saved = slot.savepoint(ONE)
    slot.task.released(ONE)
    slot.epoch("a")
    assert slot.words.output() == {}

    checkpointed = slot.checkpoint(TWO)
    slot.publish(checkpointed)

    expected = {("a", 1): 1, ("b", 1): 1, ("a", 2): 1}
    assert slot.words.output() == expected
    slot.publish(saved)  # as a restore of the savepoint does
    assert slot.words.output() == expected
    slot.epoch("c")
    slot.publish(slot.checkpoint(THREE))
    assert slot.words.output() == expected | {("c", 1): 1}


def test_the_output_of_an_aborted_savepoint_rides_with_the_next_checkpoint() -> None:
    slot = Slot()
    slot.epoch("a")
    slot.task.begin_snapshot(ONE, Epoch(1), savepoint=slot.place)
    slot.task.aborted(ONE)

    slot.publish(slot.checkpoint(TWO))

    assert slot.words.output() == {("a", 1): 1}


def test_restoring_a_savepoint_publishes_what_it_holds() -> None:
    slot = Slot()
    slot.epoch("a", "b")
    saved = slot.savepoint(ONE)

    slot.publish(saved)

    assert slot.words.output() == {("a", 1): 1, ("b", 1): 1}
    assert slot.words.sink.list(STAGING) == []


def test_output_is_kept_though_two_cuts_have_the_same_number() -> None:
    slot = Slot(has_storage=False)
    slot.epoch("a")
    slot.savepoint(ONE)
    slot.task.released(ONE)
    slot.epoch("b")
    slot.task.begin_snapshot(ONE, Epoch(2))

    slot.publish(slot.task.snapshot(ONE))

    assert slot.words.output() == {("a", 1): 1, ("b", 1): 1}


class Slow(MemoryStorage):
    """Lets nothing be written before `may_go`."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go = threading.Event()

    def write(self, path: str, data: bytes) -> None:
        assert self.may_go.wait(30)
        super().write(path, data)


def test_checkpoints_complete_while_a_savepoint_is_still_written_and_lack_nothing() -> None:
    slow = Slow()
    slot = Slot(target=slow)
    slot.epoch(*WORDS)
    slot.task.begin_snapshot(ONE, Epoch(1), savepoint=slot.place)
    slot.epoch("w1")

    checkpointed = slot.checkpoint(TWO)  # would wait for ever if it came after the savepoint

    slow.may_go.set()
    saved = slot.task.snapshot(ONE)
    slot.task.released(ONE)
    assert len(checkpointed.operators[-1].committables) == 2
    assert len(saved.operators[-1].committables) == 1
    assert files_of(saved) == slot.in_savepoint()
    slot.epoch("w2")
    assert all(path.startswith("shared/") for path in files_of(slot.checkpoint(THREE)))


def test_an_abort_reaches_a_savepoint_that_is_still_written() -> None:
    slow = Slow()
    slot = Slot(target=slow)
    slot.epoch(*WORDS)
    slot.task.begin_snapshot(ONE, Epoch(1), savepoint=slot.place)

    slot.task.aborted(ONE)
    slow.may_go.set()

    slot.task.close()
    assert slot.in_savepoint() == {}


def test_a_savepoint_that_cannot_be_written_costs_nothing_but_itself() -> None:
    slot = Slot(target=FaultyStorage(MemoryStorage(), at=0, fault=Fault.REFUSED))
    slot.epoch(*WORDS)

    with pytest.raises(StorageError):
        slot.savepoint(ONE)
    slot.task.aborted(ONE)

    slot.epoch("w1")
    assert slot.in_savepoint() == {}
    assert len(slot.checkpoint(TWO).operators[-1].committables) == 2
    assert files_of(slot.savepoint(THREE)) == slot.in_savepoint() != {}


def test_each_operator_tells_what_its_part_cost() -> None:
    slot = Slot()
    slot.epoch(*WORDS)
    first = slot.checkpoint(ONE)
    slot.epoch("w1")
    second = slot.checkpoint(TWO)
    full = slot.checkpoint(THREE, full=True)

    [base] = keyed(first).files()
    assert (keyed(first).new_bytes, keyed(first).state_bytes) == (base.size, base.size)
    [delta] = keyed(second).files() - {base}
    assert (keyed(second).new_bytes, keyed(second).state_bytes) == (delta.size, base.size + delta.size)
    assert keyed(full).files() == frozenset(full.new_files)
    assert base not in keyed(full).files()
    for snapshot in (first, second, full):
        assert all(operator.sync_seconds > 0 and operator.async_seconds > 0 for operator in snapshot.operators)
        assert sum(operator.sync_seconds for operator in snapshot.operators) <= snapshot.sync_seconds
        assert sum(operator.async_seconds for operator in snapshot.operators) <= snapshot.async_seconds
        assert snapshot.state_bytes == sum(operator.state_bytes for operator in snapshot.operators)


def test_a_native_savepoint_of_rocksdb_keeps_the_names_of_tables() -> None:
    slot = Slot()
    slot.task.close()
    task = slot.task = SlotTask(replace(slot.task._setup, backend=RocksDBStateBackend("32 MB"), storage=None))
    slot.epoch(*WORDS)
    task.begin_snapshot(ONE, Epoch(1), savepoint=SavepointTarget(slot.place.directory, SavepointFormat.NATIVE))

    snapshot = task.snapshot(ONE)

    handle = keyed(snapshot).keyed
    assert handle is not None
    assert handle.backend == "rocksdb"
    assert "_states" in {file.name for file in handle.files}
    assert files_of(snapshot) == slot.in_savepoint()
    task.close()
