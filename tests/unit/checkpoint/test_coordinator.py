from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from checkdam.checkpoint.coordinator import CheckpointCoordinator
from checkdam.checkpoint.decisions import (
    AbortCheckpoint,
    AcknowledgedCheckpoint,
    Action,
    CommitOutput,
    DeleteFiles,
    DiscardCheckpoints,
    FailJob,
    NotifyCompleted,
    RemoveMetadata,
    TriggerCheckpoint,
    WriteMetadata,
)
from checkdam.checkpoint.settings import CheckpointConfig
from checkdam.ids import CheckpointId, Epoch, OperatorUid, SubtaskIndex
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import (
    KeyedStateHandle,
    OperatorSnapshot,
    OperatorStateHandle,
    Redistribution,
    SlotSnapshot,
    StateFile,
)
from checkdam.testing.manual_clock import ManualClock

ID = CheckpointId
EPOCH = Epoch
SECOND = timedelta(seconds=1)


def file(name: str) -> StateFile:
    return StateFile(f"shared/{name}", len(name))


def snapshot(checkpoint: int, subtask: int, *new: str, old: tuple[str, ...] = ()) -> SlotSnapshot:
    """A slot's report whose keyed state is `old` files and then `new` ones."""
    new_files = tuple(file(name) for name in new)
    handle = KeyedStateHandle(KeyGroupRange(0, 127), (*(file(name) for name in old), *new_files))
    operator = OperatorSnapshot(OperatorUid("count"), "count", handle)
    return SlotSnapshot(ID(checkpoint), SubtaskIndex(subtask), (operator,), new_files)


class Job:
    """A coordinator of two subtasks with its clock."""

    def __init__(self, *, subtasks: int = 2, first_id: int = 1, retained: Any = (), foreign: Any = (), **options: Any):
        self.clock = ManualClock()
        self.coordinator = CheckpointCoordinator(
            CheckpointConfig(**options),
            subtasks,
            self.clock,
            first_id=ID(first_id),
            retained=retained,
            foreign_files=foreign,
        )

    def complete(self, epoch: int, *, old: tuple[str, ...] = ()) -> int:
        """Take one checkpoint from trigger to completion; its new files are "<id>-<subtask>"."""
        (trigger,) = self.coordinator.trigger(EPOCH(epoch))
        assert isinstance(trigger, TriggerCheckpoint)
        number = trigger.checkpoint_id
        for subtask in range(2):
            self.coordinator.acknowledge(snapshot(number, subtask, f"{number}-{subtask}", old=old))
        self.finish(number)
        return number

    def finish(self, number: int) -> list[Action]:
        """Report the last steps of a checkpoint; return the actions from the notification of the slots on."""
        (commit,) = self.coordinator.metadata_written(ID(number))
        assert isinstance(commit, CommitOutput)
        (notify,) = self.coordinator.output_committed(ID(number))
        assert notify == NotifyCompleted(ID(number))
        return [notify, *self.coordinator.slots_notified(ID(number))]


# When a checkpoint starts


def test_without_an_interval_only_a_request_starts_a_checkpoint() -> None:
    job = Job(interval=None)
    job.clock.advance(timedelta(days=1))

    assert job.coordinator.epoch_ended(EPOCH(1)) == []
    assert job.coordinator.tick(EPOCH(1)) == []
    assert job.coordinator.seconds_until_due() is None
    assert job.coordinator.trigger(EPOCH(1)) == [TriggerCheckpoint(ID(1), EPOCH(1))]


def test_an_interval_of_zero_takes_one_after_every_epoch_and_none_between() -> None:
    job = Job(interval=timedelta(0), max_concurrent=9)

    assert job.coordinator.epoch_ended(EPOCH(0)) == [TriggerCheckpoint(ID(1), EPOCH(0))]
    assert job.coordinator.tick(EPOCH(0)) == []
    assert job.coordinator.epoch_ended(EPOCH(1)) == [TriggerCheckpoint(ID(2), EPOCH(1))]


def test_the_interval_runs_from_start_to_start() -> None:
    job = Job(interval=10 * SECOND, max_concurrent=9)

    job.clock.advance(9.5)
    early = job.coordinator.epoch_ended(EPOCH(1))
    job.clock.advance(1.5)
    due = job.coordinator.epoch_ended(EPOCH(2))
    job.clock.advance(9.5)
    again_early = job.coordinator.tick(EPOCH(3))
    job.clock.advance(0.5)
    again_due = job.coordinator.tick(EPOCH(3))

    assert [early, again_early] == [[], []]
    assert [due, again_due] == [[TriggerCheckpoint(ID(1), EPOCH(2))], [TriggerCheckpoint(ID(2), EPOCH(3))]]


def test_an_idle_job_takes_its_checkpoints_too() -> None:
    job = Job(interval=10 * SECOND)
    taken = []
    for _ in range(3):
        job.clock.advance(10)
        (trigger,) = job.coordinator.tick(EPOCH(1))
        assert isinstance(trigger, TriggerCheckpoint)
        for subtask in range(2):
            job.coordinator.acknowledge(snapshot(trigger.checkpoint_id, subtask))
        job.finish(trigger.checkpoint_id)
        taken.append(trigger)

    assert taken == [TriggerCheckpoint(ID(number), EPOCH(1)) for number in (1, 2, 3)]
    assert [each.checkpoint_id for each in job.coordinator.retained] == [3]
    assert job.coordinator.seconds_until_due() == 10


