"""The `_metadata` file of a checkpoint: Checkdam's data in Flink's layout.

Where the data is stored in that layout:

    master state "checkdam-digest"   xxh3_64 of the whole file with these 8 bytes zero; always the first, so that it
                                     is at the same offset in every version and is checked before anything else
    master state "checkdam"          job, epoch, times, settings (msgpack); its version is that of Checkdam's format
    operators                        by uid; committables, finished subtasks and coordinator bytes are the coordinator
                                     state
      subtask's keyed state          an incremental handle: the state files, oldest first, as shared files under
                                     names relative to `_metadata`, so that a job's directory can be moved as a whole
      subtask's operator state       an operator state handle with the offset of each element; its content is in the
                                     file or, by a relative name, in one of its own
    operator "checkdam-sources"      the source position, as its coordinator state

A savepoint has the same layout, but its files lie beside `_metadata`, so that it can be moved by itself: their names
have no directory and, as no other snapshot shares them, are among the private files of a handle.

Format 1 had keyed state alone. Format 2 has no savepoints; checkpoints are still written in it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec
import xxhash

from checkdam.checkpoint.completed import RETENTION_SETTING, SOURCES_UID, CompletedCheckpoint, OperatorEntry
from checkdam.errors import CheckpointDamagedError, FormatTooNewError, StateNotRestorableError, StorageError
from checkdam.flink import state_handles
from checkdam.flink.checkpoint_properties import checkpoint_properties, savepoint_properties
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
from checkdam.flink.state_handles import (
    ByteStreamHandle,
    IncrementalHandle,
    NamedFile,
    OperatorStateOffsets,
    RelativeFileHandle,
    StreamHandle,
)
from checkdam.ids import CheckpointId, Epoch, JobId, OperatorUid, SubtaskIndex
from checkdam.state.key_groups import MAX_PARALLELISM_LIMIT, KeyGroupRange
from checkdam.state.snapshot_handles import (
    KeyedStateHandle,
    OperatorStateHandle,
    Redistribution,
    SavepointFormat,
    StateFile,
)
from checkdam.storage.contract import Storage
from checkdam.storage.filesystem import below
from checkdam.storage.names import is_plain_name, is_plain_path

FORMAT_VERSION: Final = 3
"""The newest version that can be read, and the version of savepoints."""

MOST_BYTES: Final = 1 << 30
"""The size limit of a `_metadata` file, for writing and reading."""

_CHECKPOINT_VERSION = 2

_DIGEST_NAME = "checkdam-digest"
_OWN_NAME = "checkdam"
_HEADER_BYTES = 20  # magic, version, checkpoint id, number of master states
_DIGEST_MARK = len(_DIGEST_NAME).to_bytes(2, "big") + _DIGEST_NAME.encode()
_MARK_AT = _HEADER_BYTES + 12  # after the master state's magic, length and version
_DIGEST_AT = _MARK_AT + len(_DIGEST_MARK) + 4  # after the payload's length
_DIGEST_BYTES = 8
_ABOVE = "../"  # from chk-<n>/ to the job's directory
_JOB_ID = re.compile(r"[0-9a-f]{32}")


class _Description(msgspec.Struct, frozen=True, omit_defaults=True):
    job_id: str
    job_name: str
    epoch: int
    triggered_at: datetime
    completed_at: datetime
    parallelism: int
    max_parallelism: int
    settings: dict[str, str]
    event_time: dict[str, int] = {}
    watermarks: dict[str, int] = {}
    savepoint_format: SavepointFormat | None = None


class _Coordinator(msgspec.Struct, frozen=True):
    committables: tuple[bytes, ...]
    coordinator: bytes
    finished: tuple[int, ...] = ()


class _KeyedDescription(msgspec.Struct, frozen=True):
    format: str
    backend: str


_decode_description = msgspec.msgpack.Decoder(_Description).decode
_decode_coordinator = msgspec.msgpack.Decoder(_Coordinator).decode
_decode_keyed = msgspec.msgpack.Decoder(_KeyedDescription).decode


# ---------------------------------------------------------------------------------------------- writing


def to_metadata(checkpoint: CompletedCheckpoint) -> bytes:
    """Encode the `_metadata` file of a checkpoint. The same checkpoint always gives the same bytes.

    Raises:
        ValueError: a state file lies outside the job's directory, or not beside the `_metadata` of a savepoint, or a
            uid or name is longer than 64 KB.
        StorageError: it would be larger than `MOST_BYTES`.
    """
    description = _Description(
        checkpoint.job_id,
        checkpoint.job_name,
        checkpoint.epoch,
        checkpoint.triggered_at.astimezone(UTC),
        checkpoint.completed_at.astimezone(UTC),
        checkpoint.parallelism,
        checkpoint.max_parallelism,
        dict(sorted(checkpoint.settings.items())),
        dict(sorted(checkpoint.event_time.items())),
        dict(sorted(checkpoint.watermarks.items())),
        checkpoint.savepoint_format,
    )
    operators = [_operator_state(checkpoint, entry) for entry in checkpoint.operators]
    if checkpoint.source_position:
        operators.append(_sources_state(checkpoint))
    version = FORMAT_VERSION if checkpoint.is_savepoint else _CHECKPOINT_VERSION
    data = encode(
        Metadata(
            checkpoint.checkpoint_id,
            (
                MasterState(1, _DIGEST_NAME, bytes(_DIGEST_BYTES)),
                MasterState(version, _OWN_NAME, msgspec.msgpack.encode(description)),
            ),
            tuple(operators),
            _properties(checkpoint),
        )
    )
    if len(data) > MOST_BYTES:
        raise StorageError(
            f"the metadata of checkpoint {checkpoint.checkpoint_id} has {len(data):,} bytes; at most {MOST_BYTES:,} "
            "can be written",
            hint="Most of it is the position of the sources: file sources remember every file they have read.",
        )
    return _with_digest(data)


def _properties(checkpoint: CompletedCheckpoint) -> bytes:
    if checkpoint.savepoint_format is not None:
        return savepoint_properties(checkpoint.savepoint_format)
    return checkpoint_properties(checkpoint.settings.get(RETENTION_SETTING, ""))


def _operator_state(checkpoint: CompletedCheckpoint, entry: OperatorEntry) -> OperatorState:
    coordinator = None
    if entry.committables or entry.coordinator or entry.finished:
        packed = msgspec.msgpack.encode(
            _Coordinator(entry.committables, entry.coordinator, tuple(sorted(entry.finished)))
        )
        coordinator = ByteStreamHandle("coordinator", packed)
    indexes = sorted({*entry.subtasks, *entry.operator_states, *entry.finished})
    subtasks = tuple((int(index), _subtask_state(checkpoint, entry, index)) for index in indexes)
    return OperatorState(
        operator_id(entry.uid), entry.parallelism, entry.max_parallelism, entry.name, entry.uid, coordinator, subtasks
    )


def _subtask_state(
    checkpoint: CompletedCheckpoint, entry: OperatorEntry, index: SubtaskIndex
) -> SubtaskState | FinishedSubtask:
    keyed, operator = entry.subtasks.get(index), entry.operator_states.get(index)
    if keyed is None and operator is None:
        return FinishedSubtask()
    return SubtaskState(
        managed_operator=None if operator is None else _operator_state_handle(checkpoint, operator),
        managed_keyed=None if keyed is None else _incremental_handle(checkpoint, entry.uid, index, keyed),
    )


def _operator_state_handle(
    checkpoint: CompletedCheckpoint, handle: OperatorStateHandle
) -> state_handles.OperatorStreamHandle:
    content = handle.content
    stream = (
        ByteStreamHandle("operator-state", content) if isinstance(content, bytes) else _relative(checkpoint, content)
    )
    states = tuple(OperatorStateOffsets(name, int(mode), offsets) for name, mode, offsets in handle.offsets)
    return state_handles.OperatorStreamHandle(states, stream)


def _incremental_handle(
    checkpoint: CompletedCheckpoint, uid: OperatorUid, index: SubtaskIndex, handle: KeyedStateHandle
) -> IncrementalHandle:
    meta = msgspec.msgpack.encode(_KeyedDescription("checkdam-state", handle.backend))
    files = tuple(
        NamedFile(file.name or _positional_name(position), _relative(checkpoint, file))
        for position, file in enumerate(handle.files)
    )
    return IncrementalHandle(
        checkpoint_id=checkpoint.checkpoint_id,
        backend_id=str(uuid.uuid5(uuid.NAMESPACE_URL, f"checkdam:{checkpoint.job_id}/{uid}/{index}")),
        first=handle.key_groups.first,
        count=len(handle.key_groups),
        meta=ByteStreamHandle("meta", meta),
        shared=() if checkpoint.is_savepoint else files,
        private=files if checkpoint.is_savepoint else (),
        checkpointed_size=sum(file.size for file in handle.files),
        handle_id=f"{checkpoint.job_id}-{checkpoint.checkpoint_id}-{operator_id(uid).hex()}-{index}",
    )


def _positional_name(position: int) -> str:
    """Return a name for a file that has none in its backend."""
    return f"{position:06}.state"


def _relative(checkpoint: CompletedCheckpoint, file: StateFile) -> RelativeFileHandle:
    if not is_plain_path(file.path):
        raise ValueError(f'state file "{file.path}" does not lie below the job\'s directory')
    if not checkpoint.is_savepoint:
        return RelativeFileHandle(_ABOVE + file.path, file.size)
    if "/" in file.path:
        raise ValueError(f'state file "{file.path}" does not lie beside the metadata of its savepoint')
    return RelativeFileHandle(file.path, file.size)


def _sources_state(checkpoint: CompletedCheckpoint) -> OperatorState:
    return OperatorState(
        operator_id(SOURCES_UID),
        parallelism=1,
        max_parallelism=checkpoint.max_parallelism,
        name="sources",
        uid=SOURCES_UID,
        coordinator=ByteStreamHandle("source-position", checkpoint.source_position),
    )


# ---------------------------------------------------------------------------------------------- reading


def read_metadata(storage: Storage, path: str) -> bytes:
    """Read the bytes of a `_metadata` file, for `from_metadata`.

    Raises:
        FileNotFoundError: there is none.
        CheckpointDamagedError: it is larger than any that is written.
    """
    status = storage.status(path)
    if status is not None and status.size > MOST_BYTES:
        raise _damaged(
            below(storage.uri, path), f"it has {status.size:,} bytes, and at most {MOST_BYTES:,} are written"
        )
    return storage.read(path)


def from_metadata(data: bytes, path: str = "_metadata") -> CompletedCheckpoint:
    """Decode what `to_metadata` wrote; `path` names the file in errors.

    Raises:
        CheckpointDamagedError: a byte is altered, missing or added, or it names a file outside its directory, or has
            numbers that no checkpoint has.
        FormatTooNewError: a newer Checkdam wrote it.
        StateNotRestorableError: Flink wrote it.
    """
    if data.startswith(_DIGEST_MARK, _MARK_AT) and data[_DIGEST_AT : _DIGEST_AT + _DIGEST_BYTES] != _digest(data):
        raise _damaged(path, "its checksum does not match")
    metadata = decode(data, path)
    states = {state.name: state for state in metadata.master_states}
    own = states.get(_OWN_NAME)
    if own is None:
        raise StateNotRestorableError(
            f'"{path}" was written by Flink, not by Checkdam, and cannot be restored here yet',
            hint='"checkdam inspect" shows what it holds.',
        )
    if not data.startswith(_DIGEST_MARK, _MARK_AT):
        raise _damaged(path, "its checksum is missing")
    if own.version > FORMAT_VERSION:
        raise FormatTooNewError(
            f'"{path}" has checkpoint format {own.version}; this Checkdam reads up to {FORMAT_VERSION}',
            hint="Use the version of Checkdam that wrote it, or a newer one.",
        )
    try:
        return _checkpoint(metadata, _decode_description(own.payload))
    except (ValueError, RecursionError) as error:  # valid checksum, but content that no Checkdam writes
        raise _damaged(path, str(error)) from error


def _checkpoint(metadata: Metadata, description: _Description) -> CompletedCheckpoint:
    if not _JOB_ID.fullmatch(description.job_id):
        raise ValueError(f"job id {description.job_id[:100]!r}")
    _check_widths("the job", description.parallelism, description.max_parallelism)
    sources = [operator for operator in metadata.operators if operator.uid == SOURCES_UID]
    return CompletedCheckpoint(
        checkpoint_id=CheckpointId(metadata.checkpoint_id),
        job_id=JobId(description.job_id),
        job_name=description.job_name,
        epoch=Epoch(description.epoch),
        triggered_at=description.triggered_at,
        completed_at=description.completed_at,
        parallelism=description.parallelism,
        max_parallelism=description.max_parallelism,
        operators=tuple(
            _operator_entry(operator, above="" if description.savepoint_format else _ABOVE)
            for operator in metadata.operators
            if operator.uid != SOURCES_UID
        ),
        source_position=b"".join(operator.coordinator.data for operator in sources if operator.coordinator),
        settings=description.settings,
        event_time=description.event_time,
        watermarks={OperatorUid(uid): watermark for uid, watermark in description.watermarks.items()},
        savepoint_format=description.savepoint_format,
    )


def _operator_entry(operator: OperatorState, above: str) -> OperatorEntry:
    """Decode one operator; `above` is the path from the directory of `_metadata` to that of state file names."""
    (operator.uid + operator.name).encode()  # half a surrogate pair, which Java can write, raises ValueError
    _check_widths(f'operator "{operator.uid[:100]}"', operator.parallelism, operator.max_parallelism)
    packed = _Coordinator((), b"")
    if operator.coordinator is not None:
        packed = _decode_coordinator(operator.coordinator.data)
    running = {
        SubtaskIndex(index): subtask for index, subtask in operator.subtasks or () if isinstance(subtask, SubtaskState)
    }
    if any(not 0 <= index < operator.parallelism for index in (*running, *packed.finished)):
        raise ValueError(f'operator "{operator.uid[:100]}" has a subtask beyond its parallelism {operator.parallelism}')
    return OperatorEntry(
        uid=OperatorUid(operator.uid),
        name=operator.name,
        parallelism=operator.parallelism,
        max_parallelism=operator.max_parallelism,
        subtasks=dict(_keyed_handles(running.items(), above, operator.max_parallelism)),
        committables=packed.committables,
        coordinator=packed.coordinator,
        operator_states=dict(_operator_state_handles(running.items(), above)),
        finished=frozenset(SubtaskIndex(index) for index in packed.finished),
    )


def _keyed_handles(
    subtasks: Iterable[tuple[SubtaskIndex, SubtaskState]], above: str, max_parallelism: int
) -> Iterator[tuple[SubtaskIndex, KeyedStateHandle]]:
    for index, subtask in subtasks:
        handle = subtask.managed_keyed
        if handle is None and subtask.managed_operator is not None:
            continue
        if not isinstance(handle, IncrementalHandle) or not isinstance(handle.meta, ByteStreamHandle):
            raise ValueError(f"keyed state in an unexpected form: {type(handle).__name__}")
        if handle.first < 0 or handle.count < 0 or handle.first + handle.count > max_parallelism:
            raise ValueError(f"{handle.count} key groups from {handle.first} on, of {max_parallelism}")
        described = _decode_keyed(handle.meta.data)
        files = tuple(
            _named_file(position, file, above) for position, file in enumerate(handle.shared + handle.private)
        )
        if len({file.path for file in files}) < len(files):
            raise ValueError("a state file that a handle names twice")
        yield (
            index,
            KeyedStateHandle(
                key_groups=KeyGroupRange(handle.first, handle.first + handle.count - 1),
                files=files,
                backend=described.backend,
            ),
        )


def _operator_state_handles(
    subtasks: Iterable[tuple[SubtaskIndex, SubtaskState]], above: str
) -> Iterator[tuple[SubtaskIndex, OperatorStateHandle]]:
    for index, subtask in subtasks:
        handle = subtask.managed_operator
        if handle is not None:
            offsets = tuple((state.name, Redistribution(state.mode), state.offsets) for state in handle.states)
            stream = handle.state
            content = stream.data if isinstance(stream, ByteStreamHandle) else _state_file(stream, above)
            yield index, OperatorStateHandle(offsets, content)


def _named_file(position: int, file: NamedFile, above: str) -> StateFile:
    name = "" if file.local_name == _positional_name(position) else file.local_name
    if name and not is_plain_name(name):
        raise ValueError(f"state file with the local name {name[:200]!r}")
    return _state_file(file.state, above, name)


def _state_file(stream: StreamHandle | None, above: str, name: str = "") -> StateFile:
    if not isinstance(stream, RelativeFileHandle):
        raise ValueError(f"state file {name} without a relative path")
    path = stream.name.removeprefix(above)
    is_named = "/" not in path if not above else path != stream.name
    if not is_named or not is_plain_path(path):
        raise ValueError(f"state file {stream.name[:200]!r} outside the job's directory")
    if stream.size < 0:
        raise ValueError(f"state file {stream.name[:200]!r} of {stream.size} bytes")
    return StateFile(path, stream.size, name)


def _check_widths(whose: str, parallelism: int, max_parallelism: int) -> None:
    """Refuse numbers that would make loops and lists over subtasks or key groups excessively long."""
    if not 0 < parallelism <= max_parallelism <= MAX_PARALLELISM_LIMIT:
        raise ValueError(f"{whose} has parallelism {parallelism} and max parallelism {max_parallelism}")


# ---------------------------------------------------------------------------------------------- checksum


def _digest(data: bytes) -> bytes:
    hasher = xxhash.xxh3_64(data[:_DIGEST_AT])
    hasher.update(bytes(_DIGEST_BYTES))
    hasher.update(memoryview(data)[_DIGEST_AT + _DIGEST_BYTES :])
    return hasher.digest()


def _with_digest(data: bytes) -> bytes:
    return data[:_DIGEST_AT] + _digest(data) + data[_DIGEST_AT + _DIGEST_BYTES :]


def _damaged(path: str, what: str) -> CheckpointDamagedError:
    return CheckpointDamagedError(f'"{path}" is damaged: {what}', hint="Use another checkpoint of the job.")
