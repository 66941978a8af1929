"""Who owns what a job is restored from: `no_claim` leaves it alone, `claim` makes it the job's."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from checkdam import config
from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.checkpoint.completed import CompletedCheckpoint
from checkdam.checkpoint.savepoints import SavepointDirectory
from checkdam.checkpoint.settings import RestoreMode, restore_mode
from checkdam.config import Configuration
from checkdam.errors import CheckpointDamagedError, CheckpointNotFoundError, ConfigError, StateNotRestorableError
from checkdam.ids import CheckpointId, Epoch, JobId
from checkdam.runtime.driver.restore import claimed_storage, from_path, give_up_savepoint
from checkdam.state.snapshot_handles import SavepointFormat
from checkdam.storage.filesystem import open_storage
from checkdam.testing import MemoryStorage
from checkdam.testing.mounts import mount

JOB = JobId("0123456789abcdef0123456789abcdef")
NOW = datetime(2024, 5, 1, tzinfo=UTC)
TAKING = """
import sys
from checkdam.checkpoint.ownership import take
from checkdam.storage.filesystem import open_storage
take(open_storage(sys.argv[1]), sys.argv[2])
print("taken", flush=True)
sys.stdin.read()
"""
NO_CLAIM, CLAIM = RestoreMode.NO_CLAIM, RestoreMode.CLAIM


def checkpoint(number: int) -> CompletedCheckpoint:
    return CompletedCheckpoint(CheckpointId(number), JOB, "job", Epoch(number), NOW, NOW, 1, 128)


def written(root: Path, *numbers: int) -> list[str]:
    """The directories of checkpoints in a job's own place."""
    store = CheckpointStore(open_storage(str(root)), JOB)
    return [store.write(checkpoint(number)) for number in numbers]


def saved(root: Path) -> Path:
    savepoint = replace(checkpoint(3), savepoint_format=SavepointFormat.CANONICAL)
    return Path(SavepointDirectory.prepare(str(root), JOB).complete(savepoint)[0])


def test_a_checkpoint_is_not_claimed_unless_somebody_says_so(tmp_path: Path) -> None:
    [_, last] = written(tmp_path, 3, 4)

    restored = from_path(last)

    assert (restored.claim, restored.owned_savepoint) == (False, None)
    assert restored.checkpoint == checkpoint(4)
    assert restored.path == last
    assert from_path(last, NO_CLAIM) == restored


@pytest.mark.parametrize("mode", RestoreMode)
@pytest.mark.parametrize("ending", ["", "/", "/_metadata"])
def test_a_savepoint_is_named_by_its_own_directory(tmp_path: Path, mode: RestoreMode, ending: str) -> None:
    path = saved(tmp_path)

    restored = from_path(f"{path}{ending}", mode)

    assert restored.path == path.as_uri()
    assert (restored.storage, restored.directory, restored.claim) == (path.as_uri(), "", False)
    assert restored.point().storage == path.as_uri()
    assert not restored.point().claim


def test_a_claimed_checkpoint_lets_its_job_go_on_where_it_is(tmp_path: Path) -> None:
    [_, last] = written(tmp_path, 3, 4)

    restored = from_path(last, CLAIM)

    assert restored.claim
    assert (restored.storage, restored.directory) == (tmp_path.as_uri(), JOB)
    assert restored.path == last
    assert restored.owned_savepoint is None


def test_an_older_checkpoint_cannot_be_claimed_while_a_newer_one_could_be_resumed(tmp_path: Path) -> None:
    [first, _] = written(tmp_path, 3, 10)

    with pytest.raises(StateNotRestorableError, match="checkpoint 10 is newer") as raised:
        from_path(first, CLAIM)

    assert "--resume latest" in str(raised.value)
    assert from_path(first, NO_CLAIM).checkpoint == checkpoint(3)


def test_a_newer_one_that_is_damaged_or_never_completed_does_not_count(tmp_path: Path) -> None:
    [first, damaged] = written(tmp_path, 3, 4)
    (tmp_path / JOB / "chk-4" / "_metadata").write_bytes(b"half")
    (tmp_path / JOB / "chk-5").mkdir()

    assert from_path(first, CLAIM).claim
    with pytest.raises(CheckpointDamagedError):
        from_path(damaged, CLAIM)


