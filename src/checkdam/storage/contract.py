"""The storage contract: the one interface through which checkpoints and sinks use a file system."""

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
    """Create a file whose content no other writer would produce; after a lost reply, read it back to find out.

    Raises:
        FileExistsError: another writer's file exists.
        StorageUncertainError: the reply was lost, and the file cannot be read or does not exist.
    """
    try:
        storage.write_new(path, data)
    except (FileExistsError, StorageUncertainError) as error:
        try:
            is_own = storage.read(path) == data
        except FileNotFoundError:
            is_own = False
        except StorageError as unread:  # a client that retries a request by itself may find its own file
            raise StorageUncertainError(f'"{path}" may exist or not, because it cannot be read: {unread}') from error
        if not is_own:
            raise


class Storage(Protocol):
    """A tree of files under one root; every path is relative to it, with "/" between names.

    No operation leaves the tree: a path that is not plain (`names.py`) raises ValueError, and a symbolic link below
    the root is refused with StorageError.

    An operation that raises StorageError did not happen; after StorageUncertainError it may have happened.
    """

    @property
    def uri(self) -> str:
        """The location of the root; `open_storage(uri)` opens the same tree in any process."""

    def write(self, path: str, data: bytes) -> None:
        """Write exactly `data` to `path`, atomically and durably; replaces an existing file."""

    def write_new(self, path: str, data: bytes) -> None:
        """Write like `write`, but only if no such file exists: of several writers at most one succeeds.

        Raises FileExistsError, and leaves the file alone, if there is one. After StorageUncertainError the file may
        exist: if its content is unique, reading it back answers that (`create_once`). Where a storage has no exclusive
        create, two writers within the same few milliseconds may both succeed; see `ArrowStorage`.
        """

    def open_output(self, path: str) -> BinaryIO:
        """Open a stream to a file that is not read before it is closed and renamed (pending sink files)."""

    def read(self, path: str) -> bytes:
        """Return all bytes of a file. Raises FileNotFoundError."""

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Return only these bytes; fewer at the end of the file. Raises FileNotFoundError."""

    def status(self, path: str) -> FileStatus | None:
        """Return size and modification time of a file, None if there is none."""

    def list(self, directory: str) -> list[FileStatus]:
        """List every file below a directory, recursively, sorted by path, temporary ones included; [] if none."""

    def rename(self, source: str, target: str) -> None:
        """Move a file, replacing the target. Raises FileNotFoundError if the source is gone."""

    def delete(self, path: str) -> None:
        """Remove a file; do nothing if it does not exist."""

    def make_directory(self, directory: str) -> None:
        """Create a directory and its parents if the storage has empty directories; otherwise do nothing."""

    def delete_directory(self, directory: str) -> None:
        """Remove a directory with its content; do nothing if it does not exist."""

    def delete_empty_directory(self, directory: str) -> None:
        """Remove a directory that contains nothing, in one step, so that no file written meanwhile is lost.

        Do nothing if it has content, or if the storage has no directories or no such step.
        """

    def check_writable(self) -> None:
        """Create the root if necessary; write, read back and delete a probe. Raises StorageError with a hint."""
