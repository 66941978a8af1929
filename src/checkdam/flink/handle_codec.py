"""The binary form of Flink's state handles inside `_metadata`: a type code and a body."""

from __future__ import annotations

from checkdam.flink.java_data import JavaReader, JavaWriter
from checkdam.flink.state_handles import (
    AnyChannelHandle,
    ByteStreamHandle,
    ChangelogHandle,
    ChangeStreamsHandle,
    ChannelHandle,
    EmptySegmentHandle,
    FileHandle,
    IncrementalHandle,
    InMemoryChangesHandle,
    KeyedHandle,
    KeyGroupsHandle,
    KeyGroupsSavepointHandle,
    MergedChannelHandle,
    MergedDirectories,
    NamedFile,
    OperatorStateOffsets,
    OperatorStreamHandle,
    RelativeFileHandle,
    SegmentHandle,
    StreamHandle,
)

# ---------------------------------------------------------------------------------------------- reading


def read_stream(reader: JavaReader) -> StreamHandle | None:
    code = reader.i8()
    match code:
        case 0:
            return None
        case 1:
            return ByteStreamHandle(reader.utf(), reader.blob())
        case 2:
            size = reader.i64()
            return FileHandle(reader.utf(), size)
        case 3:
            with reader.nested():
                return KeyGroupsHandle(reader.i32(), reader.offsets(), read_stream(reader))
        case 6:
            return RelativeFileHandle(reader.utf(), reader.i64())
        case 15:
            return SegmentHandle(reader.i64(), reader.i64(), reader.i32(), reader.utf(), reader.utf())
        case 16:
            return EmptySegmentHandle()
    raise reader.damaged(f"unknown stream handle code {code}")


def read_keyed(reader: JavaReader) -> KeyedHandle | None:
    code = reader.i8()
    match code:
        case 0:
            return None
        case 3 | 12:
            first, offsets, state = reader.i32(), reader.offsets(), read_stream(reader)
            return KeyGroupsHandle(first, offsets, state, reader.utf() if code == 12 else None)
        case 7:
            return KeyGroupsSavepointHandle(reader.i32(), reader.offsets(), read_stream(reader))
        case 5 | 11:
            return _read_incremental(reader, code)
        case 8 | 14:
            return _read_changelog(reader, code)
        case 9:
            first, count, from_sequence, to_sequence = reader.i32(), reader.i32(), reader.i64(), reader.i64()
            changes = tuple((reader.i32(), reader.blob()) for _ in range(reader.count(8)))
            return InMemoryChangesHandle(first, count, from_sequence, to_sequence, changes, reader.utf())
        case 10 | 13:
            first, count = reader.i32(), reader.i32()
            streams = tuple((reader.i64(), read_stream(reader)) for _ in range(reader.count(9)))
            size, checkpointed_size, handle_id = reader.i64(), reader.i64(), reader.utf()
            storage = reader.utf() if code == 13 else None
            return ChangeStreamsHandle(first, count, streams, size, checkpointed_size, handle_id, storage)
    raise reader.damaged(f"unknown keyed state handle code {code}")


def _read_incremental(reader: JavaReader, code: int) -> IncrementalHandle:
    checkpoint_id, backend_id, first, count = reader.i64(), reader.utf(), reader.i32(), reader.i32()
    checkpointed_size = reader.i64() if code == 11 else None
    meta, shared, private = read_stream(reader), _read_files(reader), _read_files(reader)
    handle_id = reader.utf() if code == 11 else None
    return IncrementalHandle(
        checkpoint_id, backend_id, first, count, meta, shared, private, checkpointed_size, handle_id
    )


def _read_files(reader: JavaReader) -> tuple[NamedFile, ...]:
    return tuple(NamedFile(reader.utf(), read_stream(reader)) for _ in range(reader.count(3)))


def _read_changelog(reader: JavaReader, code: int) -> ChangelogHandle:
    with reader.nested():
        first, count, size = reader.i32(), reader.i32(), reader.i64()
        materialized = tuple(read_keyed(reader) for _ in range(reader.count(1)))
        changes = tuple(read_keyed(reader) for _ in range(reader.count(1)))
        materialization_id = reader.i64()
        checkpoint_id = reader.i64() if code == 14 else None
        return ChangelogHandle(
            first, count, size, materialized, changes, materialization_id, reader.utf(), checkpoint_id
        )


def read_operator_state(reader: JavaReader) -> OperatorStreamHandle:
    code = reader.i8()
    if code not in (4, 17):
        raise reader.damaged(f"unknown operator state handle code {code}")
    states = tuple(OperatorStateOffsets(reader.utf(), reader.i8(), reader.offsets()) for _ in range(reader.count(7)))
    merged = MergedDirectories(reader.utf(), reader.utf(), reader.flag()) if code == 17 else None
    return OperatorStreamHandle(states, read_stream(reader), merged)


def read_channel(reader: JavaReader, version: int, *, output: bool) -> AnyChannelHandle:
    if version >= 6:
        code = reader.i8()
        if code == 3 + output:
            subtask, size, state = reader.i32(), reader.i64(), read_stream(reader)
            return MergedChannelHandle(subtask, size, state, reader.blob())
        if code != 1 + output:
            raise reader.damaged(f"unknown channel handle code {code}")
    subtask, outer, inner, offsets = reader.i32(), reader.i32(), reader.i32(), reader.offsets()
    size = reader.i64()
    return ChannelHandle(subtask, outer, inner, offsets, size, read_stream(reader))


