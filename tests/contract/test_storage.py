"""What every Storage promises. A new one is one more line in STORAGES."""

from __future__ import annotations

import errno
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyarrow import fs

from checkdam.errors import StorageError
from checkdam.runtime.driver_memory import DriverMemoryServer, DriverMemoryStorage
from checkdam.storage import Storage, open_storage
from checkdam.storage.arrow_storage import ArrowStorage
from checkdam.storage.contract import create_once
from checkdam.storage.local_copies import LocalCopies, LocallyCopiedStorage
from checkdam.testing import Fault, FaultyStorage, MemoryStorage


class _PutOnly(fs.LocalFileSystem):  # type: ignore[misc]  # pyarrow has no types
    """A file system that says it is an object store, so that writes go straight to their name."""

    @property
    def type_name(self) -> str:
        return "s3"


class _Raced(fs.LocalFileSystem):  # type: ignore[misc]  # pyarrow has no types
    """A file system on which another process writes a file to a directory as soon as somebody has listed it."""

    def get_file_info(self, asked: fs.FileSelector | str) -> object:
        found = super().get_file_info(asked)
        if isinstance(asked, fs.FileSelector):
            Path(asked.base_dir, "x").write_bytes(b"1")
        return found


_servers: list[DriverMemoryServer] = []  # as long as the tests run


def _in_driver_memory(directory: Path) -> Storage:
    _servers.append(DriverMemoryServer("grpc+tcp://127.0.0.1:0", f"memory://contract-{len(_servers)}"))
    return DriverMemoryStorage(_servers[-1].access)


STORAGES: dict[str, Callable[[Path], Storage]] = {
    "local path": lambda directory: open_storage(str(directory / "root")),
    "local uri": lambda directory: open_storage((directory / "root with space").as_uri()),
    "arrow, by rename": lambda directory: ArrowStorage(fs.LocalFileSystem(), f"{directory}/root", f"{directory}/root"),
    "arrow, by put": lambda directory: ArrowStorage(_PutOnly(), f"{directory}/root", f"{directory}/root"),
    "memory": lambda directory: MemoryStorage(),
    "memory of the driver": _in_driver_memory,
    "with local copies": lambda directory: LocallyCopiedStorage(
        MemoryStorage(), LocalCopies(directory / "copies", "a")
    ),
    "faulty without fault": lambda directory: FaultyStorage(MemoryStorage(), -1, Fault.REFUSED),
}


@pytest.fixture(params=STORAGES)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return STORAGES[request.param](tmp_path)


@pytest.mark.parametrize("data", [b"", b"abc", bytes(range(256)) * 5000])
def test_what_was_written_is_read_back(storage: Storage, data: bytes) -> None:
    storage.write("a/b/c", data)

    assert storage.read("a/b/c") == data


def test_write_replaces_the_file_whole(storage: Storage) -> None:
    storage.write("f", b"a longer text")
    storage.write("f", b"short")

    assert storage.read("f") == b"short"


def test_write_leaves_no_other_file(storage: Storage) -> None:
    storage.write("d/f", b"1")

    assert [status.path for status in storage.list("")] == ["d/f"]


def test_write_new_creates_and_never_replaces(storage: Storage) -> None:
    storage.write_new("d/f", b"first")

    with pytest.raises(FileExistsError):
        storage.write_new("d/f", b"second")

    assert [(status.path, storage.read(status.path)) for status in storage.list("")] == [("d/f", b"first")]


def test_write_new_creates_again_what_was_deleted(storage: Storage) -> None:
    storage.write_new("f", b"first")
    storage.delete("f")

    storage.write_new("f", b"second")

    assert storage.read("f") == b"second"


