"""Local copies of a storage's files, so that a slot that is restarted on its machine need not fetch them again.

A copy is named by the digest of its content and by the file's own name. It gets that name when it is complete, so a
copy that was cut off, or was altered since, does not match its name and is not used: the storage's own file is read.
A copy is a saving and no promise: whatever fails here is logged, and the storage decides.
"""

from __future__ import annotations

import io
import logging
import os
import threading
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import xxhash

from checkdam.storage.contract import FileStatus, Storage
from checkdam.storage.names import TEMPORARY_PREFIX

_log = logging.getLogger(__name__)

_DIGEST: Final = 32  # hexadecimal digits
_PIECE: Final = 1 << 20


class LocalCopies:
    """The copies of the files in one directory of a storage, in a local directory. Any thread may use it."""

    def __init__(self, directory: Path, of: str) -> None:
        """Find the copies that an earlier process left in `directory`; `of` is the directory in the storage."""
        self._directory = directory
        self._of = of
        self._lock = threading.Lock()
        self._found: dict[str, str] = {}  # by path in the storage, the name of a copy
        self._intact: set[str] = set()  # paths whose copy was compared with its digest
        self.reads = 0  # files that were read from their copy
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            names = os.listdir(directory)
        except OSError as error:
            _log.warning("no local copies in %s: %s", directory, error)
            names = []
        for name in names:
            if name[_DIGEST : _DIGEST + 1] == "-":
                self._found[f"{of}/{name[_DIGEST + 1 :]}"] = name

    @property
    def paths(self) -> frozenset[str]:
        """The files that have a copy."""
        with self._lock:
            return frozenset(self._found)

    def begin(self, path: str) -> LocalCopy | None:
        """Begin the copy of a file; None for a file of another directory, or if no copy can be made."""
        directory, _, name = path.rpartition("/")
        if directory != self._of:
            return None
        try:
            return LocalCopy(self._directory / f"{TEMPORARY_PREFIX}{name}")
        except OSError as error:
            _log.warning("no local copy of %s: %s", path, error)
            return None

    def finish(self, copy: LocalCopy, path: str) -> None:
        """Give a copy its name: from now on it is read in place of the file `path`."""
        name = f"{copy.digest}-{path.rpartition('/')[2]}"
        if copy.finish(self._directory / name):
            with self._lock:
                self._found[path] = name
                self._intact.discard(path)

    def open(self, path: str) -> BinaryIO | None:
        """Open the copy of a file if there is one and it is intact."""
        with self._lock:
            name, is_intact = self._found.get(path), path in self._intact
        if name is None:
            return None
        try:
            file = (self._directory / name).open("rb", buffering=0)
        except OSError as error:
            self._give_up(path, str(error))
            return None
        try:
            if not is_intact and _digest(file) != name[:_DIGEST]:
                raise OSError("its bytes are altered")
            file.seek(0)
        except OSError as error:
            file.close()
            self._give_up(path, str(error))
            return None
        if not is_intact:
            with self._lock:
                self._intact.add(path)
                self.reads += 1
        return cast(BinaryIO, file)

    def remove(self, paths: Collection[str]) -> None:
        """Remove the copies of these files."""
        with self._lock:
            names = [self._found.pop(path) for path in paths if path in self._found]
            self._intact.difference_update(paths)
        for name in names:
            with suppress(OSError):  # it goes with the directory
                (self._directory / name).unlink(missing_ok=True)

    def keep_only(self, paths: Collection[str]) -> None:
        """Remove all copies but those of these files, and what an earlier process left unfinished."""
        with self._lock:
            others = self._found.keys() - set(paths)
        self.remove(others)
        for unfinished in self._directory.glob(f"{TEMPORARY_PREFIX}*"):
            with suppress(OSError):  # it goes with the directory
                unfinished.unlink()

    def _give_up(self, path: str, reason: str) -> None:
        _log.warning("local copy of %s is not used: %s", path, reason)
        self.remove([path])


