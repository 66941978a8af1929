"""A directory of a storage as a storage of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import BinaryIO

from checkdam.storage.contract import FileStatus, Storage


def subtree(storage: Storage, directory: str) -> Storage:
    """Return the tree below one directory; the whole storage if that is ""."""
    return Subtree(storage, directory) if directory else storage


@dataclass(frozen=True)
class Subtree:
    """A storage that prefixes every path with a directory."""

    whole: Storage
    directory: str

    @property
    def uri(self) -> str:
        return f"{self.whole.uri.rstrip('/')}/{self.directory}"

    def write(self, path: str, data: bytes) -> None:
        self.whole.write(self._below(path), data)

    def write_new(self, path: str, data: bytes) -> None:
        self.whole.write_new(self._below(path), data)

    def open_output(self, path: str) -> BinaryIO:
        return self.whole.open_output(self._below(path))

    def read(self, path: str) -> bytes:
        return self.whole.read(self._below(path))

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return self.whole.read_range(self._below(path), offset, length)

    def status(self, path: str) -> FileStatus | None:
        status = self.whole.status(self._below(path))
        return replace(status, path=path) if status is not None else None

    def list(self, directory: str) -> list[FileStatus]:
        found = self.whole.list(self._below(directory))
        return [replace(status, path=status.path[len(self.directory) + 1 :]) for status in found]

    def rename(self, source: str, target: str) -> None:
        self.whole.rename(self._below(source), self._below(target))

    def delete(self, path: str) -> None:
        self.whole.delete(self._below(path))

    def make_directory(self, directory: str) -> None:
        self.whole.make_directory(self._below(directory))

    def delete_directory(self, directory: str) -> None:
        self.whole.delete_directory(self._below(directory))

    def delete_empty_directory(self, directory: str) -> None:
        self.whole.delete_empty_directory(self._below(directory))

    def check_writable(self) -> None:
        self.whole.check_writable()

    def _below(self, path: str) -> str:
        return f"{self.directory}/{path}" if path else self.directory
