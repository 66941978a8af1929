"""What checkpoints look like on the wire. `className` tells the kinds apart and comes from the struct's tag."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from checkdam.server.flink_api.statistics import Statistics


class Counts(msgspec.Struct, frozen=True):
    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


class Summary(msgspec.Struct, frozen=True):
    checkpointed_size: Statistics
    state_size: Statistics
    end_to_end_duration: Statistics
    alignment_buffered: Statistics
    processed_data: Statistics
    persisted_data: Statistics


class Task(msgspec.Struct, frozen=True):
    """One operator's part of a checkpoint."""

    id: int
    status: str
    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    alignment_buffered: int
    processed_data: int
    persisted_data: int
    num_subtasks: int
    num_acknowledged_subtasks: int


class _Entry(msgspec.Struct, frozen=True, kw_only=True, tag_field="className"):
    id: int
    status: str
    is_savepoint: bool
    savepoint_format: str | None = msgspec.field(name="savepointFormat")
    checkpoint_type: str
    trigger_timestamp: int
    latest_ack_timestamp: int
    end_to_end_duration: int
    checkpointed_size: int
    state_size: int
    alignment_buffered: int
    processed_data: int
    persisted_data: int
    num_subtasks: int
    num_acknowledged_subtasks: int
    tasks: dict[str, Task]


class CompletedEntry(_Entry, frozen=True, kw_only=True, tag="completed"):
    external_path: str | None
    discarded: bool


class FailedEntry(_Entry, frozen=True, kw_only=True, tag="failed"):
    failure_timestamp: int
    failure_message: str | None


class InProgressEntry(_Entry, frozen=True, kw_only=True, tag="in_progress"):
    pass


Entry: TypeAlias = CompletedEntry | FailedEntry | InProgressEntry


class Restored(msgspec.Struct, frozen=True):
    id: int
    restore_timestamp: int
    is_savepoint: bool
    external_path: str | None


class Latest(msgspec.Struct, frozen=True):
    completed: Entry | None
    savepoint: Entry | None
    failed: Entry | None
    restored: Restored | None


class CheckpointingStatistics(msgspec.Struct, frozen=True):
    counts: Counts
    summary: Summary
    latest: Latest
    history: list[Entry]


class DurationSummary(msgspec.Struct, frozen=True):
    sync: Statistics
    async_: Statistics = msgspec.field(name="async")


class AlignmentSummary(msgspec.Struct, frozen=True):
    buffered: Statistics
    processed: Statistics
    persisted: Statistics
    duration: Statistics


class TaskSummary(msgspec.Struct, frozen=True):
    checkpointed_size: Statistics
    state_size: Statistics
    end_to_end_duration: Statistics
    checkpoint_duration: DurationSummary
    alignment: AlignmentSummary
    start_delay: Statistics


class SubtaskDuration(msgspec.Struct, frozen=True):
    sync: int
    async_: int = msgspec.field(name="async")


class SubtaskAlignment(msgspec.Struct, frozen=True):
    buffered: int
    processed: int
    persisted: int
    duration: int


class CompletedSubtask(msgspec.Struct, frozen=True, kw_only=True, tag_field="className", tag="completed"):
    index: int
    status: Literal["completed"] = "completed"
    ack_timestamp: int
    end_to_end_duration: int
    checkpointed_size: int
    state_size: int
    checkpoint: SubtaskDuration
    alignment: SubtaskAlignment
    start_delay: int
    unaligned_checkpoint: bool = False
    aborted: bool = False


class PendingSubtask(msgspec.Struct, frozen=True, tag_field="className", tag="pending"):
    """Not acknowledged yet, or never going to be."""

    index: int
    status: Literal["pending_or_failed"] = "pending_or_failed"


class TaskDetails(Task, frozen=True, kw_only=True):
    summary: TaskSummary
    subtasks: list[CompletedSubtask | PendingSubtask]


class Externalization(msgspec.Struct, frozen=True):
    enabled: bool
    delete_on_cancellation: bool


class CheckpointConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What has no meaning here has Flink's default: no unaligned checkpoints, no changelog.

    From `num_retained` on the fields are ours. `origins` tells of each field where its value comes from.
    """

    mode: str
    interval: int
    timeout: int
    min_pause: int
    max_concurrent: int
    externalization: Externalization
    state_backend: str
    checkpoint_storage: str
    unaligned_checkpoints: bool = False
    aligned_checkpoint_timeout: int = 0
    tolerable_failed_checkpoints: int
    checkpoints_after_tasks_finish: bool = True
    state_changelog_enabled: bool = False
    changelog_periodic_materialization_interval: int = 600_000
    changelog_storage: str | None = None
    num_retained: int
    directory: str | None
    origins: dict[str, str]
