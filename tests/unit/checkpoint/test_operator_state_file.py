"""Operator state: what is packed comes back, no altered byte is believed, and rescaling neither loses nor repeats."""

from __future__ import annotations

import struct
import tracemalloc
from dataclasses import replace
from itertools import count

import msgspec
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from checkdam.checkpoint.operator_state_file import INLINE_LIMIT, keep, pack, redistribute, unpack
from checkdam.errors import CheckpointDamagedError, FormatTooNewError, StateNotRestorableError
from checkdam.state.snapshot_handles import OperatorStateHandle, OperatorStatePart, Redistribution, StateFile
from checkdam.testing import MemoryStorage

SPLIT, UNION, BROADCAST = Redistribution
PARTS = (
    OperatorStatePart("offsets", SPLIT, '"int"', (b"one", b"", b"three")),
    OperatorStatePart("offsets", UNION, '"str"', ()),
    OperatorStatePart("rules", BROADCAST, '"bytes"', (b"\x00\xff",)),
)


def handle_of(*parts: OperatorStatePart) -> OperatorStateHandle:
    content, offsets = pack(parts)
    return OperatorStateHandle(offsets, content)


def no_file(path: str) -> bytes:
    raise FileNotFoundError(path)


def listed(*elements: bytes, mode: Redistribution = SPLIT, name: str = "s", type: str = '"int"') -> OperatorStateHandle:
    return handle_of(OperatorStatePart(name, mode, type, elements))


def test_what_was_packed_comes_back() -> None:
    assert unpack(handle_of(*PARTS), no_file) == PARTS
    assert unpack(handle_of(), no_file) == ()


def test_every_element_stands_at_its_offset() -> None:
    content, offsets = pack(PARTS)

    assert [(name, mode) for name, mode, _ in offsets] == [(part.name, part.redistribution) for part in PARTS]
    for part, (_, _, begins) in zip(PARTS, offsets, strict=True):
        assert [content[at : at + len(e)] for at, e in zip(begins, part.elements, strict=True)] == list(part.elements)


def test_every_flipped_bit_truncation_and_extension_is_found() -> None:
    content, offsets = pack(PARTS)
    flipped = [
        content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
        for at in range(len(content))
        for bit in range(8)
    ]

    for altered in (*flipped, *(content[:length] for length in range(len(content))), content + b"\x00"):
        with pytest.raises(CheckpointDamagedError, match="operator state in the checkpoint's metadata is damaged"):
            unpack(OperatorStateHandle(offsets, altered), no_file)


def test_a_newer_format_is_told_apart_from_damage() -> None:
    content, offsets = pack(PARTS)
    body = content[:8] + struct.pack(">I", 2) + content[12:-8]
    newer = body + struct.pack(">Q", xxhash.xxh3_64_intdigest(body))

    with pytest.raises(FormatTooNewError, match="operator state format 2; this Checkdam reads up to 1"):
        unpack(OperatorStateHandle(offsets, newer), no_file)


def test_small_state_rides_along_and_large_state_gets_a_file() -> None:
    storage = MemoryStorage()
    small = keep(PARTS, storage, "shared/a")
    large_parts = (OperatorStatePart("big", SPLIT, '"bytes"', (b"x" * INLINE_LIMIT,)),)

    large = keep(large_parts, storage, "shared/b")

    assert isinstance(small.content, bytes)
    assert isinstance(large.content, StateFile)
    assert [(status.path, status.size) for status in storage.list("")] == [("shared/b", large.content.size)]
    assert unpack(large, storage.read) == large_parts


def test_a_file_that_is_gone_or_altered_is_damage() -> None:
    storage = MemoryStorage()
    large = keep((OperatorStatePart("big", SPLIT, '"bytes"', (b"x" * INLINE_LIMIT,)),), storage, "shared/b")
    whole = storage.read("shared/b")

    storage.write("shared/b", whole[:-1])
    with pytest.raises(CheckpointDamagedError, match='state file "shared/b" is damaged: its checksum'):
        unpack(large, storage.read)
    storage.delete("shared/b")
    with pytest.raises(CheckpointDamagedError, match='state file "shared/b" is damaged: it is gone'):
        unpack(large, storage.read)


