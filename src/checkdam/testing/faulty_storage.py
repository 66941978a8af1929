"""Storage whose n-th change fails, so that a test can fail each one in turn."""

from __future__ import annotations

import contextlib
import enum
import io
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from checkdam.errors import StorageError, StorageUncertainError
from checkdam.storage.contract import FileStatus, Storage


class Fault(enum.Enum):
    REFUSED = "refused"
    """Nothing happened, and the caller gets an error that says so."""

    REPLY_LOST = "reply lost"
    """The change happened, but the caller cannot know."""


class FaultyStorage:
    """Delegates to a storage, but fails change number `at`, counted from 0, once.

    Changes are write, write_new, rename, delete, delete_directory and the close of an output. `operations` counts
    them, so a run without fault (`at=-1`) shows how many there are to fail. A pickled copy has its own count.
    """

    def __init__(self, storage: Storage, at: int, fault: Fault) -> None:
        self.storage = storage
        self.at = at
        self.fault = fault
        self.operations = 0
        self._lock = threading.Lock()

    @property
    def uri(self) -> str:
        return self.storage.uri

    @property
    def has_failed(self) -> bool:
        return 0 <= self.at < self.operations

    def __reduce__(self) -> tuple[Any, ...]:
        return FaultyStorage, (self.storage, self.at, self.fault)

    def write(self, path: str, data: bytes) -> None:
        with self._change(f'write "{path}"'):
            self.storage.write(path, data)

    def write_new(self, path: str, data: bytes) -> None:
        with self._change(f'create "{path}"'):
            self.storage.write_new(path, data)

    def open_output(self, path: str) -> BinaryIO:
        return cast(BinaryIO, _Output(self, path))

    def read(self, path: str) -> bytes:
        return self.storage.read(path)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return self.storage.read_range(path, offset, length)

    def status(self, path: str) -> FileStatus | None:
        return self.storage.status(path)

    def list(self, directory: str) -> list[FileStatus]:
        return self.storage.list(directory)

    def rename(self, source: str, target: str) -> None:
        with self._change(f'rename "{source}"'):
            self.storage.rename(source, target)

    def delete(self, path: str) -> None:
        with self._change(f'delete "{path}"'):
            self.storage.delete(path)

    def make_directory(self, directory: str) -> None:
        self.storage.make_directory(directory)

    def delete_directory(self, directory: str) -> None:
        with self._change(f'delete "{directory}"'):
            self.storage.delete_directory(directory)

    def check_writable(self) -> None:
        self.storage.check_writable()

    @contextlib.contextmanager
    def _change(self, what: str) -> Iterator[None]:
        with self._lock:
            is_hit = self.operations == self.at
            self.operations += 1
        if is_hit and self.fault is Fault.REFUSED:
            raise StorageError(f"cannot {what}: refused by the test")
        yield
        if is_hit:
            raise StorageUncertainError(f"{what} may have happened: its reply was lost by the test")


class _Output(io.RawIOBase):
    """Buffers the bytes until close, so that a refused close writes nothing."""

    def __init__(self, storage: FaultyStorage, path: str) -> None:
        super().__init__()
        self._storage = storage
        self._path = path
        self._held = io.BytesIO()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._held.write(data)

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        with (
            self._storage._change(f'close "{self._path}"'),
            self._storage.storage.open_output(self._path) as output,
        ):
            output.write(self._held.getvalue())
