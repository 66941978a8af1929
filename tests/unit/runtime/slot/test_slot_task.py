"""The rules under which a slot moves from level to level and from epoch to epoch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.word_count import WordCount

from checkdam.errors import SlotLostError, StorageError
from checkdam.ids import Attempt, CheckpointId, Epoch, SubtaskIndex
from checkdam.runtime.exchange_rows import Wire
from checkdam.runtime.slot.messages import SlotSetup
from checkdam.runtime.slot.task import SlotTask
from checkdam.testing import Fault, FaultyStorage, MemoryStorage
from checkdam.testing.mounts import mount
from checkdam.types.rows import to_arrow

ONE, TWO = CheckpointId(1), CheckpointId(2)


class Slot:
    """Slot 0 of 1 of a word count that stands at epoch 4."""

    def __init__(self, sink: FaultyStorage | None = None) -> None:
        self.words = WordCount([["a"]], sink=sink)
        job = self.words.job(parallelism=1).job()
        self._uri = mount(self.words.storage)
        self._edge = job.plan.edges[0]
        self.task = SlotTask(
            SlotSetup(
                job_id=job.job_id,
                attempt=Attempt("try"),
                subtask=SubtaskIndex(0),
                plan=job.plan.for_slots(),
                backend=job.backend,
                last_epoch=Epoch(4),
                storage=self._uri,
            )
        )

    def level(self, level: int, epoch: int, *words: str) -> SlotTask:
        run = self.task.begin_level(level, Epoch(epoch))
        rows = to_arrow(self._edge.type, [(word, 1) for word in words])
        list(run.process(Wire([self._edge]).pack(self._edge, rows)))
        list(run.finish())
        return self.task

    def epoch(self, epoch: int, *words: str) -> int:
        self.level(1, epoch, *words)
        report = self.task.end_epoch(Epoch(epoch), commit=False)
        return sum(each.held.entries for each in report.operators.values())


REFUSED: dict[str, Callable[[Slot], object]] = {
    "an epoch that was applied": lambda slot: slot.level(1, 4, "a"),
    "an epoch whose predecessor is missing": lambda slot: slot.level(1, 6, "a"),
    "the end of an epoch that was applied": lambda slot: slot.task.end_epoch(Epoch(4), commit=False),
    "the end of an epoch too far": lambda slot: slot.task.end_epoch(Epoch(6), commit=False),
    "a level twice": lambda slot: (slot.level(1, 5, "a"), slot.level(1, 5, "a")),
    "a cut of another epoch": lambda slot: slot.task.begin_snapshot(ONE, Epoch(3)),
    "a cut within an epoch": lambda slot: (slot.level(1, 5, "a"), slot.task.begin_snapshot(ONE, Epoch(4))),
    "a level while one is open": lambda slot: (slot.task.begin_level(1, Epoch(5)), slot.level(1, 5, "a")),
    "the end of an epoch while a level is open": lambda slot: (
        slot.task.begin_level(1, Epoch(5)),
        slot.task.end_epoch(Epoch(5), commit=False),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_slot_refuses(case: str) -> None:
    slot = Slot()

    with pytest.raises(SlotLostError, match="slot 0"):
        REFUSED[case](slot)


def test_a_slot_takes_the_next_epoch_and_says_what_it_holds() -> None:
    slot = Slot()

    assert slot.epoch(5, "a", "b") == 2
    assert slot.epoch(6) == 2
    assert slot.epoch(7, "c") == 3


def test_a_level_that_did_not_reach_the_slot_counts_as_empty() -> None:
    slot = Slot()

    report = slot.task.end_epoch(Epoch(5), commit=False)

    assert all(counts.records_in == 0 for counts in report.operators.values())
    assert slot.epoch(6, "a") == 1


def test_counts_are_of_one_epoch_only() -> None:
    slot = Slot()
    slot.epoch(5, "a", "a")
    slot.level(1, 6, "b")

    report = slot.task.end_epoch(Epoch(6), commit=False)

    assert {(counts.records_in, counts.records_out) for counts in report.operators.values()} == {(1, 1), (1, 0)}


def test_a_snapshot_holds_what_was_there_at_the_cut_and_not_what_came_later() -> None:
    slot = Slot()
    slot.epoch(5, "a")
    slot.task.begin_snapshot(ONE, Epoch(5))
    slot.epoch(6, "b")

    snapshot = slot.task.snapshot(ONE)

    slot.task.begin_snapshot(TWO, Epoch(6))
    later = slot.task.snapshot(TWO)
    assert snapshot.state_bytes < later.state_bytes
    assert [len(operator.committables) for operator in snapshot.operators] == [0, 1]


def test_output_of_a_checkpoint_that_never_completed_rides_with_the_next() -> None:
    slot = Slot()
    slot.epoch(5, "a")
    slot.task.begin_snapshot(ONE, Epoch(5))
    first = slot.task.snapshot(ONE).operators[-1].committables
    slot.task.aborted(ONE)
    slot.epoch(6, "b")
    slot.task.begin_snapshot(TWO, Epoch(6))

    second = slot.task.snapshot(TWO).operators[-1].committables

    assert second[: len(first)] == first
    assert len(second) == 2


def test_output_of_a_completed_checkpoint_does_not_ride_again() -> None:
    slot = Slot()
    slot.epoch(5, "a")
    slot.task.begin_snapshot(ONE, Epoch(5))
    slot.task.snapshot(ONE)
    slot.task.completed(ONE)
    slot.epoch(6, "b")
    slot.task.begin_snapshot(TWO, Epoch(6))

    assert len(slot.task.snapshot(TWO).operators[-1].committables) == 1


def test_a_slot_whose_output_could_not_be_written_goes_no_further() -> None:
    slot = Slot(FaultyStorage(MemoryStorage(), at=0, fault=Fault.REFUSED))
    slot.epoch(5, "a")
    slot.task.begin_snapshot(ONE, Epoch(5))
    with pytest.raises(SlotLostError, match="was not written") as lost:
        slot.task.snapshot(ONE)

    assert isinstance(lost.value.__cause__, StorageError)
    with pytest.raises(SlotLostError, match="was not written"):
        slot.epoch(6, "b")
    with pytest.raises(SlotLostError, match="was not written"):
        slot.task.begin_snapshot(TWO, Epoch(5))


def test_an_aborted_checkpoint_leaves_no_state_file() -> None:
    slot = Slot()
    slot.epoch(5, "a")
    slot.task.begin_snapshot(ONE, Epoch(5))
    slot.task._snapshots._writing.submit(lambda: None).result()  # it is written, and nobody has asked for it
    assert slot.words.storage.list("") != []

    slot.task.aborted(ONE)

    slot.task.close()  # waits for the writer
    assert slot.words.storage.list("") == []