@given(
    lists=st.lists(st.integers(0, 7), min_size=1, max_size=6),
    new=st.integers(1, 9),
    mode=st.sampled_from(Redistribution),
)
def test_rescaling_gives_each_element_to_whom_it_belongs(lists: list[int], new: int, mode: Redistribution) -> None:
    numbers = count()
    elements = [[b"%d" % next(numbers) for _ in range(size)] for size in lists]
    handles = [listed(*each, mode=mode) for each in elements]

    given = [redistribute(handles, len(lists), new, subtask, no_file)["s", mode].elements for subtask in range(new)]

    everything = [element for each in elements for element in each]
    if mode is BROADCAST:
        assert given == [tuple(elements[subtask % len(lists)]) for subtask in range(new)]
    elif mode is UNION:
        assert given == [tuple(everything)] * new
    elif new == len(lists):
        assert given == [tuple(each) for each in elements]
    else:
        assert [element for each in given for element in each] == everything
        assert max(map(len, given)) - min(map(len, given)) <= 1


def test_subtasks_without_state_give_nothing_and_get_their_share() -> None:
    handles = [None, listed(b"1", b"2"), None]

    same = [redistribute(handles, 3, 3, subtask, no_file) for subtask in range(3)]
    wider = [redistribute(handles, 3, 4, subtask, no_file)["s", SPLIT].elements for subtask in range(4)]

    assert [{key: part.elements for key, part in each.items()} for each in same] == [
        {},
        {("s", SPLIT): (b"1", b"2")},
        {},
    ]
    assert wider == [(b"1",), (b"2",), (), ()]


def test_a_broadcast_copy_comes_from_the_next_subtask_that_has_one() -> None:
    handles = [None, listed(b"rule", mode=BROADCAST), None]

    given = [redistribute(handles, 3, 3, subtask, no_file)["s", BROADCAST].elements for subtask in range(3)]

    assert given == [(b"rule",)] * 3


def test_only_the_content_that_is_needed_is_read() -> None:
    storage = MemoryStorage()
    big = b"x" * INLINE_LIMIT
    handles = [
        keep((OperatorStatePart("s", SPLIT, '"bytes"', (big,)),), storage, f"shared/{subtask}") for subtask in range(3)
    ]
    read: list[str] = []

    def reading(path: str) -> bytes:
        read.append(path)
        return storage.read(path)

    redistribute(handles, 3, 3, 1, reading)

    assert read == ["shared/1"]


def test_one_state_of_two_types_is_refused_by_name() -> None:
    handles = [listed(b"1"), listed(b"a", type='"str"')]

    with pytest.raises(StateNotRestorableError, match='operator state "s" was kept with different types'):
        redistribute(handles, 2, 1, 0, no_file)
    empty = [replace(listed(b"1")), listed(type='"str"')]
    assert redistribute(empty, 2, 1, 0, no_file)["s", SPLIT].type == '"int"'


def crafted(header: bytes, elements: bytes = b"") -> OperatorStateHandle:
    """Content with a valid checksum over a header of somebody's own."""
    body = struct.pack(">8sII", b"CDOPSTAT", 1, len(header)) + header + elements
    return OperatorStateHandle((), body + xxhash.xxh3_64_digest(body))


@pytest.mark.parametrize(
    "lengths", [[1 << 20, -(1 << 20)] * 5000, [1 << 62], [-1, 1], [1, -1]], ids=lambda each: each[0]
)
def test_lengths_that_lead_back_or_beyond_the_end_are_damage(lengths: list[int]) -> None:
    handle = crafted(msgspec.msgpack.encode([("s", 0, '"int"', lengths)]), bytes(1 << 20))
    tracemalloc.start()

    with pytest.raises(CheckpointDamagedError):
        unpack(handle, no_file)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize(
    "header", [b"\x91" * 200_000, b"\x91\x95\xa0\x00\xa0\x90" + b"\x91" * 200_000, b"\xdd\xff\xff\xff\xff"]
)
def test_a_header_nested_or_listed_without_end_is_damage(header: bytes) -> None:
    with pytest.raises(CheckpointDamagedError):
        unpack(crafted(header), no_file)
