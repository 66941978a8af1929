"""Storage whose n-th change fails, so that a test can fail each one in turn."""

from __future__ import annotations

import contextlib
import enum
import io
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from checkdam.errors import StorageError, StorageUncertainError
from checkdam.storage.contract import Storage
from checkdam.testing.mounts import Watch, WatchedStorage


class Fault(enum.Enum):
    REFUSED = "refused"
    """Nothing happened, and the caller gets an error that says so."""

    REPLY_LOST = "reply lost"
    """The change happened, but the caller cannot know."""


_CHANGES = frozenset({"write", "rename", "delete", "delete_directory"})


class FaultyStorage(WatchedStorage):
    """Delegates to a storage, but fails change number `at`, counted from 0, once.

    Changes are write, write_new, rename, delete, delete_directory and the close of an output. `operations` counts
    them, so a run without fault (`at=-1`) shows how many there are to fail. A pickled copy has its own count.
    """

    def __init__(self, storage: Storage, at: int, fault: Fault) -> None:
        super().__init__(storage, storage.uri, Watch())
        self.at = at
        self.fault = fault
        self.operations = 0
        self._lock = threading.Lock()

    @property
    def has_failed(self) -> bool:
        return 0 <= self.at < self.operations

    def __reduce__(self) -> tuple[Any, ...]:
        return FaultyStorage, (self.storage, self.at, self.fault)

    def open_output(self, path: str) -> BinaryIO:
        return cast(BinaryIO, _Output(self, path))

    def _watched(self, operation: str, path: str) -> contextlib.AbstractContextManager[None]:
        return self._change(f'{operation} "{path}"') if operation in _CHANGES else contextlib.nullcontext()

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
