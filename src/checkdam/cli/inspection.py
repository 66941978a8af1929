"""What a checkpoint holds, gathered from its `_metadata` and the indexes of its state files, with no job running."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from checkdam.backends.state_file import StateFileReader, StateInfo, read_state_file
from checkdam.checkpoint.completed import CompletedCheckpoint, OperatorEntry
from checkdam.checkpoint.store import load_checkpoint
from checkdam.errors import StateNotRestorableError
from checkdam.runtime.spark.offsets import SourcePosition
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.serializers import serializer_from_spec
from checkdam.state.snapshots import KeyedStateHandle, StateFile
from checkdam.storage.contract import Storage
from checkdam.storage.filesystem import open_storage

READ_IN_FULL_BYTES = 16_000_000
"""Operators whose files are no larger are read to the last byte: entries are exact and every checksum is checked."""

_elements = msgspec.msgpack.Decoder(list[msgspec.Raw])


@dataclass(frozen=True)
class StateView:
    """One state of an operator, all subtasks together."""

    name: str
    kind: str
    type: str
    entries: int
    entries_are_exact: bool  # else at most: keys that several files of a chain hold count more than once


@dataclass(frozen=True)
class OperatorView:
    uid: str
    name: str
    parallelism: int
    max_parallelism: int
    key_type: str | None
    states: tuple[StateView, ...]
    files: int
    bytes: int
    uncommitted_outputs: int  # written by a sink, published when the checkpoint completes or is restored


@dataclass(frozen=True)
class CheckpointView:
    """A checkpoint of Checkdam's."""

    path: str
    written_by: str
    job_id: str
    job_name: str
    checkpoint_id: int
    epoch: int
    triggered_at: datetime
    completed_at: datetime
    parallelism: int
    max_parallelism: int
    mode: str
    retention: str
    sources: tuple[str, ...]  # where each source stands, in its own words
    operators: tuple[OperatorView, ...]
    files: int
    bytes: int


def inspect_checkpoint(path: str, *, in_full: bool = False) -> CheckpointView:
    """Look into a checkpoint of Checkdam's; `in_full` reads every state file, however large.

    Raises:
        CheckpointNotFoundError, CheckpointDamagedError, FormatTooNewError: there is nothing whole to look into.
        StateNotRestorableError: Flink wrote it; see `flink_inspection`.
    """
    checkpoint, job_directory = load_checkpoint(path)
    storage = open_storage(job_directory)
    return CheckpointView(
        path=f"{job_directory.rstrip('/')}/chk-{checkpoint.checkpoint_id}",
        written_by="checkdam",
        job_id=checkpoint.job_id,
        job_name=checkpoint.job_name,
        checkpoint_id=checkpoint.checkpoint_id,
        epoch=checkpoint.epoch,
        triggered_at=checkpoint.triggered_at,
        completed_at=checkpoint.completed_at,
        parallelism=checkpoint.parallelism,
        max_parallelism=checkpoint.max_parallelism,
        mode=checkpoint.settings.get("mode", ""),
        retention=checkpoint.settings.get("retention", ""),
        sources=_positions(checkpoint),
        operators=tuple(_operator(storage, entry, in_full=in_full) for entry in checkpoint.operators),
        files=len(checkpoint.files()),
        bytes=checkpoint.state_bytes,
    )


def is_flinks(error: StateNotRestorableError) -> bool:
    """Whether a checkpoint was refused because Flink wrote it."""
    return "written by Flink" in error.message


def _positions(checkpoint: CompletedCheckpoint) -> tuple[str, ...]:
    """The last line of Spark's offset log for each source."""
    if not checkpoint.source_position:
        return ()
    try:
        position = msgspec.msgpack.decode(checkpoint.source_position, type=SourcePosition)
    except msgspec.MsgspecError:
        return (f"{len(checkpoint.source_position)} bytes",)
    offsets = position.files.get(f"offsets/{position.batch}", b"").decode(errors="replace")
    return tuple(offsets.splitlines()[2:])  # after the version and the query's own settings


def _operator(storage: Storage, entry: OperatorEntry, *, in_full: bool) -> OperatorView:
    files = {file for handle in entry.subtasks.values() for file in handle.files}
    total = sum(file.size for file in files)
    read_all = in_full or total <= READ_IN_FULL_BYTES
    counts: dict[str, StateView] = {}
    key_type: str | None = None
    for handle in entry.subtasks.values():
        readers = [_open(storage, file, handle.key_groups) for file in handle.files]
        for reader in readers:
            key_type = _type_name(reader.info.key_type)
        for state in _states(readers):
            view = _count(state, readers, handle, read_all=read_all)
            counts[state.name] = _together(counts.get(state.name), view)
    return OperatorView(
        uid=entry.uid,
        name=entry.name,
        parallelism=entry.parallelism,
        max_parallelism=entry.max_parallelism,
        key_type=key_type,
        states=tuple(counts.values()),
        files=len(files),
        bytes=total,
        uncommitted_outputs=len(entry.committables),
    )


def _open(storage: Storage, file: StateFile, key_groups: KeyGroupRange) -> StateFileReader:
    return read_state_file(storage, file.path, file.size, key_groups)


def _states(readers: Iterable[StateFileReader]) -> list[StateInfo]:
    """Every state of a chain of files once, as the newest file describes it."""
    return list({state.name: state for reader in readers for state in reader.info.states}.values())


def _together(before: StateView | None, view: StateView) -> StateView:
    if before is None:
        return view
    return StateView(
        view.name,
        view.kind,
        view.type,
        before.entries + view.entries,
        before.entries_are_exact and view.entries_are_exact,
    )


def _count(
    state: StateInfo, readers: Sequence[StateFileReader], handle: KeyedStateHandle, *, read_all: bool
) -> StateView:
    if read_all:
        entries = _exact_entries(state.name, readers)
    else:
        entries = sum(_indexed_entries(state.name, reader, handle.key_groups) for reader in readers)
    is_exact = read_all or len(readers) == 1
    return StateView(state.name, state.kind, _type_name(state.type), entries, entries_are_exact=is_exact)


def _type_name(spec: str) -> str:
    """A type as it is written in Python; one that this version does not know, as the file describes it."""
    try:
        return serializer_from_spec(spec).type.name
    except StateNotRestorableError:
        return spec


def _indexed_entries(name: str, reader: StateFileReader, owned: KeyGroupRange) -> int:
    return sum(
        count
        for block in reader.info.blocks
        if reader.info.states[block.state].name == name
        for group, count in zip(block.groups, block.counts, strict=True)
        if group in owned
    )


def _exact_entries(name: str, readers: Sequence[StateFileReader]) -> int:
    """How many keys are left when each file, oldest first, has overridden what came before it."""
    keys: set[bytes] = set()
    for reader in readers:
        for index, state in enumerate(reader.info.states):
            if state.name != name:
                continue
            for block in reader.blocks(index):
                packed_keys, _, packed_removed = block.unpack()
                keys.difference_update(map(bytes, _elements.decode(packed_removed)[block.removed]))
                keys.update(map(bytes, _elements.decode(packed_keys)[block.entries]))
    return len(keys)
