"""Savepoints on storage: a place that nobody has, whole or not at all, and disposal that deletes nothing else."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from checkdam.checkpoint.checkpoint_store import CheckpointStore, load_checkpoint, verify_files
from checkdam.checkpoint.completed import CompletedCheckpoint, OperatorEntry
from checkdam.checkpoint.metadata_file import to_metadata
from checkdam.checkpoint.ownership import take
from checkdam.checkpoint.savepoints import SavepointDirectory, dispose, list_savepoints
from checkdam.checkpoint.terms import TERMS
from checkdam.errors import (
    CheckdamError,
    CheckpointDamagedError,
    CheckpointNotFoundError,
    ConfigError,
    SavepointError,
    StorageError,
    StorageUncertainError,
)
from checkdam.ids import CheckpointId, Epoch, JobId, OperatorUid, SubtaskIndex
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import (
    KeyedStateHandle,
    OperatorStateHandle,
    Redistribution,
    SavepointFormat,
    SavepointTarget,
    StateFile,
)
from checkdam.storage.filesystem import open_storage
from checkdam.testing import Fault, FaultyStorage, MemoryStorage
from checkdam.testing.mounts import mount

JOB = JobId("0123456789abcdef0123456789abcdef")
AT = datetime(2024, 5, 1, 12, tzinfo=UTC)
FILES = {"keyed-1": b"base", "keyed-2": b"delta!", "list.operator": b"x" * 40}


def savepoint_of(number: int = 7, *, at: datetime = AT) -> CompletedCheckpoint:
    """One whose files are those of FILES."""
    keyed = tuple(StateFile(name, len(FILES[name])) for name in ("keyed-1", "keyed-2"))
    large = OperatorStateHandle(
        (("offsets", Redistribution.UNION, (20,)),), StateFile("list.operator", len(FILES["list.operator"]))
    )
    return CompletedCheckpoint(
        CheckpointId(number),
        JOB,
        "word count",
        Epoch(41),
        at,
        at + timedelta(seconds=1),
        1,
        128,
        (
            OperatorEntry(
                OperatorUid("count"),
                "Counts",
                1,
                128,
                {SubtaskIndex(0): KeyedStateHandle(KeyGroupRange(0, 127), keyed)},
                operator_states={SubtaskIndex(0): large},
            ),
        ),
        savepoint_format=SavepointFormat.CANONICAL,
    )


def with_files(storage: MemoryStorage) -> MemoryStorage:
    for name, data in FILES.items():
        storage.write(name, data)
    return storage


def taken(target: Path, number: int = 7, *, at: datetime = AT, name: str | None = None) -> Path:
    """A whole savepoint below `target`."""
    directory = SavepointDirectory.prepare(str(target), JOB, name=name)
    storage = open_storage(directory.uri)
    for each, data in FILES.items():
        storage.write(each, data)
    path, size = directory.complete(savepoint_of(number, at=at))
    assert size == (Path(path) / "_metadata").stat().st_size
    return Path(path)


def names(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


# ------------------------------------------------------------------------------------------ taking


def test_a_savepoint_gets_a_name_of_flinks_form_below_its_target(tmp_path: Path) -> None:
    one, other = (SavepointDirectory.prepare(str(tmp_path / "some where"), JOB) for _ in range(2))

    assert one.uri != other.uri
    assert re.fullmatch(r".*/some%20where/savepoint-012345-[0-9a-f]{12}", one.uri)
    assert one.target(SavepointFormat.NATIVE) == SavepointTarget(one.uri, SavepointFormat.NATIVE)


def test_a_savepoint_is_there_with_its_metadata_and_not_before(tmp_path: Path) -> None:
    directory = SavepointDirectory.prepare(str(tmp_path), JOB)
    for each, data in FILES.items():
        open_storage(directory.uri).write(each, data)
    assert list_savepoints(str(tmp_path)) == []
    with pytest.raises(CheckpointNotFoundError):
        load_checkpoint(directory.uri)

    path, _ = directory.complete(savepoint_of())

    assert names(Path(path)) == {*FILES, "_metadata"}
    assert load_checkpoint(path) == (savepoint_of(), directory.uri)
    assert load_checkpoint(f"{path}/_metadata") == load_checkpoint(path)


def test_a_savepoint_can_be_moved_and_copied(tmp_path: Path) -> None:
    path = taken(tmp_path / "old")
    shutil.copytree(path, tmp_path / "copy")
    shutil.move(path, tmp_path / "far" / "other name")

    for place in (tmp_path / "copy", tmp_path / "far" / "other name"):
        checkpoint, where = load_checkpoint(str(place))
        verify_files(open_storage(where), "", checkpoint)
        assert checkpoint == savepoint_of()


@pytest.mark.parametrize("is_empty", [True, False])
def test_what_exists_is_never_written_to(tmp_path: Path, is_empty: bool) -> None:
    (tmp_path / "mine").mkdir()
    if not is_empty:
        (tmp_path / "mine" / "letter").write_text("dear")
    before = names(tmp_path)

    with pytest.raises(SavepointError, match='mine" exists'):
        SavepointDirectory.prepare(str(tmp_path), JOB, name="mine")

    assert names(tmp_path) == before


PLACES_OF_A_JOB = [f"{{}}/{JOB}{below}" for below in ("", "/shared", "/chk-3", "/shared/a/b", "/chk-3/a")]


@pytest.mark.parametrize("target", ["", " ", *PLACES_OF_A_JOB, "{}/savepoint"])
def test_a_place_that_others_clear_up_or_that_is_a_snapshot_itself_is_refused(tmp_path: Path, target: str) -> None:
    taken(tmp_path, name="savepoint")
    before = names(tmp_path)

    with pytest.raises(SavepointError) as raised:
        SavepointDirectory.prepare(target.format(tmp_path), JOB)

    assert raised.value.hint
    assert names(tmp_path) == before


def test_nowhere_in_the_directory_of_a_job_that_runs_is_a_place_for_savepoints(tmp_path: Path) -> None:
    take(open_storage(str(tmp_path)), JOB)

    with pytest.raises(SavepointError, match=f"directory of job {JOB}"):
        SavepointDirectory.prepare(str(tmp_path / JOB / "mine" / "savepoints"), JOB)

    assert {path.name for path in (tmp_path / JOB).iterdir()} == {TERMS}


def test_a_directory_may_be_called_like_a_job(tmp_path: Path) -> None:
    path = taken(tmp_path / JOB / "savepoints")

    assert [found.path for found in list_savepoints(str(tmp_path))] == [str(path)]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b"])
def test_only_a_plain_name_can_be_asked_for(tmp_path: Path, name: str) -> None:
    with pytest.raises(SavepointError, match="name of a directory"):
        SavepointDirectory.prepare(str(tmp_path), JOB, name=name)


def test_a_target_that_cannot_be_written_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    before = names(tmp_path)

    with pytest.raises(SavepointError, match="no savepoint can be written") as raised:
        SavepointDirectory.prepare(str(tmp_path / "file"), JOB)

    assert "Remove it or choose another directory" in str(raised.value)
    assert names(tmp_path) == before


def test_an_unknown_scheme_is_a_setting_that_cannot_be_used() -> None:
    with pytest.raises(ConfigError, match="nonsense"):
        SavepointDirectory.prepare("nonsense://there", JOB)


def test_a_checkpoint_is_not_completed_as_a_savepoint(tmp_path: Path) -> None:
    directory = SavepointDirectory.prepare(str(tmp_path), JOB)

    with pytest.raises(ValueError, match="not marked"):
        directory.complete(replace(savepoint_of(), savepoint_format=None))


def test_a_lost_reply_to_the_last_write_is_looked_after() -> None:
    files = with_files(MemoryStorage())
    faulty = FaultyStorage(files, at=0, fault=Fault.REPLY_LOST)
    directory = SavepointDirectory(faulty)

    directory.complete(savepoint_of())

    assert faulty.has_failed
    assert files.read("_metadata") == to_metadata(savepoint_of())


def test_a_last_write_that_did_not_happen_fails_the_savepoint() -> None:
    class Unclear(MemoryStorage):
        def write_new(self, path: str, data: bytes) -> None:
            raise StorageUncertainError("no answer")

    with pytest.raises(StorageUncertainError):
        SavepointDirectory(with_files(Unclear())).complete(savepoint_of())


@pytest.mark.parametrize("missing", FILES)
def test_a_savepoint_whose_file_is_missing_or_cut_short_is_not_completed(missing: str) -> None:
    files = with_files(MemoryStorage())
    files.write(missing, b"x")
    with pytest.raises(StorageError, match=f"not complete: its state file .*{missing}.* has 1 bytes instead"):
        SavepointDirectory(files).complete(savepoint_of())
    files.delete(missing)

    with pytest.raises(StorageError, match=f"not complete: its state file .*{missing}.* is gone"):
        SavepointDirectory(files).complete(savepoint_of())

    assert files.status("_metadata") is None


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("at", range(2))
def test_an_abandoned_savepoint_leaves_nothing_though_a_delete_fails(at: int, fault: Fault) -> None:
    files = MemoryStorage()
    files.write("_metadata", b"half")
    files.write("keyed-1", b"base")

    SavepointDirectory(FaultyStorage(files, at=at, fault=fault)).abandon()

    assert files.list("") == []


def test_abandoning_removes_the_directory_and_nothing_beside_it(tmp_path: Path) -> None:
    directory = SavepointDirectory.prepare(str(tmp_path), JOB)
    (tmp_path / "letter").write_text("dear")
    open_storage(directory.uri).write("keyed-1", b"base")

    directory.abandon()
    directory.abandon()

    assert names(tmp_path) == {"letter"}


# ------------------------------------------------------------------------------------------ disposing


@pytest.mark.parametrize("name", ["", "/_metadata", "/"])
def test_disposal_removes_the_savepoint_and_its_directory(tmp_path: Path, name: str) -> None:
    path = taken(tmp_path)
    (path / ".tmp-keyed-9-1234").write_text("half")
    other = taken(tmp_path)

    dispose(f"{path}{name}")

    assert names(tmp_path) == {other.name, *(f"{other.name}/{each}" for each in (*FILES, "_metadata"))}


def test_disposal_leaves_what_the_savepoint_does_not_name(tmp_path: Path) -> None:
    path = taken(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "letter").write_text("dear")
    (path / "notes").write_text("mine")
    (path / "sub").mkdir()
    (path / "sub" / ".tmp-x").write_text("mine, too")
    (path / ".tmp-mine").mkdir()
    (path / ".tmp-mine" / "letter").write_text("also mine")
    (path / "link").symlink_to(outside)

    dispose(str(path))

    assert names(path) == {"notes", "sub", "sub/.tmp-x", ".tmp-mine", ".tmp-mine/letter", "link"}
    assert (outside / "letter").read_text() == "dear"


def test_a_state_file_that_is_a_link_is_removed_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    path = taken(tmp_path)
    precious = tmp_path / "precious"
    shutil.move(path / "keyed-1", precious)
    (path / "keyed-1").symlink_to(precious)

    dispose(str(path))

    assert not path.exists()
    assert precious.read_bytes() == FILES["keyed-1"]


def test_an_empty_directory_or_a_dangling_link_beside_the_files_stays(tmp_path: Path) -> None:
    path = taken(tmp_path)
    (path / "empty").mkdir()
    (path / "dangling").symlink_to(tmp_path / "nowhere")

    dispose(str(path))

    assert names(path) == {"empty", "dangling"}


def _checkpoint(place: Path) -> str:
    checkpoint = replace(savepoint_of(), operators=(), savepoint_format=None)
    return CheckpointStore(open_storage(str(place)), JOB).write(checkpoint)


def _damaged(place: Path) -> str:
    path = taken(place)
    data = bytearray((path / "_metadata").read_bytes())
    data[len(data) // 2] ^= 1
    (path / "_metadata").write_bytes(bytes(data))
    return str(path)


def _no_metadata(place: Path) -> str:
    path = taken(place)
    (path / "_metadata").unlink()
    return str(path)


def _truncated(place: Path) -> str:
    path = taken(place)
    os.truncate(path / "_metadata", 100)
    return str(path)


NO_SAVEPOINT = {
    "a checkpoint": (_checkpoint, SavepointError),
    "the metadata of a checkpoint": (lambda place: f"{_checkpoint(place)}/_metadata", SavepointError),
    "a job's directory": (lambda place: _checkpoint(place).removesuffix("/chk-7"), CheckpointNotFoundError),
    "a directory above savepoints": (lambda place: str(taken(place).parent), CheckpointNotFoundError),
    "nothing": (lambda place: str(place / "nowhere"), CheckpointNotFoundError),
    "half a savepoint": (_no_metadata, CheckpointNotFoundError),
    "damaged metadata": (_damaged, CheckpointDamagedError),
    "truncated metadata": (_truncated, CheckpointDamagedError),
    "a state file": (lambda place: str(taken(place) / "keyed-1"), CheckdamError),
}


@pytest.mark.parametrize("case", NO_SAVEPOINT)
def test_what_is_no_savepoint_is_not_touched(tmp_path: Path, case: str) -> None:
    make, error = NO_SAVEPOINT[case]
    path = make(tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in names(tmp_path) if (tmp_path / name).is_file()}

    with pytest.raises(error):
        dispose(path)

    assert {n: (tmp_path / n).read_bytes() for n in names(tmp_path) if (tmp_path / n).is_file()} == before


@pytest.mark.parametrize("fault", Fault)
def test_a_disposal_that_fails_half_way_can_be_repeated(fault: Fault) -> None:
    for at in range(len(FILES) + 1):
        files = MemoryStorage()
        for name, data in FILES.items():
            files.write(f"savepoint/{name}", data)
        SavepointDirectory(open_storage(f"{files.uri}/savepoint")).complete(savepoint_of())
        faulty = FaultyStorage(files, at=at, fault=fault)

        with pytest.raises(StorageError):
            dispose(f"{mount(faulty)}/savepoint")
        if at < len(FILES) or fault is Fault.REFUSED:
            dispose(f"{mount(faulty)}/savepoint")

        assert faulty.has_failed
        assert files.list("") == []


# ------------------------------------------------------------------------------------------ listing


def test_savepoints_are_listed_newest_first_and_nothing_else_is(tmp_path: Path) -> None:
    old = taken(tmp_path / "a", 3, at=AT)
    new = taken(tmp_path / "b" / "c", 4, at=AT + timedelta(hours=1))
    _checkpoint(tmp_path)
    _no_metadata(tmp_path / "half")

    found = list_savepoints(str(tmp_path))

    assert [(each.path, each.checkpoint) for each in found] == [
        (str(new), savepoint_of(4, at=AT + timedelta(hours=1))),
        (str(old), savepoint_of(3)),
    ]
    assert [each.completed_at for each in found] == [AT + timedelta(hours=1, seconds=1), AT + timedelta(seconds=1)]


def test_a_savepoint_that_cannot_be_read_is_listed_with_the_reason(tmp_path: Path) -> None:
    path = _damaged(tmp_path)

    [found] = list_savepoints(str(tmp_path))

    assert (found.path, found.checkpoint) == (path, None)
    assert isinstance(found.outcome, CheckpointDamagedError)


def test_a_directory_that_is_not_there_has_no_savepoints(tmp_path: Path) -> None:
    assert list_savepoints(str(tmp_path / "nowhere")) == []


def test_the_directory_of_a_savepoint_lists_itself(tmp_path: Path) -> None:
    path = taken(tmp_path)

    assert [each.path for each in list_savepoints(str(path))] == [str(path)]


# ------------------------------------------------------------------------------------------ damage


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", ["gone", "shorter"])
def test_a_savepoint_that_lacks_something_is_refused_by_the_file(tmp_path: Path, name: str, how: str) -> None:
    path = taken(tmp_path)
    if how == "gone":
        (path / name).unlink()
    else:
        os.truncate(path / name, 1)

    checkpoint, where = load_checkpoint(str(path))
    with pytest.raises(CheckpointDamagedError, match=re.escape(name)):
        verify_files(open_storage(where), "", checkpoint)
