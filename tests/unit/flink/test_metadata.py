"""The codec of Flink's `_metadata`: exact both ways, and safe on any input."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkdam.errors import CheckpointDamagedError, FormatTooNewError, RestoreError
from checkdam.flink import state_handles as h
from checkdam.flink.checkpoint_properties import RETAINED_CHECKPOINT, checkpoint_properties
from checkdam.flink.java_data import decode_utf, encode_utf
from checkdam.flink.metadata import (
    FinishedSubtask,
    MasterState,
    Metadata,
    OperatorState,
    SubtaskState,
    decode,
    encode,
    operator_id,
)

BYTES = h.ByteStreamHandle("inline", b"\x00\x01state")
KEYED: dict[str, h.KeyedHandle] = {
    "3 key groups": h.KeyGroupsHandle(0, (5, -1, 9), BYTES),
    "12 key groups": h.KeyGroupsHandle(43, (5, 9), h.FileHandle("file:/flink/x", 12), "id"),
    "7 savepoint": h.KeyGroupsSavepointHandle(0, (), h.RelativeFileHandle("x", 12)),
    "5 incremental": h.IncrementalHandle(4, "uuid", 0, 128, None, (h.NamedFile("1.sst", BYTES),), ()),
    "11 incremental": h.IncrementalHandle(4, "uuid", 0, 128, BYTES, (), (h.NamedFile("CURRENT", BYTES),), 7, "id"),
    "8 changelog": h.ChangelogHandle(0, 128, 99, (h.KeyGroupsHandle(0, (1,), BYTES),), (None,), 3, "id"),
    "14 changelog": h.ChangelogHandle(0, 128, 99, (), (h.KeyGroupsHandle(0, (1,), BYTES),), 3, "id", 8),
    "9 in memory": h.InMemoryChangesHandle(0, 128, 1, 2, ((-1, b"meta"), (5, b"")), "id"),
    "10 change streams": h.ChangeStreamsHandle(0, 128, ((1, BYTES), (7, None)), 20, 10, "id"),
    "13 change streams": h.ChangeStreamsHandle(0, 128, ((1, BYTES),), 20, 10, "id", "filesystem"),
    "3 inside 3": h.KeyGroupsHandle(0, (1,), h.KeyGroupsHandle(0, (2,), BYTES)),
    "15 segment": h.KeyGroupsHandle(0, (1,), h.SegmentHandle(1, 2, 1, "file:/flink/x", "id")),
    "16 empty segment": h.KeyGroupsHandle(0, (1,), h.EmptySegmentHandle()),
}
OPERATOR = {
    "4": h.OperatorStreamHandle((h.OperatorStateOffsets("offsets", 1, (0, 8)),), BYTES),
    "17": h.OperatorStreamHandle(
        (), h.EmptySegmentHandle(), h.MergedDirectories("taskowned/x", "shared/x", empty=True)
    ),
}
CHANNEL = h.ChannelHandle(2, 0, 1, (4, 8), 12, BYTES)
MERGED_CHANNEL = h.MergedChannelHandle(2, 12, BYTES, b"offsets")


def metadata_with(subtask: SubtaskState | FinishedSubtask, version: int = 6) -> Metadata:
    named = version >= 5
    operator = OperatorState(
        operator_id("count"), 3, 128, "Counts" if named else "", "count" if named else "", BYTES, ((2, subtask),)
    )
    finished = dataclasses.replace(operator, coordinator=None, subtasks=None)
    return Metadata(7, (MasterState(1, "hook", b"\x00payload"),), (operator, finished), properties_of(version), version)


def properties_of(version: int) -> bytes:
    return RETAINED_CHECKPOINT if version >= 4 else b""


def full_metadata() -> Metadata:
    return metadata_with(
        SubtaskState(
            OPERATOR["4"], OPERATOR["17"], KEYED["14 changelog"], KEYED["11 incremental"], (CHANNEL,), (MERGED_CHANNEL,)
        )
    )


@pytest.mark.parametrize("keyed", KEYED.values(), ids=KEYED.keys())
def test_every_keyed_handle_comes_back_as_it_was(keyed: h.KeyedHandle) -> None:
    metadata = metadata_with(SubtaskState(managed_keyed=keyed, raw_keyed=keyed))

    assert decode(encode(metadata)) == metadata


@pytest.mark.parametrize("operator", OPERATOR.values(), ids=OPERATOR.keys())
def test_every_operator_state_handle_comes_back_as_it_was(operator: h.OperatorStreamHandle) -> None:
    metadata = metadata_with(SubtaskState(managed_operator=operator, raw_operator=operator))

    assert decode(encode(metadata)) == metadata


@pytest.mark.parametrize("version", [3, 4, 5, 6])
def test_every_version_comes_back_as_it_was(version: int) -> None:
    metadata = metadata_with(SubtaskState(input_channels=(CHANNEL,), output_channels=(CHANNEL, CHANNEL)), version)

    assert decode(encode(metadata)) == metadata


def test_merged_channels_and_finished_subtasks_come_back_as_they_were() -> None:
    for subtask in (SubtaskState(input_channels=(MERGED_CHANNEL,), output_channels=(CHANNEL,)), FinishedSubtask()):
        metadata = metadata_with(subtask)

        assert decode(encode(metadata)) == metadata


def test_what_a_version_cannot_hold_is_not_written() -> None:
    with pytest.raises(ValueError, match="merged channel"):
        encode(metadata_with(SubtaskState(input_channels=(MERGED_CHANNEL,)), version=5))
    with pytest.raises(ValueError, match="properties"):
        encode(Metadata(1, version=3, properties=RETAINED_CHECKPOINT))
    with pytest.raises(ValueError, match="version 7"):
        encode(Metadata(1, version=7, properties=RETAINED_CHECKPOINT))
    with pytest.raises(ValueError, match="does not fit"):
        encode(Metadata(1, (MasterState(1, "x" * 65536, b""),), (), RETAINED_CHECKPOINT))


def test_a_truncated_file_is_damaged_wherever_it_is_cut() -> None:
    data = encode(full_metadata())

    for length in range(len(data) - len(RETAINED_CHECKPOINT) + 4):
        with pytest.raises(CheckpointDamagedError, match="chk-7/_metadata"):
            decode(data[:length], "chk-7/_metadata")


def test_altered_bytes_raise_nothing_but_restore_errors() -> None:
    data = encode(full_metadata())

    for position in range(len(data) - len(RETAINED_CHECKPOINT)):
        for value in (0x00, 0x01, 0x7F, 0x80, 0xFF):
            altered = data[:position] + bytes([value]) + data[position + 1 :]
            try:
                decode(altered)
            except RestoreError:
                continue


@given(st.binary(max_size=300))
def test_arbitrary_bytes_after_the_header_raise_nothing_but_restore_errors(tail: bytes) -> None:
    header = encode(Metadata(1, properties=RETAINED_CHECKPOINT))[:16]

    with pytest.raises(RestoreError):
        decode(header + tail)
    with pytest.raises(CheckpointDamagedError):
        decode(tail)


@pytest.mark.parametrize("nest", ["stream", "changelog"])
def test_endless_nesting_is_damage_and_not_a_stack_overflow(nest: str) -> None:
    stream: h.StreamHandle = BYTES
    keyed: h.KeyedHandle = KEYED["3 key groups"]
    for _ in range(100):
        stream = h.KeyGroupsHandle(0, (), stream)
        keyed = h.ChangelogHandle(0, 1, 1, (keyed,), (), 1, "id")
    handle = h.KeyGroupsHandle(0, (), stream) if nest == "stream" else keyed

    with pytest.raises(CheckpointDamagedError, match="nested"):
        decode(encode(metadata_with(SubtaskState(managed_keyed=handle))))


def test_a_newer_version_is_refused_by_name() -> None:
    data = bytearray(encode(full_metadata()))
    data[7] = 7

    with pytest.raises(FormatTooNewError, match="metadata version 7; this Checkdam reads up to 6"):
        decode(bytes(data))


@pytest.mark.parametrize("version", [1, 2])
def test_a_version_before_coordinators_is_refused_with_the_way_out(version: int) -> None:
    data = bytearray(encode(full_metadata()))
    data[7] = version

    with pytest.raises(RestoreError, match=r"written by Flink 1\.10 or older.*take a savepoint"):
        decode(bytes(data))


def test_bytes_after_the_end_are_damage() -> None:
    data = encode(Metadata(1, (MasterState(1, "hook", b"payload"),), version=3))
    longer_frame = data[:27] + bytes([data[27] + 1]) + data[28:-4] + b"\x00" + data[-4:]

    for longer in (data + b"\x00", longer_frame):
        with pytest.raises(CheckpointDamagedError, match="1 unexpected bytes"):
            decode(longer)


def test_a_count_is_compared_with_the_bytes_left_before_anything_is_read() -> None:
    empty = encode(Metadata(1, version=3))
    finished = encode(Metadata(1, (), (OperatorState(bytes(16), 1, 128, subtasks=None),), version=3))

    for data in (empty[:-8] + b"\x00\x00\x00\x02" + bytes(4), empty[:-4] + b"\x7f\xff\xff\xff" + bytes(40)):
        with pytest.raises(CheckpointDamagedError, match=r"expected .* items, found"):
            decode(data)
    with pytest.raises(CheckpointDamagedError, match="expected 2 subtasks, found 4 bytes"):
        decode(finished[:-4] + b"\x00\x00\x00\x02" + bytes(4))


def test_a_negative_checkpoint_id_is_damage() -> None:
    with pytest.raises(CheckpointDamagedError, match="checkpoint id -1"):
        decode(encode(Metadata(-1, version=3)))


@pytest.mark.parametrize("channel", [CHANNEL, MERGED_CHANNEL])
def test_an_output_channel_among_the_inputs_is_damage(channel: h.AnyChannelHandle) -> None:
    subtask = SubtaskState(input_channels=(channel,), output_channels=(channel,))
    data = encode(metadata_with(subtask))
    code = 1 if channel is CHANNEL else 3
    at = data.index(bytes([0, 0, 0, 1, code, 0, 0, 0, 2])) + 4

    with pytest.raises(CheckpointDamagedError, match=f"channel handle code {code + 1}"):
        decode(data[:at] + bytes([code + 1]) + data[at + 1 :])


def test_a_second_operator_state_handle_is_damage() -> None:
    subtask = SubtaskState(managed_operator=OPERATOR["4"])
    data = encode(metadata_with(subtask))
    at = data.index(b"\x00\x00\x00\x01\x04\x00\x00\x00\x01\x00\x07offsets")

    with pytest.raises(CheckpointDamagedError, match="found 2"):
        decode(data[:at] + b"\x00\x00\x00\x02" + data[at + 4 :])


def test_coordinator_state_must_be_inline() -> None:
    operator = OperatorState(bytes(16), 1, 128, coordinator=h.FileHandle("file:/x", 1))  # type: ignore[arg-type]

    with pytest.raises(CheckpointDamagedError, match="not inline"):
        decode(encode(Metadata(1, (), (operator,), RETAINED_CHECKPOINT)))


@pytest.mark.parametrize(
    ("uid", "expected"),
    [
        ("wc-sum", "70626c71e10753f62774df1bbae21f56"),
        ("ключ", "c302ab71f27060f6994d5a106d907f8a"),
        ("", "00000000000000000000000000000000"),
        ("The quick brown fox jumps over the lazy dog", "6c1b07bc7bbc4be347939ac4a93c437a"),
    ],
)
def test_an_operator_id_is_the_hash_flink_computes(uid: str, expected: str) -> None:
    assert operator_id(uid).hex() == expected


@given(st.text(st.characters(), max_size=20))
def test_every_text_survives_modified_utf8(text: str) -> None:
    assert decode_utf(encode_utf(text)) == text


def test_modified_utf8_is_java_s() -> None:
    assert encode_utf("a\0é🙂") == b"a\xc0\x80\xc3\xa9\xed\xa0\xbd\xed\xb9\x82"
    for wrong in (b"\x00", b"\xff", "🙂".encode(), b"\xc3"):
        with pytest.raises(ValueError):
            decode_utf(wrong)


def test_the_retention_is_told_in_flink_s_properties() -> None:
    start = RETAINED_CHECKPOINT.index(b"SnapshotType;xp") + len(b"SnapshotType;xp")
    cancelled_failed_finished_subsumed_suspended = slice(start, start + 5)

    retained = checkpoint_properties("RETAIN_ON_CANCELLATION")
    deleted = checkpoint_properties("DELETE_ON_CANCELLATION")

    assert retained == RETAINED_CHECKPOINT
    assert checkpoint_properties("delete_on_cancellation") == checkpoint_properties("retain_on_failure") == deleted
    assert retained[cancelled_failed_finished_subsumed_suspended] == b"\x00\x00\x01\x01\x00"
    assert deleted[cancelled_failed_finished_subsumed_suspended] == b"\x01\x00\x01\x01\x01"
    assert len(deleted) == len(retained) == 604
