"""The binary form of Flink's state handles inside `_metadata`: a type code and the fields of that form, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from checkdam.flink.java_data import JavaReader, JavaWriter
from checkdam.flink.state_handles import (
    ByteStreamHandle,
    ChangelogHandle,
    ChangeStreamsHandle,
    ChannelHandle,
    EmptySegmentHandle,
    FileHandle,
    IncrementalHandle,
    InMemoryChangesHandle,
    KeyGroupsHandle,
    KeyGroupsSavepointHandle,
    MergedChannelHandle,
    MergedDirectories,
    NamedFile,
    OperatorStateOffsets,
    OperatorStreamHandle,
    RelativeFileHandle,
    SegmentHandle,
)


class FieldCodec(NamedTuple):
    """How one kind of field is read and written."""

    read: Callable[[JavaReader], Any]
    write: Callable[[JavaWriter, Any], None]


Field: TypeAlias = "FieldCodec | Form | Coded"


_I8 = FieldCodec(JavaReader.i8, JavaWriter.i8)
_I32 = FieldCodec(JavaReader.i32, JavaWriter.i32)
_I64 = FieldCodec(JavaReader.i64, JavaWriter.i64)
_UTF = FieldCodec(JavaReader.utf, JavaWriter.utf)
_BLOB = FieldCodec(JavaReader.blob, JavaWriter.blob)
_FLAG = FieldCodec(JavaReader.flag, lambda writer, value: writer.flag(value=value))
_OFFSETS = FieldCodec(JavaReader.offsets, JavaWriter.offsets)


class Form:
    """One layout of a class: its fields in the order of the file. Fields that it lacks are None in such a handle."""

    def __init__(self, make: type, **fields: Field) -> None:
        self.make = make
        self.fields = tuple(fields.items())
        self._absent = tuple(name for name in make.__dataclass_fields__ if name not in fields)  # type: ignore[attr-defined]

    def read(self, reader: JavaReader) -> Any:
        return self.make(**{name: codec.read(reader) for name, codec in self.fields})

    def write(self, writer: JavaWriter, value: Any) -> None:
        for name, codec in self.fields:
            codec.write(writer, getattr(value, name))

    def holds(self, value: Any) -> bool:
        """Return whether a handle has exactly the fields of this form."""
        return (
            type(value) is self.make
            and all(getattr(value, name) is None for name in self._absent)
            and all(codec is STREAM or getattr(value, name) is not None for name, codec in self.fields)
        )


class Coded:
    """A type code and the form of that code. Code 0 stands for None, where that is allowed."""

    def __init__(self, what: str, forms: Mapping[int, Form] | None = None, *, optional: bool = True) -> None:
        self._what = what
        self.forms = forms or {}
        self._optional = optional

    def read(self, reader: JavaReader) -> Any:
        code = reader.i8()
        if code == 0 and self._optional:
            return None
        if code not in self.forms:
            raise reader.damaged(f"unknown {self._what} handle code {code}")
        with reader.nested():
            return self.forms[code].read(reader)

    def write(self, writer: JavaWriter, value: Any) -> None:
        if value is None and self._optional:
            writer.i8(0)
            return
        code = next((code for code, form in self.forms.items() if form.holds(value)), None)
        if code is None:
            raise ValueError(f"there is no {self._what} handle code for {value!r}")
        writer.i8(code)
        self.forms[code].write(writer, value)


def _many(item: Field, item_bytes: int) -> FieldCodec:
    """Return the codec of a counted sequence, whose items take at least `item_bytes` each."""

    def write(writer: JavaWriter, values: tuple[Any, ...]) -> None:
        writer.i32(len(values))
        for value in values:
            item.write(writer, value)

    return FieldCodec(lambda reader: tuple(item.read(reader) for _ in range(reader.count(item_bytes))), write)


def _pair(first: Field, second: Field) -> FieldCodec:
    def write(writer: JavaWriter, value: tuple[Any, Any]) -> None:
        first.write(writer, value[0])
        second.write(writer, value[1])

    return FieldCodec(lambda reader: (first.read(reader), second.read(reader)), write)


STREAM = Coded("stream")
KEYED = Coded("keyed state")  # the forms of both are set below, because they refer to each other
_FILES = _many(Form(NamedFile, local_name=_UTF, state=STREAM), 3)
_RANGE: dict[str, Field] = {"first": _I32, "count": _I32}
_KEY_GROUPS: dict[str, Field] = {"first": _I32, "offsets": _OFFSETS, "state": STREAM}
_INCREMENTAL: dict[str, Field] = {"checkpoint_id": _I64, "backend_id": _UTF, **_RANGE}
_INCREMENTAL_FILES: dict[str, Field] = {"meta": STREAM, "shared": _FILES, "private": _FILES}
_CHANGELOG: dict[str, Field] = {
    **_RANGE,
    "size": _I64,
    "materialized": _many(KEYED, 1),
    "changes": _many(KEYED, 1),
    "materialization_id": _I64,
}
_CHANGE_STREAMS: dict[str, Field] = {
    **_RANGE,
    "streams": _many(_pair(_I64, STREAM), 9),
    "size": _I64,
    "checkpointed_size": _I64,
    "handle_id": _UTF,
}
_STATES = _many(Form(OperatorStateOffsets, name=_UTF, mode=_I8, offsets=_OFFSETS), 7)
_MERGED = Form(MergedDirectories, task_owned=_UTF, shared=_UTF, empty=_FLAG)

STREAM.forms = {
    1: Form(ByteStreamHandle, name=_UTF, data=_BLOB),
    2: Form(FileHandle, size=_I64, uri=_UTF),
    3: Form(KeyGroupsHandle, **_KEY_GROUPS),
    6: Form(RelativeFileHandle, name=_UTF, size=_I64),
    15: Form(SegmentHandle, start=_I64, size=_I64, scope=_I32, uri=_UTF, logical_id=_UTF),
    16: Form(EmptySegmentHandle),
}
KEYED.forms = {
    3: Form(KeyGroupsHandle, **_KEY_GROUPS),
    12: Form(KeyGroupsHandle, **_KEY_GROUPS, handle_id=_UTF),
    7: Form(KeyGroupsSavepointHandle, **_KEY_GROUPS),
    5: Form(IncrementalHandle, **_INCREMENTAL, **_INCREMENTAL_FILES),
    11: Form(IncrementalHandle, **_INCREMENTAL, checkpointed_size=_I64, **_INCREMENTAL_FILES, handle_id=_UTF),
    8: Form(ChangelogHandle, **_CHANGELOG, handle_id=_UTF),
    14: Form(ChangelogHandle, **_CHANGELOG, checkpoint_id=_I64, handle_id=_UTF),
    9: Form(
        InMemoryChangesHandle,
        **_RANGE,
        from_sequence=_I64,
        to_sequence=_I64,
        changes=_many(_pair(_I32, _BLOB), 8),
        handle_id=_UTF,
    ),
    10: Form(ChangeStreamsHandle, **_CHANGE_STREAMS),
    13: Form(ChangeStreamsHandle, **_CHANGE_STREAMS, storage=_UTF),
}
OPERATOR_STATE = Coded(
    "operator state",
    {
        4: Form(OperatorStreamHandle, states=_STATES, state=STREAM),
        17: Form(OperatorStreamHandle, states=_STATES, merged=_MERGED, state=STREAM),
    },
    optional=False,
)
_CHANNEL = Form(ChannelHandle, subtask=_I32, outer=_I32, inner=_I32, offsets=_OFFSETS, size=_I64, state=STREAM)
_MERGED_CHANNEL = Form(MergedChannelHandle, subtask=_I32, size=_I64, state=STREAM, channels=_BLOB)
_input_channels = Coded("channel", {1: _CHANNEL, 3: _MERGED_CHANNEL}, optional=False)
_output_channels = Coded("channel", {2: _CHANNEL, 4: _MERGED_CHANNEL}, optional=False)


def channels(version: int, *, output: bool) -> Coded | Form:
    """Return how the channels of a version are read and written: before version 6 they have no type code."""
    if version < 6:
        return _CHANNEL
    return _output_channels if output else _input_channels
