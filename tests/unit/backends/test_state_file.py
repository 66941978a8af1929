from __future__ import annotations

import contextlib
import struct
from itertools import pairwise

import msgspec
import pytest

from checkdam.backends import state_file
from checkdam.backends.state_file import (
    BlockContent,
    FileInfo,
    StateFileReader,
    StateFileWriter,
    StateInfo,
    read_state_file,
)
from checkdam.errors import CheckpointDamagedError, FormatTooNewError
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import StateFile
from checkdam.testing import Fault, FaultyStorage, MemoryStorage

STATES = [StateInfo("first", "value", '"int"'), StateInfo("second", "value", '"str"')]


def write(storage: MemoryStorage, blocks: int = 8, groups_per_block: int = 4) -> StateFile:
    """Two states; key group g holds g % 3 entries and g % 2 removed keys."""
    info = FileInfo("delta", "op", 1, 7, blocks * groups_per_block, '"str"', STATES)
    writer = StateFileWriter(storage, "shared/file", info)
    for state in range(2):
        for block in range(blocks):
            groups = list(range(block * groups_per_block, (block + 1) * groups_per_block))
            content = BlockContent(
                groups,
                [g % 3 for g in groups],
                [g % 2 for g in groups],
                msgspec.msgpack.encode([f"{g}-{i}" for g in groups for i in range(g % 3)]),
                msgspec.msgpack.encode([g * 10 + i + state for g in groups for i in range(g % 3)]),
                msgspec.msgpack.encode([f"{g}-gone" for g in groups for _ in range(g % 2)]),
            )
            writer.add_block(state, content)
    return writer.finish()


def read(reader: StateFileReader, state: int) -> tuple[dict[str, int], list[str]]:
    entries: dict[str, int] = {}
    removed: list[str] = []
    for block in reader.blocks(state):
        keys, values, gone = map(msgspec.msgpack.decode, block.unpack())
        entries.update(zip(keys[block.entries], values[block.entries], strict=True))
        removed.extend(gone[block.removed])
    return entries, removed


def expected(groups: range, state: int) -> tuple[dict[str, int], list[str]]:
    return (
        {f"{g}-{i}": g * 10 + i + state for g in groups for i in range(g % 3)},
        [f"{g}-gone" for g in groups if g % 2],
    )


def test_a_file_describes_itself() -> None:
    storage = MemoryStorage()
    file = write(storage)

    info = read_state_file(storage, file.path, file.size).info

    assert (info.kind, info.uid, info.subtask, info.checkpoint_id, info.max_parallelism) == ("delta", "op", 1, 7, 32)
    assert info.states == STATES
    assert (info.key_type, info.entries, len(info.blocks)) == ('"str"', 2 * sum(g % 3 for g in range(32)), 16)


@pytest.mark.parametrize(("first", "last"), [(0, 31), (0, 0), (5, 6), (3, 20), (31, 31), (16, 15)])
def test_a_reader_gets_exactly_the_key_groups_it_asked_for(first: int, last: int) -> None:
    storage = MemoryStorage()
    file = write(storage)

    reader = read_state_file(storage, file.path, file.size, KeyGroupRange(first, last))

    for state in range(2):
        assert read(reader, state) == expected(range(first, last + 1), state)


def test_a_narrow_range_reads_few_bytes_in_few_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_file, "_TAIL_READ", 4096)
    storage = MemoryStorage()
    file = write(storage, blocks=200)
    reads: list[int] = []

    class Counting(FaultyStorage):
        def read_range(self, path: str, offset: int, length: int) -> bytes:
            reads.append(length)
            return super().read_range(path, offset, length)

    counting = Counting(storage, -1, Fault.REFUSED)
    reader = read_state_file(counting, file.path, file.size, KeyGroupRange(100, 139))
    reads.clear()
    read(reader, 0)

    assert len(reads) == 1
    assert sum(reads) < file.size / 20


def test_every_flipped_byte_is_noticed() -> None:
    storage = MemoryStorage()
    file = write(storage, blocks=2)
    data = storage.read(file.path)

    for position in range(file.size):
        altered = bytearray(data)
        altered[position] ^= 0x41
        storage.write(file.path, bytes(altered))
        with pytest.raises(CheckpointDamagedError, match="shared/file"):
            _read_all(storage, file)


def test_every_truncation_and_extension_is_noticed() -> None:
    storage = MemoryStorage()
    file = write(storage, blocks=2)
    data = storage.read(file.path)

    for altered in (*(data[:length] for length in range(file.size)), data + b"x"):
        storage.write(file.path, altered)
        for size in {file.size, len(altered)}:
            with pytest.raises(CheckpointDamagedError, match="shared/file"):
                _read_all(storage, StateFile(file.path, size))


def test_a_missing_file_is_damage_that_names_it() -> None:
    with pytest.raises(CheckpointDamagedError, match=r'"shared/none" is damaged: it is missing'):
        read_state_file(MemoryStorage(), "shared/none", 100)


def test_a_newer_version_is_refused_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    with monkeypatch.context() as newer:
        newer.setattr(state_file, "VERSION", 3)
        file = write(storage)
    assert struct.unpack_from(">I", storage.read(file.path), 8) == (3,)

    with pytest.raises(FormatTooNewError, match="version 3"):
        read_state_file(storage, file.path, file.size)


def test_a_large_file_is_streamed_and_shows_only_when_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_file, "_SPOOL_BYTES", 200)
    storage = MemoryStorage()
    file = write(storage)
    assert [status.path for status in storage.list("")] == ["shared/file"]
    assert _read_all(storage, file) == [expected(range(32), 0), expected(range(32), 1)]

    empty = MemoryStorage()
    info = FileInfo("base", "op", 0, 1, 32, '"str"', STATES)
    with contextlib.suppress(KeyError), StateFileWriter(empty, "f", info) as writer:
        for group in range(50):
            writer.add_block(0, BlockContent([group], [1], [0], b"\x91\x01", b"\x91\x01", b"\x90"))
        raise KeyError
    assert empty.list("") == []


def test_arrays_of_packed_elements_are_arrays() -> None:
    for count in (0, 1, 15, 16, 65535, 65536):
        packed = state_file.packed_array([msgspec.msgpack.encode(i) for i in range(count)])
        assert msgspec.msgpack.decode(packed) == list(range(count))


def test_blocks_lie_side_by_side() -> None:
    storage = MemoryStorage()
    file = write(storage)

    blocks = read_state_file(storage, file.path, file.size).info.blocks

    assert all(one.offset + one.length == two.offset for one, two in pairwise(blocks))


def _read_all(storage: MemoryStorage, file: StateFile) -> list[tuple[dict[str, int], list[str]]]:
    reader = read_state_file(storage, file.path, file.size)
    return [read(reader, state) for state in range(len(reader.info.states))]
