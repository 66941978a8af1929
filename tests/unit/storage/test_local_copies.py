"""Local copies: complete or not used, private to their directory, and never in the way of the storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkdam.errors import StorageError
from checkdam.storage import MemoryStorage, Storage
from checkdam.storage.local_copies import LocalCopies, LocallyCopiedStorage
from checkdam.testing import Fault, FaultyStorage


def copied(storage: Storage, directory: Path) -> LocallyCopiedStorage:
    return LocallyCopiedStorage(storage, LocalCopies(directory, "shared"))


def stream(storage: Storage, path: str, data: bytes) -> None:
    with storage.open_output("shared/.tmp-x") as output:
        output.write(data)
    storage.rename("shared/.tmp-x", path)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_later_process_reads_the_copy(tmp_path: Path, *, is_streamed: bool) -> None:
    durable = MemoryStorage()
    first = copied(durable, tmp_path)
    if is_streamed:
        stream(first, "shared/a", b"content")
    else:
        first.write("shared/a", b"content")
    durable.delete("shared/a")  # so that only the copy can be read

    later = copied(durable, tmp_path)

    assert later.read("shared/a") == b"content"
    assert later.read_range("shared/a", 3, 2) == b"te"
    status = later.status("shared/a")
    assert status is not None
    assert (status.path, status.size) == ("shared/a", 7)


def test_only_files_of_the_one_directory_are_copied(tmp_path: Path) -> None:
    storage = copied(MemoryStorage(), tmp_path)

    for path in ("chk-1/_metadata", "shared/below/a", "a"):
        storage.write(path, b"1")

    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_not_written_has_no_copy(tmp_path: Path) -> None:
    durable = MemoryStorage()
    storage = copied(FaultyStorage(durable, 1, Fault.REFUSED), tmp_path)
    storage.write("shared/a", b"old")

    with pytest.raises(StorageError):
        storage.write("shared/a", b"new")

    assert storage.read("shared/a") == b"old"
    assert list(tmp_path.iterdir()) == []


def test_a_stream_that_is_given_up_leaves_no_copy(tmp_path: Path) -> None:
    storage = copied(MemoryStorage(), tmp_path)
    with storage.open_output("shared/.tmp-x") as output:
        output.write(b"part")

    storage.delete("shared/.tmp-x")

    assert list(tmp_path.iterdir()) == []


def test_a_rename_that_fails_leaves_no_copy(tmp_path: Path) -> None:
    storage = copied(FaultyStorage(MemoryStorage(), 1, Fault.REFUSED), tmp_path)

    with pytest.raises(StorageError):
        stream(storage, "shared/a", b"content")

    assert list(tmp_path.iterdir()) == []


def test_a_copy_is_removed_with_its_file(tmp_path: Path) -> None:
    storage = copied(MemoryStorage(), tmp_path)
    storage.write("shared/a", b"1")

    storage.delete("shared/a")

    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        storage.read("shared/a")


def test_a_copy_that_was_cut_off_is_removed_and_not_read(tmp_path: Path) -> None:
    durable = MemoryStorage()
    copied(durable, tmp_path).write("shared/a", b"content")
    (copy,) = tmp_path.iterdir()
    copy.write_bytes(b"cont")
    (tmp_path / ".tmp-b").write_bytes(b"never finished")

    later = copied(durable, tmp_path)

    assert later.read("shared/a") == b"content"
    assert not copy.exists()


def test_where_no_copy_can_be_kept_the_storage_works_as_ever(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    storage = copied(MemoryStorage(), tmp_path / "file" / "below")

    storage.write("shared/a", b"1")
    stream(storage, "shared/b", b"2")

    assert storage.read("shared/a") == b"1"
    assert storage.read("shared/b") == b"2"


def test_what_is_not_kept_is_removed(tmp_path: Path) -> None:
    copies = LocalCopies(tmp_path, "shared")
    storage = LocallyCopiedStorage(MemoryStorage(), copies)
    for name in "abc":
        storage.write(f"shared/{name}", b"1")
    (tmp_path / ".tmp-d").write_bytes(b"never finished")

    copies.keep_only(["shared/b"])

    assert [copy.name.partition("-")[2] for copy in tmp_path.iterdir()] == ["b"]
    assert copies.paths == {"shared/b"}


def test_a_strange_path_leads_to_no_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"1")
    storage = copied(MemoryStorage(), tmp_path / "copies")

    for path in ("shared/../secret", "shared/../../secret", "../secret"):
        with pytest.raises((ValueError, FileNotFoundError)):
            storage.read(path)
