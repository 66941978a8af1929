"""The store of completed checkpoints: whole or not at all, nothing needed deleted, nothing unneeded kept."""

from __future__ import annotations

import dataclasses
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from checkdam.checkpoint.checkpoint_store import CheckpointStore, find_latest, load_checkpoint, verify_files
from checkdam.checkpoint.completed import TERM_SETTING, CompletedCheckpoint, OperatorEntry
from checkdam.checkpoint.metadata_file import to_metadata
from checkdam.errors import (
    CheckpointDamagedError,
    CheckpointNotFoundError,
    FormatTooNewError,
    RestoreError,
    StateNotRestorableError,
    StorageError,
    StorageUncertainError,
)
from checkdam.flink.checkpoint_properties import RETAINED_CHECKPOINT
from checkdam.flink.metadata import Metadata, encode
from checkdam.ids import CheckpointId, Epoch, JobId, OperatorUid, SubtaskIndex
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import (
    KeyedStateHandle,
    OperatorStateHandle,
    Redistribution,
    SavepointFormat,
    StateFile,
)
from checkdam.storage.contract import Storage
from checkdam.storage.filesystem import open_storage
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.testing.faulty_storage import Fault, FaultyStorage

JOB = JobId("0123456789abcdef0123456789abcdef")
OTHER_JOB = JobId("fedcba9876543210fedcba9876543210")
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def checkpoint(
    number: int, *files: str, job_id: JobId = JOB, job_name: str = "words", minute: int | None = None
) -> CompletedCheckpoint:
    handle = KeyedStateHandle(KeyGroupRange(0, 127), tuple(StateFile(path, len(path)) for path in files))
    return CompletedCheckpoint(
        checkpoint_id=CheckpointId(number),
        job_id=job_id,
        job_name=job_name,
        epoch=Epoch(number),
        triggered_at=NOON,
        completed_at=NOON + timedelta(minutes=number if minute is None else minute),
        parallelism=1,
        max_parallelism=128,
        operators=(OperatorEntry(OperatorUid("count"), "", 1, 128, {SubtaskIndex(0): handle}),),
    )


def stored(storage: Storage, *checkpoints: CompletedCheckpoint) -> None:
    for each in checkpoints:
        for file in each.files():
            storage.write(f"{each.job_id}/{file.path}", file.path.encode())
        CheckpointStore(storage, each.job_id).write(each)


def damage(storage: Storage, path: str) -> None:
    data = bytearray(storage.read(path))
    data[len(data) // 2] ^= 1
    storage.write(path, bytes(data))


def too_new(storage: Storage, number: int) -> None:
    data = bytearray(encode(Metadata(number, properties=RETAINED_CHECKPOINT)))
    data[7] = 7
    storage.write(f"{JOB}/chk-{number}/_metadata", bytes(data))


def names(storage: Storage) -> list[str]:
    return [status.path.removeprefix(f"{JOB}/") for status in storage.list("")]


def place(error: RestoreError | CompletedCheckpoint) -> str:
    return error.message if isinstance(error, RestoreError) else f"chk-{error.checkpoint_id}"


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path)) if request.param == "local" else MemoryStorage()


@pytest.fixture
def store(storage: Storage) -> CheckpointStore:
    return CheckpointStore(storage, JOB)


# ------------------------------------------------------------------------------------------ write, load, discard


def test_a_written_checkpoint_is_complete_and_loads_as_it_was(storage: Storage, store: CheckpointStore) -> None:
    written = checkpoint(3, "shared/a")

    uri = store.write(written)

    assert uri == f"{storage.uri}/{JOB}/chk-3"
    assert store.completed() == [3]
    assert store.load(CheckpointId(3)) == written


def test_completed_checkpoints_are_listed_by_number_newest_last(storage: Storage, store: CheckpointStore) -> None:
    stored(storage, checkpoint(10), checkpoint(9), checkpoint(2), checkpoint(11, job_id=OTHER_JOB))
    storage.write(f"{JOB}/chk-12/.tmp-_metadata-0a1b2c3d", b"half")
    storage.write(f"{JOB}/shared/chk-13/_metadata", b"not a checkpoint of this job")

    assert store.completed() == [2, 9, 10]


def test_the_next_id_is_above_every_id_in_sight(storage: Storage, store: CheckpointStore) -> None:
    assert store.next_checkpoint_id() == 1

    stored(storage, checkpoint(9), checkpoint(10))
    assert store.next_checkpoint_id() == 11

    storage.write(f"{JOB}/chk-12/.tmp-_metadata-0a1b2c3d", b"half")
    assert store.next_checkpoint_id() == 13


