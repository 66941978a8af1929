"""A completed checkpoint and its `_metadata`: nothing lost, and no altered byte believed."""

from __future__ import annotations

import dataclasses
import os
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest
import xxhash

from checkdam.checkpoint import completed
from checkdam.checkpoint.completed import SOURCES_UID, CompletedCheckpoint, OperatorEntry
from checkdam.checkpoint.metadata_file import FORMAT_VERSION, MOST_BYTES, from_metadata, read_metadata, to_metadata
from checkdam.checkpoint.settings import CheckpointRetention
from checkdam.errors import CheckpointDamagedError, FormatTooNewError, StateNotRestorableError
from checkdam.flink.checkpoint_properties import RETAINED_CHECKPOINT, savepoint_properties
from checkdam.flink.metadata import FinishedSubtask, Metadata, SubtaskState, decode, encode, operator_id
from checkdam.flink.state_handles import (
    ByteStreamHandle,
    IncrementalHandle,
    OperatorStateOffsets,
    RelativeFileHandle,
)
from checkdam.ids import CheckpointId, Epoch, JobId, OperatorUid, SubtaskIndex
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import (
    KeyedStateHandle,
    OperatorStateHandle,
    Redistribution,
    SavepointFormat,
    StateFile,
)
from checkdam.storage import open_storage

BASE, DELTA, OTHER = StateFile("shared/base", 1000), StateFile("shared/delta", 20), StateFile("shared/ключ🙂", 3)
LARGE, SST = StateFile("shared/large", 30_000), StateFile("shared/sst-1", 7, "000012.sst")
OFFSETS_AND_BYTES = OperatorStateHandle(
    (("offsets", Redistribution.SPLIT, (20, 28)), ("rules", Redistribution.BROADCAST, (36,))), b"content"
)
IN_A_FILE = OperatorStateHandle((("all", Redistribution.UNION, ()),), LARGE)
CHECKPOINT = CompletedCheckpoint(
    checkpoint_id=CheckpointId(7),
    job_id=JobId("0123456789abcdef0123456789abcdef"),
    job_name="word count",
    epoch=Epoch(41),
    triggered_at=datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=UTC),
    completed_at=datetime(2024, 5, 1, 12, 0, 1, 654321, tzinfo=UTC),
    parallelism=2,
    max_parallelism=128,
    operators=(
        OperatorEntry(
            OperatorUid("count"),
            "Counts",
            2,
            128,
            {
                SubtaskIndex(0): KeyedStateHandle(KeyGroupRange(0, 63), (BASE, DELTA)),
                SubtaskIndex(1): KeyedStateHandle(KeyGroupRange(64, 127), (OTHER, SST), "rocksdb"),
            },
            operator_states={SubtaskIndex(1): OFFSETS_AND_BYTES},
        ),
        OperatorEntry(
            OperatorUid("numbers"),
            "Numbers",
            3,
            32,
            operator_states={SubtaskIndex(0): OFFSETS_AND_BYTES, SubtaskIndex(2): IN_A_FILE},
            finished=frozenset({SubtaskIndex(1), SubtaskIndex(2)}),
        ),
        OperatorEntry(OperatorUid("sink"), "Files", 1, 128, committables=(b"\x00part-1", b""), coordinator=b"\xff"),
    ),
    source_position=b'v1\n{"offset": 3}',
    settings={"mode": "exactly_once", "backend": "hashmap"},
    event_time={"clicks": 1_700_000_000_000, "assigner-1": -5},
    watermarks={OperatorUid("count"): 1_600_000_000_000, OperatorUid("a"): -(2**62)},
)


def resealed(metadata: Metadata) -> bytes:
    """A file with a valid checksum, as another version of the writer would make it."""
    data = encode(metadata)
    at = data.index(b"checkdam-digest") + len("checkdam-digest") + 4
    empty = data[:at] + bytes(8) + data[at + 8 :]
    return data[:at] + xxhash.xxh3_64_digest(empty) + data[at + 8 :]


def test_a_checkpoint_comes_back_as_it_was() -> None:
    assert from_metadata(to_metadata(CHECKPOINT)) == CHECKPOINT


def test_an_empty_checkpoint_comes_back_as_it_was() -> None:
    empty = dataclasses.replace(CHECKPOINT, operators=(), source_position=b"", settings={})

    assert from_metadata(to_metadata(empty)) == empty