def test_the_epoch_of_an_aborted_checkpoint_is_taken_again() -> None:
    job = Job(interval=10 * SECOND, tolerable_failures=5)
    job.coordinator.trigger(EPOCH(1))
    job.coordinator.decline(ID(1), SubtaskIndex(0), "full")
    job.clock.advance(10)

    assert job.coordinator.tick(EPOCH(1)) == [TriggerCheckpoint(ID(2), EPOCH(1))]


@pytest.mark.parametrize("end", ["completed", "declined", "metadata failed", "expired"])
def test_the_pause_runs_from_the_end_of_one_to_the_start_of_the_next(end: str) -> None:
    timeout = 5 * SECOND if end == "expired" else 60 * SECOND
    job = Job(interval=SECOND, min_pause=10 * SECOND, timeout=timeout, tolerable_failures=9)
    job.coordinator.trigger(EPOCH(1))
    job.clock.advance(5)
    if end == "declined":
        job.coordinator.decline(ID(1), SubtaskIndex(0), "full")
    elif end == "expired":
        job.coordinator.expire()
    else:
        for subtask in range(2):
            job.coordinator.acknowledge(snapshot(1, subtask))
        if end == "completed":
            job.finish(1)
        else:
            job.coordinator.metadata_failed(ID(1), "disk full")

    assert job.coordinator.seconds_until_due() == 10
    job.clock.advance(9.9)
    assert job.coordinator.epoch_ended(EPOCH(2)) == []
    job.clock.advance(0.2)
    assert job.coordinator.epoch_ended(EPOCH(2)) == [TriggerCheckpoint(ID(2), EPOCH(2))]


def test_a_request_ignores_interval_and_pause() -> None:
    job = Job(interval=60 * SECOND, min_pause=60 * SECOND)
    job.complete(epoch=1)

    assert job.coordinator.trigger(EPOCH(1)) == [TriggerCheckpoint(ID(2), EPOCH(1))]


@pytest.mark.parametrize("max_concurrent", [1, 3])
def test_no_more_than_allowed_are_in_progress(max_concurrent: int) -> None:
    job = Job(interval=timedelta(0), max_concurrent=max_concurrent)
    for epoch in range(max_concurrent):
        job.coordinator.trigger(EPOCH(epoch))

    assert job.coordinator.trigger(EPOCH(9)) == []
    assert job.coordinator.epoch_ended(EPOCH(9)) == []
    assert job.coordinator.in_progress == list(range(1, max_concurrent + 1))


def test_a_checkpoint_whose_metadata_is_being_written_is_still_in_progress() -> None:
    job = Job(subtasks=1)
    job.coordinator.trigger(EPOCH(0))
    job.coordinator.acknowledge(snapshot(1, 0))

    assert job.coordinator.trigger(EPOCH(1)) == []


def test_ids_start_where_told_and_are_not_reused_after_an_abort() -> None:
    job = Job(first_id=42, tolerable_failures=9)
    job.coordinator.trigger(EPOCH(0))
    job.coordinator.decline(ID(42), SubtaskIndex(0), "full")

    assert job.coordinator.trigger(EPOCH(0)) == [TriggerCheckpoint(ID(43), EPOCH(0))]
    assert job.coordinator.next_id == 44


# How it completes


def test_the_last_acknowledgement_lets_the_metadata_be_written() -> None:
    job = Job()
    triggered_at = job.clock.now()
    job.coordinator.trigger(EPOCH(7))
    job.clock.advance(1)
    first, second = snapshot(1, 1, "b"), snapshot(1, 0, "a")

    assert job.coordinator.acknowledge(first) == []
    assert job.coordinator.acknowledge(second) == [
        WriteMetadata(
            AcknowledgedCheckpoint(ID(1), EPOCH(7), triggered_at, {SubtaskIndex(0): second, SubtaskIndex(1): first})
        )
    ]
    assert job.coordinator.completed_epoch is None


def test_written_metadata_completes_the_checkpoint() -> None:
    job = Job()
    job.coordinator.trigger(EPOCH(7))
    for subtask in range(2):
        job.coordinator.acknowledge(snapshot(1, subtask, f"f{subtask}"))

    assert job.finish(1) == [NotifyCompleted(ID(1))]
    assert job.coordinator.completed_epoch == 7
    assert job.coordinator.in_progress == []
    assert [kept.files() for kept in job.coordinator.retained] == [{file("f0"), file("f1")}]


def test_metadata_is_written_one_at_a_time_in_the_order_of_ids() -> None:
    job = Job(subtasks=1, max_concurrent=3, num_retained=3)
    for epoch in range(3):
        job.coordinator.trigger(EPOCH(epoch))
    (write_1,) = job.coordinator.acknowledge(snapshot(1, 0))

    assert job.coordinator.acknowledge(snapshot(3, 0)) == []
    assert job.coordinator.acknowledge(snapshot(2, 0)) == []
    notified, write_2 = job.finish(1)

    assert isinstance(write_1, WriteMetadata)
    assert isinstance(write_2, WriteMetadata)
    assert (write_1.acknowledged.checkpoint_id, write_2.acknowledged.checkpoint_id) == (1, 2)
    assert notified == NotifyCompleted(ID(1))


