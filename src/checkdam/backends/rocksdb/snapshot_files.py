"""The files of a RocksDB snapshot: tables as RocksDB wrote them, and one file of our own that describes them.

    "CDROCKSD"  u32 version  msgpack of SnapshotInfo  u64 checksum of all before

Tables are immutable, so snapshots share them. What changes (which tables belong to the database, and at which level)
is small and is stored in our own file, with a checksum of every table.

File names are RocksDB's, and only of the kinds that a snapshot has: a table may be a link to the checkpoint's own
file, which RocksDB never writes to; under any other name RocksDB might write to it.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import cast
from urllib.parse import unquote, urlsplit

import msgspec
import xxhash

from checkdam.backends.file_copies import write_pieces
from checkdam.backends.state_file import StateInfo, check_version, damaged, reading_file, wrong_size
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import KeyedStateHandle, StateFile
from checkdam.storage.contract import Storage

VERSION = 1
INFO_NAME = "_states"
"""The name of our own file among those of a handle."""

TABLE_SUFFIX = ".sst"
_TABLE = re.compile(r"\d{1,20}\.sst", re.ASCII)
_OTHER = re.compile(r"CURRENT|MANIFEST-\d{1,20}|\d{1,20}\.log|rocksdict-config\.json", re.ASCII)
_HEAD = struct.Struct(">8sI")
_TAIL = struct.Struct(">Q")
_MAGIC = b"CDROCKSD"
_PIECE = 1 << 20
_WRITTEN_AT_ONCE = 2 << 20


class SnapshotInfo(msgspec.Struct, frozen=True):
    """The owner of the state, its states, and what is needed to open the tables as a database again."""

    uid: str
    subtask: int
    checkpoint_id: int
    max_parallelism: int
    key_type: str
    states: list[StateInfo]
    tables: dict[str, int]  # checksums by name
    others: dict[str, bytes]  # whole files by name
    key_groups: dict[str, tuple[int, int]] = {}  # first and last key group of a table's keys; unknown means any


_decoder = msgspec.msgpack.Decoder(SnapshotInfo)


def pack_info(info: SnapshotInfo) -> bytes:
    content = _HEAD.pack(_MAGIC, VERSION) + msgspec.msgpack.encode(info)
    return content + _TAIL.pack(xxhash.xxh3_64_intdigest(content))


def read_info(handle: KeyedStateHandle, storage: Storage) -> SnapshotInfo:
    """Read our own file of a handle that has files.

    Raises:
        CheckpointDamagedError: it is missing, truncated or altered, the handle lacks it or a table it names, or a name
            is not one of RocksDB's.
        FormatTooNewError: a newer version wrote it.
    """
    found = next((file for file in handle.files if file.name == INFO_NAME), None)
    if found is None:
        raise damaged(handle.files[0].path, "its snapshot has no file that lists the states")
    path = found.path
    with reading_file(path):
        data = storage.read(path)
    if len(data) < _HEAD.size + _TAIL.size or len(data) != found.size:
        raise wrong_size(path, found.size, len(data))
    content = data[: -_TAIL.size]
    if xxhash.xxh3_64_intdigest(content) != _TAIL.unpack_from(data, len(content))[0]:
        raise damaged(path, "its bytes are altered: the checksum does not match")
    magic, version = _HEAD.unpack_from(content)
    if magic != _MAGIC:
        raise damaged(path, "it does not begin with the mark of a list of states")
    check_version(path, version, VERSION)
    try:
        info = _decoder.decode(content[_HEAD.size :])
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"it cannot be read ({error})") from error
    _check_names(handle, info, path)
    return info


def _check_names(handle: KeyedStateHandle, info: SnapshotInfo, path: str) -> None:
    strange = [name for name in info.tables if not _TABLE.fullmatch(name)]
    strange += [name for name in info.others if not _OTHER.fullmatch(name)]
    if strange:
        raise damaged(path, f"it names {strange[0][:200]!r}, which is not a file of a RocksDB snapshot")
    names = [file.name for file in handle.files]
    missing = info.tables.keys() - set(names)
    if missing:
        raise damaged(path, f"it names tables that are not in the snapshot: {', '.join(sorted(missing))}")
    if len(set(names)) < len(names):
        raise damaged(path, "two files of the snapshot have the same name")


def fetch(
    handle: KeyedStateHandle, info: SnapshotInfo, storage: Storage, target: Path, key_groups: KeyGroupRange
) -> None:
    """Put the files of a handle into a local directory for RocksDB to open; links them where possible.

    RocksDB requires all tables to exist; those without a key in `key_groups` are linked and not read.

    Raises:
        CheckpointDamagedError: a file is missing or truncated, or a table with keys in `key_groups` is altered.
    """
    target.mkdir(parents=True, exist_ok=True)
    for name, content in info.others.items():
        (target / name).write_bytes(content)
    for file in handle.files:
        if file.name in info.tables:
            first, last = info.key_groups.get(file.name, (key_groups.first, key_groups.last))
            is_read = first <= key_groups.last and key_groups.first <= last
            with reading_file(file.path):
                found = _link_or_copy(storage, file, target / file.name, is_read=is_read)
            _check_read(file, *found, info.tables[file.name])


def verify_tables(handle: KeyedStateHandle, storage: Storage) -> None:
    """Read every file of a handle and verify its checksum; keeps nothing.

    Raises:
        CheckpointDamagedError, FormatTooNewError: as `read_info`, or a table is missing, truncated or altered.
    """
    checksums = read_info(handle, storage).tables
    for file in handle.files:
        if file.name in checksums:
            with reading_file(file.path):
                found = _digest(_stored_pieces(storage, file))
            _check_read(file, *found, checksums[file.name])


def _check_read(file: StateFile, checksum: int | None, size: int, expected: int) -> None:
    """Raise CheckpointDamagedError unless the size and, if known, the checksum are as written."""
    if size != file.size:
        raise wrong_size(file.path, file.size, size)
    if checksum is not None and checksum != expected:
        raise damaged(file.path, "its bytes are altered: the checksum does not match")


def _digest(pieces: Iterable[bytes], write: Callable[[bytes], object] = lambda _: None) -> tuple[int, int]:
    """Return the checksum and the size of a file, and copy it on the way."""
    hasher, size = xxhash.xxh3_64(), 0
    for piece in pieces:
        hasher.update(piece)
        write(piece)
        size += len(piece)
    return hasher.intdigest(), size


def _stored_pieces(storage: Storage, file: StateFile) -> Iterator[bytes]:
    """Yield a stored file in pieces, at most one piece beyond its size. Raises FileNotFoundError."""
    offset = 0
    while offset <= file.size and (piece := storage.read_range(file.path, offset, _PIECE)):
        yield piece
        offset += len(piece)


def _link_or_copy(storage: Storage, file: StateFile, local: Path, *, is_read: bool) -> tuple[int | None, int]:
    """Link or copy a file; return its checksum (None if it was not read) and its size."""
    if _is_linked(storage, file.path, local):
        return _digest(_pieces(local)) if is_read else (None, local.stat().st_size)
    with local.open("xb") as output:  # never into an existing file: a link is the checkpoint's own file
        return _digest(_stored_pieces(storage, file), output.write)


def _is_linked(storage: Storage, path: str, local: Path) -> bool:
    """Link the local name to a checkpoint's file; return False if that is impossible, or the file is missing.

    Raises:
        StorageError: it is a symbolic link, or lies behind one.
    """
    parts = urlsplit(storage.uri)
    if parts.scheme != "file" or storage.status(path) is None:
        return False
    try:
        os.link(f"{unquote(parts.path)}/{path}", local, follow_symlinks=False)
    except OSError:  # another file system, or one without links; a copy reports a missing file
        return False
    return True


def copy_out(local: Path, storage: Storage, path: str) -> tuple[StateFile, int]:
    """Make a local file durable under `path`, atomically; return it with its checksum."""
    hasher, size = xxhash.xxh3_64(), local.stat().st_size

    def pieces() -> Iterator[bytes]:
        for piece in _pieces(local):
            hasher.update(piece)
            yield piece

    write_pieces(storage, path, size, pieces(), at_once=_WRITTEN_AT_ONCE)
    return StateFile(path, size, local.name), hasher.intdigest()


def _pieces(local: Path) -> Iterator[bytes]:
    with local.open("rb", buffering=0) as file:
        while piece := cast(bytes, file.read(_PIECE)):
            yield piece
