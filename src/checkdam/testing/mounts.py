"""Storage objects under a URI, so that a test double can be opened by path and watched by its opener."""

from __future__ import annotations

import atexit
import io
import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from checkdam.errors import CheckdamError, ConfigError
from checkdam.storage.contract import FileStatus, Storage
from checkdam.storage.filesystem import register_scheme
from checkdam.storage.subtree import subtree

SCHEME = "mount"


class Watch:
    """Is called around each storage operation, and may raise to prevent it. This one allows all."""

    is_dead = False

    def before(self, operation: str, path: str) -> None: ...

    def after(self, operation: str, path: str) -> None: ...

    @contextmanager
    def around(self, operation: str, path: str) -> Iterator[None]:
        self.before(operation, path)
        yield
        self.after(operation, path)


_numbers = itertools.count()
_mounts: WeakValueDictionary[str, Any] = WeakValueDictionary()
_watch: ContextVar[Watch | None] = ContextVar("checkdam_testing_watch", default=None)


def mount(storage: Storage) -> str:
    """Return a URI by which `open_storage` finds this very object, as long as it is referenced."""
    name = str(next(_numbers))
    _mounts[name] = storage
    return f"{SCHEME}://{name}"


@contextmanager
def watched_by(watch: Watch) -> Iterator[None]:
    """Watch every storage that this thread opens in the block, also after the block."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


def _open(uri: str) -> Storage:
    parts = urlsplit(uri)
    found = _mounts.get(parts.netloc)
    if found is None:
        raise ConfigError(f'nothing is mounted at "{uri}"', hint="Mount a storage, and hold on to it.")
    seen = WatchedStorage(found, f"{SCHEME}://{parts.netloc}", _watch.get() or Watch())
    return subtree(seen, parts.path.strip("/"))


class WatchedStorage:
    """A storage under the URI of its mount."""

    def __init__(self, storage: Storage, uri: str, watch: Watch) -> None:
        self.storage = storage
        self.uri = uri
        self.watch = watch

    def write(self, path: str, data: bytes) -> None:
        with self._watched("write", path):
            self.storage.write(path, data)

    def write_new(self, path: str, data: bytes) -> None:
        with self._watched("write", path):
            self.storage.write_new(path, data)

    def open_output(self, path: str) -> BinaryIO:
        with self._watched("open_output", path):
            return cast(BinaryIO, _WatchedOutput(self, path))

    def read(self, path: str) -> bytes:
        with self._watched("read", path):
            return self.storage.read(path)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        with self._watched("read_range", path):
            return self.storage.read_range(path, offset, length)

    def status(self, path: str) -> FileStatus | None:
        with self._watched("status", path):
            return self.storage.status(path)

    def list(self, directory: str) -> list[FileStatus]:
        with self._watched("list", directory):
            return self.storage.list(directory)

    def rename(self, source: str, target: str) -> None:
        with self._watched("rename", target):
            self.storage.rename(source, target)

    def delete(self, path: str) -> None:
        with self._watched("delete", path):
            self.storage.delete(path)

    def make_directory(self, directory: str) -> None:
        with self._watched("make_directory", directory):
            self.storage.make_directory(directory)

    def delete_directory(self, directory: str) -> None:
        with self._watched("delete_directory", directory):
            self.storage.delete_directory(directory)

    def delete_empty_directory(self, directory: str) -> None:
        with self._watched("delete_empty_directory", directory):
            self.storage.delete_empty_directory(directory)

    def check_writable(self) -> None:
        with self._watched("check_writable", ""):
            self.storage.check_writable()

    def _watched(self, operation: str, path: str) -> AbstractContextManager[None]:
        return self.watch.around(operation, path)


_open_streams: set[BinaryIO] = set()
"""The outputs of killed processes stay open here: closing them, as the garbage collector would, would write them."""


@atexit.register
def _close_streams() -> None:
    """Close them when the tests are over: Python would warn of each."""
    for stream in _open_streams:
        with suppress(OSError, CheckdamError):
            stream.close()


class _WatchedOutput(io.RawIOBase):
    def __init__(self, storage: WatchedStorage, path: str) -> None:
        super().__init__()
        self._watch = storage.watch
        self._path = path
        self._stream = storage.storage.open_output(path)
        _open_streams.add(self._stream)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._watch.before("output", self._path)
        return self._stream.write(data)

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        if self._watch.is_dead:
            return
        self._watch.before("close", self._path)
        _open_streams.discard(self._stream)
        self._stream.close()
        self._watch.after("close", self._path)


register_scheme(SCHEME, _open)