def test_a_completed_checkpoint_aborts_older_ones_without_counting_a_failure() -> None:
    job = Job(max_concurrent=2, tolerable_failures=0)
    job.coordinator.trigger(EPOCH(0))
    job.coordinator.trigger(EPOCH(1))
    job.coordinator.acknowledge(snapshot(1, 0, "old"))
    for subtask in range(2):
        job.coordinator.acknowledge(snapshot(2, subtask, f"new{subtask}"))

    assert job.finish(2) == [
        NotifyCompleted(ID(2)),
        AbortCheckpoint(ID(1), "subsumed by checkpoint 2", (file("old"),)),
    ]


def test_an_older_one_acknowledged_during_a_newer_ones_write_is_subsumed_too() -> None:
    job = Job(subtasks=1, max_concurrent=2)
    job.coordinator.trigger(EPOCH(0))
    job.coordinator.trigger(EPOCH(1))
    job.coordinator.acknowledge(snapshot(2, 0, "new"))
    job.coordinator.acknowledge(snapshot(1, 0, "old"))

    assert job.finish(2) == [
        NotifyCompleted(ID(2)),
        AbortCheckpoint(ID(1), "subsumed by checkpoint 2", (file("old"),)),
    ]


def test_older_checkpoints_are_discarded_with_the_files_nobody_needs() -> None:
    job = Job(num_retained=2)
    job.complete(epoch=0)
    job.complete(epoch=1, old=("1-0",))

    job.coordinator.trigger(EPOCH(2))
    for subtask in range(2):
        job.coordinator.acknowledge(snapshot(3, subtask, f"3-{subtask}"))

    assert job.finish(3) == [
        NotifyCompleted(ID(3)),
        DiscardCheckpoints((ID(1),), (file("1-1"),)),
    ]
    assert [kept.checkpoint_id for kept in job.coordinator.retained] == [2, 3]


def test_a_checkpoint_in_progress_keeps_the_files_it_refers_to() -> None:
    job = Job(subtasks=1, max_concurrent=2)
    job.coordinator.trigger(EPOCH(0))
    job.coordinator.acknowledge(snapshot(1, 0, "base"))
    job.finish(1)
    job.coordinator.trigger(EPOCH(1))
    job.coordinator.trigger(EPOCH(2))
    job.coordinator.acknowledge(snapshot(2, 0, "compacted"))
    job.coordinator.acknowledge(snapshot(3, 0, "delta", old=("base",)))

    _, discard, _ = job.finish(2)

    assert discard == DiscardCheckpoints((ID(1),), ())
    assert job.finish(3) == [
        NotifyCompleted(ID(3)),
        DiscardCheckpoints((ID(2),), (file("compacted"),)),
    ]


def test_the_next_attempt_goes_on_with_the_retained_checkpoints() -> None:
    before = Job()
    before.complete(epoch=0)
    after = Job(first_id=before.coordinator.next_id, retained=before.coordinator.retained)

    after.coordinator.trigger(EPOCH(1))
    after.coordinator.acknowledge(snapshot(2, 0, "x", old=("1-0",)))
    after.coordinator.acknowledge(snapshot(2, 1, "y", old=("1-0",)))

    assert after.finish(2) == [
        NotifyCompleted(ID(2)),
        DiscardCheckpoints((ID(1),), (file("1-1"),)),
    ]


def test_a_barrier_sent_while_the_slots_are_notified_keeps_what_they_may_build_on() -> None:
    job = Job(subtasks=1, max_concurrent=3)
    job.coordinator.trigger(EPOCH(0))
    job.coordinator.trigger(EPOCH(1))
    job.coordinator.acknowledge(snapshot(1, 0, "base"))
    job.coordinator.acknowledge(snapshot(2, 0, "compacted"))
    job.coordinator.metadata_written(ID(1))
    job.coordinator.output_committed(ID(1))
    job.coordinator.trigger(EPOCH(2))  # the slot knows already that checkpoint 1 is complete
    job.coordinator.slots_notified(ID(1))

    _, discard = job.finish(2)
    (write,) = job.coordinator.acknowledge(snapshot(3, 0, "delta", old=("base",)))

    assert discard == DiscardCheckpoints((ID(1),), ())
    assert isinstance(write, WriteMetadata)


def test_foreign_files_are_never_deleted() -> None:
    job = Job(subtasks=1, foreign=[file("theirs")], tolerable_failures=9)
    job.coordinator.trigger(EPOCH(0))
    job.coordinator.acknowledge(snapshot(1, 0, "ours", old=("theirs", "unknown")))

    (abort, *_) = job.coordinator.metadata_failed(ID(1), "disk full")

    assert isinstance(abort, AbortCheckpoint)
    assert abort.new_files == (file("ours"),)


# How it fails


def test_a_declined_checkpoint_is_aborted_with_the_files_reported_so_far() -> None:
    job = Job(tolerable_failures=1)
    job.coordinator.trigger(EPOCH(0))
    job.coordinator.acknowledge(snapshot(1, 0, "a"))

    assert job.coordinator.decline(ID(1), SubtaskIndex(1), "disk full") == [
        AbortCheckpoint(ID(1), "subtask 1 declined: disk full", (file("a"),))
    ]
    assert job.coordinator.in_progress == []


def test_a_decline_of_no_pending_checkpoint_changes_nothing() -> None:
    job = Job()
    job.coordinator.trigger(EPOCH(0))
    job.coordinator.acknowledge(snapshot(1, 0))

    assert job.coordinator.decline(ID(1), SubtaskIndex(0), "echo") == []
    assert job.coordinator.decline(ID(9), SubtaskIndex(0), "unknown") == []
    assert job.coordinator.in_progress == [1]


