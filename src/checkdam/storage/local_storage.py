"""Storage in a local directory, by direct system calls; and what other file systems share with it."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, cast

from checkdam.errors import StorageError, StorageUncertainError
from checkdam.storage.contract import FileStatus, Storage
from checkdam.storage.names import LOGS, TEMPORARY_PREFIX, checked_path, is_plain_name

_NO_LINKS = "No symbolic link is followed below the root of a storage. Put the file or directory itself there."
_TRIES = 5


class LocalStorage:
    """A local or mounted directory. Written files survive a power failure once `write` returns.

    The root may be reached through symbolic links. Below the root no link is followed: such a path is refused.
    """

    def __init__(self, root: str) -> None:
        self._root = os.path.abspath(os.path.expanduser(root))

    @property
    def uri(self) -> str:
        return Path(self._root).as_uri()

    def __repr__(self) -> str:
        return f"LocalStorage({self._root!r})"

    def write(self, path: str, data: bytes) -> None:
        self._write(self._resolve(path), data, os.rename)

    def write_new(self, path: str, data: bytes) -> None:
        target = self._resolve(path)
        if os.path.lexists(target):  # avoids writing it first; `_link_or_rename` decides
            raise NameTakenError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        try:
            self._write(target, data, _link_or_rename)
        except StorageUncertainError:  # it may not survive a crash, so reading it back must not find it
            with contextlib.suppress(OSError):  # the first error is the one to report
                os.unlink(target)
            raise

    def _write(self, target: str, data: bytes, put_in_place: Callable[[str, str], None]) -> None:
        """Write a temporary file and rename it by `put_in_place(temporary, target)`."""
        directory, name = os.path.split(target)
        temporary = f"{directory}/{TEMPORARY_PREFIX}{name}-{secrets.token_hex(4)}"
        with explained("write", target, needed=len(data)):
            try:
                descriptor = self._create(temporary)
                try:
                    _write_fully(descriptor, data)
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                put_in_place(temporary, target)
            except FileNotFoundError as error:
                raise StorageError(f'cannot write "{target}": its directory was removed meanwhile') from error
            except BaseException:
                with contextlib.suppress(OSError):  # the first error is the one to report; a sweep finds the file
                    os.unlink(temporary)
                raise
        _sync_directory(directory, of=target)

    def open_output(self, path: str) -> BinaryIO:
        target = self._resolve(path)
        with explained("write", target):
            descriptor = self._create(target, os.O_TRUNC)
        return cast(BinaryIO, io.BufferedWriter(_DurableFile(descriptor, target), 1 << 18))

    def read(self, path: str) -> bytes:
        target = self._resolve(path)
        with explained("read", target), _open_file(target) as file:
            return file.read()

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        target = self._resolve(path)
        with explained("read", target), _open_file(target) as file:
            pieces = []
            while length > 0 and (piece := os.pread(file.fileno(), length, offset)):
                pieces.append(piece)
                offset += len(piece)
                length -= len(piece)
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def status(self, path: str) -> FileStatus | None:
        target = self._resolve(path)
        with explained("read", target):
            try:
                found = os.lstat(target)
            except (FileNotFoundError, NotADirectoryError):
                return None
        if stat.S_ISLNK(found.st_mode):
            raise StorageError(f'cannot use "{target}": it is a symbolic link', hint=_NO_LINKS)
        return _file_status(path, found) if stat.S_ISREG(found.st_mode) else None

    def list(self, directory: str) -> list[FileStatus]:
        target = self._resolve_directory(directory)
        with explained("list", target):
            return sorted(_walk(target, directory.strip("/")), key=lambda status: status.path)

    def rename(self, source: str, target: str) -> None:
        old, new = self._resolve(source), self._resolve(target)
        with explained("rename", old):
            try:
                os.rename(old, new)
            except FileNotFoundError:
                if not os.path.exists(old):
                    raise
                _make_directories(os.path.dirname(new))
                os.rename(old, new)
        _sync_directory(os.path.dirname(new), of=new)
        if os.path.dirname(old) != os.path.dirname(new):
            _sync_directory(os.path.dirname(old), of=new)

    def delete(self, path: str) -> None:
        target = self._resolve(path)
        with explained("delete", target), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(target)

    def make_directory(self, directory: str) -> None:
        target = self._resolve_directory(directory)
        with explained("create", target):
            _make_directories(target)

    def delete_directory(self, directory: str) -> None:
        target = self._resolve_directory(directory)
        for tries_left in reversed(range(_TRIES)):
            try:
                shutil.rmtree(target)
            except (FileNotFoundError, NotADirectoryError) as error:  # another process removes the same tree
                if not os.path.isdir(target):
                    return
                if not tries_left:
                    raise StorageUncertainError(f'cannot delete "{target}": {error.strerror}') from error
            except OSError as error:
                raise StorageUncertainError(f'deleted only part of "{target}": {error.strerror}') from error
            else:
                return

    def delete_empty_directory(self, directory: str) -> None:
        target = self._resolve_directory(directory)
        with explained("delete", target):
            try:
                os.rmdir(target)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST):
                    raise

    def check_writable(self) -> None:
        with explained("create", self._root):
            _make_directories(self._root)
        probe(self)

    def _resolve(self, path: str) -> str:
        """Return the location of a file. Raises StorageError if a directory on the way is a link."""
        directory, _, name = checked_path(path).rpartition("/")
        above = self._resolve_directory(directory)
        return f"{above}/{name}" if name else above

    def _resolve_directory(self, directory: str) -> str:
        target = self._root
        for name in filter(None, checked_path(directory).split("/")):
            target = f"{target}/{name}"
            if os.path.islink(target):
                raise StorageError(f'cannot use "{target}": it is a symbolic link', hint=_NO_LINKS)
        return target

    def _create(self, target: str, flags: int = os.O_EXCL) -> int:
        flags |= os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(target, flags, 0o666)
        except FileNotFoundError:
            _make_directories(os.path.dirname(target))
            return os.open(target, flags, 0o666)


class _DurableFile(io.FileIO):
    """A file whose bytes and name are durable once it is closed; opening it waits for no disk."""

    def __init__(self, descriptor: int, path: str) -> None:
        super().__init__(descriptor, "wb")
        self._path = path

    def write(self, data: Any) -> int:
        with explained("write", self._path, needed=len(data)):
            return super().write(data) or 0

    def close(self) -> None:
        if self.closed:
            return
        try:
            with explained("write", self._path, uncertain=True):
                os.fsync(self.fileno())
        finally:
            super().close()
        if os.path.lexists(self._path):  # else it was removed meanwhile, and its reader gets an error
            _sync_directory(os.path.dirname(self._path), of=self._path)


def _walk(target: str, relative: str) -> Iterator[FileStatus]:
    """Yield every file below a directory. Skips logs, links, pipes and the like, and names that no path can have."""
    waiting = [(target, relative)]
    while waiting:
        target, relative = waiting.pop()
        try:
            entries = list(os.scandir(target))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            if not is_plain_name(entry.name) or (not relative and entry.name == LOGS):
                continue
            path = f"{relative}/{entry.name}" if relative else entry.name
            if entry.is_dir(follow_symlinks=False):
                waiting.append((entry.path, path))
            elif entry.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):  # deleted since the scan
                    yield _file_status(path, entry.stat(follow_symlinks=False))


def _open_file(target: str) -> io.FileIO:
    """Open a regular file for reading. Raises OSError for anything else: a link is not followed, a pipe could block."""
    descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return io.FileIO(descriptor, "rb")
    os.close(descriptor)
    number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
    raise OSError(number, os.strerror(number) if number == errno.EISDIR else "not a regular file", target)


@contextlib.contextmanager
def explained(action: str, path: str, *, needed: int | None = None, uncertain: bool = False) -> Iterator[None]:
    """Convert an OSError to a StorageError with a hint; a missing file stays FileNotFoundError."""
    try:
        yield
    except (FileNotFoundError, NameTakenError):
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        hint = _hint(error, path, needed)
        # Known refusals did nothing; any other error of a remote store may be a lost reply.
        kind = StorageUncertainError if uncertain and hint is None else StorageError
        raise kind(f'cannot {action} "{path}": {reason}', hint=hint) from error


def _hint(error: OSError, path: str, needed: int | None) -> str | None:
    text = str(error).lower()
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        size = f"{needed:,} bytes are needed" if needed else "room is needed"
        return f"The disk is full: {size}{_free_space(path)}. Free some space or choose another directory."
    if error.errno == errno.ELOOP:
        return _NO_LINKS
    if error.errno == errno.EROFS:
        return "The file system is read-only. Choose another directory or mount it for writing."
    if isinstance(error, PermissionError) or "access denied" in text or "access_denied" in text:
        return "Permission is denied. Give this user the right to read and write there, or choose another directory."
    if isinstance(error, NotADirectoryError | FileExistsError):
        return "A file exists where a directory is needed. Remove it or choose another directory."
    if isinstance(error, IsADirectoryError):
        return "A directory exists where a file is needed. Remove it or choose another directory."
    return None


def _free_space(path: str) -> str:
    while not os.path.isdir(path) and path not in ("", "/"):
        path = os.path.dirname(path)
    return f", {shutil.disk_usage(path).free:,} are free" if os.path.isdir(path) else ""


_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def _link_or_rename(temporary: str, target: str) -> None:
    """Give a file its name unless the name is taken. Raises NameTakenError.

    A hard link never replaces an existing name. On file systems without hard links (FAT, some FUSE) the file is
    renamed after another check, which leaves a window of microseconds.
    """
    try:
        os.link(temporary, target, follow_symlinks=False)
    except FileExistsError as error:
        raise NameTakenError(*error.args) from error
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        if os.path.lexists(target):
            raise NameTakenError(errno.EEXIST, os.strerror(errno.EEXIST), target) from error
        os.rename(temporary, target)
    else:
        with contextlib.suppress(OSError):  # the file has its name; a sweep finds the other one
            os.unlink(temporary)


class NameTakenError(FileExistsError):
    """The name itself is taken: unlike a FileExistsError of a parent directory, not a storage failure."""


def _write_fully(descriptor: int, data: bytes) -> None:
    written = os.write(descriptor, data)
    while written < len(data):  # a signal, or more than 2 GiB
        written += os.write(descriptor, memoryview(data)[written:])


def _make_directories(path: str) -> None:
    """Create a directory and its parents so that they survive a crash like the files in them."""
    missing = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for directory in reversed(missing):
        try:
            os.mkdir(directory)
        except FileExistsError:
            if not os.path.isdir(directory):
                raise
        except FileNotFoundError as error:  # its parent exists: a place such as /proc, where nothing can be created
            raise StorageError(f'cannot create "{directory}": {error.strerror}', hint="Choose another one.") from error
        _sync_directory(os.path.dirname(directory), of=directory)


def _sync_directory(directory: str, *, of: str) -> None:
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StorageUncertainError(f'"{of}" may not survive a crash: {error.strerror}') from error


def probe(storage: Storage) -> None:
    name = f"{TEMPORARY_PREFIX}probe-{secrets.token_hex(4)}"
    storage.write_new(name, b"")  # on S3 by another client, which finds its credentials in its own way
    try:
        storage.write(name, b"checkdam")
        intact = storage.read(name) == b"checkdam"
    finally:
        storage.delete(name)
    if not intact:
        raise StorageError(f'"{storage.uri}" returns other bytes than were written', hint="Choose another directory.")


def _file_status(path: str, found: os.stat_result) -> FileStatus:
    return FileStatus(path, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))