def test_instants_of_any_zone_come_back_equal_and_in_utc() -> None:
    there = timezone(timedelta(hours=5, minutes=30))
    checkpoint = dataclasses.replace(CHECKPOINT, completed_at=CHECKPOINT.completed_at.astimezone(there))

    restored = from_metadata(to_metadata(checkpoint))

    assert restored.completed_at == CHECKPOINT.completed_at
    assert restored.completed_at.utcoffset() == timedelta(0)


def test_equal_checkpoints_give_equal_bytes_whatever_order_their_mappings_have() -> None:
    operator = CHECKPOINT.operators[0]
    turned = dataclasses.replace(
        CHECKPOINT,
        settings=dict(reversed(list(CHECKPOINT.settings.items()))),
        operators=(
            dataclasses.replace(operator, subtasks=dict(reversed(list(operator.subtasks.items())))),
            *CHECKPOINT.operators[1:],
        ),
    )

    assert to_metadata(turned) == to_metadata(CHECKPOINT)


def test_files_are_all_files_of_all_subtasks_each_once() -> None:
    sharing = OperatorEntry(
        OperatorUid("copy"), "", 1, 128, {SubtaskIndex(0): KeyedStateHandle(KeyGroupRange(0, 127), (BASE,))}
    )
    checkpoint = dataclasses.replace(CHECKPOINT, operators=(*CHECKPOINT.operators, sharing))

    assert checkpoint.files() == {BASE, DELTA, OTHER, SST, LARGE}
    assert checkpoint.state_bytes == 31_030 + checkpoint.inline_bytes
    assert checkpoint.inline_bytes == 14  # of operator state that is in no file


def test_flink_sees_incremental_handles_with_movable_files() -> None:
    metadata = decode(to_metadata(CHECKPOINT))

    count, _, _, sources = metadata.operators
    subtask = dict(count.subtasks or ())[0]
    assert isinstance(subtask, SubtaskState)
    handle = subtask.managed_keyed
    assert isinstance(handle, IncrementalHandle)
    assert (metadata.version, metadata.checkpoint_id, metadata.properties) == (6, 7, RETAINED_CHECKPOINT)
    assert (count.uid, count.operator_id) == ("count", operator_id("count"))
    assert (handle.first, handle.count, handle.checkpointed_size) == (0, 64, 1020)
    assert [(file.local_name, file.state) for file in handle.shared] == [
        ("000000.state", RelativeFileHandle("../shared/base", 1000)),
        ("000001.state", RelativeFileHandle("../shared/delta", 20)),
    ]
    assert (sources.uid, sources.coordinator) == (
        SOURCES_UID,
        ByteStreamHandle("source-position", CHECKPOINT.source_position),
    )


def test_rocksdb_files_keep_the_names_rocksdb_gave_them() -> None:
    metadata = decode(to_metadata(CHECKPOINT))

    subtask = dict(metadata.operators[0].subtasks or ())[1]
    assert isinstance(subtask, SubtaskState)
    assert isinstance(subtask.managed_keyed, IncrementalHandle)
    assert [file.local_name for file in subtask.managed_keyed.shared] == ["000000.state", "000012.sst"]


def test_flink_sees_operator_state_handles_and_finished_subtasks() -> None:
    metadata = decode(to_metadata(CHECKPOINT))

    subtasks = dict(metadata.operators[1].subtasks or ())
    inline, large = subtasks[0], subtasks[2]
    assert isinstance(inline, SubtaskState)
    assert isinstance(large, SubtaskState)
    assert inline.managed_operator is not None
    assert large.managed_operator is not None
    assert inline.managed_operator.states == (
        OperatorStateOffsets("offsets", 0, (20, 28)),
        OperatorStateOffsets("rules", 2, (36,)),
    )
    assert inline.managed_operator.state == ByteStreamHandle("operator-state", b"content")
    assert large.managed_operator.state == RelativeFileHandle("../shared/large", 30_000)
    assert large.managed_operator.states == (OperatorStateOffsets("all", 1, ()),)
    assert subtasks[1] == FinishedSubtask()