def test_a_checkpoint_of_another_job_is_not_written(store: CheckpointStore) -> None:
    with pytest.raises(ValueError, match="in the store of job"):
        store.write(checkpoint(1, job_id=OTHER_JOB))


def test_a_missing_checkpoint_is_named_with_those_that_are_there(storage: Storage, store: CheckpointStore) -> None:
    stored(storage, checkpoint(2))

    with pytest.raises(CheckpointNotFoundError, match=rf"{JOB}/chk-4.*newest first: .*{JOB}/chk-2"):
        store.load(CheckpointId(4))


def test_a_damaged_checkpoint_is_named_by_its_path(storage: Storage, store: CheckpointStore) -> None:
    stored(storage, checkpoint(2))
    damage(storage, f"{JOB}/chk-2/_metadata")

    with pytest.raises(CheckpointDamagedError, match=f"{JOB}/chk-2/_metadata"):
        store.load(CheckpointId(2))


def test_a_discarded_checkpoint_leaves_nothing_but_its_shared_files(storage: Storage, store: CheckpointStore) -> None:
    stored(storage, checkpoint(2, "shared/a"), checkpoint(3, "shared/a"))
    storage.write(f"{JOB}/chk-2/exclusive", b"x")

    store.discard(CheckpointId(2))
    store.discard(CheckpointId(2))

    assert names(storage) == ["chk-3/_metadata", "shared/a"]


class DiesWhileDeleting(MemoryStorage):
    """Removes one file of a directory, then nothing more."""

    def delete_directory(self, directory: str) -> None:
        self.delete(self.list(directory)[-1].path)
        raise StorageUncertainError("killed")


def test_a_discard_that_dies_half_way_never_leaves_metadata_without_its_files() -> None:
    storage = DiesWhileDeleting()
    stored(storage, checkpoint(2, "chk-2/exclusive", "chk-2/zzz"))
    store = CheckpointStore(storage, JOB)

    with pytest.raises(StorageUncertainError):
        store.discard(CheckpointId(2))

    assert names(storage) == ["chk-2/exclusive"]


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("step", range(3))
def test_a_failed_discard_leaves_the_checkpoint_whole_or_incomplete(fault: Fault, step: int) -> None:
    inner = MemoryStorage()
    stored(inner, checkpoint(2, "chk-2/exclusive"))
    faulty = FaultyStorage(inner, at=step, fault=fault)

    try:
        CheckpointStore(faulty, JOB).discard(CheckpointId(2))
    except StorageError:
        assert step < 2

    store = CheckpointStore(inner, JOB)
    for complete in store.completed():
        store.verify(store.load(complete))


def test_a_refused_write_leaves_no_checkpoint() -> None:
    inner = MemoryStorage()

    with pytest.raises(StorageError) as raised:
        CheckpointStore(FaultyStorage(inner, at=0, fault=Fault.REFUSED), JOB).write(checkpoint(1))

    assert not isinstance(raised.value, StorageUncertainError)
    assert CheckpointStore(inner, JOB).completed() == []


def test_a_write_whose_reply_was_lost_is_found_by_reading_it_back() -> None:
    inner = MemoryStorage()

    CheckpointStore(FaultyStorage(inner, at=0, fault=Fault.REPLY_LOST), JOB).write(checkpoint(1))

    assert CheckpointStore(inner, JOB).completed() == [1]


# ------------------------------------------------------------------------------------------ verify


def test_a_missing_file_of_operator_state_is_damage(storage: Storage, store: CheckpointStore) -> None:
    file = StateFile("shared/operator", len("shared/operator"))
    entry = OperatorEntry(OperatorUid("numbers"), "", 1, 128, operator_states={SubtaskIndex(0): _in_file(file)})
    whole = dataclasses.replace(checkpoint(1), operators=(entry,))
    stored(storage, whole)
    store.verify(whole)

    storage.delete(f"{JOB}/{file.path}")

    with pytest.raises(CheckpointDamagedError, match=r"shared/operator.* is gone"):
        store.verify(whole)


def _in_file(file: StateFile) -> OperatorStateHandle:
    return OperatorStateHandle((("all", Redistribution.UNION, (30,)),), file)


def test_a_checkpoint_with_all_its_files_verifies(storage: Storage, store: CheckpointStore) -> None:
    whole = checkpoint(2, "shared/a", "shared/b")
    stored(storage, whole)

    store.verify(whole)


