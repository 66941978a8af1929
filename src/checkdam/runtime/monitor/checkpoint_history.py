"""The checkpoints and savepoints of a job, from trigger to completion or failure, and their total numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from checkdam.ids import CheckpointId
from checkdam.runtime.monitor.job_events import CheckpointStats, CheckpointTriggered
from checkdam.runtime.monitor.job_records import (
    NEVER,
    CheckpointCounts,
    CheckpointRecord,
    CheckpointStatus,
    CheckpointTrouble,
    OperatorCheckpoint,
    OperatorRecord,
    SnapshotKind,
    SubtaskCheckpoint,
)
from checkdam.state.snapshot_handles import OperatorSnapshot, SlotSnapshot

MOST_SAVEPOINTS: Final = 1000
"""How many savepoints are remembered; a job that takes one a minute must not fill its driver's memory."""

_replace = msgspec.structs.replace


class CheckpointHistory:
    """The newest checkpoints in detail; all of them in the counts."""

    def __init__(self, operators: Sequence[OperatorRecord], size: int) -> None:
        self._size = size
        self._kept: dict[int, CheckpointRecord] = {}  # oldest first
        self._savepoints: list[CheckpointRecord] = []  # oldest first
        self._counts = CheckpointCounts()
        self._in_progress: set[int] = set()
        self.trouble: CheckpointTrouble | None = None
        self.state_bytes: dict[int, int] = {}  # by operator, as of the last completed checkpoint, or else savepoint
        self._has_checkpoints = False
        self.replanned(operators)

    def replanned(self, operators: Sequence[OperatorRecord]) -> None:
        """Use these operators from now on: all that run in slots, with or without state."""
        self._taking_part = [op for op in operators if op.level > 0]
        self._by_name = {op.uid or f"operator-{op.id}": op.id for op in self._taking_part}

    def restored(self) -> None:
        self._counts = _replace(self._counts, restored=self._counts.restored + 1)

    def triggered(self, trigger: CheckpointTriggered, at: int) -> None:
        self._kept[trigger.checkpoint_id] = CheckpointRecord(
            id=trigger.checkpoint_id,
            kind=trigger.kind,
            status=CheckpointStatus.IN_PROGRESS,
            triggered_at=at,
            epoch=trigger.epoch,
            num_subtasks=sum(op.parallelism for op in self._taking_part),
            savepoint_format=trigger.savepoint_format,
            is_full=trigger.is_full,
            operators=tuple(OperatorCheckpoint(op.id, op.parallelism) for op in self._taking_part),
        )
        self._in_progress.add(trigger.checkpoint_id)
        self._counts = _replace(self._counts, total=self._counts.total + 1)
        self._forget_oldest()

    def acknowledged(self, snapshot: SlotSnapshot, at: int) -> None:
        """Record one slot's part; operators that had nothing to write count as acknowledged with it."""
        record = self._kept.get(snapshot.checkpoint_id)
        if record is None or snapshot.checkpoint_id not in self._in_progress:
            return
        at = max(at, record.triggered_at)  # the clock may have been set back
        parts = {self._by_name.get(part.uid): part for part in snapshot.operators}
        operators = tuple(
            _with_part(each, _part(snapshot, parts.get(each.operator), record.triggered_at, at))
            if snapshot.subtask < each.num_subtasks
            else each
            for each in record.operators
        )
        subtasks = [subtask for operator in operators for subtask in operator.subtasks]
        self._kept[record.id] = _replace(
            record,
            operators=operators,
            checkpointed_bytes=sum(subtask.checkpointed_bytes for subtask in subtasks),
            state_bytes=sum(subtask.state_bytes for subtask in subtasks),
        )

    def completed(self, stats: CheckpointStats, at: int) -> CheckpointRecord:
        record = self._kept.get(stats.checkpoint_id) or CheckpointRecord(
            id=stats.checkpoint_id,
            kind=stats.kind,
            status=CheckpointStatus.IN_PROGRESS,
            triggered_at=at - round(stats.seconds * 1000),
            epoch=stats.epoch,
            num_subtasks=0,
        )
        duration = round(stats.seconds * 1000) if record.last_ack == NEVER else record.end_to_end
        record = _replace(
            record,
            status=CheckpointStatus.COMPLETED,
            finished_at=record.triggered_at + duration,  # as its metadata has it; `at` is when that was written
            duration=float(duration),
            checkpointed_bytes=stats.new_bytes,
            state_bytes=stats.state_bytes,
            metadata_bytes=stats.metadata_bytes,
            path=stats.path,
        )
        if record.id in self._kept:
            self._kept[record.id] = record
        self._in_progress.discard(record.id)
        self._counts = _replace(self._counts, completed=self._counts.completed + 1)
        if record.kind is SnapshotKind.CHECKPOINT:
            self.trouble = None
        if record.kind.is_savepoint:
            self._savepoints = [*self._savepoints[-MOST_SAVEPOINTS + 1 :], _replace(record, operators=())]
        self._has_checkpoints |= not record.kind.is_savepoint
        if not (record.kind.is_savepoint and self._has_checkpoints):  # in its other form it is of another size
            for operator in record.operators:
                self.state_bytes[operator.operator] = sum(each.state_bytes for each in operator.subtasks)
        self._forget_oldest()
        return record

    def failed(self, checkpoint_id: CheckpointId, reason: str, at: int) -> None:
        record = self._kept.get(checkpoint_id)
        if checkpoint_id in self._in_progress and record is not None and record.kind is SnapshotKind.CHECKPOINT:
            before = self.trouble or CheckpointTrouble(0, at, reason)
            self.trouble = CheckpointTrouble(before.failed_in_a_row + 1, before.since, reason)
        self._fail(checkpoint_id, reason, at)

    def _fail(self, checkpoint_id: CheckpointId, reason: str, at: int) -> None:
        if checkpoint_id in self._in_progress:
            self._in_progress.discard(checkpoint_id)
            self._counts = _replace(self._counts, failed=self._counts.failed + 1)
        record = self._kept.get(checkpoint_id)
        if record is not None and record.status is CheckpointStatus.IN_PROGRESS:
            self._kept[checkpoint_id] = _replace(
                record,
                status=CheckpointStatus.FAILED,
                finished_at=at,
                duration=float(max(0, at - record.triggered_at)),
                failure=reason,
            )
        self._forget_oldest()

    def abandoned(self, reason: str, at: int) -> None:
        """Fail everything in progress: the attempt is over, which says nothing about its checkpoints."""
        for checkpoint_id in sorted(self._in_progress):
            self._fail(CheckpointId(checkpoint_id), reason, at)

    def discarded(self, checkpoint_ids: Iterable[CheckpointId]) -> None:
        for checkpoint_id in checkpoint_ids:
            record = self._kept.get(checkpoint_id)
            if record is not None and not record.kind.is_savepoint:
                self._kept[checkpoint_id] = _replace(record, is_discarded=True)

    @property
    def counts(self) -> CheckpointCounts:
        return _replace(self._counts, in_progress=len(self._in_progress))

    def records(self) -> tuple[CheckpointRecord, ...]:
        """Return the records, newest first."""
        return tuple(reversed(self._kept.values()))

    def savepoints(self) -> tuple[CheckpointRecord, ...]:
        """Return the completed savepoints, newest first."""
        return tuple(reversed(self._savepoints))

    def _forget_oldest(self) -> None:
        """Limit the history to its size. Those in progress stay, as does the newest completed one, as in Flink."""
        completed = [each.id for each in self._kept.values() if each.status is CheckpointStatus.COMPLETED]
        for checkpoint_id in list(self._kept):
            if len(self._kept) <= self._size:
                return
            if checkpoint_id not in self._in_progress and checkpoint_id not in completed[-1:]:
                del self._kept[checkpoint_id]


def _part(snapshot: SlotSnapshot, part: OperatorSnapshot | None, triggered_at: int, at: int) -> SubtaskCheckpoint:
    return SubtaskCheckpoint(
        subtask=snapshot.subtask,
        acknowledged_at=at,
        sync_ms=part.sync_seconds * 1000 if part else 0.0,
        async_ms=part.async_seconds * 1000 if part else 0.0,
        end_to_end_ms=float(at - triggered_at),
        checkpointed_bytes=part.new_bytes if part else 0,
        state_bytes=part.state_bytes if part else 0,
    )


def _with_part(operator: OperatorCheckpoint, part: SubtaskCheckpoint) -> OperatorCheckpoint:
    others = [each for each in operator.subtasks if each.subtask != part.subtask]
    return _replace(operator, subtasks=tuple(sorted([*others, part], key=lambda each: each.subtask)))