def test_a_checkpoint_expires_at_its_timeout_and_names_who_is_missing() -> None:
    job = Job(timeout=60 * SECOND, tolerable_failures=1)
    job.coordinator.trigger(EPOCH(0))
    job.coordinator.acknowledge(snapshot(1, 0, "a"))
    job.clock.advance(59)
    assert job.coordinator.expire() == []
    assert job.coordinator.seconds_until_timeout() == 1
    job.clock.advance(1)

    (abort,) = job.coordinator.expire()

    assert abort == AbortCheckpoint(ID(1), "timed out after 0:01:00; missing subtasks: 1", (file("a"),))


def test_a_metadata_write_under_way_does_not_expire_but_is_late() -> None:
    job = Job(subtasks=1, timeout=SECOND, tolerable_failures=1)
    job.coordinator.trigger(EPOCH(0))
    job.coordinator.acknowledge(snapshot(1, 0, "a"))
    job.clock.advance(1)

    assert job.coordinator.expire() == []
    assert job.coordinator.seconds_until_timeout() is None
    assert job.coordinator.metadata_written(ID(1)) == [RemoveMetadata(ID(1))]
    assert job.coordinator.metadata_removed(ID(1)) == [
        AbortCheckpoint(ID(1), "timed out after 0:00:01; its metadata was not written in time", (file("a"),))
    ]


def test_a_checkpoint_whose_output_is_lost_is_taken_back_and_fails_the_job() -> None:
    job = Job(subtasks=1, tolerable_failures=9)
    job.coordinator.trigger(EPOCH(0))
    job.coordinator.acknowledge(snapshot(1, 0, "a"))
    job.coordinator.metadata_written(ID(1))

    assert job.coordinator.output_lost(ID(1), "part-0 is gone") == [RemoveMetadata(ID(1)), FailJob("part-0 is gone")]
    assert job.coordinator.metadata_removed(ID(1)) == [AbortCheckpoint(ID(1), "part-0 is gone", (file("a"),))]
    assert job.coordinator.retained == []


def test_nothing_is_discarded_before_output_is_committed_and_the_slots_know() -> None:
    job = Job(subtasks=1, num_retained=1)
    first = job.coordinator
    first.trigger(EPOCH(0))
    first.acknowledge(snapshot(1, 0, "a"))
    job.finish(1)
    first.trigger(EPOCH(1))
    first.acknowledge(snapshot(2, 0, "b"))

    (commit,) = first.metadata_written(ID(2))
    assert isinstance(commit, CommitOutput)
    assert commit.acknowledged.checkpoint_id == 2
    assert first.output_committed(ID(2)) == [NotifyCompleted(ID(2))]
    assert [kept.checkpoint_id for kept in first.retained] == [1]
    assert first.slots_notified(ID(2)) == [DiscardCheckpoints((ID(1),), (file("a"),))]
    assert [kept.checkpoint_id for kept in first.retained] == [2]


def test_the_timeout_runs_while_the_barrier_waits_for_the_end_of_an_epoch() -> None:
    job = Job(interval=10 * SECOND, timeout=3 * SECOND)
    began_at = job.clock.now()
    job.clock.advance(10)
    job.coordinator.note_due()
    job.clock.advance(2)
    (trigger,) = job.coordinator.epoch_ended(EPOCH(1))
    assert isinstance(trigger, TriggerCheckpoint)
    assert trigger.triggered_at == began_at + 10 * SECOND
    assert job.coordinator.seconds_until_timeout() == 1
    job.clock.advance(1)

    abort, fail = job.coordinator.expire()

    assert abort == AbortCheckpoint(ID(1), "timed out after 0:00:03; missing subtasks: 0, 1", ())
    assert isinstance(fail, FailJob)


def test_a_barrier_that_waits_too_long_is_a_failed_checkpoint() -> None:
    job = Job(interval=10 * SECOND, timeout=3 * SECOND, tolerable_failures=1)
    job.clock.advance(10)
    job.coordinator.note_due()
    job.clock.advance(2.5)
    assert job.coordinator.expire_waiting(EPOCH(1)) == []
    assert job.coordinator.seconds_until_timeout() == 0.5
    job.clock.advance(0.5)

    (abort,) = job.coordinator.expire_waiting(EPOCH(1))

    reason = "timed out after 0:00:03; epoch 1 has not ended, and the barrier is behind it"
    assert abort == AbortCheckpoint(ID(1), reason, ())
    assert job.coordinator.seconds_until_due() == 7  # from start to start
    job.clock.advance(7)
    job.coordinator.note_due()
    job.clock.advance(3)
    _, fail = job.coordinator.expire_waiting(EPOCH(1))
    assert isinstance(fail, FailJob)


def test_the_timeout_of_a_barrier_that_somebody_holds_up_begins_anew() -> None:
    job = Job(interval=10 * SECOND, timeout=3 * SECOND)
    job.coordinator.begin_wait_anew()
    assert job.coordinator.seconds_until_timeout() is None
    job.clock.advance(10)
    job.coordinator.note_due()
    job.clock.advance(5)

    job.coordinator.begin_wait_anew()

    assert job.coordinator.expire_waiting(EPOCH(1)) == []
    assert job.coordinator.seconds_until_timeout() == 3