@pytest.mark.parametrize(("content", "told"), [(None, "is gone"), (b"long" * 9, "has 36 bytes instead of 8")])
def test_a_missing_or_resized_file_is_named(
    storage: Storage, store: CheckpointStore, content: bytes | None, told: str
) -> None:
    broken = checkpoint(2, "shared/a", "shared/b")
    stored(storage, broken)
    storage.delete(f"{JOB}/shared/b")
    if content is not None:
        storage.write(f"{JOB}/shared/b", content)

    with pytest.raises(CheckpointDamagedError, match=rf"{JOB}/shared/b\" {told}"):
        store.verify(broken)


# ------------------------------------------------------------------------------------------ sweep


def test_a_sweep_removes_what_no_checkpoint_needs_and_says_so(storage: Storage, store: CheckpointStore) -> None:
    kept = checkpoint(5, "shared/a", "shared/b")
    stored(storage, kept)
    for orphan in ("chk-4/exclusive", "chk-6/.tmp-_metadata-0a1b2c3d", "shared/c", "shared/.tmp-a-0a1b2c3d"):
        storage.write(f"{JOB}/{orphan}", b"x")
    for untouched in ("chk-5/.tmp-_metadata-0a1b2c3d", "taskowned/x", "taskowned/.tmp-x-0a1b2c3d"):
        storage.write(f"{JOB}/{untouched}", b"x")

    removed = store.sweep([kept])

    assert names(storage) == ["chk-5/_metadata", "shared/a", "shared/b", "taskowned/x"]
    assert sorted(removed) == [
        "chk-4",
        "chk-5/.tmp-_metadata-0a1b2c3d",
        "chk-6",
        "shared/.tmp-a-0a1b2c3d",
        "shared/c",
        "taskowned/.tmp-x-0a1b2c3d",
    ]
    assert store.sweep([kept]) == []


def test_a_sweep_leaves_what_is_being_written(storage: Storage, store: CheckpointStore) -> None:
    in_flight = ["chk-6/_metadata", "chk-6/.tmp-_metadata-0a1b2c3d", "shared/.tmp-7-base-0a1b2c3d", "shared/7-delta"]
    for path in (*in_flight, "shared/6-late"):
        storage.write(f"{JOB}/{path}", b"x")

    removed = store.sweep([], in_flight=["chk-6/", "shared/7-base", "shared/7-"])

    assert removed == ["shared/6-late"]
    assert names(storage) == sorted(in_flight)


def test_a_sweep_never_damages_a_complete_checkpoint_that_was_not_named(
    storage: Storage, store: CheckpointStore
) -> None:
    forgotten = checkpoint(4, "shared/a", "shared/old")
    kept = checkpoint(5, "shared/a")
    stored(storage, forgotten, kept)

    assert store.sweep([kept]) == []

    store.verify(forgotten)


def test_a_sweep_keeps_no_files_for_a_damaged_checkpoint(storage: Storage, store: CheckpointStore) -> None:
    kept = checkpoint(4, "shared/a")
    stored(storage, kept, checkpoint(5, "shared/a", "shared/b"))
    damage(storage, f"{JOB}/chk-5/_metadata")

    assert store.sweep([kept]) == ["shared/b"]


def test_a_sweep_leaves_shared_alone_while_a_newer_version_s_checkpoint_is_there(
    storage: Storage, store: CheckpointStore
) -> None:
    kept = checkpoint(4, "shared/a")
    stored(storage, kept)
    storage.write(f"{JOB}/shared/unknown", b"x")
    storage.write(f"{JOB}/chk-3/exclusive", b"x")
    too_new(storage, 5)

    assert store.sweep([kept]) == ["chk-3"]


def test_a_sweep_leaves_other_jobs_alone(storage: Storage, store: CheckpointStore) -> None:
    stored(storage, checkpoint(1, "shared/a", job_id=OTHER_JOB))
    storage.write(f"{OTHER_JOB}/shared/orphan", b"x")

    assert store.sweep([]) == []
    assert len(storage.list(OTHER_JOB)) == 3


def test_a_file_of_a_kept_checkpoint_stays_also_in_an_incomplete_directory(
    storage: Storage, store: CheckpointStore
) -> None:
    kept = checkpoint(5, "chk-4/exclusive")
    stored(storage, kept)
    storage.write(f"{JOB}/chk-4/.tmp-x-0a1b2c3d", b"x")

    assert store.sweep([kept]) == ["chk-4/.tmp-x-0a1b2c3d"]
    store.verify(kept)


