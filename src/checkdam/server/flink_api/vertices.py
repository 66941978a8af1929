"""One operator of a job, which is a vertex on Flink's wire, and its subtasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from checkdam.runtime.monitor.job_records import NEVER, JobRecord, OperatorRecord, SlotRecord
from checkdam.server.app.endpoint import Call, Endpoint, Query
from checkdam.server.app.http_errors import RestError
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api import vertex_shapes as shapes
from checkdam.server.flink_api.execution_states import STATES, running_for, running_since, state_counts, task_state
from checkdam.server.flink_api.statistics import figures_of, now_ms, percentile, task_metrics

_HIGH, _LOW = 0.5, 0.1  # Flink's bounds for a ratio of backpressure


def find_vertex(jobs: Jobs, call: Call) -> tuple[JobRecord, OperatorRecord]:
    """Raises RestError 404: the job, or this vertex of it, is unknown."""
    record = jobs.record(call.job_id)
    vertex_id = call.path["vertexid"]
    for operator in record.operators:
        if operator.vertex_id == vertex_id:
            return record, operator
    raise RestError(404, f"No vertex with ID '{vertex_id}' exists.")


def find_subtask(operator: OperatorRecord, call: Call) -> int:
    """Raises RestError 404 unless the operator has that many subtasks."""
    subtask = int(call.path["subtaskindex"])
    if subtask >= operator.parallelism:
        raise RestError(404, f"Invalid subtask index for vertex {operator.vertex_id}")
    return subtask


def slot_id(slot: SlotRecord) -> str:
    """What a slot is called as a task manager."""
    return f"{slot.host}:{slot.pid}"


def slot_of(record: JobRecord, subtask: int) -> SlotRecord | None:
    return next((slot for slot in record.slots if slot.subtask == subtask), None)


def _place(slot: SlotRecord | None) -> str:
    return (slot.location or slot.host) if slot is not None else "(unassigned)"


def _details(jobs: Jobs, call: Call) -> shapes.JobVertexDetails:
    record, operator = find_vertex(jobs, call)
    now = now_ms()
    subtasks = [_subtask(record, operator, index, now) for index in range(operator.parallelism)]
    return shapes.JobVertexDetails(
        operator.vertex_id,
        operator.name,
        operator.parallelism,
        operator.max_parallelism,
        now,
        subtasks,
        _aggregated(subtasks),
    )


def _subtask(record: JobRecord, operator: OperatorRecord, index: int, now: int) -> shapes.Subtask:
    slot, state, running = slot_of(record, index), task_state(record, operator, index), running_for(record, now)
    return shapes.Subtask(
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


def _aggregated(subtasks: Sequence[shapes.Subtask]) -> shapes.Aggregated:
    if not subtasks:
        return shapes.Aggregated({}, {})
    metrics = {
        shapes.wire_name(name): _spread([float(getattr(subtask.metrics, name)) for subtask in subtasks])
        for name in subtasks[0].metrics.__struct_fields__
        if not name.endswith("_complete")
    }
    states = {name: _spread([float(subtask.status_duration[name]) for subtask in subtasks]) for name in STATES}
    return shapes.Aggregated(metrics, states)


def _spread(values: Sequence[float]) -> shapes.Spread:
    ordered = sorted(values)
    return shapes.Spread(
        int(ordered[0]),
        int(ordered[-1]),
        int(sum(ordered) / len(ordered)),
        int(sum(ordered)),
        *(int(percentile(ordered, percent)) for percent in (50.0, 25.0, 75.0, 95.0)),
    )


def _one_subtask(jobs: Jobs, call: Call) -> shapes.Subtask:
    record, operator = find_vertex(jobs, call)
    return _subtask(record, operator, find_subtask(operator, call), now_ms())


def _attempt(jobs: Jobs, call: Call) -> shapes.Subtask:
    record, operator = find_vertex(jobs, call)
    subtask = _subtask(record, operator, find_subtask(operator, call), now_ms())
    if call.path["attempt"] != subtask.attempt:  # of those before it nothing is kept but their failures
        raise RestError(404, f"Could not find execution for subtask {subtask.subtask} attempt {call.path['attempt']}")
    return subtask


def _times(jobs: Jobs, call: Call) -> shapes.SubtasksTimes:
    record, operator = find_vertex(jobs, call)
    now = now_ms()
    started, end = running_since(record), record.ended_at
    times = [
        shapes.SubtaskTimes(
            index,
            _place(slot_of(record, index)),
            running_for(record, now),
            dict.fromkeys(STATES, 0)
            | {"CREATED": max(0, record.started_at), "RUNNING": max(0, started)}
            | ({task_state(record, operator, index): end} if end >= 0 else {}),
        )
        for index in range(operator.parallelism)
    ]
    return shapes.SubtasksTimes(operator.vertex_id, operator.name, now, times)


def _taskmanagers(jobs: Jobs, call: Call) -> shapes.VertexTaskManagers:
    record, operator = find_vertex(jobs, call)
    now = now_ms()
    found = []
    for index in range(operator.parallelism):
        subtask = _subtask(record, operator, index, now)
        found.append(
            shapes.VertexTaskManager(
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
    return shapes.VertexTaskManagers(operator.vertex_id, operator.name, now, found)


def _backpressure(jobs: Jobs, call: Call) -> shapes.Backpressure:
    """An operator that is always busy holds back those before it; that share is all there is to tell here."""
    record, operator = find_vertex(jobs, call)
    subtasks = []
    for figures in figures_of(record, operator.id, operator.parallelism):
        busy = min(1.0, max(0.0, figures.busy_ratio))
        subtasks.append(shapes.SubtaskBackpressure(figures.subtask, record.restarts, "ok", "ok", 0.0, 1.0 - busy, busy))
    level = _level(max((subtask.ratio for subtask in subtasks), default=0.0))
    return shapes.Backpressure("ok", level, level, now_ms(), subtasks)


def _level(ratio: float) -> str:
    return "high" if ratio > _HIGH else "low" if ratio > _LOW else "ok"


def routes(jobs: Jobs) -> list[Endpoint]:
    def get(path: str, handler: Callable[[Jobs, Call], Any], summary: str, response: Any, *query: Query) -> Endpoint:
        return Endpoint(
            "GET",
            "/jobs/{jobid}/vertices/{vertexid}" + path,
            partial(handler, jobs),
            summary,
            response=response,
            query=query,
            errors=(404,),
            tag="vertices",
        )

    one = "/subtasks/{subtaskindex}"
    return [
        get("", _details, "A vertex with its subtasks", shapes.JobVertexDetails),
        get(one, _one_subtask, "One subtask", shapes.Subtask),
        get(one + "/attempts/{attempt}", _attempt, "One attempt of a subtask", shapes.Subtask),
        get("/subtasktimes", _times, "When its subtasks entered each state", shapes.SubtasksTimes),
        get("/taskmanagers", _taskmanagers, "The slots it runs in", shapes.VertexTaskManagers),
        get("/backpressure", _backpressure, "How busy its subtasks are", shapes.Backpressure),
    ]
