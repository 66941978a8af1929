"""Storage in a dict: as strict as the real thing, and as fast as a test wants."""

from __future__ import annotations

import io
import itertools
import threading
from datetime import UTC, datetime
from typing import Any, BinaryIO, cast
from weakref import WeakValueDictionary

from checkdam.storage.contract import FileStatus

_numbers = itertools.count()
_open: WeakValueDictionary[str, MemoryStorage] = WeakValueDictionary()


class MemoryStorage:
    """Files in this process. Pickles to itself within the process; another process cannot open it."""

    def __init__(self) -> None:
        self._uri = f"memory://{next(_numbers)}"
        self._files: dict[str, tuple[bytes, datetime]] = {}
        self._lock = threading.Lock()
        _open[self._uri] = self

    @property
    def uri(self) -> str:
        return self._uri

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._uri,)

    def write(self, path: str, data: bytes) -> None:
        with self._lock:
            self._files[_checked(path)] = (bytes(data), datetime.now(UTC))

    def open_output(self, path: str) -> BinaryIO:
        return cast(BinaryIO, _Output(self, path))

    def read(self, path: str) -> bytes:
        try:
            return self._files[_checked(path)][0]
        except KeyError:
            raise FileNotFoundError(path) from None

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return self.read(path)[offset : offset + length]

    def status(self, path: str) -> FileStatus | None:
        found = self._files.get(_checked(path))
        return FileStatus(path, len(found[0]), found[1]) if found else None

    def list(self, directory: str) -> list[FileStatus]:
        prefix = f"{_checked(directory)}/" if directory else ""
        with self._lock:
            found = sorted(path for path in self._files if path.startswith(prefix))
        return [status for path in found if (status := self.status(path))]

    def rename(self, source: str, target: str) -> None:
        with self._lock:
            if _checked(source) not in self._files:
                raise FileNotFoundError(source)
            self._files[_checked(target)] = self._files.pop(_checked(source))

    def delete(self, path: str) -> None:
        self._files.pop(_checked(path), None)

    def delete_directory(self, directory: str) -> None:
        for status in self.list(directory):
            self.delete(status.path)

    def check_writable(self) -> None:
        pass


def _reopen(uri: str) -> MemoryStorage:
    return _open[uri]


class _Output(io.BytesIO):
    def __init__(self, storage: MemoryStorage, path: str) -> None:
        super().__init__()
        self._storage = storage
        self._path = path

    def close(self) -> None:
        if not self.closed:
            self._storage.write(self._path, self.getvalue())
        super().close()


def _checked(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f'"{path}" is not a path below the root of its storage')
    return path.rstrip("/")
