"""A slot or the driver dies between any two steps of a job: the result is that of a run without deaths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.word_count import UID, WordCount

from checkdam.errors import JobFailedError, SlotLostError
from checkdam.storage import TEMPORARY_PREFIX, open_storage
from checkdam.testing.local_job import EVERY_EPOCH
from checkdam.testing.trouble import Deed, DriverKilled, Step, Trouble, kill_driver, kill_slot, repeat_level

pytestmark = pytest.mark.slow

EPOCHS = [["a", "b", "a", "c"], ["d", "a", "e"], ["b", "f", "a"], ["a", "g"]]
DEATHS: dict[str, Deed] = {"slot 0": kill_slot(0), "slot 1": kill_slot(1), "driver": kill_driver}
ELSEWHERE = {Step.BEFORE_ABORTED, Step.AFTER_ABORTED, Step.WITHDRAWING, Step.WITHDRAWN}


@pytest.mark.parametrize("number", [1, 2, 4])
@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("step", [step for step in Step if step not in ELSEWHERE and "SAVEPOINT" not in step.name])
def test_a_death_at_any_step_neither_loses_nor_repeats_nor_leaves_anything(step: Step, death: str, number: int) -> None:
    words = WordCount(EPOCHS)
    trouble = Trouble(step, DEATHS[death], number=min(number, 3) if "DISCARD" in step.name else number)

    job = words.run([trouble])

    assert trouble.happened.is_set()
    assert job.state(UID) == words.expected_state()
    assert words.output() == words.expected_output()
    assert words.leftovers() == []


@pytest.mark.parametrize("step", [Step.WRITING, Step.SNAPSHOT_TAKEN, Step.METADATA_WRITTEN, Step.COMMITTED])
def test_a_death_of_the_driver_leaves_no_file_or_directory_on_a_disk(step: Step, tmp_path: Path) -> None:
    sink, checkpoints = open_storage(str(tmp_path / "out")), open_storage(str(tmp_path / "checkpoints"))
    words = WordCount(EPOCHS, storage=checkpoints, sink=sink)

    words.run([Trouble(step, kill_driver, number=2)])

    assert words.output() == words.expected_output()
    assert words.leftovers() == []
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith((TEMPORARY_PREFIX, ".checkdam"))]


def test_a_killed_driver_leaves_the_rest_to_the_next_one() -> None:
    words = WordCount(EPOCHS)
    job = words.job(troubles=[Trouble(Step.METADATA_WRITTEN, kill_driver, number=2)])

    with pytest.raises(DriverKilled):
        job.run()

    assert job.checkpoint().checkpoint_id == 2
    assert sum(words.output().values()) == len(EPOCHS[0])  # what the second covers is not yet visible

    resumed = words.job()
    heard = resumed.run()

    assert heard.restored_from == [(f"{resumed.uri}/chk-2", 2)]
    assert words.output() == words.expected_output()


@pytest.mark.parametrize("epoch", [1, 3])
@pytest.mark.parametrize("subtask", [0, 1])
def test_a_level_that_is_run_again_is_refused_and_never_applied_twice(subtask: int, epoch: int) -> None:
    words = WordCount(EPOCHS)

    job = words.run([Trouble(Step.AFTER_LEVEL, repeat_level, number=epoch, subtask=subtask)])

    [failure] = job.heard.restarts
    assert isinstance(failure, SlotLostError)
    assert f"refuses level 1 of epoch {epoch}" in str(failure)
    assert job.state(UID) == words.expected_state()
    assert words.output() == words.expected_output()


def test_a_level_of_an_epoch_that_has_ended_is_refused() -> None:
    words = WordCount(EPOCHS)

    job = words.run([Trouble(Step.EPOCH_ENDED, repeat_level, number=2, subtask=1)])

    assert ["refuses level 1 of epoch 2" in str(failure) for failure in job.heard.restarts] == [True]
    assert job.state(UID) == words.expected_state()


def test_a_slot_that_dies_between_epochs_is_noticed_before_the_next_one() -> None:
    words = WordCount(EPOCHS)

    job = words.run([Trouble(Step.BEFORE_EPOCH, kill_slot(1), number=3)])

    assert [str(failure) for failure in job.heard.restarts] == ["slot 1 was killed"]
    assert [each.epoch for each in job.heard.epochs] == [1, 2, 3, 4]
    assert job.state(UID) == words.expected_state()


def test_death_after_death_ends_the_job_when_restarts_are_used_up_and_keeps_what_it_had() -> None:
    words = WordCount(EPOCHS)
    deaths = [Trouble(Step.BEFORE_EPOCH, kill_slot(0), number=3) for _ in range(6)]
    job = words.job(troubles=deaths, checkpoints=replace(EVERY_EPOCH))

    with pytest.raises(JobFailedError, match="slot 0 was killed"):
        job.run()

    assert len(job.heard.restarts) == 5
    assert job.checkpoint().epoch == 2
    assert words.run().state(UID) == words.expected_state()
    assert words.output() == words.expected_output()
    assert words.leftovers() == []
