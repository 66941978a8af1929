"""One operator of a job, called a vertex in Flink's REST API, and its subtasks.

Task states follow from the job's status: all slots start, run and end together.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from checkdam.graph.metrics import percentile
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_records import NEVER, JobRecord, OperatorRecord, SlotRecord
from checkdam.server.app.endpoint import ApiCall, Endpoint, Reads
from checkdam.server.app.http_errors import RestError
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api.statistics import TaskMetrics, figures_of, now_ms, task_metrics

STATES = (
    "CREATED",
    "SCHEDULED",
    "DEPLOYING",
    "RUNNING",
    "FINISHED",
    "CANCELING",
    "CANCELED",
    "FAILED",
    "RECONCILING",
    "INITIALIZING",
)

_OF_JOB = {
    JobStatus.INITIALIZING: "CREATED",
    JobStatus.CREATED: "CREATED",
    JobStatus.RUNNING: "RUNNING",
    JobStatus.FAILING: "CANCELING",
    JobStatus.FAILED: "CANCELED",
    JobStatus.CANCELLING: "CANCELING",
    JobStatus.CANCELED: "CANCELED",
    JobStatus.FINISHED: "FINISHED",
    JobStatus.RESTARTING: "CANCELED",
    JobStatus.SUSPENDED: "CANCELED",
    JobStatus.RECONCILING: "RECONCILING",
}


def task_state(record: JobRecord, operator: OperatorRecord, subtask: int | None = None) -> str:
    """Return the state of a vertex, or of one of its subtasks. The subtask whose failure ended the job is FAILED."""
    if record.status in (JobStatus.FAILED, JobStatus.FAILING, JobStatus.RESTARTING) and record.exceptions:
        latest = record.exceptions[0]
        if latest.task == operator.name and subtask in (None, latest.subtask):
            return "FAILED"
    return _OF_JOB[record.status]


def state_counts(states: list[str]) -> dict[str, int]:
    """Return how many there are of every state, including 0, by upper-case name."""
    return {state: states.count(state) for state in STATES}


def subtask_states(record: JobRecord, operator: OperatorRecord) -> list[str]:
    return [task_state(record, operator, subtask) for subtask in range(operator.parallelism)]


def running_since(record: JobRecord) -> int:
    """Return when the tasks of the current attempt started; -1 if they have not."""
    return record.timestamps.get(JobStatus.RUNNING, NEVER)


def running_for(record: JobRecord, now: int) -> int:
    """Return the milliseconds from that start until now or the job's end; -1 if it has not started."""
    since, end = running_since(record), record.ended_at
    return NEVER if since < 0 else max(0, (end if end >= 0 else now) - since)


class Spread(msgspec.Struct, frozen=True):
    """Statistics of one figure over all subtasks."""

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
    """One subtask. The start time appears twice because Flink keeps an older spelling."""

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


class SubtaskBackpressure(msgspec.Struct, frozen=True, kw_only=True):
    """No subtask waits for a downstream buffer: only how busy it is differs. Flink has two spellings of the level."""

    subtask: int
    attempt_number: int = msgspec.field(name="attempt-number")
    level: str = msgspec.field(default="ok", name="backpressureLevel")
    level_again: str = msgspec.field(default="ok", name="backpressure-level")
    ratio: float = 0.0
    idle_ratio: float = msgspec.field(name="idleRatio")
    busy_ratio: float = msgspec.field(name="busyRatio")


class Backpressure(msgspec.Struct, frozen=True, kw_only=True):
    status: str = "ok"
    level: str = msgspec.field(default="ok", name="backpressureLevel")
    level_again: str = msgspec.field(default="ok", name="backpressure-level")
    end_timestamp: int = msgspec.field(name="end-timestamp")
    subtasks: list[SubtaskBackpressure]


def find_vertex(jobs: Jobs, call: ApiCall) -> tuple[JobRecord, OperatorRecord]:
    """Return the job and the vertex. Raise RestError 404 if either is unknown."""
    record = jobs.record(call.job_id)
    vertex_id = call.path["vertexid"]
    for operator in record.operators:
        if operator.vertex_id == vertex_id:
            return record, operator
    raise RestError(404, f"No vertex with ID '{vertex_id}' exists.")


def find_subtask(operator: OperatorRecord, call: ApiCall) -> int:
    """Return the subtask index. Raise RestError 404 if the operator has no such subtask."""
    subtask = int(call.path["subtaskindex"])
    if subtask >= operator.parallelism:
        raise RestError(404, f"Invalid subtask index for vertex {operator.vertex_id}")
    return subtask


def slot_id(slot: SlotRecord) -> str:
    """Return a slot's id as a task manager: free text that changes with a failover."""
    return f"{slot.host}:{slot.pid}"


def slot_of(record: JobRecord, subtask: int) -> SlotRecord | None:
    return next((slot for slot in record.slots if slot.subtask == subtask), None)


def _place(slot: SlotRecord | None) -> str:
    return (slot.location or slot.host) if slot is not None else "(unassigned)"