def test_the_timeout_of_metadata_that_somebody_holds_up_begins_anew() -> None:
    job = Job(subtasks=1, timeout=SECOND, max_concurrent=2)
    job.coordinator.trigger(EPOCH(0))
    job.coordinator.acknowledge(snapshot(1, 0))
    job.coordinator.trigger(EPOCH(1))
    job.coordinator.acknowledge(snapshot(2, 0))
    job.clock.advance(1)

    job.coordinator.begin_wait_anew()

    assert job.coordinator.expire() == []
    assert job.coordinator.seconds_until_timeout() == 1


def test_a_last_report_that_comes_too_late_completes_nothing() -> None:
    """Also if nobody has looked for what is late: the thread that does may wait for the slots itself."""
    job = Job(subtasks=1, timeout=SECOND, tolerable_failures=1)
    job.coordinator.trigger(EPOCH(0))
    job.clock.advance(1)

    assert job.coordinator.acknowledge(snapshot(1, 0, "a")) == [
        AbortCheckpoint(ID(1), "timed out after 0:00:01; its last subtask reported too late", (file("a"),))
    ]


def test_a_checkpoint_that_waits_for_an_earlier_write_expires() -> None:
    job = Job(subtasks=1, timeout=SECOND, max_concurrent=2, tolerable_failures=1)
    job.coordinator.trigger(EPOCH(0))
    job.coordinator.acknowledge(snapshot(1, 0))
    job.clock.advance(0.5)
    job.coordinator.trigger(EPOCH(1))
    job.coordinator.acknowledge(snapshot(2, 0, "b"))
    job.clock.advance(0.5)
    assert job.coordinator.expire() == []
    job.clock.advance(0.5)

    (abort,) = job.coordinator.expire()

    reason = "timed out after 0:00:01; the metadata of an earlier one was still being written"
    assert abort == AbortCheckpoint(ID(2), reason, (file("b"),))


def test_a_request_is_the_checkpoint_that_waits_and_its_timeout_runs_since_it_was_asked_for() -> None:
    job = Job(interval=10 * SECOND, timeout=60 * SECOND, max_concurrent=2)
    job.clock.advance(10)
    job.coordinator.note_due()
    job.clock.advance(5)

    assert job.coordinator.trigger(EPOCH(1)) == [TriggerCheckpoint(ID(1), EPOCH(1))]
    assert job.coordinator.seconds_until_timeout() == 55
    assert job.coordinator.tick(EPOCH(1)) == []
    assert job.coordinator.seconds_until_due() == 5

    job.coordinator.trigger(EPOCH(1), since=job.clock.monotonic() - 20)
    assert job.coordinator.seconds_until_timeout() == 40


def test_failed_metadata_aborts_and_lets_the_next_be_written() -> None:
    job = Job(subtasks=1, max_concurrent=2, tolerable_failures=1)
    job.coordinator.trigger(EPOCH(0))
    job.coordinator.trigger(EPOCH(1))
    job.coordinator.acknowledge(snapshot(1, 0, "a"))
    job.coordinator.acknowledge(snapshot(2, 0, "b", old=("a",)))

    abort, write = job.coordinator.metadata_failed(ID(1), "disk full")

    assert abort == AbortCheckpoint(ID(1), "metadata could not be written: disk full", ())  # 2 refers to a
    assert isinstance(write, WriteMetadata)
    assert write.acknowledged.files() == {file("a"), file("b")}


def test_a_file_left_to_a_newer_checkpoint_goes_with_that_one() -> None:
    job = Job(subtasks=1, max_concurrent=2, tolerable_failures=9)
    job.coordinator.trigger(EPOCH(0))
    job.coordinator.trigger(EPOCH(1))
    job.coordinator.acknowledge(snapshot(1, 0, "a"))
    job.coordinator.acknowledge(snapshot(2, 0, "b", old=("a",)))
    job.coordinator.metadata_failed(ID(1), "disk full")

    (abort,) = job.coordinator.metadata_failed(ID(2), "disk full")

    assert abort == AbortCheckpoint(ID(2), "metadata could not be written: disk full", (file("a"), file("b")))


def test_a_snapshot_built_on_a_deleted_file_does_not_complete() -> None:
    job = Job(subtasks=1, max_concurrent=2, tolerable_failures=9)
    job.coordinator.trigger(EPOCH(0))
    job.coordinator.trigger(EPOCH(1))
    job.coordinator.acknowledge(snapshot(1, 0, "a"))
    job.coordinator.metadata_failed(ID(1), "disk full")

    (abort,) = job.coordinator.acknowledge(snapshot(2, 0, "b", old=("a",)))

    assert abort == AbortCheckpoint(ID(2), "subtask 0 refers to shared/a, which has been deleted", (file("b"),))


@pytest.mark.parametrize("checkpoint", [1, 77])
def test_a_late_writers_files_are_deleted(checkpoint: int) -> None:
    job = Job(tolerable_failures=9)
    job.coordinator.trigger(EPOCH(0))
    job.coordinator.decline(ID(1), SubtaskIndex(1), "full")

    assert job.coordinator.acknowledge(snapshot(checkpoint, 0, "late", old=("older",))) == [
        DeleteFiles((file("late"),))
    ]
    assert job.coordinator.acknowledge(snapshot(checkpoint, 0)) == []


