"""The `_metadata` file of a Flink checkpoint or savepoint: versions 3 to 6, decoded and encoded byte for byte.

    magic, version, checkpoint id
    master states      a name, a version and bytes each
    operators          id, parallelism, coordinator state and, per subtask, handles to its state
    properties         since version 4: a Java-serialized CheckpointProperties object, to the end of the file

Pure: opens no files. Callers read what the handles point to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from checkdam.errors import FormatTooNewError, RestoreError
from checkdam.flink.handle_codec import KEYED, OPERATOR_STATE, STREAM, channels
from checkdam.flink.java_data import JavaReader, JavaWriter
from checkdam.flink.state_handles import (
    AnyChannelHandle,
    ByteStreamHandle,
    KeyedHandle,
    MergedChannelHandle,
    OperatorStreamHandle,
)

OLDEST_VERSION: Final = 3
NEWEST_VERSION: Final = 6

_MAGIC = 0x4960672D
_MASTER_STATE_MAGIC = 0xC96B1696 - (1 << 32)
_JAVA_STREAM_MAGIC = b"\xac\xed\x00\x05"
_SMALLEST_MASTER_STATE = 18
_SMALLEST_OPERATOR = 29
_FULLY_FINISHED = -1


@dataclass(frozen=True)
class MasterState:
    """Bytes that a hook on the job master put into the checkpoint."""

    version: int
    name: str
    payload: bytes


@dataclass(frozen=True)
class SubtaskState:
    """The state of one running subtask."""

    managed_operator: OperatorStreamHandle | None = None
    raw_operator: OperatorStreamHandle | None = None
    managed_keyed: KeyedHandle | None = None
    raw_keyed: KeyedHandle | None = None
    input_channels: tuple[AnyChannelHandle, ...] = ()
    output_channels: tuple[AnyChannelHandle, ...] = ()


@dataclass(frozen=True)
class FinishedSubtask:
    """A subtask that had read all its input: it has no state and does not run again."""


@dataclass(frozen=True)
class OperatorState:
    """One operator; `subtasks` is in file order, None if the operator is fully finished.

    Before version 5 the file holds neither name nor uid: both are empty then.
    """

    operator_id: bytes
    parallelism: int
    max_parallelism: int
    name: str = ""
    uid: str = ""
    coordinator: ByteStreamHandle | None = None
    subtasks: tuple[tuple[int, SubtaskState | FinishedSubtask], ...] | None = ()


@dataclass(frozen=True)
class Metadata:
    """The content of a `_metadata` file; `properties` are the Java object's bytes, undecoded."""

    checkpoint_id: int
    master_states: tuple[MasterState, ...] = ()
    operators: tuple[OperatorState, ...] = ()
    properties: bytes = field(default=b"", repr=False)
    version: int = NEWEST_VERSION


# ---------------------------------------------------------------------------------------------- decoding


def decode(data: bytes, path: str = "_metadata") -> Metadata:
    """Decode a `_metadata` file; `path` names it in errors.

    Raises:
        CheckpointDamagedError: the bytes are not a complete `_metadata` file.
        FormatTooNewError: a newer Flink wrote it.
        RestoreError: Flink 1.10 or older wrote it.
    """
    reader = JavaReader(data, path)
    if reader.i32() != _MAGIC:
        raise reader.damaged("not the beginning of a checkpoint's metadata")
    version = reader.i32()
    _check_version(version, reader, path)
    checkpoint_id = reader.i64()
    if checkpoint_id < 0:
        raise reader.damaged(f"checkpoint id {checkpoint_id}")
    master_states = tuple(_read_master_state(reader, path) for _ in range(reader.count(_SMALLEST_MASTER_STATE)))
    operators = tuple(_read_operator(reader, version) for _ in range(reader.count(_SMALLEST_OPERATOR)))
    return Metadata(checkpoint_id, master_states, operators, _read_properties(reader, version), version)


def _check_version(version: int, reader: JavaReader, path: str) -> None:
    if version > NEWEST_VERSION:
        raise FormatTooNewError(
            f'"{path}" has metadata version {version}; this Checkdam reads up to {NEWEST_VERSION}',
            hint="Use a newer Checkdam.",
        )
    if version < 1:
        raise reader.damaged(f"metadata version {version}")
    if version < OLDEST_VERSION:
        raise RestoreError(
            f'"{path}" has metadata version {version}, written by Flink 1.10 or older; '
            f"this Checkdam reads version {OLDEST_VERSION} and later",
            hint="Restore it with Flink 1.11 to 1.20 and take a savepoint there.",
        )


def _read_master_state(reader: JavaReader, path: str) -> MasterState:
    if reader.i32() != _MASTER_STATE_MAGIC:
        raise reader.damaged("expected a master state")
    frame = JavaReader(reader.blob(), f"{path}, master state")
    state = MasterState(frame.i32(), frame.utf(), frame.blob())
    frame.expect_end()
    return state


def _read_operator(reader: JavaReader, version: int) -> OperatorState:
    name, uid = (reader.utf(), reader.utf()) if version >= 5 else ("", "")
    operator_id, parallelism, max_parallelism = reader.take(16), reader.i32(), reader.i32()
    coordinator = STREAM.read(reader)
    if not isinstance(coordinator, ByteStreamHandle | None):
        raise reader.damaged("coordinator state that is not inline")
    return OperatorState(
        operator_id, parallelism, max_parallelism, name, uid, coordinator, _read_subtasks(reader, version)
    )


def _read_subtasks(reader: JavaReader, version: int) -> tuple[tuple[int, SubtaskState | FinishedSubtask], ...] | None:
    number = reader.i32()
    if number == _FULLY_FINISHED:
        return None
    if not 0 <= number <= reader.left // 4:
        raise reader.damaged(f"expected {number} subtasks, found {reader.left} bytes")
    return tuple(_read_subtask(reader, version) for _ in range(number))