def test_an_operator_all_of_whose_subtasks_have_finished_comes_back_as_it_was() -> None:
    done = OperatorEntry(OperatorUid("done"), "", 2, 128, finished=frozenset({SubtaskIndex(0), SubtaskIndex(1)}))
    checkpoint = dataclasses.replace(CHECKPOINT, operators=(done,))

    assert from_metadata(to_metadata(checkpoint)) == checkpoint


def test_every_flipped_bit_of_a_file_is_found() -> None:
    data = to_metadata(CHECKPOINT)

    for position in range(len(data)):
        for flip in (0xFF, *(1 << bit for bit in range(8))):
            altered = bytearray(data)
            altered[position] ^= flip
            with pytest.raises(CheckpointDamagedError, match='"dir/chk-7/_metadata'):
                from_metadata(bytes(altered), "dir/chk-7/_metadata")


def test_every_truncation_and_extension_of_a_file_is_found() -> None:
    data = to_metadata(CHECKPOINT)

    for altered in (*(data[:length] for length in range(len(data))), data + b"\x00"):
        with pytest.raises(CheckpointDamagedError, match='"dir/chk-7/_metadata'):
            from_metadata(altered, "dir/chk-7/_metadata")


def test_a_newer_format_is_refused_by_name() -> None:
    metadata = decode(to_metadata(CHECKPOINT))
    digest, own = metadata.master_states
    newer = dataclasses.replace(
        metadata, master_states=(digest, dataclasses.replace(own, version=FORMAT_VERSION + 1, payload=b"?"))
    )

    with pytest.raises(FormatTooNewError, match="checkpoint format 4; this Checkdam reads up to 3"):
        from_metadata(resealed(newer), "chk-7/_metadata")


def test_a_newer_flink_layout_with_a_valid_checksum_is_too_new_and_not_damaged() -> None:
    data = bytearray(to_metadata(CHECKPOINT))
    data[7] = 7
    at = data.index(b"checkdam-digest") + len("checkdam-digest") + 4
    data[at : at + 8] = bytes(8)
    data[at : at + 8] = xxhash.xxh3_64_digest(bytes(data))

    with pytest.raises(FormatTooNewError, match="metadata version 7"):
        from_metadata(bytes(data))


def test_what_flink_wrote_is_told_apart_from_damage() -> None:
    data = encode(Metadata(3, properties=RETAINED_CHECKPOINT))

    with pytest.raises(StateNotRestorableError, match='"chk-3/_metadata" was written by Flink'):
        from_metadata(data, "chk-3/_metadata")


@pytest.mark.parametrize(
    "name", ["shared/base", "../../etc/passwd", "../shared/../../x", "/shared/base", "..//x", "../"]
)
def test_a_file_outside_the_job_directory_is_never_believed(name: str) -> None:
    data = to_metadata(CHECKPOINT)
    metadata = decode(data)
    operator = metadata.operators[0]
    assert operator.subtasks is not None
    index, subtask = operator.subtasks[0]
    assert isinstance(subtask, SubtaskState)
    assert isinstance(subtask.managed_keyed, IncrementalHandle)
    file = dataclasses.replace(subtask.managed_keyed.shared[0], state=RelativeFileHandle(name, 1))
    handle = dataclasses.replace(subtask.managed_keyed, shared=(file,))
    changed = dataclasses.replace(operator, subtasks=((index, SubtaskState(managed_keyed=handle)),))

    with pytest.raises(CheckpointDamagedError, match="outside the job's directory"):
        from_metadata(resealed(dataclasses.replace(metadata, operators=(changed,))))


def test_a_file_outside_the_job_directory_is_never_written() -> None:
    handle = KeyedStateHandle(KeyGroupRange(0, 127), (StateFile("../other/x", 1),))
    keyed = OperatorEntry(OperatorUid("count"), "", 1, 128, {SubtaskIndex(0): handle})
    outside = OperatorStateHandle((), StateFile("/x", 1))
    operator = OperatorEntry(OperatorUid("count"), "", 1, 128, operator_states={SubtaskIndex(0): outside})

    for entry in (keyed, operator):
        with pytest.raises(ValueError, match="does not lie below"):
            to_metadata(dataclasses.replace(CHECKPOINT, operators=(entry,)))