@pytest.mark.parametrize("stage", ["pending", "writing", "completed"])
def test_an_echo_deletes_only_files_that_nobody_knows(stage: str) -> None:
    job = Job()
    job.coordinator.trigger(EPOCH(0))
    job.coordinator.acknowledge(snapshot(1, 0, "a"))
    if stage != "pending":
        job.coordinator.acknowledge(snapshot(1, 1))
    if stage == "completed":
        job.finish(1)

    assert job.coordinator.acknowledge(snapshot(1, 0, "a")) == []
    assert job.coordinator.acknowledge(snapshot(1, 0, "a", "retried")) == [DeleteFiles((file("retried"),))]


def test_an_unknown_subtask_completes_nothing() -> None:
    job = Job(subtasks=1)
    job.coordinator.trigger(EPOCH(0))

    assert job.coordinator.acknowledge(snapshot(1, 5, "stray")) == [DeleteFiles((file("stray"),))]
    assert job.coordinator.in_progress == [1]


@pytest.mark.parametrize("tolerated", [0, 2])
def test_more_failures_in_a_row_than_tolerated_fail_the_job(tolerated: int) -> None:
    job = Job(tolerable_failures=tolerated)
    outcomes = []
    for number in range(1, tolerated + 2):
        job.coordinator.trigger(EPOCH(0))
        outcomes.append(job.coordinator.decline(ID(number), SubtaskIndex(0), "disk full"))

    assert all(len(actions) == 1 for actions in outcomes[:-1])
    _, failure = outcomes[-1]
    assert isinstance(failure, FailJob)
    assert f"tolerated: {tolerated}" in failure.reason
    assert "disk full" in failure.reason


def test_failing_the_job_starts_a_new_count() -> None:
    job = Job(max_concurrent=2, tolerable_failures=1)
    for number in (1, 2):
        job.coordinator.trigger(EPOCH(0))
        job.coordinator.decline(ID(number), SubtaskIndex(0), "full")
    job.coordinator.trigger(EPOCH(0))

    assert len(job.coordinator.decline(ID(3), SubtaskIndex(0), "full")) == 1


def test_a_completed_checkpoint_resets_the_count_of_failures() -> None:
    job = Job(tolerable_failures=1)
    job.coordinator.trigger(EPOCH(0))
    job.coordinator.decline(ID(1), SubtaskIndex(0), "full")
    job.complete(epoch=0)
    job.coordinator.trigger(EPOCH(0))

    assert len(job.coordinator.decline(ID(3), SubtaskIndex(0), "full")) == 1


def test_aborting_what_is_pending_counts_no_failure_and_leaves_a_write_to_end() -> None:
    job = Job(subtasks=1, max_concurrent=3)
    for epoch in range(3):
        job.coordinator.trigger(EPOCH(epoch))
    job.coordinator.acknowledge(snapshot(1, 0, "a"))
    job.coordinator.acknowledge(snapshot(2, 0, "b"))

    assert job.coordinator.abort_pending("failover") == [
        AbortCheckpoint(ID(2), "failover", (file("b"),)),
        AbortCheckpoint(ID(3), "failover", ()),
    ]
    assert job.finish(1) == [NotifyCompleted(ID(1))]


def test_an_outcome_of_a_write_that_was_not_asked_for_is_an_error() -> None:
    job = Job()
    job.coordinator.trigger(EPOCH(0))

    with pytest.raises(ValueError, match="checkpoint 1 is not being written"):
        job.coordinator.metadata_written(ID(1))
    with pytest.raises(ValueError, match="checkpoint 1 is not being written"):
        job.coordinator.metadata_failed(ID(1), "x")


def test_what_comes_next_is_known() -> None:
    job = Job(interval=10 * SECOND, timeout=30 * SECOND, max_concurrent=2)
    assert (job.coordinator.seconds_until_due(), job.coordinator.seconds_until_timeout()) == (10, None)
    job.clock.advance(10)
    job.coordinator.tick(EPOCH(1))
    assert (job.coordinator.seconds_until_due(), job.coordinator.seconds_until_timeout()) == (10, 30)
    job.coordinator.trigger(EPOCH(2))
    assert (job.coordinator.seconds_until_due(), job.coordinator.seconds_until_timeout()) == (None, 30)
    job.clock.advance(31)
    assert job.coordinator.seconds_until_timeout() == 0


# Sources that finish one subtask after another


def source_snapshot(subtask: int, *, finished: bool, mode: Redistribution | None) -> SlotSnapshot:
    new = file(f"1-{subtask}")
    state = None if mode is None else OperatorStateHandle((("offsets", mode, (20,)),), new)
    operator = OperatorSnapshot(OperatorUid("numbers"), "Numbers", operator_state=state, is_finished=finished)
    return SlotSnapshot(ID(1), SubtaskIndex(subtask), (operator,), (new,) if state else ())


def test_union_state_is_declined_while_only_some_subtasks_have_finished_and_that_is_no_failure() -> None:
    job = Job(tolerable_failures=0)
    job.coordinator.trigger(EPOCH(1))

    waiting = job.coordinator.acknowledge(source_snapshot(0, finished=True, mode=Redistribution.UNION))
    [abort] = job.coordinator.acknowledge(source_snapshot(1, finished=False, mode=Redistribution.UNION))

    assert waiting == []
    assert isinstance(abort, AbortCheckpoint)
    assert 'operator "Numbers" has union list state, and some but not all' in abort.reason
    assert abort.new_files == (file("1-0"), file("1-1"))
    assert job.coordinator.in_progress == []
    assert job.complete(epoch=2) == 2


