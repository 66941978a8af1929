"""Checkpoints that fail, time out, or complete while others are under way; and writers that come too late."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.word_count import UID, WordCount

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.checkpoint.settings import CheckpointingMode
from checkdam.errors import JobFailedError
from checkdam.runtime.monitor.job_events import CheckpointStats
from checkdam.testing.local_engine import LocalEngine
from checkdam.testing.local_job import EVERY_EPOCH, Heard, LocalJob
from checkdam.testing.trouble import (
    Deed,
    DriverKilled,
    Moment,
    Step,
    Trouble,
    kill_driver,
    kill_slot,
    refuse,
    signal,
    wait_for,
)

WORDS = [f"word{n}" for n in range(12)]
EPOCHS = [[*WORDS, "a"], ["a", WORDS[0], WORDS[5]], ["a", WORDS[1]], ["a", *WORDS]]
TOLERANT = replace(EVERY_EPOCH, tolerable_failures=3)


def test_a_late_writer_of_a_declined_checkpoint_leaves_no_file() -> None:
    words = WordCount(EPOCHS)
    aborted = threading.Event()
    late = Trouble(Step.WRITING, wait_for(aborted), number=2, subtask=1)

    def refuse_while_the_other_writes(engine: LocalEngine, moment: Moment) -> None:
        assert late.happened.wait(60)
        refuse(engine, moment)

    troubles = [
        late,
        Trouble(Step.WRITING, refuse_while_the_other_writes, number=2, subtask=0),
        Trouble(Step.AFTER_ABORTED, signal(aborted), number=2, subtask=1),
    ]

    job = words.run(troubles, checkpoints=TOLERANT)

    assert all(trouble.happened.is_set() for trouble in troubles)
    assert job.state(UID) == words.expected_state()
    assert words.output() == words.expected_output()
    assert words.leftovers() == []


def test_a_late_writer_of_a_timed_out_checkpoint_leaves_no_file_and_loses_no_output() -> None:
    words = WordCount(EPOCHS)
    aborted = threading.Event()
    troubles = [
        Trouble(Step.WRITING, wait_for(aborted), number=2, subtask=1),
        Trouble(Step.AFTER_ABORTED, signal(aborted), number=2, subtask=1),
    ]

    job = words.run(troubles, checkpoints=replace(TOLERANT, timeout=timedelta(milliseconds=300)))

    assert [(number, "missing subtasks: 1" in reason) for number, reason in job.heard.failed_checkpoints] == [(2, True)]
    assert job.heard.restarts == []
    assert job.state(UID) == words.expected_state()
    assert words.output() == words.expected_output()
    assert words.leftovers() == []


@pytest.mark.parametrize("step", [Step.BEFORE_ABORTED, Step.AFTER_ABORTED])
@pytest.mark.parametrize("death", [kill_slot(0), kill_driver])
def test_a_death_while_a_checkpoint_is_aborted_leaves_no_file(step: Step, death: Deed) -> None:
    words = WordCount(EPOCHS)
    troubles = [Trouble(Step.WRITING, refuse, number=2, subtask=1), Trouble(step, death)]

    job = words.run(troubles, checkpoints=TOLERANT)

    assert troubles[1].happened.is_set()
    assert job.state(UID) == words.expected_state()
    assert words.output() == words.expected_output()
    assert words.leftovers() == []


def test_tolerated_failures_leave_the_job_running_and_the_next_checkpoint_covers_them() -> None:
    words = WordCount(EPOCHS)
    troubles = [Trouble(Step.BEFORE_METADATA, refuse, number=number) for number in (2, 3)]

    job = words.run(troubles, checkpoints=TOLERANT)

    assert [number for number, _ in job.heard.failed_checkpoints] == [2, 3]
    assert [each.checkpoint_id for each in job.heard.completed] == [1, 4]
    assert job.heard.restarts == []
    assert job.state(UID) == words.expected_state()
    assert words.output() == words.expected_output()
    assert words.leftovers() == []


def test_one_failure_more_than_tolerated_restarts_the_job_which_recovers() -> None:
    words = WordCount(EPOCHS)
    troubles = [Trouble(Step.BEFORE_METADATA, refuse, number=number) for number in (2, 3)]

    job = words.run(troubles, checkpoints=replace(EVERY_EPOCH, tolerable_failures=1))

    [failure] = job.heard.restarts
    assert isinstance(failure, JobFailedError)
    assert "failed in a row: 2, tolerated: 1" in str(failure)
    assert [epoch for _, epoch in job.heard.restored_from] == [1]
    assert job.state(UID) == words.expected_state()
    assert words.output() == words.expected_output()
    assert words.leftovers() == []


def test_several_checkpoints_at_once_complete_in_the_order_of_their_ids_or_are_subsumed() -> None:
    words = WordCount(EPOCHS)
    three_are_cut = threading.Event()
    troubles = [
        Trouble(Step.WRITING, wait_for(three_are_cut), number=1, subtask=0),
        Trouble(Step.BEFORE_WRITING, signal(three_are_cut), number=3, subtask=0),
    ]

    job = words.run(troubles, checkpoints=replace(EVERY_EPOCH, max_concurrent=3), lockstep=False)

    completed = [each.checkpoint_id for each in job.heard.completed]
    assert completed == sorted(completed)
    assert sorted(completed + [number for number, _ in job.heard.failed_checkpoints]) == [1, 2, 3, 4]
    assert all("subsumed" in reason for _, reason in job.heard.failed_checkpoints)
    assert job.state(UID) == words.expected_state()
    assert words.output() == words.expected_output()
    assert words.leftovers() == []


def test_a_checkpoint_whose_last_report_comes_after_a_later_one_is_complete_is_subsumed() -> None:
    words = WordCount(EPOCHS)
    second_is_complete = threading.Event()
    troubles = [
        Trouble(Step.SNAPSHOT_TAKEN, wait_for(second_is_complete), number=1, subtask=0),
        Trouble(Step.AFTER_COMPLETED, signal(second_is_complete), number=2),
    ]

    job = words.run(troubles, checkpoints=replace(EVERY_EPOCH, max_concurrent=2), lockstep=False)

    assert (1, "subsumed by checkpoint 2") in job.heard.failed_checkpoints
    assert job.heard.completed[0].checkpoint_id in (2, 3)
    assert job.state(UID) == words.expected_state()
    assert words.output() == words.expected_output()
    assert words.leftovers() == []


def test_a_later_checkpoint_completes_although_an_earlier_one_fails_meanwhile() -> None:
    words = WordCount(EPOCHS)
    second_is_cut = threading.Event()

    def fail_then(engine: LocalEngine, moment: Moment) -> None:
        assert second_is_cut.wait(60)
        refuse(engine, moment)

    troubles = [
        Trouble(Step.SNAPSHOT_TAKEN, fail_then, number=1, subtask=0),
        Trouble(Step.BEFORE_WRITING, signal(second_is_cut), number=2, subtask=0),
    ]

    job = words.run(troubles, checkpoints=replace(TOLERANT, max_concurrent=3), lockstep=False)

    refused, *others = job.heard.failed_checkpoints
    assert refused[0] == 1
    assert all("subsumed" in reason for _, reason in others)  # of three at once one may overtake another
    assert job.heard.completed[0].checkpoint_id in (2, 3)
    assert job.state(UID) == words.expected_state()
    assert words.output() == words.expected_output()
    assert words.leftovers() == []


@pytest.mark.parametrize("first_epoch", [0, 1])
def test_a_checkpoint_after_the_first_epoch_of_streams_and_collections_is_one_to_go_on_from(first_epoch: int) -> None:
    words = WordCount(EPOCHS)
    completed = threading.Event()
    troubles = [
        Trouble(Step.BEFORE_EPOCH, wait_for(completed), number=first_epoch + 1),
        Trouble(Step.BEFORE_LEVEL, kill_driver, number=first_epoch + 1),
    ]

    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        words.build(environment, stream.union(environment.from_collection(["held"])) if first_epoch == 0 else stream)

    def job() -> LocalJob:
        checkpoints = replace(EVERY_EPOCH, interval=timedelta(milliseconds=1))
        return LocalJob(build, EPOCHS, words.storage, checkpoints=checkpoints, troubles=troubles, lockstep=False)

    class Killed(Heard):
        def checkpoint_completed(self, stats: CheckpointStats) -> None:
            super().checkpoint_completed(stats)
            if stats.epoch == first_epoch:  # an idle job takes checkpoints before it, too
                completed.set()

    killed = job()
    killed.heard = Killed()
    with pytest.raises(DriverKilled):
        killed.run()
    resumed = job()
    resumed.run()

    assert resumed.heard.restored_from[0][1] == first_epoch
    held = {"held": ("held", 1)} if first_epoch == 0 else {}
    assert resumed.state(UID) == words.expected_state() | held


def test_without_checkpoints_output_appears_at_the_end_and_nothing_else_is_left() -> None:
    words = WordCount(EPOCHS)

    LocalJob(words.build, EPOCHS, None).run()

    assert words.output() == words.expected_output()
    assert words.leftovers() == []


def test_at_least_once_publishes_with_the_epoch_and_repeats_after_a_failover_while_state_is_exact() -> None:
    words = WordCount(EPOCHS)
    at_least_once = replace(EVERY_EPOCH, mode=CheckpointingMode.AT_LEAST_ONCE, interval=None)
    seen_before_the_end: list[int] = []

    def look_and_kill(engine: LocalEngine, moment: Moment) -> None:
        seen_before_the_end.append(sum(words.output().values()))
        kill_slot(0)(engine, moment)

    job = words.run([Trouble(Step.BEFORE_EPOCH, look_and_kill, number=3)], checkpoints=at_least_once)

    assert seen_before_the_end == [len(EPOCHS[0]) + len(EPOCHS[1])]
    assert job.state(UID) == words.expected_state()
    assert set(words.output()) == set(words.expected_output())
    assert sum(words.output().values()) == sum(map(len, EPOCHS)) + seen_before_the_end[0]
    assert words.leftovers() == []
