"""Flink's state handles: locations of pieces of state. `handle_codec` reads and writes them.

In the file each handle is a type code and a body. Where Flink has two codes for one idea, the later one adds a field;
here that field is None in the earlier form, so that a handle is written back with the code it was read with.
"""

from __future__ import annotations

from dataclasses import dataclass

# ---------------------------------------------------------------------------------------------- streams of bytes


@dataclass(frozen=True)
class ByteStreamHandle:
    """Code 1: the state itself; the name looks like a path, but is never opened."""

    name: str
    data: bytes


@dataclass(frozen=True)
class FileHandle:
    """Code 2: a file by its absolute URI."""

    uri: str
    size: int


@dataclass(frozen=True)
class RelativeFileHandle:
    """Code 6: a file by its path relative to the directory of `_metadata`."""

    name: str
    size: int


@dataclass(frozen=True)
class SegmentHandle:
    """Code 15: a part of a file that several checkpoints share; scope 0 is exclusive, 1 shared."""

    start: int
    size: int
    scope: int
    uri: str
    logical_id: str


@dataclass(frozen=True)
class EmptySegmentHandle:
    """Code 16: a part of a merged file that was never written."""


# ---------------------------------------------------------------------------------------------- keyed state


@dataclass(frozen=True)
class KeyGroupsHandle:
    """Codes 3 and 12 (with `handle_id`): one stream with an offset for each key group from `first` on."""

    first: int
    offsets: tuple[int, ...]
    state: StreamHandle | None
    handle_id: str | None = None


@dataclass(frozen=True)
class KeyGroupsSavepointHandle:
    """Code 7: the same over a stream in the unified savepoint format."""

    first: int
    offsets: tuple[int, ...]
    state: StreamHandle | None


@dataclass(frozen=True)
class NamedFile:
    """A file of an incremental snapshot under its name in the working directory."""

    local_name: str
    state: StreamHandle | None


@dataclass(frozen=True)
class IncrementalHandle:
    """Codes 5 and 11 (with `checkpointed_size` and `handle_id`): a set of files, some shared between checkpoints."""

    checkpoint_id: int
    backend_id: str
    first: int
    count: int
    meta: StreamHandle | None
    shared: tuple[NamedFile, ...]
    private: tuple[NamedFile, ...]
    checkpointed_size: int | None = None
    handle_id: str | None = None


@dataclass(frozen=True)
class ChangelogHandle:
    """Codes 8 and 14 (with `checkpoint_id`): a materialized snapshot and the changes since."""

    first: int
    count: int
    size: int
    materialized: tuple[KeyedHandle | None, ...]
    changes: tuple[KeyedHandle | None, ...]
    materialization_id: int
    handle_id: str
    checkpoint_id: int | None = None


@dataclass(frozen=True)
class InMemoryChangesHandle:
    """Code 9: changes kept in `_metadata` itself, each with its key group."""

    first: int
    count: int
    from_sequence: int
    to_sequence: int
    changes: tuple[tuple[int, bytes], ...]
    handle_id: str


@dataclass(frozen=True)
class ChangeStreamsHandle:
    """Codes 10 and 13 (with `storage`): changes in streams, each from an offset on."""

    first: int
    count: int
    streams: tuple[tuple[int, StreamHandle | None], ...]
    size: int
    checkpointed_size: int
    handle_id: str
    storage: str | None = None


# ---------------------------------------------------------------------------------------------- operator state


@dataclass(frozen=True)
class OperatorStateOffsets:
    """One operator state by name; mode 0 is an even split, 1 union, 2 broadcast."""

    name: str
    mode: int
    offsets: tuple[int, ...]


@dataclass(frozen=True)
class MergedDirectories:
    """The fields that code 17 adds to code 4: the directories of merged files."""

    task_owned: str
    shared: str
    empty: bool


@dataclass(frozen=True)
class OperatorStreamHandle:
    """Codes 4 and 17 (with `merged`): the list and broadcast states of one subtask in one stream."""

    states: tuple[OperatorStateOffsets, ...]
    state: StreamHandle | None
    merged: MergedDirectories | None = None


# ---------------------------------------------------------------------------------------------- in-flight data


@dataclass(frozen=True)
class ChannelHandle:
    """In-flight data of one channel: (gate, channel) on the input side, (partition, subpartition) on the output's."""

    subtask: int
    outer: int
    inner: int
    offsets: tuple[int, ...]
    size: int
    state: StreamHandle | None


@dataclass(frozen=True)
class MergedChannelHandle:
    """In-flight data of several channels in one stream (since version 6); `channels` lists them, undecoded."""

    subtask: int
    size: int
    state: StreamHandle | None
    channels: bytes


StreamHandle = ByteStreamHandle | FileHandle | RelativeFileHandle | SegmentHandle | EmptySegmentHandle | KeyGroupsHandle
KeyedHandle = (
    KeyGroupsHandle
    | KeyGroupsSavepointHandle
    | IncrementalHandle
    | ChangelogHandle
    | InMemoryChangesHandle
    | ChangeStreamsHandle
)
AnyChannelHandle = ChannelHandle | MergedChannelHandle
