from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from pyarrow.fs import LocalFileSystem

from checkdam.errors import ConfigError, StorageError, StorageUncertainError
from checkdam.storage import open_storage
from checkdam.storage.arrow_storage import ArrowStorage


def test_uri_opens_the_same_tree_again(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path / "with space & %"))
    storage.write("f", b"1")

    assert open_storage(storage.uri).read("f") == b"1"


def test_unknown_scheme_is_a_config_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="s3://"):
        open_storage("gopher://host/path")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, ["The disk is full", "5 bytes are needed", "are free"]),
        (errno.EROFS, ["read-only"]),
        (errno.EACCES, ["Permission is denied"]),
    ],
)
def test_a_refused_write_says_why_and_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: list[str]
) -> None:
    storage = open_storage(str(tmp_path))
    storage.write("f", b"old")

    def refuse(descriptor: int, data: bytes) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", refuse)  # a full or read-only disk cannot be had without root
    with pytest.raises(StorageError) as caught:
        storage.write("f", b"abcde")

    assert not isinstance(caught.value, StorageUncertainError)
    assert all(word in str(caught.value) for word in words)
    assert [(status.path, storage.read(status.path)) for status in storage.list("")] == [("f", b"old")]


def test_a_file_in_the_place_of_a_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StorageError, match="A file exists where a directory is needed"):
        open_storage(str(tmp_path / "file" / "root")).check_writable()


def test_a_write_is_synced_before_it_gets_its_name_and_its_directory_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, rename = os.fsync, os.rename

    def traced_fsync(descriptor: int) -> None:
        steps.append("sync directory" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "sync file")
        fsync(descriptor)

    def traced_rename(source: str, target: str) -> None:
        steps.append("rename")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", traced_fsync)
    monkeypatch.setattr(os, "rename", traced_rename)
    open_storage(str(tmp_path)).write("f", b"1")

    assert steps == ["sync file", "rename", "sync directory"]
    steps.clear()
    open_storage(str(tmp_path)).write("new/f", b"1")
    assert steps == ["sync directory", "sync file", "rename", "sync directory"]


def test_the_disk_is_waited_for_when_an_output_is_closed_and_not_while_records_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(str(tmp_path))
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))

    output = storage.open_output("part")
    output.write(b"records")

    assert synced == []
    output.close()
    assert synced == [f"{tmp_path}/part", str(tmp_path)]


def test_a_failed_directory_sync_after_the_rename_is_uncertain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def fail_on_directory(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_on_directory)
    with pytest.raises(StorageUncertainError, match="may not survive a crash"):
        open_storage(str(tmp_path)).write("f", b"1")

    assert (tmp_path / "f").read_bytes() == b"1"


def test_names_that_no_path_can_have_are_passed_over_in_listings(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    storage.write("good", b"")
    os.mkdir(os.fsencode(tmp_path) + b"/\xff")
    for name in (b"/\xff/file", b"/\xfe"):
        with open(os.fsencode(tmp_path) + name, "wb"):
            pass

    assert [status.path for status in storage.list("")] == ["good"]


def test_a_place_where_no_file_can_be_created_exclusively_is_not_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(key: str, data: bytes) -> None:
        raise StorageError("the client for conditional puts has no credentials")

    storage = ArrowStorage(LocalFileSystem(), str(tmp_path), tmp_path.as_uri())
    storage.check_writable()
    monkeypatch.setattr(storage, "_create", refuse)

    with pytest.raises(StorageError, match="no credentials"):
        storage.check_writable()

    assert list(tmp_path.iterdir()) == []


def test_logs_in_a_storage_are_no_part_of_it(tmp_path: Path) -> None:
    """Another user's logs cannot be listed, and must not keep this user from listing checkpoints."""
    storage = open_storage(str(tmp_path))
    for path in ("job/chk-1/_metadata", "job/_logs/f", "_logs/job/driver.log"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"1")

    assert [status.path for status in storage.list("")] == ["job/_logs/f", "job/chk-1/_metadata"]
