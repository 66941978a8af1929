"""What a job looks like on the wire. Hyphens and capitals are Flink's, place by place."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from checkdam.runtime.monitor.job_records import JobStatus
from checkdam.server.flink_api.failure_cause import FailureCause
from checkdam.server.flink_api.plans import Plan
from checkdam.server.flink_api.statistics import TaskMetrics


class Vertex(msgspec.Struct, frozen=True, rename="kebab", kw_only=True):
    """From `uid` on the fields are ours."""

    id: str
    slot_sharing_group_id: str = msgspec.field(name="slotSharingGroupId")
    name: str
    max_parallelism: int = msgspec.field(name="maxParallelism")
    parallelism: int
    status: str
    start_time: int
    end_time: int
    duration: int
    tasks: dict[str, int]
    metrics: TaskMetrics
    uid: str | None
    kind: str
    level: int
    state_size: int
    entries: int
    busy_ratio: float
    watermark: int | None
    is_stateful: bool


class JobDetailsInfo(msgspec.Struct, frozen=True, rename="kebab", kw_only=True):
    """From `progress` on the fields are ours."""

    jid: str
    name: str
    is_stoppable: bool = msgspec.field(default=False, name="isStoppable")
    state: JobStatus
    job_type: str = "STREAMING"
    scheduler_type: str = msgspec.field(default="Adaptive", name="schedulerType")
    application_id: str | None
    start_time: int
    end_time: int
    duration: int
    max_parallelism: int = msgspec.field(name="maxParallelism")
    now: int
    timestamps: dict[str, int]
    vertices: list[Vertex]
    status_counts: dict[str, int]
    plan: Plan
    pending_operators: int = 0
    progress: str | None
    savepoint_directory: str | None
    epoch: int
    keys: int
    restarts: int
    parallelism: int


class JobStatusInfo(msgspec.Struct, frozen=True):
    status: JobStatus


class Option(msgspec.Struct, frozen=True):
    """A setting with the value that holds; null: unset. `origin`: code, command line, file, default …"""

    key: str
    value: str | None
    origin: str


class ExecutionConfig(msgspec.Struct, frozen=True, rename="kebab"):
    """`options` is ours: every setting, also those that have their default."""

    restart_strategy: str
    job_parallelism: int
    user_config: dict[str, str]
    object_reuse_mode: bool = False
    options: list[Option] = []


class JobConfigInfo(msgspec.Struct, frozen=True, rename="kebab"):
    jid: str
    name: str
    execution_config: ExecutionConfig


class ExceptionInfo(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """`message` is ours."""

    exception_name: str
    stacktrace: str
    timestamp: int
    failure_labels: dict[str, str]
    concurrent_exceptions: list[dict[str, Any]] = []
    message: str


class TaskExceptionInfo(ExceptionInfo, frozen=True, rename="camel", kw_only=True):
    """Of a failure that one task met."""

    task_name: str
    endpoint: str
    task_manager_id: str


class ExceptionHistory(msgspec.Struct, frozen=True):
    # Two shapes that no field tells apart: the schema is that of their common part.
    entries: list[ExceptionInfo]
    truncated: bool


class JobExceptionsInfo(msgspec.Struct, frozen=True, rename="camel"):
    exception_history: ExceptionHistory


class ResultStatus(msgspec.Struct, frozen=True):
    id: Literal["IN_PROGRESS", "COMPLETED"]


class JobResult(msgspec.Struct, rename="kebab"):
    id: str
    name: str
    application_status: str
    accumulator_results: dict[str, str]
    net_runtime: int
    application_id: str
    start_time: int
    end_time: int
    failure_cause: FailureCause | UnsetType = UNSET


class JobExecutionResult(msgspec.Struct, frozen=True, rename="kebab"):
    status: ResultStatus
    job_execution_result: JobResult | UnsetType = UNSET
