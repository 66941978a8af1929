from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from checkdam.errors import StorageError
from checkdam.storage import Storage, open_storage
from checkdam.storage.names import checked_path, is_plain_name, is_plain_path


@pytest.mark.parametrize("name", ["a", "000012.sst", "...", "..a", " ", "a b", "ü", "a\\b", "chk-1", ".hidden"])
def test_a_plain_name_is_one_component(name: str) -> None:
    assert is_plain_name(name)
    assert is_plain_path(f"{name}/{name}")


@pytest.mark.parametrize("name", ["", ".", "..", "/", "a/b", "/a", "a/", "a\0", "\ud800", "ü" * 128])
def test_what_could_lead_elsewhere_is_not_a_plain_name(name: str) -> None:
    assert not is_plain_name(name)


@pytest.mark.parametrize("path", ["", "/", "/a", "a/", "a//b", "./a", "a/.", "../a", "a/..", "a/../b", "a/\0"])
def test_what_could_lead_elsewhere_is_not_a_plain_path(path: str) -> None:
    assert not is_plain_path(path)


def test_the_root_and_a_directory_with_a_slash_are_paths_of_a_storage() -> None:
    assert checked_path("") == ""
    assert checked_path("a/b/") == "a/b"


# ---------------------------------------------------------------------------------------------- links


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory beside the storage, with a file that must stay as it is."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "letter").write_text("dear")
    return outside


@pytest.fixture
def storage(tmp_path: Path, outside: Path) -> Storage:
    """A storage in which somebody has planted links to a directory and to a file elsewhere."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "away").symlink_to(outside)
    (root / "letter").symlink_to(outside / "letter")
    (root / "file").write_text("own")
    return open_storage(str(root))


THROUGH_A_LINK: dict[str, Callable[[Storage], object]] = {
    "write": lambda storage: storage.write("away/new", b"x"),
    "write below": lambda storage: storage.write("away/new/new", b"x"),
    "replace": lambda storage: storage.write("away/letter", b"x"),
    "create": lambda storage: storage.write_new("away/new", b"x"),
    "open output": lambda storage: storage.open_output("away/new"),
    "open output over a link": lambda storage: storage.open_output("letter"),
    "read": lambda storage: storage.read("away/letter"),
    "read a link": lambda storage: storage.read("letter"),
    "read range": lambda storage: storage.read_range("letter", 0, 1),
    "status": lambda storage: storage.status("away/letter"),
    "status of a link": lambda storage: storage.status("letter"),
    "list": lambda storage: storage.list("away"),
    "rename from": lambda storage: storage.rename("away/letter", "new"),
    "rename to": lambda storage: storage.rename("file", "away/letter"),
    "delete": lambda storage: storage.delete("away/letter"),
    "delete directory": lambda storage: storage.delete_directory("away"),
}


@pytest.mark.parametrize("operation", THROUGH_A_LINK.values(), ids=THROUGH_A_LINK.keys())
def test_no_operation_follows_a_link_below_the_root(
    storage: Storage, outside: Path, operation: Callable[[Storage], object]
) -> None:
    with pytest.raises(StorageError, match="No symbolic link is followed"):
        operation(storage)

    assert {file.name: file.read_text() for file in outside.iterdir()} == {"letter": "dear"}


def test_a_listing_passes_over_links_and_pipes(storage: Storage, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "root" / "pipe")

    assert [status.path for status in storage.list("")] == ["file"]


@pytest.mark.timeout(10)
def test_a_pipe_is_not_waited_for(storage: Storage, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "root" / "pipe")

    assert storage.status("pipe") is None
    with pytest.raises(StorageError, match="not a regular file"):
        storage.read("pipe")


def test_writing_and_deleting_a_name_that_is_a_link_concerns_the_link(storage: Storage, outside: Path) -> None:
    storage.write("letter", b"new")
    storage.delete("away")

    assert [status.path for status in storage.list("")] == ["file", "letter"]
    assert (outside / "letter").read_text() == "dear"


def test_the_root_may_be_a_link(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "root")
    behind = open_storage(str(tmp_path / "link"))

    behind.write("d/f", b"1")

    assert storage.read("d/f") == b"1"
    assert [status.path for status in behind.list("")] == ["d/f", "file"]