def test_a_finished_subtask_without_union_state_of_its_own_counts_too() -> None:
    job = Job()
    job.coordinator.trigger(EPOCH(1))
    job.coordinator.acknowledge(source_snapshot(0, finished=True, mode=None))

    [abort] = job.coordinator.acknowledge(source_snapshot(1, finished=False, mode=Redistribution.UNION))

    assert isinstance(abort, AbortCheckpoint)


@pytest.mark.parametrize(
    ("first", "second", "mode"),
    [
        (True, True, Redistribution.UNION),
        (False, False, Redistribution.UNION),
        (True, False, Redistribution.SPLIT),
        (True, False, Redistribution.BROADCAST),
        (True, False, None),
    ],
)
def test_other_states_and_whole_operators_are_taken(first: bool, second: bool, mode: Redistribution | None) -> None:
    job = Job()
    job.coordinator.trigger(EPOCH(1))
    job.coordinator.acknowledge(source_snapshot(0, finished=first, mode=mode))

    [write] = job.coordinator.acknowledge(source_snapshot(1, finished=second, mode=mode))

    assert isinstance(write, WriteMetadata)
    assert write.acknowledged.files() == (set() if mode is None else {file("1-0"), file("1-1")})


def test_the_files_of_operator_state_belong_to_the_checkpoint_whoever_wrote_them() -> None:
    job = Job(subtasks=1)
    job.coordinator.trigger(EPOCH(1))
    reported = source_snapshot(0, finished=False, mode=Redistribution.SPLIT)

    [write] = job.coordinator.acknowledge(dataclasses.replace(reported, new_files=()))

    assert isinstance(write, WriteMetadata)
    assert write.acknowledged.files() == {file("1-0")}


# Savepoints


def own(checkpoint: int, subtask: int) -> SlotSnapshot:
    """A slot's part of a savepoint: a file by its bare name."""
    new = StateFile(f"{checkpoint}-{subtask}", 1)
    operator = OperatorSnapshot(OperatorUid("count"), "count", KeyedStateHandle(KeyGroupRange(0, 127), (new,)))
    return SlotSnapshot(ID(checkpoint), SubtaskIndex(subtask), (operator,), (new,))


def test_a_savepoint_has_the_next_id_and_is_written_when_every_subtask_has_reported() -> None:
    job = Job(first_id=7)

    assert job.coordinator.trigger_savepoint(EPOCH(3)) == [TriggerCheckpoint(ID(7), EPOCH(3), is_savepoint=True)]
    assert job.coordinator.acknowledge(own(7, 0)) == []
    assert job.coordinator.savepoint_acknowledged == 1
    [write] = job.coordinator.acknowledge(own(7, 1))

    assert isinstance(write, WriteMetadata)
    assert write.acknowledged.is_savepoint
    assert (write.acknowledged.epoch, set(write.acknowledged.snapshots)) == (3, {0, 1})
    assert job.coordinator.metadata_written(ID(7)) == [NotifyCompleted(ID(7), is_savepoint=True)]
    assert job.coordinator.slots_notified(ID(7)) == []
    assert job.coordinator.savepoint_in_progress is None
    assert (job.coordinator.retained, job.coordinator.completed_epoch, job.coordinator.next_id) == ([], None, 8)


def test_a_savepoint_goes_beside_as_many_checkpoints_as_are_allowed_and_only_another_savepoint_waits() -> None:
    job = Job(max_concurrent=1)
    job.coordinator.trigger(EPOCH(1))

    assert job.coordinator.trigger_savepoint(EPOCH(1)) == [TriggerCheckpoint(ID(2), EPOCH(1), is_savepoint=True)]
    assert job.coordinator.trigger_savepoint(EPOCH(1)) == []
    assert job.coordinator.in_progress == [1]
    assert not job.coordinator.can_trigger


def test_a_savepoint_does_not_stand_for_a_checkpoint_of_its_epoch() -> None:
    job = Job(interval=timedelta(0))
    job.coordinator.trigger_savepoint(EPOCH(1))

    assert job.coordinator.epoch_ended(EPOCH(1)) == [TriggerCheckpoint(ID(2), EPOCH(1))]


def test_a_newer_checkpoint_neither_aborts_a_savepoint_nor_deletes_what_it_may_copy() -> None:
    job = Job(num_retained=1)
    job.complete(1)
    job.coordinator.trigger_savepoint(EPOCH(1))

    job.coordinator.trigger(EPOCH(2))
    for subtask in range(2):
        job.coordinator.acknowledge(snapshot(3, subtask, f"3-{subtask}"))
    actions = job.finish(3)

    assert actions == [NotifyCompleted(ID(3)), DiscardCheckpoints((ID(1),), ())]  # its metadata, and no file yet
    job.coordinator.acknowledge(own(2, 0))
    job.coordinator.acknowledge(own(2, 1))
    assert job.coordinator.metadata_written(ID(2)) == [
        NotifyCompleted(ID(2), is_savepoint=True),
        DeleteFiles((file("1-0"), file("1-1"))),
    ]


def test_the_files_of_a_savepoint_are_never_the_jobs_to_delete() -> None:
    job = Job()
    job.coordinator.trigger_savepoint(EPOCH(1))
    job.coordinator.acknowledge(own(1, 0))

    assert job.coordinator.decline(ID(1), SubtaskIndex(1), "disk full") == [
        AbortCheckpoint(ID(1), "subtask 1 declined: disk full", is_savepoint=True)
    ]
    assert job.coordinator.acknowledge(own(1, 1)) == []  # a late writer
    assert job.coordinator.acknowledge(own(1, 0)) == []  # an echo


