"""Storage in the memory of one process: `memory://name` is the same tree everywhere in this process.

Like Flink's JobManagerCheckpointStorage it accepts only small files, so that a job that has outgrown it fails with a
clear error instead of filling the memory. Nothing outlives the process. A slot opens the tree of its driver
(`open_elsewhere`).
"""

from __future__ import annotations

import io
import itertools
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, BinaryIO, Final, Protocol, cast
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from checkdam.errors import ConfigError, StorageError
from checkdam.storage.contract import FileStatus, Storage
from checkdam.storage.filesystem import register_scheme
from checkdam.storage.names import checked_path
from checkdam.storage.subtree import subtree

SCHEME: Final = "memory"
DEFAULT_MAX_STATE_SIZE: Final = 5 << 20
MAX_STATE_SIZE_SETTING: Final = "execution.checkpointing.memory-storage.max-state-size"

ADVICE: Final = f"Raise {MAX_STATE_SIZE_SETTING}, or give the checkpoints a directory."

_numbers = itertools.count()
_open: WeakValueDictionary[str, MemoryStorage] = WeakValueDictionary()
_named: dict[str, MemoryStorage] = {}
_opening = threading.Lock()
_elsewhere: list[Callable[[str], Storage]] = []  # at most one


class MemoryStorage:
    """Files in this process. Pickles to itself within the process.

    An instance created directly has no limit and lives as long as a reference to it; one opened as `memory://name`
    lives as long as the process, and refuses files above `max_state_size`.
    """

    def __init__(self, name: str | None = None, *, max_state_size: int | None = None) -> None:
        self._uri = f"{SCHEME}://{name or f'unnamed-{next(_numbers)}'}"
        self._files: dict[str, tuple[bytes, datetime]] = {}
        self._lock = threading.Lock()
        self.max_state_size = max_state_size
        _open[self._uri] = self

    @property
    def uri(self) -> str:
        return self._uri

    def __reduce__(self) -> tuple[Any, ...]:
        return open_memory, (self._uri,)

    def write(self, path: str, data: bytes) -> None:
        self.check_size(path, len(data))
        with self._lock:
            self._files[checked_path(path)] = (bytes(data), datetime.now(UTC))

    def write_new(self, path: str, data: bytes) -> None:
        self.check_size(path, len(data))
        with self._lock:
            if checked_path(path) in self._files:
                raise FileExistsError(path)
            self._files[checked_path(path)] = (bytes(data), datetime.now(UTC))

    def open_output(self, path: str) -> BinaryIO:
        return cast(BinaryIO, BufferedOutput(self, path))

    def read(self, path: str) -> bytes:
        try:
            return self._files[checked_path(path)][0]
        except KeyError:
            raise FileNotFoundError(path) from None

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return self.read(path)[offset : offset + length]

    def status(self, path: str) -> FileStatus | None:
        found = self._files.get(checked_path(path))
        return FileStatus(path, len(found[0]), found[1]) if found else None

    def list(self, directory: str) -> list[FileStatus]:
        prefix = f"{checked_path(directory)}/" if directory else ""
        with self._lock:
            found = sorted(path for path in self._files if path.startswith(prefix))
        return [status for path in found if (status := self.status(path))]

    def rename(self, source: str, target: str) -> None:
        with self._lock:
            if checked_path(source) not in self._files:
                raise FileNotFoundError(source)
            self._files[checked_path(target)] = self._files.pop(checked_path(source))

    def delete(self, path: str) -> None:
        self._files.pop(checked_path(path), None)

    def make_directory(self, directory: str) -> None:
        checked_path(directory)

    def delete_directory(self, directory: str) -> None:
        for status in self.list(directory):
            self.delete(status.path)

    def delete_empty_directory(self, directory: str) -> None:
        checked_path(directory)  # there are no directories, only files

    def check_writable(self) -> None:
        pass

    def check_size(self, path: str, size: int) -> None:
        """Raise FileTooLargeError if the size exceeds the limit."""
        if self.max_state_size is not None and size > self.max_state_size:
            raise FileTooLargeError(f"{self._uri}/{path}", size, self.max_state_size)


class FileTooLargeError(StorageError):
    """A file is larger than memory storage accepts."""

    def __init__(self, path: str, size: int, limit: int) -> None:
        super().__init__(
            f'"{path}" has {size:,} bytes or more, and memory storage takes at most {limit:,} in one file', hint=ADVICE
        )
        self.size = size
        self.limit = limit


class _Bounded(Protocol):
    """A storage with a file size limit."""

    def write(self, path: str, data: bytes) -> None: ...

    def check_size(self, path: str, size: int) -> None: ...


class BufferedOutput(io.BytesIO):
    """A file that is written when it is closed; refuses to grow beyond the limit."""

    def __init__(self, storage: _Bounded, path: str) -> None:
        super().__init__()
        self._storage = storage
        self._path = path

    def write(self, data: Any, /) -> int:
        self._storage.check_size(self._path, self.tell() + memoryview(data).nbytes)
        return super().write(data)

    def close(self) -> None:
        if not self.closed:
            self._storage.write(self._path, self.getvalue())
        super().close()


def open_memory(uri: str) -> Storage:
    """Open the tree at `memory://name` or below it; the first use of a name creates it empty."""
    parts = urlsplit(uri)
    if not parts.netloc:
        raise ConfigError(f'memory storage "{uri}" has no name', hint="Write for example memory://test.")
    root = f"{SCHEME}://{parts.netloc}"
    directory = parts.path.strip("/")
    if _elsewhere:
        return subtree(_elsewhere[0](root), directory)
    with _opening:
        found = _open.get(root)
        if found is None:
            found = _named[root] = MemoryStorage(parts.netloc, max_state_size=DEFAULT_MAX_STATE_SIZE)
    return subtree(found, directory)


def open_elsewhere(opener: Callable[[str], Storage]) -> None:
    """Open `memory://…` in this process with `opener` from now on, which gets the URI of the root."""
    _elsewhere[:] = [opener]


def set_max_state_size(uri: str, size: int) -> None:
    """Set the file size limit of the storage at this URI, if it is one in memory."""
    if is_in_memory(uri):
        storage = open_memory(f"{SCHEME}://{urlsplit(uri).netloc}")
        assert isinstance(storage, MemoryStorage)
        storage.max_state_size = size


def is_in_memory(uri: str) -> bool:
    """Return whether only this process can open the URI."""
    return urlsplit(uri).scheme == SCHEME


register_scheme(SCHEME, open_memory)