def test_a_checkpoint_of_a_job_that_runs_cannot_be_claimed_until_it_ends(tmp_path: Path) -> None:
    [last] = written(tmp_path, 3)
    with subprocess.Popen(
        [sys.executable, "-c", TAKING, str(tmp_path), JOB], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdout.readline()  # it owns the job now

        with pytest.raises(StateNotRestorableError, match=f"the job is running, in process {other.pid}"):
            from_path(last, CLAIM)
        assert not from_path(last).claim
        assert from_path(last, CLAIM, take_over=True).claim

        other.stdin.close()
        other.wait(30)

    assert from_path(last, CLAIM).claim


def test_a_copy_of_a_checkpoint_cannot_be_claimed_but_restored(tmp_path: Path) -> None:
    written(tmp_path / "here", 3)
    shutil.copytree(tmp_path / "here" / JOB, tmp_path / "copy")

    with pytest.raises(StateNotRestorableError, match="not the directory of that job") as raised:
        from_path(str(tmp_path / "copy" / "chk-3"), CLAIM)

    assert "no_claim" in str(raised.value)
    assert from_path(str(tmp_path / "copy" / "chk-3")).checkpoint == checkpoint(3)


def test_a_job_goes_on_from_a_claimed_checkpoint_in_the_same_place_or_not_at_all(tmp_path: Path) -> None:
    [last] = written(tmp_path / "here", 3)
    restored = from_path(last, CLAIM)

    assert claimed_storage(restored, None) == (tmp_path / "here").as_uri()
    assert claimed_storage(restored, str(tmp_path / "here")) == restored.storage
    assert claimed_storage(restored, f"{(tmp_path / 'here').as_uri()}/") == restored.storage
    with pytest.raises(StateNotRestorableError, match="there") as raised:
        claimed_storage(restored, str(tmp_path / "there"))
    assert f'state.checkpoints.dir to "{tmp_path / "here"}"' in str(raised.value)


def test_a_claimed_savepoint_is_deleted_when_the_job_gives_it_up_and_only_then(tmp_path: Path) -> None:
    path = saved(tmp_path)
    restored = from_path(str(path), CLAIM)
    assert restored.owned_savepoint == path.as_uri()
    assert path.exists()

    give_up_savepoint(restored)
    give_up_savepoint(restored)

    assert not path.exists()


def test_what_is_not_claimed_is_never_given_up(tmp_path: Path) -> None:
    path = saved(tmp_path)
    [last] = written(tmp_path, 3)

    for restored in (None, from_path(str(path)), from_path(last), from_path(last, CLAIM)):
        give_up_savepoint(restored)

    assert path.exists()
    assert from_path(last).checkpoint == checkpoint(3)


def test_a_savepoint_is_restored_from_any_storage() -> None:
    files = MemoryStorage()
    place = mount(files)
    path, _ = SavepointDirectory.prepare(f"{place}/savepoints", JOB).complete(
        replace(checkpoint(3), savepoint_format=SavepointFormat.NATIVE)
    )

    restored = from_path(path, CLAIM)
    assert restored.path == path
    give_up_savepoint(restored)

    assert files.list("") == []


def test_a_place_without_a_snapshot_is_answered_with_the_savepoints_in_it(tmp_path: Path) -> None:
    path = saved(tmp_path)

    with pytest.raises(CheckpointNotFoundError, match=re.escape(path.as_uri())):
        from_path(str(tmp_path))


@pytest.mark.parametrize("text", ["claim", "CLAIM", " Claim "])
def test_a_mode_is_found_by_its_name_in_any_case(text: str) -> None:
    assert restore_mode(text) is CLAIM


@pytest.mark.parametrize("text", ["no_claim", "NO-CLAIM"])
def test_a_mode_of_two_words_may_have_either_dash(text: str) -> None:
    assert restore_mode(text) is NO_CLAIM


def test_the_mode_that_nobody_owns_files_in_is_explained() -> None:
    with pytest.raises(ConfigError, match="LEGACY is not supported") as raised:
        restore_mode("legacy")

    assert "no_claim" in str(raised.value)
    with pytest.raises(ConfigError, match='no restore mode "mine"'):
        restore_mode("mine")


@pytest.mark.parametrize("key", ["execution.state-recovery.claim-mode", "execution.savepoint-restore-mode"])
def test_the_mode_is_a_setting_under_both_of_flinks_keys(key: str) -> None:
    settings = Configuration.load(overrides={key: "claim"})

    assert restore_mode(settings.get(config.RESTORE_MODE)) is CLAIM
    assert restore_mode(Configuration().get(config.RESTORE_MODE)) is NO_CLAIM