class LocalCopy:
    """A copy that is being written. After a failure it takes no more, and never gets its name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hasher = xxhash.xxh3_128()
        self._file: BinaryIO | None = cast(BinaryIO, path.open("wb", buffering=0))

    @property
    def digest(self) -> str:
        return self._hasher.hexdigest()

    def write(self, data: bytes | memoryview) -> None:
        if self._file is None:
            return
        self._hasher.update(data)
        try:
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:  # the disk is full
            self.give_up(str(error))

    def finish(self, path: Path) -> bool:
        """Give it its name; return False if it failed before."""
        if self._file is None:
            return False
        self._file.close()
        try:
            self._path.rename(path)
        except OSError as error:
            self.give_up(str(error))
            return False
        return True

    def give_up(self, reason: str = "") -> None:
        """Remove what was written."""
        if reason:
            _log.warning("no local copy is kept at %s: %s", self._path, reason)
        if self._file is not None:
            self._file.close()
            self._file = None
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


class LocallyCopiedStorage:
    """A storage that copies what is written to one of its directories, and reads intact copies instead of the files."""

    def __init__(self, storage: Storage, copies: LocalCopies) -> None:
        self._storage = storage
        self._copies = copies
        self._streamed: dict[str, LocalCopy] = {}  # by the temporary path

    def __reduce__(self) -> tuple[Any, ...]:
        return _same, (self._storage,)  # copies stay with the process that keeps them

    @property
    def uri(self) -> str:
        return self._storage.uri

    def write(self, path: str, data: bytes) -> None:
        self._copies.remove([path])
        self._storage.write(path, data)
        self._copy(path, data)

    def write_new(self, path: str, data: bytes) -> None:
        self._storage.write_new(path, data)
        self._copy(path, data)

    def _copy(self, path: str, data: bytes) -> None:
        copy = self._copies.begin(path)
        if copy is not None:
            copy.write(data)
            self._copies.finish(copy, path)

    def open_output(self, path: str) -> BinaryIO:
        output = self._storage.open_output(path)
        copy = self._copies.begin(path)
        if copy is None:
            return output
        self._streamed[path] = copy
        return cast(BinaryIO, _CopiedOutput(output, copy))

    def rename(self, source: str, target: str) -> None:
        copy = self._streamed.pop(source, None)
        try:
            self._storage.rename(source, target)
        except BaseException:
            if copy is not None:
                copy.give_up()
            raise
        if copy is not None:
            self._copies.finish(copy, target)

    def read(self, path: str) -> bytes:
        copy = self._copies.open(path)
        if copy is None:
            return self._storage.read(path)
        with copy:
            return copy.read()

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        copy = self._copies.open(path)
        if copy is None:
            return self._storage.read_range(path, offset, length)
        with copy:
            copy.seek(offset)
            return copy.read(length)

    def status(self, path: str) -> FileStatus | None:
        copy = self._copies.open(path)
        if copy is None:
            return self._storage.status(path)
        with copy:
            found = os.fstat(copy.fileno())
        return FileStatus(path, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))

    def list(self, directory: str) -> list[FileStatus]:
        return self._storage.list(directory)

    def delete(self, path: str) -> None:
        copy = self._streamed.pop(path, None)
        if copy is not None:
            copy.give_up()
        self._copies.remove([path])
        self._storage.delete(path)

    def make_directory(self, directory: str) -> None:
        self._storage.make_directory(directory)

    def delete_directory(self, directory: str) -> None:
        self._copies.keep_only(())
        self._storage.delete_directory(directory)

    def delete_empty_directory(self, directory: str) -> None:
        self._storage.delete_empty_directory(directory)

    def check_writable(self) -> None:
        self._storage.check_writable()


class _CopiedOutput(io.RawIOBase):
    """An output whose bytes go to the copy as well."""

    def __init__(self, output: BinaryIO, copy: LocalCopy) -> None:
        super().__init__()
        self._output = output
        self._copy = copy

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        written = self._output.write(data)
        self._copy.write(memoryview(data)[:written])
        return written

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._output.close()


def _same(storage: Storage) -> Storage:
    return storage


def _digest(file: BinaryIO) -> str:
    hasher = xxhash.xxh3_128()
    while piece := file.read(_PIECE):
        hasher.update(piece)
    return hasher.hexdigest()