# ---------------------------------------------------------------------------------------------- writing


def write_stream(writer: JavaWriter, handle: StreamHandle | None) -> None:
    match handle:
        case None:
            writer.i8(0)
        case ByteStreamHandle():
            writer.i8(1)
            writer.utf(handle.name)
            writer.blob(handle.data)
        case FileHandle():
            writer.i8(2)
            writer.i64(handle.size)
            writer.utf(handle.uri)
        case KeyGroupsHandle():
            writer.i8(3)
            _write_key_groups(writer, handle)
        case RelativeFileHandle():
            writer.i8(6)
            writer.utf(handle.name)
            writer.i64(handle.size)
        case SegmentHandle():
            writer.i8(15)
            writer.i64(handle.start)
            writer.i64(handle.size)
            writer.i32(handle.scope)
            writer.utf(handle.uri)
            writer.utf(handle.logical_id)
        case EmptySegmentHandle():
            writer.i8(16)


def write_keyed(writer: JavaWriter, handle: KeyedHandle | None) -> None:
    match handle:
        case None:
            writer.i8(0)
        case KeyGroupsHandle():
            writer.i8(3 if handle.handle_id is None else 12)
            _write_key_groups(writer, handle)
            _write_optional_utf(writer, handle.handle_id)
        case KeyGroupsSavepointHandle():
            writer.i8(7)
            _write_key_groups(writer, handle)
        case IncrementalHandle():
            _write_incremental(writer, handle)
        case ChangelogHandle():
            _write_changelog(writer, handle)
        case InMemoryChangesHandle():
            writer.i8(9)
            _write_range(writer, handle.first, handle.count)
            writer.i64(handle.from_sequence)
            writer.i64(handle.to_sequence)
            writer.i32(len(handle.changes))
            for key_group, change in handle.changes:
                writer.i32(key_group)
                writer.blob(change)
            writer.utf(handle.handle_id)
        case ChangeStreamsHandle():
            writer.i8(10 if handle.storage is None else 13)
            _write_range(writer, handle.first, handle.count)
            writer.i32(len(handle.streams))
            for offset, stream in handle.streams:
                writer.i64(offset)
                write_stream(writer, stream)
            writer.i64(handle.size)
            writer.i64(handle.checkpointed_size)
            writer.utf(handle.handle_id)
            _write_optional_utf(writer, handle.storage)


def _write_range(writer: JavaWriter, first: int, count: int) -> None:
    writer.i32(first)
    writer.i32(count)


def _write_optional_utf(writer: JavaWriter, text: str | None) -> None:
    if text is not None:
        writer.utf(text)


def _write_key_groups(writer: JavaWriter, handle: KeyGroupsHandle | KeyGroupsSavepointHandle) -> None:
    writer.i32(handle.first)
    writer.offsets(handle.offsets)
    write_stream(writer, handle.state)


def _write_incremental(writer: JavaWriter, handle: IncrementalHandle) -> None:
    if (handle.checkpointed_size is None) != (handle.handle_id is None):
        raise ValueError("an incremental handle has both a checkpointed size and a handle id, or neither")
    writer.i8(5 if handle.handle_id is None else 11)
    writer.i64(handle.checkpoint_id)
    writer.utf(handle.backend_id)
    _write_range(writer, handle.first, handle.count)
    if handle.checkpointed_size is not None:
        writer.i64(handle.checkpointed_size)
    write_stream(writer, handle.meta)
    for files in (handle.shared, handle.private):
        writer.i32(len(files))
        for file in files:
            writer.utf(file.local_name)
            write_stream(writer, file.state)
    _write_optional_utf(writer, handle.handle_id)


def _write_changelog(writer: JavaWriter, handle: ChangelogHandle) -> None:
    writer.i8(8 if handle.checkpoint_id is None else 14)
    _write_range(writer, handle.first, handle.count)
    writer.i64(handle.size)
    for nested in (handle.materialized, handle.changes):
        writer.i32(len(nested))
        for keyed in nested:
            write_keyed(writer, keyed)
    writer.i64(handle.materialization_id)
    if handle.checkpoint_id is not None:
        writer.i64(handle.checkpoint_id)
    writer.utf(handle.handle_id)


def write_operator_state(writer: JavaWriter, handle: OperatorStreamHandle) -> None:
    writer.i8(4 if handle.merged is None else 17)
    writer.i32(len(handle.states))
    for state in handle.states:
        writer.utf(state.name)
        writer.i8(state.mode)
        writer.offsets(state.offsets)
    if handle.merged is not None:
        writer.utf(handle.merged.task_owned)
        writer.utf(handle.merged.shared)
        writer.flag(value=handle.merged.empty)
    write_stream(writer, handle.state)


def write_channel(writer: JavaWriter, handle: AnyChannelHandle, version: int, *, output: bool) -> None:
    if isinstance(handle, MergedChannelHandle):
        if version < 6:
            raise ValueError(f"version {version} has no form for merged channel handles")
        writer.i8(3 + output)
        writer.i32(handle.subtask)
        writer.i64(handle.size)
        write_stream(writer, handle.state)
        writer.blob(handle.channels)
        return
    if version >= 6:
        writer.i8(1 + output)
    writer.i32(handle.subtask)
    writer.i32(handle.outer)
    writer.i32(handle.inner)
    writer.offsets(handle.offsets)
    writer.i64(handle.size)
    write_stream(writer, handle.state)
