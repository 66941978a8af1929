"""Storage of a simulated job: memory that checks each deletion, and that may fail once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

from checkdam.checkpoint import metadata_file
from checkdam.checkpoint.completed import CompletedCheckpoint
from checkdam.errors import StorageError, StorageUncertainError
from checkdam.storage.contract import FileStatus, Storage
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.testing.faulty_storage import Fault, FaultyStorage

_METADATA = "/_metadata"


@lru_cache(maxsize=256)
def decoded(data: bytes, path: str) -> CompletedCheckpoint:
    """Decode metadata; the same bytes only once, since each driver reads them many times."""
    return metadata_file.from_metadata(data, path)


class GuardedStorage(MemoryStorage):
    """Records it when a file is deleted that a complete checkpoint needs at that moment."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: list[str] = []
        self.on_complete: Callable[[str], None] = lambda directory: None
        self._needed: dict[str, frozenset[str]] = {}  # by the path of the metadata

    def write(self, path: str, data: bytes) -> None:
        super().write(path, data)
        self._written(path, data)

    def write_new(self, path: str, data: bytes) -> None:
        super().write_new(path, data)
        self._written(path, data)

    def _written(self, path: str, data: bytes) -> None:
        if path.endswith(_METADATA):
            checkpoint = decoded(bytes(data), path)
            above = path.removesuffix(_METADATA)
            above = above if checkpoint.is_savepoint else above.rpartition("/")[0]  # chk-1 is in the job's directory
            self._needed[path] = frozenset(f"{above}/{file.path}" for file in checkpoint.files())
            self.on_complete(path.removesuffix(_METADATA))

    def delete(self, path: str) -> None:
        if self._needed.pop(path, None) is None:
            self.broken += [
                f"{path} is deleted, but {of} needs it" for of, files in self._needed.items() if path in files
            ]
        super().delete(path)

    def delete_directory(self, directory: str) -> None:
        for path in [path for path in self._needed if path.startswith(f"{directory}/" if directory else "")]:
            self.delete(path)
        super().delete_directory(directory)


class TroubledStorage(FaultyStorage):
    """Fails a change that the seed chooses beforehand, and others when a fault is drawn while the job runs.

    After a lost reply it may stay silent for some operations, so that the writer cannot find out what happened.
    """

    def __init__(self, storage: Storage, at: int, fault: Fault, rng: random.Random) -> None:
        super().__init__(storage, at, fault)
        self._rng = rng
        self.next_fault: tuple[str, Fault] | None = None  # of the next change whose path ends with this
        self.outage = 0  # how many of the next operations fail

    def read(self, path: str) -> bytes:
        self._check_outage("read", path)
        return super().read(path)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        self._check_outage("read", path)
        return super().read_range(path, offset, length)

    def status(self, path: str) -> FileStatus | None:
        self._check_outage("look at", path)
        return super().status(path)

    def list(self, directory: str) -> list[FileStatus]:
        self._check_outage("list", directory)
        return super().list(directory)

    def _check_outage(self, what: str, path: str) -> None:
        if self.outage > 0:
            self.outage -= 1
            raise StorageError(f'cannot {what} "{path}": the simulation lets the storage be silent')

    @contextmanager
    def _change(self, what: str) -> Iterator[None]:
        self._check_outage("change:", what)
        fault: Fault | None = None
        if self.next_fault is not None and what.endswith(f'{self.next_fault[0]}"'):
            fault, self.next_fault = self.next_fault[1], None
        if fault is Fault.REFUSED:
            raise StorageError(f"cannot {what}: refused by the simulation")
        try:
            with super()._change(what):
                yield
            if fault is Fault.REPLY_LOST:
                raise StorageUncertainError(f"{what} may have happened: its reply was lost by the simulation")
        except StorageUncertainError:
            self.outage = self._rng.choice([0, 1, 1, 3])
            raise
