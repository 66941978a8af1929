"""Storage on the file systems of pyarrow.fs: S3, HDFS, Google's and Azure's."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from datetime import UTC, datetime
from typing import Any, BinaryIO, cast

from pyarrow import fs as arrow_fs

from checkdam.errors import ConfigError
from checkdam.storage.contract import FileStatus
from checkdam.storage.local_storage import NameTakenError, explained, probe
from checkdam.storage.names import TEMPORARY_PREFIX, checked_path
from checkdam.storage.s3_create import exclusive_create

_OBJECT_STORES = frozenset({"s3", "gcs", "abfs"})  # a put is atomic; a rename would copy


def open_arrow_storage(uri: str) -> ArrowStorage:
    """Open the tree of files below a URI that pyarrow.fs supports. Raises ConfigError as `open_storage`."""
    try:
        filesystem, root = arrow_fs.FileSystem.from_uri(uri)
        if not root:
            raise ValueError("it names no bucket or directory")
    except (ValueError, OSError, NotImplementedError) as error:
        raise ConfigError(
            f'cannot open storage "{uri}": {error}',
            hint="Use a plain path, file://, s3://, gs:// or hdfs://, and check that its client is set up.",
        ) from error
    return ArrowStorage(filesystem, root, uri)


class ArrowStorage:
    """A file system of pyarrow.fs. Object stores get one put per write; others a temporary name and a rename."""

    def __init__(self, filesystem: arrow_fs.FileSystem, root: str, uri: str) -> None:
        self._filesystem = filesystem
        self._root = root.rstrip("/")
        self._uri = uri
        self._put = filesystem.type_name in _OBJECT_STORES
        self._create = exclusive_create(uri, getattr(filesystem, "region", None))

    @property
    def uri(self) -> str:
        return self._uri

    def __repr__(self) -> str:
        return f"ArrowStorage({self._uri!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return open_arrow_storage, (self._uri,)

    def write(self, path: str, data: bytes) -> None:
        target = self._resolve(path)
        directory, _, name = target.rpartition("/")
        written = target if self._put else f"{directory}/{TEMPORARY_PREFIX}{name}-{secrets.token_hex(4)}"
        with explained("write", target, needed=len(data), uncertain=True):
            with self._output(written) as stream:
                stream.write(data)
            if not self._put:
                self._filesystem.move(written, target)

    def write_new(self, path: str, data: bytes) -> None:
        """Create a file: on S3 by a conditional put if obstore is installed, else after checking for an existing one.

        On HDFS, on other object stores, and on S3 without obstore, another writer may create the file between the
        check and the put. On HDFS that replaces the file: Arrow's move deletes its target and renames again.
        """
        target = self._resolve(path)
        if self._create is not None:
            try:
                self._create(target.partition("/")[2], data)
            except FileExistsError as error:
                raise NameTakenError(errno.EEXIST, os.strerror(errno.EEXIST), target) from error
            return
        if self.status(path) is not None:
            raise NameTakenError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        self.write(path, data)

    def open_output(self, path: str) -> BinaryIO:
        target = self._resolve(path)
        with explained("write", target):
            return cast(BinaryIO, self._output(target))

    def read(self, path: str) -> bytes:
        target = self._resolve(path)
        with explained("read", target), self._filesystem.open_input_stream(target, compression=None) as stream:
            return cast(bytes, stream.read())

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        target = self._resolve(path)
        with explained("read", target), self._filesystem.open_input_file(target) as file:
            available = max(0, min(length, file.size() - offset))
            return cast(bytes, file.read_at(available, offset)) if available else b""

    def status(self, path: str) -> FileStatus | None:
        target = self._resolve(path)
        with explained("read", target):
            info = self._filesystem.get_file_info(target)
        return _arrow_status(path, info) if info.type == arrow_fs.FileType.File else None

    def list(self, directory: str) -> list[FileStatus]:
        target = self._resolve(directory)
        selector = arrow_fs.FileSelector(target, recursive=True, allow_not_found=True)
        with explained("list", target):
            if self._filesystem.get_file_info(target).type == arrow_fs.FileType.File:
                return []
            infos = self._filesystem.get_file_info(selector)
        skipped = len(self._root) + 1
        found = [_arrow_status(info.path[skipped:], info) for info in infos if info.type == arrow_fs.FileType.File]
        return sorted(found, key=lambda status: status.path)

    def rename(self, source: str, target: str) -> None:
        old, new = self._resolve(source), self._resolve(target)
        with explained("rename", old, uncertain=True):
            if self._filesystem.get_file_info(old).type == arrow_fs.FileType.NotFound:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
            try:
                self._filesystem.move(old, new)
            except FileNotFoundError:
                self._filesystem.create_dir(new.rpartition("/")[0], recursive=True)
                self._filesystem.move(old, new)

    def delete(self, path: str) -> None:
        target = self._resolve(path)
        with explained("delete", target, uncertain=True), contextlib.suppress(FileNotFoundError):
            if self._filesystem.get_file_info(target).type != arrow_fs.FileType.NotFound:
                self._filesystem.delete_file(target)

    def make_directory(self, directory: str) -> None:
        if not self._put:
            target = self._resolve(directory)
            with explained("create", target):
                self._filesystem.create_dir(target, recursive=True)

    def delete_directory(self, directory: str) -> None:
        target = self._resolve(directory)
        with explained("delete", target, uncertain=True), contextlib.suppress(FileNotFoundError):
            if self._filesystem.get_file_info(target).type == arrow_fs.FileType.Directory:
                self._filesystem.delete_dir(target)

    def delete_empty_directory(self, directory: str) -> None:
        self._resolve(directory)  # pyarrow can only delete a directory with all that others write to it meanwhile

    def check_writable(self) -> None:
        with explained("create", self._root):
            self._filesystem.create_dir(self._root, recursive=True)
        probe(self)

    def _resolve(self, path: str) -> str:
        return f"{self._root}/{checked_path(path)}" if path else self._root

    def _output(self, target: str) -> Any:
        try:
            return self._filesystem.open_output_stream(target, compression=None)
        except FileNotFoundError:
            self._filesystem.create_dir(target.rpartition("/")[0], recursive=True)
            return self._filesystem.open_output_stream(target, compression=None)


def _arrow_status(path: str, info: arrow_fs.FileInfo) -> FileStatus:
    return FileStatus(path, info.size, info.mtime or datetime.fromtimestamp(0, UTC))
