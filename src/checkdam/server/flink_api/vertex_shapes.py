"""What a vertex and its subtasks look like on the wire."""

from __future__ import annotations

import msgspec

from checkdam.server.flink_api.statistics import TaskMetrics


def wire_name(name: str) -> str:
    return name.replace("_", "-")


class Spread(msgspec.Struct, frozen=True):
    """A figure over all subtasks."""

    min: int
    max: int
    avg: int
    sum: int
    median: int
    p25: int
    p75: int
    p95: int


class Aggregated(msgspec.Struct, frozen=True, rename="kebab"):
    metrics: dict[str, Spread]
    status_duration: dict[str, Spread]


class Subtask(msgspec.Struct, frozen=True, rename="kebab"):
    """The start time is there twice: Flink keeps an older spelling."""

    subtask: int
    status: str
    attempt: int
    endpoint: str
    start_time: int
    start_time_again: int = msgspec.field(name="start_time")
    end_time: int
    duration: int
    metrics: TaskMetrics
    taskmanager_id: str
    status_duration: dict[str, int]


class JobVertexDetails(msgspec.Struct, frozen=True):
    id: str
    name: str
    parallelism: int
    max_parallelism: int = msgspec.field(name="maxParallelism")
    now: int
    subtasks: list[Subtask]
    aggregated: Aggregated


class SubtaskTimes(msgspec.Struct, frozen=True):
    subtask: int
    endpoint: str
    duration: int
    timestamps: dict[str, int]


class SubtasksTimes(msgspec.Struct, frozen=True):
    id: str
    name: str
    now: int
    subtasks: list[SubtaskTimes]


class VertexTaskManager(msgspec.Struct, frozen=True, rename="kebab"):
    endpoint: str
    taskmanager_id: str
    status: str
    start_time: int
    end_time: int
    duration: int
    metrics: TaskMetrics
    status_counts: dict[str, int]
    aggregated: Aggregated


class VertexTaskManagers(msgspec.Struct, frozen=True):
    id: str
    name: str
    now: int
    taskmanagers: list[VertexTaskManager]


class SubtaskBackpressure(msgspec.Struct, frozen=True):
    subtask: int
    attempt_number: int = msgspec.field(name="attempt-number")
    level: str = msgspec.field(name="backpressureLevel")
    level_again: str = msgspec.field(name="backpressure-level")
    ratio: float
    idle_ratio: float = msgspec.field(name="idleRatio")
    busy_ratio: float = msgspec.field(name="busyRatio")


class Backpressure(msgspec.Struct, frozen=True):
    status: str
    level: str = msgspec.field(name="backpressureLevel")
    level_again: str = msgspec.field(name="backpressure-level")
    end_timestamp: int = msgspec.field(name="end-timestamp")
    subtasks: list[SubtaskBackpressure]