def _read_subtask(reader: JavaReader, version: int) -> tuple[int, SubtaskState | FinishedSubtask]:
    index = reader.i32()
    if index < 0:
        return -(index + 1), FinishedSubtask()
    return index, SubtaskState(
        managed_operator=_read_optional_operator_state(reader),
        raw_operator=_read_optional_operator_state(reader),
        managed_keyed=KEYED.read(reader),
        raw_keyed=KEYED.read(reader),
        input_channels=tuple(channels(version, output=False).read(reader) for _ in range(reader.count(25))),
        output_channels=tuple(channels(version, output=True).read(reader) for _ in range(reader.count(25))),
    )


def _read_optional_operator_state(reader: JavaReader) -> OperatorStreamHandle | None:
    number = reader.i32()
    if number not in (0, 1):
        raise reader.damaged(f"expected at most one operator state handle, found {number}")
    found: OperatorStreamHandle | None = OPERATOR_STATE.read(reader) if number else None
    return found


def _read_properties(reader: JavaReader, version: int) -> bytes:
    if version < 4:
        reader.expect_end()
        return b""
    properties = reader.take(reader.left)
    if not properties.startswith(_JAVA_STREAM_MAGIC):
        raise reader.damaged("no checkpoint properties at the end")
    return properties


# ---------------------------------------------------------------------------------------------- encoding


def encode(metadata: Metadata) -> bytes:
    """Encode a `_metadata` file of `metadata.version`; restores the exact bytes that `decode` read.

    Raises:
        ValueError: the content cannot be represented in this version.
    """
    version = metadata.version
    if not OLDEST_VERSION <= version <= NEWEST_VERSION:
        raise ValueError(f"metadata version {version} cannot be written")
    if (version >= 4) != metadata.properties.startswith(_JAVA_STREAM_MAGIC):
        raise ValueError("checkpoint properties are needed from version 4 on, and only there")
    writer = JavaWriter()
    writer.i32(_MAGIC)
    writer.i32(version)
    writer.i64(metadata.checkpoint_id)
    writer.i32(len(metadata.master_states))
    for state in metadata.master_states:
        _write_master_state(writer, state)
    writer.i32(len(metadata.operators))
    for operator in metadata.operators:
        _write_operator(writer, operator, version)
    writer.raw(metadata.properties)
    return writer.to_bytes()


def _write_master_state(writer: JavaWriter, state: MasterState) -> None:
    frame = JavaWriter()
    frame.i32(state.version)
    frame.utf(state.name)
    frame.blob(state.payload)
    writer.i32(_MASTER_STATE_MAGIC)
    writer.blob(frame.to_bytes())


def _write_operator(writer: JavaWriter, operator: OperatorState, version: int) -> None:
    if len(operator.operator_id) != 16:
        raise ValueError(f"an operator id has 16 bytes, not {len(operator.operator_id)}")
    if version >= 5:
        writer.utf(operator.name)
        writer.utf(operator.uid)
    writer.raw(operator.operator_id)
    writer.i32(operator.parallelism)
    writer.i32(operator.max_parallelism)
    STREAM.write(writer, operator.coordinator)
    if operator.subtasks is None:
        writer.i32(_FULLY_FINISHED)
        return
    writer.i32(len(operator.subtasks))
    for index, subtask in operator.subtasks:
        if isinstance(subtask, FinishedSubtask):
            writer.i32(-(index + 1))
        else:
            writer.i32(index)
            _write_subtask(writer, subtask, version)


def _write_subtask(writer: JavaWriter, subtask: SubtaskState, version: int) -> None:
    for operator_state in (subtask.managed_operator, subtask.raw_operator):
        writer.i32(0 if operator_state is None else 1)
        if operator_state is not None:
            OPERATOR_STATE.write(writer, operator_state)
    KEYED.write(writer, subtask.managed_keyed)
    KEYED.write(writer, subtask.raw_keyed)
    for handles, output in ((subtask.input_channels, False), (subtask.output_channels, True)):
        writer.i32(len(handles))
        for handle in handles:
            if version < 6 and isinstance(handle, MergedChannelHandle):
                raise ValueError(f"version {version} has no form for merged channel handles")
            channels(version, output=output).write(writer, handle)


# ---------------------------------------------------------------------------------------------- operator ids

_MASK = (1 << 64) - 1
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F


def operator_id(uid: str) -> bytes:
    """Return Flink's 16-byte id of the operator with this uid: murmur3_128 with seed 0."""
    data = uid.encode("utf-8")
    h1 = h2 = 0
    whole = len(data) - len(data) % 16
    for start in range(0, whole, 16):
        h1 ^= _mix_k1(int.from_bytes(data[start : start + 8], "little"))
        h1 = ((_rotate(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _mix_k2(int.from_bytes(data[start + 8 : start + 16], "little"))
        h2 = ((_rotate(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    h1 ^= _mix_k1(int.from_bytes(data[whole : whole + 8], "little"))
    h2 ^= _mix_k2(int.from_bytes(data[whole + 8 :], "little"))
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    h1, h2 = _finish(h1), _finish(h2)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return h1.to_bytes(8, "little") + h2.to_bytes(8, "little")


def _rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _MASK


def _mix_k1(block: int) -> int:
    return _rotate(block * _C1 & _MASK, 31) * _C2 & _MASK


def _mix_k2(block: int) -> int:
    return _rotate(block * _C2 & _MASK, 33) * _C1 & _MASK


def _finish(value: int) -> int:
    value = (value ^ (value >> 33)) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ (value >> 33)) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ (value >> 33)
