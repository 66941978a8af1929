"""Where `--resume` goes on, and when it starts anew: never past a checkpoint that is there and cannot be used."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.word_count import WordCount

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.launch import Launch, Resume, set_launch
from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.config import CHECKPOINT_DIR, IGNORE_UNCLAIMED_STATE, RESTORE_PATH, Configuration, Origin, Setting
from checkdam.errors import CheckdamError, CheckpointNotFoundError, JobGraphError, RestoreError
from checkdam.runtime.driver.restore import Restored
from checkdam.storage.filesystem import open_storage
from checkdam.testing.local_job import EVERY_EPOCH, JOB_ID, Heard
from checkdam.testing.trouble import DriverKilled, Step, Trouble, kill_driver

NAME = "local job"


class Told(Heard):
    def __init__(self) -> None:
        super().__init__()
        self.anew: list[CheckdamError] = []

    def nothing_to_resume(self, reason: CheckdamError) -> None:
        self.anew.append(reason)


def find(resume: Resume, directory: Path | None, name: str = NAME) -> tuple[Restored | None, Told]:
    told = Told()
    environment = StreamExecutionEnvironment(Launch(Configuration(), resume=resume, listener=told))
    settings = Configuration() if directory is None else Configuration().with_value(CHECKPOINT_DIR, str(directory))
    return environment._find_restored(name, settings), told


def words_at(directory: Path) -> WordCount:
    return WordCount([["a"], ["b"], ["a"]], storage=open_storage(str(directory)))


def killed_before_its_first_checkpoint(directory: Path) -> None:
    job = words_at(directory).job(
        checkpoints=replace(EVERY_EPOCH, interval=timedelta(hours=1)),
        troubles=[Trouble(Step.BEFORE_EPOCH, kill_driver, number=2)],
    )
    with pytest.raises(DriverKilled):
        job.run()


@pytest.mark.parametrize("resume", list(Resume))
def test_the_newest_checkpoint_is_taken_if_there_is_one(tmp_path: Path, resume: Resume) -> None:
    words_at(tmp_path).job().run()

    restored, told = find(resume, tmp_path)

    assert restored is not None
    assert restored.claim
    assert (restored.checkpoint.job_id, restored.checkpoint.checkpoint_id) == (JOB_ID, 3)
    assert told.anew == []


@pytest.mark.parametrize("case", ["no directory yet", "empty", "another job", "killed before its first checkpoint"])
def test_with_no_checkpoint_latest_fails_and_auto_starts_anew_and_says_so(tmp_path: Path, case: str) -> None:
    directory, name = tmp_path / "checkpoints", NAME
    if case == "empty":
        directory.mkdir()
    elif case == "another job":
        words_at(directory).job().run()
        name = "of this name is none"
    elif case == "killed before its first checkpoint":
        killed_before_its_first_checkpoint(directory)

    with pytest.raises(CheckpointNotFoundError):
        find(Resume.LATEST, directory, name)
    restored, told = find(Resume.AUTO, directory, name)

    assert restored is None
    assert [reason.message for reason in told.anew] == [f'no checkpoint of job "{name}" in file://{directory}']


@pytest.mark.parametrize("resume", list(Resume))
@pytest.mark.parametrize("harm", ["all damaged", "too new", "its files are gone"])
def test_a_checkpoint_that_cannot_be_restored_is_an_error_and_never_silently_anew(
    tmp_path: Path, harm: str, resume: Resume
) -> None:
    words_at(tmp_path).job().run()
    metadata = tmp_path / JOB_ID / "chk-3" / "_metadata"
    content = metadata.read_bytes()
    if harm == "all damaged":
        metadata.write_bytes(content[: len(content) // 2])
    elif harm == "too new":
        metadata.write_bytes(content[:7] + b"\x63" + content[8:])  # the version in its head
    else:
        shutil.rmtree(tmp_path / JOB_ID / "shared")

    with pytest.raises((RestoreError, JobGraphError)):
        find(resume, tmp_path)
    assert CheckpointStore(open_storage(str(tmp_path)), JOB_ID).completed() == [3]  # nothing was touched


@pytest.mark.parametrize("resume", list(Resume))
def test_with_no_directory_set_it_is_an_error_either_way(resume: Resume) -> None:
    with pytest.raises(JobGraphError, match=f"--resume {resume}: no checkpoint directory is set"):
        find(resume, None)


def test_the_settings_of_the_program_say_what_to_start_from(tmp_path: Path) -> None:
    words_at(tmp_path).job().run()
    given = {
        "execution.state-recovery.path": f"{tmp_path}/{JOB_ID}/chk-3",
        "execution.state-recovery.claim-mode": "CLAIM",
        "execution.state-recovery.ignore-unclaimed-state": True,
    }
    set_launch(Launch(Configuration()))
    environment = StreamExecutionEnvironment.get_execution_environment(given)
    settings = environment._with_start(environment.configuration)

    restored = environment._find_restored(NAME, settings)

    assert restored is not None
    assert restored.claim
    assert environment._source_choices(restored, settings).allow_non_restored_state


def test_what_the_command_line_says_to_start_from_shows_in_the_settings() -> None:
    file = Configuration().with_value("execution.state-recovery.path", "/from/file")
    named = Launch(file, restore_path="/named", allow_non_restored_state=True)
    resumed = Launch(file, resume=Resume.LATEST)

    settings = StreamExecutionEnvironment(named)._with_start(file)

    assert settings.setting(RESTORE_PATH) == Setting("/named", Origin.COMMAND_LINE)
    assert settings.setting(IGNORE_UNCLAIMED_STATE) == Setting(True, Origin.COMMAND_LINE)
    assert StreamExecutionEnvironment(resumed)._with_start(file).get(RESTORE_PATH) is None