def test_a_savepoint_among_the_checkpoints_of_a_job_is_none_of_them_and_is_left_alone() -> None:
    storage = MemoryStorage()
    stored(storage, checkpoint(1))
    astray = dataclasses.replace(checkpoint(2), operators=(), savepoint_format=SavepointFormat.CANONICAL)
    storage.write(f"{JOB}/chk-2/_metadata", to_metadata(astray))
    storage.write(f"{JOB}/chk-2/keyed", b"state")
    store = CheckpointStore(storage, JOB)

    with pytest.raises(CheckpointDamagedError, match="is a savepoint"):
        store.load(CheckpointId(2))

    assert store.sweep([checkpoint(1)]) == []


# ------------------------------------------------------------------------------------------ load_checkpoint


@pytest.mark.parametrize("form", ["{}", "{}/", "{}/_metadata", "file://{}", "file://{}/_metadata", "relative"])
def test_a_checkpoint_is_loaded_from_any_way_to_write_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    written = checkpoint(2, "shared/a")
    root = tmp_path / "check points"
    stored(open_storage(str(root)), written)
    monkeypatch.chdir(root / JOB)
    where = "chk-2" if form == "relative" else form.format(f"{root}/{JOB}/chk-2")

    loaded, job_directory = load_checkpoint(where)

    assert loaded == written
    assert job_directory == (root / JOB).as_uri()
    verify_files(open_storage(job_directory), "", loaded)


def test_a_checkpoint_is_loaded_by_its_bare_metadata_name_and_from_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(open_storage(str(tmp_path)), checkpoint(2))
    monkeypatch.chdir(tmp_path / JOB / "chk-2")

    assert load_checkpoint("_metadata") == load_checkpoint(".")


def test_a_moved_job_directory_is_still_whole(tmp_path: Path) -> None:
    stored(open_storage(str(tmp_path)), checkpoint(2, "shared/a"))
    (tmp_path / JOB).rename(tmp_path / "backup")

    loaded, job_directory = load_checkpoint(str(tmp_path / "backup" / "chk-2"))

    verify_files(open_storage(job_directory), "", loaded)
    with pytest.raises(CheckpointDamagedError, match="shared/a"):
        verify_files(open_storage(str(tmp_path)), JOB, loaded)


@pytest.mark.parametrize("wrong", ["{job}/chk-9", "{job}/chk-9/_metadata", "{job}", ".", "0" * 32 + "/chk-2"])
def test_a_wrong_place_is_answered_with_the_checkpoints_near_it(tmp_path: Path, wrong: str) -> None:
    stored(open_storage(str(tmp_path)), checkpoint(2), checkpoint(3))
    for number in (2, 3):
        os.utime(tmp_path / JOB / f"chk-{number}" / "_metadata", (number, number))

    with pytest.raises(CheckpointNotFoundError, match="no completed checkpoint or savepoint in") as raised:
        load_checkpoint(f"{tmp_path}/{wrong.format(job=JOB)}")

    assert raised.value.hint is not None
    assert raised.value.hint.endswith(f"{JOB}/chk-3, {(tmp_path / JOB).as_uri()}/chk-2.")


@pytest.mark.parametrize("wrong", ["nowhere", "nowhere/chk-1", "file.txt", "file.txt/chk-1"])
def test_a_place_with_nothing_near_it_is_answered_with_what_to_give(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "file.txt").write_text("no checkpoint")

    with pytest.raises(CheckpointNotFoundError, match="holds a file _metadata"):
        load_checkpoint(str(tmp_path / wrong))