def test_write_new_below_a_file_is_trouble_of_the_storage(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    storage.write("f", b"")

    with pytest.raises(StorageError, match="A file exists where a directory is needed"):
        storage.write_new("f/below", b"")


@pytest.mark.parametrize("name", ["local path", "memory", "faulty without fault"])
def test_of_many_writers_one_creates_the_file(name: str, tmp_path: Path) -> None:
    storage = STORAGES[name](tmp_path)
    together = threading.Barrier(8)

    def create(number: int) -> bool:
        together.wait()
        try:
            storage.write_new("d/f", str(number).encode())
        except FileExistsError:
            return False
        return True

    for _ in range(20):
        with ThreadPoolExecutor(8) as writers:
            created = list(writers.map(create, range(8)))

        assert created.count(True) == 1
        assert [status.path for status in storage.list("")] == ["d/f"]
        assert storage.read("d/f") == str(created.index(True)).encode()
        storage.delete("d/f")


def test_a_lost_reply_of_a_create_is_resolved_by_reading_it_back() -> None:
    storage = FaultyStorage(MemoryStorage(), 0, Fault.REPLY_LOST)

    create_once(storage, "f", b"mine")

    assert storage.read("f") == b"mine"
    with pytest.raises(FileExistsError):
        create_once(storage, "f", b"another's")


def test_a_file_system_without_hard_links_still_creates_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_link(*args: object, **options: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_link)
    storage = open_storage(str(tmp_path))
    storage.write_new("f", b"first")

    with pytest.raises(FileExistsError):
        storage.write_new("f", b"second")

    assert [(status.path, storage.read(status.path)) for status in storage.list("")] == [("f", b"first")]


@pytest.mark.parametrize(
    ("offset", "length", "expected"), [(0, 3, b"012"), (4, 2, b"45"), (8, 9, b"89"), (10, 1, b""), (99, 1, b"")]
)
def test_a_range_ends_with_the_file(storage: Storage, offset: int, length: int, expected: bytes) -> None:
    storage.write("f", b"0123456789")

    assert storage.read_range("f", offset, length) == expected


def test_reading_a_missing_file_is_file_not_found(storage: Storage) -> None:
    storage.write("f", b"")

    for missing in ("g", "d/g"):
        with pytest.raises(FileNotFoundError):
            storage.read(missing)
        with pytest.raises(FileNotFoundError):
            storage.read_range(missing, 0, 1)
        assert storage.status(missing) is None


def test_status_tells_path_size_and_time(storage: Storage) -> None:
    storage.write("d/f", b"abc")

    status = storage.status("d/f")

    assert status is not None
    assert (status.path, status.size) == ("d/f", 3)
    assert abs(status.modified_at - datetime.now(UTC)) < timedelta(minutes=1)


def test_list_is_recursive_and_sorted_and_shows_temporary_files(storage: Storage) -> None:
    for path in ("d/b", "d/a/c", "d/.tmp-x", "e"):
        storage.write(path, path.encode())

    assert [status.path for status in storage.list("d")] == ["d/.tmp-x", "d/a/c", "d/b"]
    assert [status.path for status in storage.list("")] == ["d/.tmp-x", "d/a/c", "d/b", "e"]
    assert [status.size for status in storage.list("d/a")] == [5]


def test_list_of_no_directory_is_empty(storage: Storage) -> None:
    storage.write("file", b"")

    assert storage.list("nowhere") == []
    assert storage.list("file") == []


def test_rename_moves_over_an_existing_file_and_into_a_new_directory(storage: Storage) -> None:
    storage.write("a", b"new")
    storage.write("b", b"old")
    storage.rename("a", "b")
    storage.rename("b", "d/e/c")

    assert [status.path for status in storage.list("")] == ["d/e/c"]
    assert storage.read("d/e/c") == b"new"


def test_rename_of_a_missing_file_is_file_not_found(storage: Storage) -> None:
    with pytest.raises(FileNotFoundError):
        storage.rename("a", "b")


def test_delete_is_idempotent(storage: Storage) -> None:
    storage.write("d/a", b"")
    for _ in range(2):
        storage.delete("d/a")
        storage.delete("d/a/below")

    assert storage.status("d/a") is None


def test_delete_directory_takes_all_below_and_nothing_beside(storage: Storage) -> None:
    for path in ("d/a", "d/e/f", "dd/a"):
        storage.write(path, b"")
    for _ in range(2):
        storage.delete_directory("d")

    assert [status.path for status in storage.list("")] == ["dd/a"]


def test_output_is_there_once_closed_and_renamed(storage: Storage) -> None:
    with storage.open_output("d/.pending") as output:
        output.write(b"one ")
        output.write(b"two")
    storage.rename("d/.pending", "d/final")

    assert storage.read("d/final") == b"one two"


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x"])
def test_no_path_leads_out_of_the_root(storage: Storage, path: str) -> None:
    with pytest.raises(ValueError, match="not a path below"):
        storage.write(path, b"")


def test_a_pickled_storage_opens_the_same_tree(storage: Storage) -> None:
    storage.write("f", b"1")

    copy: Storage = pickle.loads(pickle.dumps(storage))

    assert copy.read("f") == b"1"


def test_a_probe_leaves_nothing(storage: Storage) -> None:
    storage.check_writable()

    assert storage.list("") == []


def test_only_an_empty_directory_is_deleted_as_empty(storage: Storage) -> None:
    storage.make_directory("job/shared")
    storage.write("job/kept/x", b"1")

    for directory in ("job/shared", "job/kept", "job", "never-made"):
        storage.delete_empty_directory(directory)

    assert [status.path for status in storage.list("")] == ["job/kept/x"]


def test_a_local_directory_that_is_empty_is_deleted(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    storage.make_directory("job/shared")

    storage.delete_empty_directory("job/shared")

    assert list((tmp_path / "job").iterdir()) == []


def test_a_directory_that_another_process_may_write_to_stays_if_its_deletion_is_not_atomic(tmp_path: Path) -> None:
    storage = ArrowStorage(_Raced(), str(tmp_path), str(tmp_path))
    storage.make_directory("job")

    storage.delete_empty_directory("job")

    assert (tmp_path / "job").is_dir()


def test_a_directory_that_is_made_holds_no_file_and_may_be_made_again_and_deleted(storage: Storage) -> None:
    storage.make_directory("job/taskowned")
    storage.make_directory("job/taskowned")

    assert storage.list("") == []
    storage.write("job/taskowned/x", b"1")
    storage.delete_directory("job/taskowned")
    assert storage.list("") == []
