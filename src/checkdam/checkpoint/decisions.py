"""Checkpoints in progress, and the actions that the coordinator requests from the runtime."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from checkdam.ids import CheckpointId, Epoch, OperatorUid, SubtaskIndex
from checkdam.state.snapshot_handles import SlotSnapshot, StateFile


def files_of(snapshot: SlotSnapshot) -> frozenset[StateFile]:
    """Return every state file a slot's snapshot refers to, old and new."""
    return frozenset(snapshot.new_files).union(*(operator.files() for operator in snapshot.operators))


def partly_finished_union(snapshots: Mapping[SubtaskIndex, SlotSnapshot]) -> str | None:
    """Return why these snapshots cannot form a checkpoint: an operator with union state has finished only in part.

    A restore gives every subtask all elements of a union state; without those of the finished subtasks their work
    would be repeated. Flink declines such a checkpoint for the same reason.
    """
    finished: dict[OperatorUid, set[bool]] = {}
    with_union: dict[OperatorUid, str] = {}
    for snapshot in snapshots.values():
        for operator in snapshot.operators:
            finished.setdefault(operator.uid, set()).add(operator.is_finished)
            if operator.operator_state is not None and operator.operator_state.has_union:
                with_union[operator.uid] = operator.name
    for uid, name in with_union.items():
        if len(finished[uid]) > 1:
            return f'operator "{name}" has union list state, and some but not all of its subtasks have finished'
    return None


@dataclass(frozen=True)
class PendingCheckpoint:
    """A triggered checkpoint or savepoint that some subtasks have not acknowledged yet."""

    checkpoint_id: CheckpointId
    epoch: Epoch
    triggered_at: datetime
    expires: float  # on the monotonic clock
    missing: frozenset[SubtaskIndex]
    snapshots: Mapping[SubtaskIndex, SlotSnapshot]
    is_savepoint: bool = False

    def with_snapshot(self, snapshot: SlotSnapshot) -> PendingCheckpoint:
        return replace(
            self,
            missing=self.missing - {snapshot.subtask},
            snapshots={**self.snapshots, snapshot.subtask: snapshot},
        )

    def acknowledged(self) -> AcknowledgedCheckpoint:
        """Return the same checkpoint as acknowledged by every subtask."""
        return AcknowledgedCheckpoint(
            self.checkpoint_id, self.epoch, self.triggered_at, self.snapshots, self.expires, self.is_savepoint
        )


@dataclass(frozen=True)
class AcknowledgedCheckpoint:
    """A checkpoint or savepoint that every subtask has acknowledged; durable once its metadata is."""

    checkpoint_id: CheckpointId
    epoch: Epoch
    triggered_at: datetime
    snapshots: Mapping[SubtaskIndex, SlotSnapshot]
    expires: float = field(default=math.inf, compare=False)  # on the monotonic clock
    is_savepoint: bool = False

    def files(self) -> frozenset[StateFile]:
        return frozenset(file for snapshot in self.snapshots.values() for file in files_of(snapshot))


# The actions of one checkpoint, in order. A savepoint has no output to commit, and is never discarded.


@dataclass(frozen=True)
class TriggerCheckpoint:
    """Send barrier `checkpoint_id` to every slot, after the last record of `epoch`."""

    checkpoint_id: CheckpointId
    epoch: Epoch
    full: bool = False  # refers to no file of another checkpoint
    triggered_at: datetime | None = field(default=None, compare=False)
    is_savepoint: bool = False


@dataclass(frozen=True)
class WriteMetadata:
    """Write `_metadata`, then call `metadata_written`, `metadata_failed` or `files_missing`.

    Never two checkpoints at once; a savepoint may be written beside one.
    """

    acknowledged: AcknowledgedCheckpoint


@dataclass(frozen=True)
class CommitOutput:
    """Commit the output that the checkpoint covers, then call `output_committed` or `output_lost`."""

    acknowledged: AcknowledgedCheckpoint


@dataclass(frozen=True)
class NotifyCompleted:
    """Notify the slots that the checkpoint is complete, then call `slots_notified`.

    The ids of checkpoints ascend.
    """

    checkpoint_id: CheckpointId
    is_savepoint: bool = False


@dataclass(frozen=True)
class DiscardCheckpoints:
    """Remove the `_metadata` of these older checkpoints, and only then the files that are unreferenced now."""

    checkpoint_ids: tuple[CheckpointId, ...]
    files: tuple[StateFile, ...]


@dataclass(frozen=True)
class RemoveMetadata:
    """Remove the `_metadata` of a checkpoint whose output was not committed, then call `metadata_removed`."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True)
class AbortCheckpoint:
    """Notify the slots that the checkpoint is aborted, and only then delete `new_files`. It has no `_metadata`.

    `new_files` excludes files that other checkpoints refer to. It is empty for a savepoint, whose directory is
    removed.
    """

    checkpoint_id: CheckpointId
    reason: str
    new_files: tuple[StateFile, ...] = ()
    is_savepoint: bool = False


@dataclass(frozen=True)
class DeleteFiles:
    """Delete files that a slot wrote for a checkpoint that does not need them any more."""

    files: tuple[StateFile, ...]


@dataclass(frozen=True)
class FailJob:
    """Fail the job over: more checkpoints in a row failed than are tolerated, or output is lost."""

    reason: str


Action = (
    TriggerCheckpoint
    | WriteMetadata
    | CommitOutput
    | NotifyCompleted
    | DiscardCheckpoints
    | RemoveMetadata
    | AbortCheckpoint
    | DeleteFiles
    | FailJob
)