def test_what_is_wrong_with_a_named_checkpoint_is_told_with_its_path(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    stored(storage, checkpoint(2))
    damage(storage, f"{JOB}/chk-2/_metadata")
    too_new(storage, 3)
    storage.write(f"{JOB}/chk-4/_metadata", encode(Metadata(4, properties=RETAINED_CHECKPOINT)))

    for number, kind in ((2, CheckpointDamagedError), (3, FormatTooNewError), (4, StateNotRestorableError)):
        with pytest.raises(kind, match=f"{JOB}/chk-{number}/_metadata"):
            load_checkpoint(str(tmp_path / JOB / f"chk-{number}"))


# ------------------------------------------------------------------------------------------ find_latest


def test_the_latest_checkpoints_of_a_name_come_newest_first_over_all_its_jobs(storage: Storage) -> None:
    stored(
        storage,
        checkpoint(1, minute=10),
        checkpoint(2, minute=40),
        checkpoint(7, minute=30, job_id=OTHER_JOB),
        checkpoint(9, minute=50, job_id=JobId("a" * 32), job_name="other words"),
    )

    found = find_latest(storage, "words")

    assert [(entry.job_id, entry.checkpoint_id) for entry in found] == [(JOB, 2), (OTHER_JOB, 7), (JOB, 1)]
    assert found[0].outcome == checkpoint(2, minute=40)


def test_a_damaged_checkpoint_is_found_in_its_place_with_the_reason(storage: Storage) -> None:
    stored(storage, checkpoint(1), checkpoint(2), checkpoint(3), checkpoint(4))
    for number in (2, 4):
        damage(storage, f"{JOB}/chk-{number}/_metadata")

    found = find_latest(storage, "words")

    assert [entry.checkpoint_id for entry in found] == [4, 3, 2, 1]
    assert [isinstance(entry.outcome, CheckpointDamagedError) for entry in found] == [True, False, True, False]
    assert "chk-4/_metadata" in place(found[0].outcome)


def test_a_damaged_checkpoint_of_another_job_is_not_found(storage: Storage) -> None:
    stored(storage, checkpoint(1), *(checkpoint(n, job_id=OTHER_JOB, job_name="other") for n in (1, 2)))
    damage(storage, f"{OTHER_JOB}/chk-2/_metadata")

    assert [entry.job_id for entry in find_latest(storage, "words")] == [JOB]


def test_a_damaged_checkpoint_that_may_be_of_the_job_is_found(storage: Storage) -> None:
    stored(storage, checkpoint(1))
    damage(storage, f"{JOB}/chk-1/_metadata")

    assert [type(entry.outcome) for entry in find_latest(storage, "words")] == [CheckpointDamagedError]


def test_incomplete_checkpoints_and_flink_s_are_not_found(storage: Storage) -> None:
    storage.write(f"{JOB}/chk-1/.tmp-_metadata-0a1b2c3d", b"half")
    storage.write(f"{OTHER_JOB}/chk-1/_metadata", encode(Metadata(1, properties=RETAINED_CHECKPOINT)))
    storage.write("backup/copy/chk-1/_metadata", to_metadata(checkpoint(1)))

    assert find_latest(storage, "words") == []


def test_a_job_renamed_between_checkpoints_is_found_under_each_name(storage: Storage) -> None:
    renamed = dataclasses.replace(checkpoint(2), job_name="counts")
    stored(storage, checkpoint(1), renamed)

    assert [entry.checkpoint_id for entry in find_latest(storage, "counts")] == [2]
    assert [entry.checkpoint_id for entry in find_latest(storage, "words")] == [1]


@pytest.mark.parametrize("stray", ["chk-02", "chk-\u0665", "chk-1000000000000000000"])
def test_a_directory_that_only_looks_like_a_checkpoint_is_none(storage: Storage, stray: str) -> None:
    stored(storage, checkpoint(1))
    storage.write(f"{JOB}/{stray}/_metadata", to_metadata(checkpoint(1)))

    assert [entry.checkpoint_id for entry in find_latest(storage, "words")] == [1]
    assert CheckpointStore(storage, JOB).completed() == [1]


@pytest.mark.parametrize("copy", [checkpoint(1), checkpoint(2, job_id=OTHER_JOB)])
def test_a_checkpoint_that_was_copied_to_another_name_is_damage(storage: Storage, copy: CompletedCheckpoint) -> None:
    storage.write(f"{JOB}/chk-2/_metadata", to_metadata(copy))

    with pytest.raises(CheckpointDamagedError, match=f"is checkpoint {copy.checkpoint_id} of job {copy.job_id}"):
        CheckpointStore(storage, JOB).load(CheckpointId(2))


def test_a_term_of_a_job_of_another_name_does_not_matter(storage: Storage) -> None:
    stored(storage, checkpoint(1), checkpoint(1, job_id=OTHER_JOB, job_name="other"))
    storage.write(f"{OTHER_JOB}/_terms/1-ab", b'{"owner":{"machine":"m","pid":1,"started":"1"},"version":99}')

    assert [entry.job_id for entry in find_latest(storage, "words")] == [JOB]
    with pytest.raises(FormatTooNewError):
        find_latest(storage, "other")


def test_a_forged_term_in_a_checkpoint_counts_as_none() -> None:
    forged = dataclasses.replace(checkpoint(1), settings={TERM_SETTING: "9" * 5000})

    assert forged.term == 0
