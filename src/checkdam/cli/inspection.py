"""What a checkpoint holds, gathered from its `_metadata` and the indexes of its state files, with no job running."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from checkdam.checkpoint.checkpoint_store import load_checkpoint
from checkdam.checkpoint.completed import CompletedCheckpoint, OperatorEntry
from checkdam.cli.state_inspection import StateView, keyed_states, operator_states, together
from checkdam.errors import CheckpointDamagedError, FormatTooNewError, StateNotRestorableError
from checkdam.runtime.source_position import HeldSource, decode_position
from checkdam.storage.contract import Storage
from checkdam.storage.filesystem import open_storage

READ_IN_FULL_BYTES = 16_000_000
"""Operators whose files are no larger are read to the last byte: entries are exact and every checksum is checked."""


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
    backend: str | None = None  # of keyed state
    finished_subtasks: int = 0


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
    """The last line of Spark's offset log for each source, with its uid where the checkpoint has it."""
    if not checkpoint.source_position:
        return ()
    try:
        position = decode_position(checkpoint.source_position)
    except (CheckpointDamagedError, FormatTooNewError):
        return (f"{len(checkpoint.source_position)} bytes",)
    offsets = position.files.get(f"offsets/{position.batch}", b"").decode(errors="replace")
    lines = offsets.splitlines()[2:]  # after the version and the query's own settings
    if not position.held:
        return tuple(f"at {line}" for line in lines)
    return tuple(_held(source, lines) for source in position.held)


def _held(source: HeldSource, lines: list[str]) -> str:
    own = [lines[line] for line in source.lines if 0 <= line < len(lines)]
    return f"{source.uid} at {', '.join(own)}" if own else f"{source.uid}, read to its end"


def _operator(storage: Storage, entry: OperatorEntry, *, in_full: bool) -> OperatorView:
    files = entry.files()
    total = sum(file.size for file in files)
    read_all = in_full or total <= READ_IN_FULL_BYTES
    keyed = [keyed_states(handle, storage, read_all=read_all) for handle in entry.subtasks.values()]
    views = [view for subtask in keyed for view in subtask.states]
    for handle in entry.operator_states.values():
        views += operator_states(handle, storage)
    return OperatorView(
        uid=entry.uid,
        name=entry.name,
        parallelism=entry.parallelism,
        max_parallelism=entry.max_parallelism,
        key_type=next((subtask.key_type for subtask in keyed if subtask.key_type), None),
        states=together(views),
        files=len(files),
        bytes=total + entry.inline_bytes,
        uncommitted_outputs=len(entry.committables),
        backend=next((handle.backend for handle in entry.subtasks.values()), None),
        finished_subtasks=len(entry.finished),
    )