@pytest.mark.parametrize("how", ["declined", "expired", "not written"])
def test_a_savepoint_that_fails_is_no_failed_checkpoint(how: str) -> None:
    job = Job(tolerable_failures=0, timeout=SECOND)
    job.coordinator.trigger_savepoint(EPOCH(1))

    if how == "declined":
        actions = job.coordinator.decline(ID(1), SubtaskIndex(0), "disk full")
    elif how == "expired":
        assert job.coordinator.seconds_until_timeout() == 1.0
        job.clock.advance(SECOND)
        actions = job.coordinator.expire()
    else:
        job.coordinator.acknowledge(own(1, 0))
        job.coordinator.acknowledge(own(1, 1))
        actions = job.coordinator.metadata_failed(ID(1), "disk full")

    [abort] = actions
    assert isinstance(abort, AbortCheckpoint)
    assert job.coordinator.savepoint_in_progress is None


def test_at_a_failover_a_savepoint_is_aborted_unless_its_metadata_is_being_written() -> None:
    pending, writing = Job(), Job()
    for job in (pending, writing):
        job.coordinator.trigger_savepoint(EPOCH(1))
        job.coordinator.acknowledge(own(1, 0))
    writing.coordinator.acknowledge(own(1, 1))

    assert pending.coordinator.abort_pending("over") == [AbortCheckpoint(ID(1), "over", is_savepoint=True)]
    assert writing.coordinator.abort_pending("over") == []
    assert writing.coordinator.savepoint_in_progress == 1


def test_only_a_savepoint_that_is_being_written_can_have_been_written() -> None:
    job = Job()
    job.coordinator.trigger_savepoint(EPOCH(1))

    with pytest.raises(ValueError, match="savepoint 1 is not being written"):
        job.coordinator.metadata_written(ID(1))


def test_a_full_checkpoint_is_asked_for_as_such() -> None:
    assert Job().coordinator.trigger(EPOCH(1), full=True) == [TriggerCheckpoint(ID(1), EPOCH(1), full=True)]


# Files that are gone


def test_files_that_are_gone_make_the_next_checkpoint_a_full_one_and_soon_and_are_no_failure() -> None:
    job = Job(interval=10 * SECOND, tolerable_failures=0)
    job.complete(1)
    (trigger,) = job.coordinator.trigger(EPOCH(2))
    assert trigger == TriggerCheckpoint(ID(2), EPOCH(2))
    for subtask in range(2):
        actions = job.coordinator.acknowledge(snapshot(2, subtask, f"2-{subtask}", old=(f"1-{subtask}",)))
    assert isinstance(actions[0], WriteMetadata)

    (aborted,) = job.coordinator.files_missing(ID(2), "shared/1-0 is gone")

    assert isinstance(aborted, AbortCheckpoint)
    assert aborted.reason == "shared/1-0 is gone; the next one will be full"
    assert job.coordinator.must_be_full
    assert job.coordinator.tick(EPOCH(2)) == [TriggerCheckpoint(ID(3), EPOCH(2), full=True)]


def test_a_full_checkpoint_that_misses_files_counts_as_failed() -> None:
    job = Job(tolerable_failures=0)
    job.coordinator.trigger(EPOCH(1), full=True)
    for subtask in range(2):
        job.coordinator.acknowledge(snapshot(1, subtask, f"1-{subtask}"))

    aborted, failed = job.coordinator.files_missing(ID(1), "shared/1-0 is gone")

    assert isinstance(aborted, AbortCheckpoint)
    assert isinstance(failed, FailJob)


def test_once_a_full_checkpoint_is_complete_the_next_may_build_on_it() -> None:
    job = Job()
    job.coordinator.trigger(EPOCH(1))
    job.coordinator.files_missing(ID(1), "gone")
    assert job.complete(1) == 2

    assert not job.coordinator.must_be_full
    assert job.coordinator.trigger(EPOCH(2)) == [TriggerCheckpoint(ID(3), EPOCH(2))]


def test_an_incremental_checkpoint_that_completes_meanwhile_does_not_end_the_need_of_a_full_one() -> None:
    job = Job(max_concurrent=2)
    job.coordinator.trigger(EPOCH(1))
    job.coordinator.trigger(EPOCH(2))
    job.coordinator.files_missing(ID(2), "gone")
    for subtask in range(2):
        job.coordinator.acknowledge(snapshot(1, subtask, f"1-{subtask}"))

    job.finish(1)

    assert job.coordinator.trigger(EPOCH(3)) == [TriggerCheckpoint(ID(3), EPOCH(3), full=True)]


def test_a_savepoint_that_misses_files_is_aborted_and_the_next_builds_on_nothing() -> None:
    job = Job()
    job.coordinator.trigger_savepoint(EPOCH(1))

    assert job.coordinator.files_missing(ID(1), "gone") == [AbortCheckpoint(ID(1), "gone", is_savepoint=True)]

    assert job.coordinator.trigger_savepoint(EPOCH(1)) == [
        TriggerCheckpoint(ID(2), EPOCH(1), full=True, is_savepoint=True)
    ]


def test_a_checkpoint_that_is_over_cannot_miss_files() -> None:
    job = Job()
    number = job.complete(1)

    assert job.coordinator.files_missing(ID(number), "gone") == []