def test_a_valid_checksum_over_nonsense_is_damage() -> None:
    metadata = decode(to_metadata(CHECKPOINT))
    digest, own = metadata.master_states
    for payload in (b"", b"\xc1", msgspec.msgpack.encode({"job_id": 1})):
        nonsense = dataclasses.replace(metadata, master_states=(digest, dataclasses.replace(own, payload=payload)))

        with pytest.raises(CheckpointDamagedError):
            from_metadata(resealed(nonsense))


def test_a_checkpoint_that_cannot_be_told_apart_is_not_built() -> None:
    twice = (CHECKPOINT.operators[0], CHECKPOINT.operators[0])
    reserved = (dataclasses.replace(CHECKPOINT.operators[0], uid=SOURCES_UID),)

    for operators in (twice, reserved):
        with pytest.raises(ValueError, match="uids must differ"):
            dataclasses.replace(CHECKPOINT, operators=operators)
    naive = CHECKPOINT.completed_at.replace(tzinfo=None)
    with pytest.raises(ValueError, match="time zone"):
        dataclasses.replace(CHECKPOINT, triggered_at=naive)
    with pytest.raises(ValueError, match="time zone"):
        dataclasses.replace(CHECKPOINT, completed_at=naive)


def test_the_retention_setting_reaches_flink_s_properties() -> None:
    kept, on_failure, never = (
        decode(
            to_metadata(dataclasses.replace(CHECKPOINT, settings={completed.RETENTION_SETTING: retention.value}))
        ).properties
        for retention in CheckpointRetention
    )

    assert kept == RETAINED_CHECKPOINT
    assert len({kept, on_failure, never}) == 3


# ---------------------------------------------------------------------------------------------- savepoints


def beside(checkpoint: CompletedCheckpoint, format: SavepointFormat) -> CompletedCheckpoint:
    """The same as a savepoint, its files beside `_metadata`."""

    def moved(file: StateFile) -> StateFile:
        return dataclasses.replace(file, path=file.path.removeprefix("shared/"))

    operators = [
        dataclasses.replace(
            operator,
            subtasks={
                index: dataclasses.replace(handle, files=tuple(map(moved, handle.files)))
                for index, handle in operator.subtasks.items()
            },
            operator_states={
                index: dataclasses.replace(
                    handle, content=moved(handle.content) if isinstance(handle.content, StateFile) else handle.content
                )
                for index, handle in operator.operator_states.items()
            },
        )
        for operator in checkpoint.operators
    ]
    return dataclasses.replace(checkpoint, operators=tuple(operators), savepoint_format=format)


@pytest.mark.parametrize("format", SavepointFormat)
def test_a_savepoint_comes_back_as_it_was(format: SavepointFormat) -> None:
    savepoint = beside(CHECKPOINT, format)

    restored = from_metadata(to_metadata(savepoint))

    assert restored == savepoint
    assert restored.is_savepoint
    assert not from_metadata(to_metadata(CHECKPOINT)).is_savepoint


def test_flink_sees_a_savepoint_whose_files_are_its_own_and_beside_it() -> None:
    metadata = decode(to_metadata(beside(CHECKPOINT, SavepointFormat.NATIVE)))

    subtask = dict(metadata.operators[0].subtasks or ())[1]
    assert isinstance(subtask, SubtaskState)
    handle = subtask.managed_keyed
    assert isinstance(handle, IncrementalHandle)
    assert handle.shared == ()
    assert [(file.local_name, file.state) for file in handle.private] == [
        ("000000.state", RelativeFileHandle("ключ🙂", 3)),
        ("000012.sst", RelativeFileHandle("sst-1", 7)),
    ]
    assert metadata.properties == savepoint_properties(SavepointFormat.NATIVE)


def test_checkdam_of_format_2_knows_that_a_savepoint_is_too_new_for_it() -> None:
    versions = {
        format: decode(to_metadata(each)).master_states[1].version
        for format, each in ((None, CHECKPOINT), ("savepoint", beside(CHECKPOINT, SavepointFormat.CANONICAL)))
    }

    assert versions == {None: 2, "savepoint": 3}


def test_a_savepoint_with_a_file_elsewhere_is_not_written() -> None:
    with pytest.raises(ValueError, match="beside the metadata"):
        to_metadata(dataclasses.replace(CHECKPOINT, savepoint_format=SavepointFormat.CANONICAL))


