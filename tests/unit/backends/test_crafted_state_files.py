"""State files that no writer makes, with valid checksums: refused, and before memory is taken for what they claim."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import xxhash

from checkdam.backends.state_file import (
    BlockContent,
    BlockInfo,
    FileInfo,
    StateFileWriter,
    StateInfo,
    read_state_file,
)
from checkdam.errors import CheckpointDamagedError
from checkdam.state.snapshot_handles import StateFile
from checkdam.testing import MemoryStorage

ZSTD = pa.Codec("zstd")
STATES = [StateInfo("s", "value", '"bytes"')]
HEAD = struct.pack(">8sI", b"CHECKDAM", 2)
CONTENT = msgspec.msgpack.encode((["a", "b"], [b"1", b"2"], ["c"]))
SMALL = 40 << 20  # far below what the files claim, above what a reader may take for so small a file


def compressed(content: bytes) -> bytes:
    packed: bytes = ZSTD.compress(content, asbytes=True)
    return packed


def block(packed: bytes = compressed(CONTENT), **changes: Any) -> BlockInfo:
    usual = BlockInfo(0, [3], [2], [1], len(HEAD), len(packed), len(CONTENT), xxhash.xxh3_64_intdigest(packed))
    return msgspec.structs.replace(usual, **changes)


def crafted(
    blocks: list[BlockInfo], packed: bytes = compressed(CONTENT), **changes: Any
) -> tuple[MemoryStorage, StateFile]:
    info = FileInfo("base", "op", 0, 1, 128, '"str"', STATES, blocks)
    footer = msgspec.msgpack.encode(msgspec.structs.replace(info, **changes))
    checksum = xxhash.xxh3_64_intdigest(HEAD + footer + len(footer).to_bytes(4, "big"))
    data = HEAD + packed + footer + struct.pack(">IQ8s", len(footer), checksum, b"MADKCEHC")
    storage = MemoryStorage()
    storage.write("shared/f", data)
    return storage, StateFile("shared/f", len(data))


def read(storage: MemoryStorage, file: StateFile) -> list[tuple[list[Any], ...]]:
    reader = read_state_file(storage, file.path, file.size)
    return [
        tuple(msgspec.msgpack.decode(part) for part in each.unpack())
        for state in range(len(reader.info.states))
        for each in reader.blocks(state)
    ]


@contextmanager
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        taken = tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes()
    finally:
        tracemalloc.stop()
    assert taken < SMALL


def test_a_file_crafted_as_writers_do_is_read() -> None:
    assert read(*crafted([block()])) == [(["a", "b"], [b"1", b"2"], ["c"])]


@pytest.mark.parametrize(
    "changes",
    [
        {"raw_length": 1 << 30},
        {"raw_length": 1 << 62},
        {"raw_length": (1 << 64) - 1},
        {"raw_length": -1},
        {"raw_length": len(CONTENT) - 1},
        {"raw_length": len(CONTENT) + 1},
        {"length": 1 << 40},
        {"length": 0},
        {"length": -1},
        {"offset": 0},
        {"offset": 1 << 62},
        {"offset": -1},
        {"state": 1},
        {"state": -1},
        {"groups": []},
        {"groups": [128]},
        {"groups": [-1]},
        {"groups": [1 << 62]},
        {"groups": [3, 3], "counts": [1, 1], "removed_counts": []},
        {"groups": [3, 4]},
        {"counts": [1 << 62]},
        {"counts": [-1]},
        {"counts": []},
        {"counts": [1]},
        {"removed_counts": [1 << 62]},
        {"removed_counts": [-1]},
        {"removed_counts": []},
        {"checksum": 1},
    ],
    ids=str,
)
def test_a_block_described_as_no_writer_does_is_damage(changes: dict[str, Any]) -> None:
    storage, file = crafted([block(**changes)])

    with little_memory(), pytest.raises(CheckpointDamagedError, match='state file "shared/f" is damaged'):
        read(storage, file)


@pytest.mark.parametrize("max_parallelism", [0, -1, 1 << 31])
def test_a_max_parallelism_that_no_job_has_is_damage(max_parallelism: int) -> None:
    with pytest.raises(CheckpointDamagedError, match="max parallelism"):
        read(*crafted([block()], max_parallelism=max_parallelism))


@pytest.mark.parametrize("size", [1 << 62, (1 << 63) - 1, 0, 10])
def test_a_size_that_the_file_has_not_is_damage(size: int) -> None:
    storage, file = crafted([block()])

    with little_memory(), pytest.raises(CheckpointDamagedError):
        read(storage, StateFile(file.path, size))


def test_a_frame_that_expands_to_gigabytes_is_not_expanded() -> None:
    packed = compressed(bytes(1 << 20)) * 4096  # zstd frames one after the other are one stream

    storage, file = crafted([block(packed, raw_length=4096 << 20)], packed)

    with little_memory(), pytest.raises(CheckpointDamagedError, match="would expand to 4,294,967,296 bytes"):
        read(storage, file)


def test_a_frame_that_expands_further_than_it_says_is_cut_off() -> None:
    packed = compressed(bytes(1 << 20)) * 4096

    storage, file = crafted([block(packed, raw_length=1 << 20)], packed)

    with little_memory(), pytest.raises(CheckpointDamagedError, match="cannot be unpacked"):
        read(storage, file)


def test_many_blocks_cannot_share_the_same_bytes() -> None:
    packed = compressed(bytes(8 << 20))
    same = block(packed, raw_length=8 << 20)

    storage, file = crafted([same] * 10_000, packed)

    with little_memory(), pytest.raises(CheckpointDamagedError, match="invalid entry in the index"):
        read(storage, file)


def test_many_small_blocks_cannot_expand_to_gigabytes() -> None:
    packed = compressed(bytes(1 << 20))
    blocks = [block(packed, raw_length=1 << 20, offset=len(HEAD) + number * len(packed)) for number in range(5000)]

    storage, file = crafted(blocks, packed * len(blocks))

    with little_memory(), pytest.raises(CheckpointDamagedError, match="would expand to"):
        read(storage, file)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93",
        b"\x93" + b"\xdd\xff\xff\xff\xff" * 3,
        b"\x91" * 200_000,
        b"\x93\x90\x90\x90\x90",
        msgspec.msgpack.encode((["a", "b"], [b"1"], ["c"])),
        msgspec.msgpack.encode(({"a": 1, "b": 2}, [b"1", b"2"], ["c"])),
        msgspec.msgpack.encode(("ab", "12", "c")),
    ],
    ids=lambda content: content[:12].hex(),
)
def test_content_that_is_not_what_the_index_says_is_damage(content: bytes) -> None:
    packed = compressed(content)

    storage, file = crafted([block(packed, raw_length=max(3, len(content)))], packed)

    with little_memory(), pytest.raises(CheckpointDamagedError):
        read(storage, file)


def test_an_index_nested_without_end_is_damage() -> None:
    footer = b"\x81\xa1x" + b"\x91" * 200_000
    checksum = xxhash.xxh3_64_intdigest(HEAD + footer + len(footer).to_bytes(4, "big"))
    data = HEAD + footer + struct.pack(">IQ8s", len(footer), checksum, b"MADKCEHC")
    storage = MemoryStorage()
    storage.write("f", data)

    with pytest.raises(CheckpointDamagedError, match="index cannot be read"):
        read(storage, StateFile("f", len(data)))


@pytest.mark.parametrize("size", [0, 1, 60_000, 5 << 20, pytest.param(64 << 20, marks=pytest.mark.slow)])
def test_whatever_is_written_can_be_read_however_well_it_compresses(size: int) -> None:
    storage = MemoryStorage()
    writer = StateFileWriter(storage, "f", FileInfo("base", "op", 0, 1, 128, '"str"', STATES))
    values = [bytes(size)]
    keys, packed = msgspec.msgpack.encode(["key"]), msgspec.msgpack.encode(values)
    for group in range(3):
        writer.add_block(0, BlockContent([group], [1], [0], keys, packed, b"\x90"))

    file = writer.finish()

    assert file.size < size // 100 + 1000
    assert [found for _, found, _ in read(storage, file)] == [values] * 3


def test_a_file_from_before_the_limit_is_read_though_it_compresses_well() -> None:
    packed = compressed(bytes(1 << 20))
    blocks = [block(packed, raw_length=1 << 20, offset=len(HEAD) + number * len(packed)) for number in range(200)]

    storage, file = crafted(blocks, packed * len(blocks))

    with pytest.raises(CheckpointDamagedError) as caught:  # of zeros, which are no entries; its size is not the cause
        read(storage, file)
    assert "would expand" not in str(caught.value)
