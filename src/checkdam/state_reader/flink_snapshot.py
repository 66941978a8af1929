"""Describes snapshots written by Flink as far as `_metadata` allows: operators and state handles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass

from checkdam.checkpoint.checkpoint_store import METADATA
from checkdam.checkpoint.metadata_file import read_metadata
from checkdam.errors import StateNotRestorableError
from checkdam.flink import state_handles
from checkdam.flink.metadata import FinishedSubtask, OperatorState, SubtaskState, decode
from checkdam.flink.state_handles import ByteStreamHandle, FileHandle, OperatorStreamHandle, RelativeFileHandle
from checkdam.storage.filesystem import open_storage

_KIND_NAMES = {
    state_handles.KeyGroupsHandle: "keyed",
    state_handles.KeyGroupsSavepointHandle: "keyed (savepoint)",
    state_handles.IncrementalHandle: "keyed (incremental)",
    state_handles.ChangelogHandle: "keyed (changelog)",
    state_handles.InMemoryChangesHandle: "keyed (changes)",
    state_handles.ChangeStreamsHandle: "keyed (changes)",
    state_handles.OperatorStreamHandle: "operator state",
    state_handles.ChannelHandle: "in-flight data",
    state_handles.MergedChannelHandle: "in-flight data",
}
_MODES = {0: "list", 1: "union list", 2: "broadcast"}


@dataclass(frozen=True)
class FlinkState:
    """One named operator state. The names of keyed states are inside Flink's state files."""

    name: str
    kind: str


@dataclass(frozen=True)
class FlinkOperator:
    operator_id: str
    uid: str
    name: str
    parallelism: int
    max_parallelism: int
    subtasks: int
    finished: bool  # all subtasks had consumed their input
    handles: dict[str, int]  # number of handles by kind
    states: tuple[FlinkState, ...]
    files: int
    bytes: int


@dataclass(frozen=True)
class FlinkSnapshot:
    path: str
    written_by: str
    checkpoint_id: int
    metadata_version: int
    master_states: tuple[str, ...]
    operators: tuple[FlinkOperator, ...]
    files: int
    bytes: int


def is_written_by_flink(error: StateNotRestorableError) -> bool:
    """Return whether a snapshot was refused because Flink wrote it."""
    return "written by Flink" in error.message


def describe_flink_snapshot(path: str) -> FlinkSnapshot:
    """Describe the snapshot in a directory, or given by its `_metadata`. Raise RestoreError."""
    place = open_storage(path)
    if place.status(METADATA) is None:
        place = open_storage(place.uri.removesuffix(f"/{METADATA}"))
    metadata = decode(read_metadata(place, METADATA), f"{place.uri}/{METADATA}")
    operators = tuple(map(_operator, metadata.operators))
    sizes = _sizes(metadata.operators)
    return FlinkSnapshot(
        path=place.uri,
        written_by="flink",
        checkpoint_id=metadata.checkpoint_id,
        metadata_version=metadata.version,
        master_states=tuple(state.name for state in metadata.master_states),
        operators=operators,
        files=len(sizes),
        bytes=sum(sizes.values()) + sum(_inline_bytes(metadata.operators)),
    )


def _operator(operator: OperatorState) -> FlinkOperator:
    subtasks = operator.subtasks or ()
    handles = [handle for _, subtask in subtasks for handle in _handles(subtask)]
    states = {
        (state.name, _MODES.get(state.mode, f"mode {state.mode}"))
        for handle in handles
        if isinstance(handle, OperatorStreamHandle)
        for state in handle.states
    }
    sizes = _sizes(operator.subtasks)
    return FlinkOperator(
        operator_id=operator.operator_id.hex(),
        uid=operator.uid,
        name=operator.name,
        parallelism=operator.parallelism,
        max_parallelism=operator.max_parallelism,
        subtasks=len(subtasks),
        finished=operator.subtasks is None,
        handles=dict(Counter(_KIND_NAMES[type(handle)] for handle in handles)),
        states=tuple(FlinkState(name, kind) for name, kind in sorted(states)),
        files=len(sizes),
        bytes=sum(sizes.values()) + sum(_inline_bytes(operator.subtasks)),
    )


def _handles(subtask: SubtaskState | FinishedSubtask) -> Iterator[object]:
    if isinstance(subtask, SubtaskState):
        single = (subtask.managed_operator, subtask.raw_operator, subtask.managed_keyed, subtask.raw_keyed)
        yield from (handle for handle in single if handle is not None)
        yield from subtask.input_channels
        yield from subtask.output_channels


def _parts(value: object) -> Iterator[object]:
    """Iterate over a value and everything nested in it."""
    yield value
    if is_dataclass(value):
        for each in fields(value):
            yield from _parts(getattr(value, each.name))
    elif isinstance(value, tuple):
        for part in value:
            yield from _parts(part)


def _sizes(value: object) -> dict[str, int]:
    """Return the size of each file once, however many subtasks refer to it."""
    sizes = {}
    for part in _parts(value):
        if isinstance(part, FileHandle):
            sizes[part.uri] = part.size
        elif isinstance(part, RelativeFileHandle):
            sizes[part.name] = part.size
        elif isinstance(part, state_handles.SegmentHandle):
            sizes[part.logical_id] = part.size
    return sizes


def _inline_bytes(value: object) -> Iterator[int]:
    return (len(part.data) for part in _parts(value) if isinstance(part, ByteStreamHandle))