@pytest.mark.parametrize("name", ["../shared/base", "sub/base", "..", ".", ""])
def test_a_savepoint_that_names_a_file_outside_its_directory_is_damaged(name: str) -> None:
    metadata = decode(to_metadata(beside(CHECKPOINT, SavepointFormat.CANONICAL)))
    count = metadata.operators[0]
    subtask = dict(count.subtasks or ())[0]
    assert isinstance(subtask, SubtaskState)
    handle = subtask.managed_keyed
    assert isinstance(handle, IncrementalHandle)
    stray = dataclasses.replace(handle.private[0], state=RelativeFileHandle(name, 5))
    forged = dataclasses.replace(
        count,
        subtasks=((0, dataclasses.replace(subtask, managed_keyed=dataclasses.replace(handle, private=(stray,)))),),
    )

    with pytest.raises(CheckpointDamagedError, match="outside"):
        from_metadata(resealed(dataclasses.replace(metadata, operators=(forged,))))


def crafted(**changes: object) -> CompletedCheckpoint:
    """A checkpoint of one operator with these fields of it changed; those that begin with "the_" are the job's."""
    of_job = {name.removeprefix("the_"): value for name, value in changes.items() if name.startswith("the_")}
    of_operator = {name: value for name, value in changes.items() if not name.startswith("the_")}
    operator = dataclasses.replace(CHECKPOINT.operators[0], **of_operator)  # type: ignore[arg-type]
    return dataclasses.replace(CHECKPOINT, operators=(operator,), **of_job)  # type: ignore[arg-type]


def keyed(first: int, last: int, *files: StateFile) -> dict[SubtaskIndex, KeyedStateHandle]:
    return {SubtaskIndex(0): KeyedStateHandle(KeyGroupRange(first, last), files)}


@pytest.mark.parametrize(
    ("checkpoint", "reason"),
    [
        (crafted(the_parallelism=2**31), "parallelism 2147483648"),
        (crafted(the_parallelism=0), "parallelism 0"),
        (crafted(the_max_parallelism=2**31 - 1), "max parallelism 2147483647"),
        (crafted(parallelism=2**31 - 1, max_parallelism=2**31 - 1), "parallelism 2147483647"),
        (crafted(parallelism=-1), "parallelism -1"),
        (crafted(subtasks=keyed(0, 2**31 - 2)), "key groups"),
        (crafted(subtasks=keyed(-5, 3)), "key groups"),
        (crafted(subtasks=keyed(0, 3, StateFile("shared/x", -1))), "-1 bytes"),
        (crafted(subtasks=keyed(0, 3, StateFile("shared/x", 1), StateFile("shared/x", 1))), "twice"),
        (crafted(subtasks=keyed(0, 3, StateFile("shared/x", 1, "../x.sst"))), "local name"),
        (crafted(finished=frozenset({SubtaskIndex(2**31 - 1)})), "beyond its parallelism"),
        (crafted(operator_states={SubtaskIndex(2**31 - 1): OFFSETS_AND_BYTES}), "beyond its parallelism"),
        (crafted(the_job_id=JobId("../../elsewhere")), "job id"),
        (crafted(the_job_id=JobId("")), "job id"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_numbers_and_names_that_no_checkpoint_has_are_damage(checkpoint: CompletedCheckpoint, reason: str) -> None:
    with pytest.raises(CheckpointDamagedError, match=reason):
        from_metadata(to_metadata(checkpoint))


def test_a_description_nested_without_end_is_damage() -> None:
    metadata = decode(to_metadata(CHECKPOINT))
    own = metadata.master_states[1]
    deep = b"\x81\xa1x" + b"\x91" * 100_000
    states = (metadata.master_states[0], dataclasses.replace(own, payload=deep))

    with pytest.raises(CheckpointDamagedError, match="recursion"):
        from_metadata(resealed(dataclasses.replace(metadata, master_states=states)))


def test_a_file_larger_than_any_that_is_written_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "_metadata").touch()
    os.truncate(tmp_path / "_metadata", MOST_BYTES + 1)  # sparse: takes no room

    with pytest.raises(CheckpointDamagedError, match="1,073,741,825 bytes"):
        read_metadata(open_storage(str(tmp_path)), "_metadata")
