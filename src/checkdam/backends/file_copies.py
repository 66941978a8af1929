"""Copies of state files between storages, verified on the way: damage in a copy would be noticed too late."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from checkdam.backends.state_file import damaged, read_state_file
from checkdam.errors import StorageError
from checkdam.state.snapshot_handles import StateFile
from checkdam.storage.contract import Storage
from checkdam.storage.names import temporary_name

_WRITTEN_AT_ONCE = 8 << 20


def copy_state_file(source: Storage, file: StateFile, target: Storage) -> StateFile:
    """Copy a file to the root of `target`, under the last part of its path, atomically.

    Raises:
        CheckpointDamagedError: the file is gone, truncated or altered.
    """
    name = file.path.rpartition("/")[2]
    write_pieces(target, name, file.size, _checked_pieces(source, file))
    return StateFile(name, file.size, file.name)


def write_pieces(
    target: Storage, path: str, size: int, pieces: Iterable[bytes | memoryview], *, at_once: int = _WRITTEN_AT_ONCE
) -> None:
    """Write a file of about that size; one larger than `at_once` is streamed to a temporary name and renamed."""
    if size <= at_once:
        target.write(path, b"".join(pieces))
        return
    temporary = temporary_name(path)
    try:
        with target.open_output(temporary) as output:
            for piece in pieces:
                output.write(piece)
        target.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(StorageError):  # the first error is the one to report
            target.delete(temporary)
        raise


def _checked_pieces(source: Storage, file: StateFile) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a state file in order, verifying the checksums of head, index and every block."""
    reader = read_state_file(source, file.path, file.size)
    first = min((block.offset for block in reader.info.blocks), default=file.size)
    yield source.read_range(file.path, 0, first)
    position = first
    for state in range(len(reader.info.states) if first < file.size else 0):
        for block in reader.blocks(state):
            if block.info.offset != position:
                raise damaged(file.path, "its blocks are not in order")
            yield block.packed
            position += block.info.length
    if position < file.size:
        yield source.read_range(file.path, position, file.size - position)
