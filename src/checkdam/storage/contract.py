"""Durable bytes: the one interface through which checkpoints and sinks touch a file system."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO, Protocol

from checkdam.errors import StorageError, StorageUncertainError


@dataclass(frozen=True)
class FileStatus:
    path: str
    size: int
    modified_at: datetime


def create_once(storage: Storage, path: str, data: bytes) -> None:
    """Create a file whose content no other writer would produce, and resolve lost replies by reading it back.

    Raises:
        FileExistsError: another writer's file is there.
        StorageUncertainError: the reply was lost, and the file cannot be read or is not there.
    """
    try:
        storage.write_new(path, data)
    except (FileExistsError, StorageUncertainError) as error:
        try:
            is_own = storage.read(path) == data
        except FileNotFoundError:
            is_own = False
        except StorageError as unread:  # a client that repeats a request by itself meets its own file
            raise StorageUncertainError(f'"{path}" exists, or not, and cannot be read: {unread}') from error
        if not is_own:
            raise


class Storage(Protocol):
    """A tree of files under one root; every path is relative to it, with "/" between names.

    No operation leaves the tree: a path that is not plain (`names.py`) is a ValueError, and a symbolic link below the
    root is refused with StorageError.

    An operation that raises StorageError did not happen; StorageUncertainError says that it may have.
    """

    @property
    def uri(self) -> str:
        """Where the root lies; `open_storage(uri)` opens the same tree in any process."""

    def write(self, path: str, data: bytes) -> None:
        """Make `path` hold exactly `data`, whole or not at all, also after a crash; replaces what was there."""

    def write_new(self, path: str, data: bytes) -> None:
        """As `write`, but only if no such file exists: of several writers at most one succeeds.

        Raises FileExistsError, and leaves the file alone, if there is one. After StorageUncertainError the file may be
        there: if its content is unique, reading it tells (`create_once`). Where a storage has no exclusive create,
        two writers within the same few milliseconds may both succeed; see `ArrowStorage`.
        """

    def open_output(self, path: str) -> BinaryIO:
        """A stream into a file that nobody reads before it is closed and renamed (pending sink files)."""

    def read(self, path: str) -> bytes:
        """All bytes of a file. Raises FileNotFoundError."""

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Just these bytes; fewer at the end of the file. Raises FileNotFoundError."""

    def status(self, path: str) -> FileStatus | None:
        """Size and time of a file, None if there is none."""

    def list(self, directory: str) -> list[FileStatus]:
        """Every file below a directory, recursively, sorted by path, temporary ones included; [] if there is none."""

    def rename(self, source: str, target: str) -> None:
        """Move a file, replacing the target. Raises FileNotFoundError if the source is gone."""

    def delete(self, path: str) -> None:
        """Remove a file; one that is already gone is no error."""

    def make_directory(self, directory: str) -> None:
        """Make a directory and those above it, where directories exist without files; elsewhere do nothing."""

    def delete_directory(self, directory: str) -> None:
        """Remove a directory and all below it; one that is already gone is no error."""

    def check_writable(self) -> None:
        """Create the root if need be; create, write, read back and delete a probe. Raises StorageError with a hint."""