def _details(jobs: Jobs, call: ApiCall) -> JobVertexDetails:
    record, operator = find_vertex(jobs, call)
    now = now_ms()
    subtasks = [_subtask(record, operator, index, now) for index in range(operator.parallelism)]
    return JobVertexDetails(
        operator.vertex_id,
        operator.name,
        operator.parallelism,
        operator.max_parallelism,
        now,
        subtasks,
        _aggregated(subtasks),
    )


def _subtask(record: JobRecord, operator: OperatorRecord, index: int, now: int) -> Subtask:
    slot, state, running = slot_of(record, index), task_state(record, operator, index), running_for(record, now)
    return Subtask(
        subtask=index,
        status=state,
        attempt=record.restarts,
        endpoint=_place(slot),
        start_time=running_since(record),
        start_time_again=running_since(record),
        end_time=record.ended_at,
        duration=running,
        metrics=task_metrics([figures_of(record, operator.id, operator.parallelism)[index]], max(0, running)),
        taskmanager_id=slot_id(slot) if slot is not None else "(unassigned)",
        status_duration={name: running if name == "RUNNING" else NEVER for name in STATES},
    )


def _aggregated(subtasks: Sequence[Subtask]) -> Aggregated:
    if not subtasks:
        return Aggregated({}, {})
    metrics = {
        name.replace("_", "-"): _spread([float(getattr(subtask.metrics, name)) for subtask in subtasks])
        for name in subtasks[0].metrics.__struct_fields__
        if not name.endswith("_complete")
    }
    states = {name: _spread([float(subtask.status_duration[name]) for subtask in subtasks]) for name in STATES}
    return Aggregated(metrics, states)


def _spread(values: Sequence[float]) -> Spread:
    ordered = sorted(values)
    return Spread(
        int(ordered[0]),
        int(ordered[-1]),
        int(sum(ordered) / len(ordered)),
        int(sum(ordered)),
        *(int(percentile(ordered, percent)) for percent in (50.0, 25.0, 75.0, 95.0)),
    )


def _one_subtask(jobs: Jobs, call: ApiCall) -> Subtask:
    record, operator = find_vertex(jobs, call)
    return _subtask(record, operator, find_subtask(operator, call), now_ms())


def _attempt(jobs: Jobs, call: ApiCall) -> Subtask:
    subtask = _one_subtask(jobs, call)
    if call.path["attempt"] != subtask.attempt:  # only the failures of earlier attempts are kept
        raise RestError(404, f"Could not find execution for subtask {subtask.subtask} attempt {call.path['attempt']}")
    return subtask


def _times(jobs: Jobs, call: ApiCall) -> SubtasksTimes:
    record, operator = find_vertex(jobs, call)
    now = now_ms()
    started, end = running_since(record), record.ended_at
    times = [
        SubtaskTimes(
            index,
            _place(slot_of(record, index)),
            running_for(record, now),
            dict.fromkeys(STATES, 0)
            | {"CREATED": max(0, record.started_at), "RUNNING": max(0, started)}
            | ({task_state(record, operator, index): end} if end >= 0 else {}),
        )
        for index in range(operator.parallelism)
    ]
    return SubtasksTimes(operator.vertex_id, operator.name, now, times)


def _taskmanagers(jobs: Jobs, call: ApiCall) -> VertexTaskManagers:
    record, operator = find_vertex(jobs, call)
    now = now_ms()
    found = []
    for index in range(operator.parallelism):
        subtask = _subtask(record, operator, index, now)
        found.append(
            VertexTaskManager(
                subtask.endpoint,
                subtask.taskmanager_id,
                subtask.status,
                subtask.start_time,
                subtask.end_time,
                subtask.duration,
                subtask.metrics,
                state_counts([subtask.status]),
                _aggregated([subtask]),
            )
        )
    return VertexTaskManagers(operator.vertex_id, operator.name, now, found)


def _backpressure(jobs: Jobs, call: ApiCall) -> Backpressure:
    record, operator = find_vertex(jobs, call)
    subtasks = []
    for each in figures_of(record, operator.id, operator.parallelism):
        busy = min(1.0, max(0.0, each.busy_ratio))
        subtasks.append(
            SubtaskBackpressure(
                subtask=each.subtask, attempt_number=record.restarts, idle_ratio=1.0 - busy, busy_ratio=busy
            )
        )
    return Backpressure(end_timestamp=now_ms(), subtasks=subtasks)


def routes(jobs: Jobs) -> list[Endpoint]:
    get = Reads(jobs, "/jobs/{jobid}/vertices/{vertexid}", "vertices")
    one = "/subtasks/{subtaskindex}"
    return [
        get("", _details, "A vertex with its subtasks", JobVertexDetails),
        get(one, _one_subtask, "One subtask", Subtask),
        get(one + "/attempts/{attempt}", _attempt, "One attempt of a subtask", Subtask),
        get("/subtasktimes", _times, "When its subtasks entered each state", SubtasksTimes),
        get("/taskmanagers", _taskmanagers, "The slots it runs in", VertexTaskManagers),
        get("/backpressure", _backpressure, "How busy its subtasks are", Backpressure),
    ]
