"""The directory of a sink is deleted under a running job: it never ends with records missing that came afterwards."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.word_count import UID, WordCount

from checkdam.checkpoint.settings import CheckpointConfig, CheckpointingMode
from checkdam.errors import JobFailedError, OutputLostError
from checkdam.runtime.restart import NoRestart
from checkdam.storage import open_storage
from checkdam.testing.local_engine import LocalEngine
from checkdam.testing.local_job import EVERY_EPOCH, LocalJob
from checkdam.testing.trouble import DriverKilled, Moment, Step, Trouble, kill_driver, kill_slot

pytestmark = pytest.mark.slow

EPOCHS = [["a", "b", "a", "c"], ["d", "a", "e"], ["b", "f", "a"], ["a", "g"]]
AT_LEAST_ONCE = replace(EVERY_EPOCH, mode=CheckpointingMode.AT_LEAST_ONCE)


class Words(WordCount):
    """The job on real directories, and somebody who deletes the sink's."""

    def __init__(self, root: Path) -> None:
        self.out = root / "out"
        super().__init__(EPOCHS, storage=open_storage(str(root / "checkpoints")), sink=open_storage(str(self.out)))
        self.seen: Counter[tuple[str, int]] = Counter()

    def delete_sink(self, engine: LocalEngine, moment: Moment) -> None:
        self.seen += self.output()
        shutil.rmtree(self.out, ignore_errors=True)

    def assert_nothing_is_missing(self) -> None:
        """But for what the user has deleted when it was published."""
        output = self.output()
        assert not self.expected_output() - self.seen - output
        assert max(output.values(), default=1) == 1


@pytest.fixture
def words(tmp_path: Path) -> Words:
    return Words(tmp_path)


STEPS = [
    Step.BEFORE_EPOCH,
    Step.AFTER_LEVEL,
    Step.EPOCH_DONE,
    Step.EPOCH_ENDED,
    Step.BEFORE_SNAPSHOT,
    Step.BEFORE_WRITING,
    Step.WRITING,
    Step.SNAPSHOT_TAKEN,
    Step.BEFORE_METADATA,
    Step.METADATA_WRITTEN,
    Step.REMEMBERED,
    Step.COMMITTING,
    Step.COMMITTED,
    Step.BEFORE_COMPLETED,
    Step.AFTER_COMPLETED,
]


@pytest.mark.parametrize("number", [1, 3, 4])
@pytest.mark.parametrize("step", STEPS)
def test_no_record_is_missing_when_the_directory_was_deleted_at_any_step(words: Words, step: Step, number: int) -> None:
    trouble = Trouble(step, words.delete_sink, number)

    job = words.run([trouble])

    assert trouble.happened.is_set()
    words.assert_nothing_is_missing()
    assert job.state(UID) == words.expected_state()
    assert words.leftovers() == []


@pytest.mark.parametrize("step", [Step.SNAPSHOT_TAKEN, Step.BEFORE_METADATA, Step.METADATA_WRITTEN])
def test_a_checkpoint_whose_output_is_gone_fails_over_at_once_and_names_it(words: Words, step: Step) -> None:
    tolerant = replace(EVERY_EPOCH, tolerable_failures=9)

    job = words.run([Trouble(step, words.delete_sink, 2)], checkpoints=tolerant)

    [failure] = job.heard.restarts
    assert isinstance(failure, OutputLostError)
    assert "part-" in str(failure)
    assert [number for number, _ in job.heard.failed_checkpoints] == [2]
    assert 2 not in [stats.checkpoint_id for stats in job.heard.completed]
    words.assert_nothing_is_missing()


@pytest.mark.parametrize("step", [Step.METADATA_WRITTEN, Step.COMMITTING])
def test_nobody_goes_on_from_a_checkpoint_whose_output_is_gone_although_a_slot_died_with_it(
    words: Words, step: Step
) -> None:
    def delete_and_kill(engine: LocalEngine, moment: Moment) -> None:
        words.delete_sink(engine, moment)
        kill_slot(0)(engine, moment)

    job = words.run([Trouble(step, delete_and_kill, 2)])

    words.assert_nothing_is_missing()
    assert job.heard.missing == []


def test_a_staged_file_that_was_cut_short_fails_the_checkpoint(words: Words) -> None:
    def cut_short(engine: LocalEngine, moment: Moment) -> None:
        [staged, *_] = words.out.glob(".checkdam/*/*/part-*")
        staged.write_bytes(staged.read_bytes()[:-1])

    job = words.run([Trouble(Step.SNAPSHOT_TAKEN, cut_short, 2)], parallelism=1)

    assert [isinstance(failure, OutputLostError) for failure in job.heard.restarts] == [True]
    assert words.output() == words.expected_output()


@pytest.mark.parametrize("number", [2, 4])
@pytest.mark.parametrize("step", [Step.AFTER_LEVEL, Step.EPOCH_DONE, Step.EPOCH_ENDED])
def test_output_of_an_epoch_that_is_gone_fails_an_at_least_once_job_over(words: Words, step: Step, number: int) -> None:
    trouble = Trouble(step, words.delete_sink, number)

    job = words.run([trouble], checkpoints=AT_LEAST_ONCE, parallelism=1)

    assert trouble.happened.is_set()
    assert job.heard.restarts
    assert not words.expected_output() - words.seen - words.output()


@pytest.mark.parametrize("step", [Step.BEFORE_WRITING, Step.SNAPSHOT_TAKEN])
def test_without_checkpoints_the_job_fails(words: Words, step: Step) -> None:
    job = LocalJob(
        words.build,
        EPOCHS,
        None,
        record_type=str,
        checkpoints=CheckpointConfig(),
        restart=NoRestart(),
        troubles=[Trouble(step, words.delete_sink)],
    )

    with pytest.raises(JobFailedError, match="part-"):
        job.run()


def test_output_that_is_gone_after_a_crash_is_told_for_it_may_be_lost(words: Words) -> None:
    with pytest.raises(DriverKilled):
        words.job(troubles=[Trouble(Step.METADATA_WRITTEN, kill_driver, 2)]).run()
    shutil.rmtree(words.out)

    job = words.run()

    assert job.heard.missing
    assert all("part-" in path for path in job.heard.missing)


def test_output_that_a_reader_took_after_it_was_known_to_be_published_is_not_told(words: Words) -> None:
    job: LocalJob
    job = words.job(troubles=[Trouble(Step.BEFORE_EPOCH, lambda engine, moment: job.cancel(), 3)])
    job.run()
    for part in words.out.glob("part-*"):
        part.unlink()

    resumed = words.run()

    assert resumed.heard.missing == []
    assert sum(words.output().values()) == len(EPOCHS[2]) + len(EPOCHS[3])


def test_checkpoints_that_overlap_name_output_again_that_a_reader_has_taken_meanwhile(words: Words) -> None:
    """Only what was not yet published is asked for."""
    overlapping = replace(EVERY_EPOCH, max_concurrent=3)

    def take_away(engine: LocalEngine, moment: Moment) -> None:
        for part in words.out.glob("part-*"):
            words.seen += Counter([(part.name, 1)])
            part.unlink()

    job = words.job(
        checkpoints=overlapping,
        lockstep=False,
        troubles=[Trouble(Step.BEFORE_COMPLETED, take_away, number) for number in (1, 2, 3)],
    )
    job.run()

    assert job.heard.restarts == []
    assert job.state(UID) == words.expected_state()
