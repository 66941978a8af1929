"""One job: its status, vertices, plan, configuration, failures and result. Field names follow Flink."""

from __future__ import annotations

import hashlib
import html
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from checkdam.config import Origin
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_records import NEVER, ExceptionRecord, JobRecord, OperatorRecord, OptionRecord
from checkdam.runtime.monitor.masking import without_credentials
from checkdam.server.app.endpoint import ApiCall, Endpoint, Positive, Query, Reads
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.catalog.viewers import ViewerId
from checkdam.server.flink_api.health import Health, health, operator_lag
from checkdam.server.flink_api.operations import FailureCause, named_cause
from checkdam.server.flink_api.statistics import (
    TaskMetrics,
    duration,
    figures_of,
    now_ms,
    operator_figures,
    task_metrics,
)
from checkdam.server.flink_api.vertices import (
    STATES,
    running_for,
    running_since,
    state_counts,
    subtask_states,
    task_state,
)
from checkdam.state.state_count import StateCount, count_of_parts

_RESULTS = {JobStatus.FINISHED: "SUCCEEDED", JobStatus.FAILED: "FAILED", JobStatus.CANCELED: "CANCELED"}


class PlanInput(msgspec.Struct, frozen=True):
    num: int
    id: str
    ship_strategy: str
    exchange: str


class PlanNode(msgspec.Struct, frozen=True):
    """`inputs` is left out for a source."""

    id: str
    parallelism: int
    operator: str
    operator_strategy: str
    description: str
    optimizer_properties: dict[str, str]
    inputs: list[PlanInput] | UnsetType = UNSET


class Plan(msgspec.Struct, frozen=True):
    jid: str
    name: str
    type: str
    nodes: list[PlanNode]


class JobPlanInfo(msgspec.Struct, frozen=True):
    plan: Plan


def plan(record: JobRecord) -> Plan:
    vertices = {operator.id: operator.vertex_id for operator in record.operators}
    return Plan(record.id, record.name, "STREAMING", [_node(operator, vertices) for operator in record.operators])


def _node(operator: OperatorRecord, vertices: dict[int, str]) -> PlanNode:
    inputs = [
        PlanInput(num, vertices[edge.operator], edge.ship_strategy, "pipelined_bounded")
        for num, edge in enumerate(operator.inputs)
        if edge.operator in vertices
    ]
    description = html.escape(operator.name).replace("\n", "<br/>")
    return PlanNode(operator.vertex_id, operator.parallelism, "", "", description, {}, inputs or UNSET)


def _plan(jobs: Jobs, call: ApiCall) -> JobPlanInfo:
    return JobPlanInfo(plan(jobs.record(call.job_id)))


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
    keys: int | None
    entries_are_exact: bool
    busy_ratio: float
    watermark: int | None
    watermark_lag: int | None
    is_stateful: bool
    is_named: bool


class EndingInfo(msgspec.Struct, frozen=True, rename="kebab"):
    """What the job left when it ended; `resume` is the command that resumes it, if it can be resumed and is known."""

    savepoint: str | None
    checkpoint: str | None
    is_drained: bool
    resume: str | None


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
    keys: int | None
    entries: int
    entries_are_exact: bool
    restarts: int
    health: Health
    parallelism: int
    ending: EndingInfo | None


class JobStatusInfo(msgspec.Struct, frozen=True):
    status: JobStatus


class ExecutionConfig(msgspec.Struct, frozen=True, rename="kebab"):
    """`options` is ours: every setting, including defaults."""

    restart_strategy: str
    job_parallelism: int
    user_config: dict[str, str]
    object_reuse_mode: bool = False
    options: tuple[OptionRecord, ...] = ()


class JobConfigInfo(msgspec.Struct, frozen=True, rename="kebab"):
    jid: str
    name: str
    execution_config: ExecutionConfig


class JobConfigEntry(msgspec.Struct, frozen=True):
    """`origin` is ours: code, command line, file and so on."""

    key: str
    value: str
    origin: str


class ExceptionInfo(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """`message` is ours."""

    exception_name: str
    stacktrace: str
    timestamp: int
    failure_labels: dict[str, str]
    concurrent_exceptions: list[dict[str, Any]] = []
    message: str


class TaskExceptionInfo(ExceptionInfo, frozen=True, rename="camel", kw_only=True):
    """A failure of one task."""

    task_name: str
    endpoint: str
    task_manager_id: str


class ExceptionHistory(msgspec.Struct, frozen=True):
    # Two shapes without a distinguishing field: the schema describes their common part.
    entries: list[ExceptionInfo]
    truncated: bool


class JobExceptionsInfo(msgspec.Struct, frozen=True, rename="camel"):
    exception_history: ExceptionHistory


class ResultStatus(msgspec.Struct, frozen=True):
    id: Literal["IN_PROGRESS", "COMPLETED"]


class JobResultInfo(msgspec.Struct, rename="kebab"):
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
    job_execution_result: JobResultInfo | UnsetType = UNSET


def slot_sharing_group(job_id: str) -> str:
    """Return the id of the job's slot sharing group, derived from the job's id: all operators share its slots."""
    return hashlib.blake2b(job_id.encode(), digest_size=16).hexdigest()


def _details(jobs: Jobs, call: ApiCall) -> JobDetailsInfo:
    record, now = jobs.record(call.job_id), now_ms()
    if call.query["viewer"] is not None:
        jobs.is_looked_at(call.query["viewer"], record)
    states = [task_state(record, operator) for operator in record.operators]
    return JobDetailsInfo(
        jid=record.id,
        name=record.name,
        state=record.status,
        application_id=record.id,
        start_time=record.started_at,
        end_time=record.ended_at,
        duration=duration(record, now),
        now=now,
        max_parallelism=record.max_parallelism,
        timestamps={status: record.timestamps.get(status, 0) for status in JobStatus},
        vertices=[_vertex(record, operator, now) for operator in record.operators],
        status_counts={state: states.count(state) for state in STATES},
        plan=plan(record),
        progress=record.progress,
        savepoint_directory=without_credentials(record.settings.savepoint_directory or "") or None,
        epoch=record.epoch,
        keys=record.keys if record.keys != NEVER else None,
        entries=record.entries,
        entries_are_exact=not record.is_estimated,
        restarts=record.restarts,
        health=health(record, now),
        parallelism=record.parallelism,
        ending=_ending(record),
    )


def _ending(record: JobRecord) -> EndingInfo | None:
    ending = record.ending
    if ending is None or not record.status.has_ended:
        return None
    return EndingInfo(ending.savepoint, ending.checkpoint, ending.is_drained, ending.resume)


def _vertex(record: JobRecord, operator: OperatorRecord, now: int) -> Vertex:
    figures, running = figures_of(record, operator.id, operator.parallelism), running_for(record, now)
    held = count_of_parts(StateCount(each.entries, each.keys, not each.is_estimated) for each in figures)
    marks = [subtask.watermark for subtask in figures if subtask.watermark is not None]
    return Vertex(
        id=operator.vertex_id,
        slot_sharing_group_id=slot_sharing_group(record.id),
        name=operator.name,
        max_parallelism=operator.max_parallelism,
        parallelism=operator.parallelism,
        status=task_state(record, operator),
        start_time=running_since(record),
        end_time=record.ended_at,
        duration=running,
        tasks=state_counts(subtask_states(record, operator)),
        metrics=task_metrics(figures, max(0, running)),
        uid=operator.uid,
        kind=operator.kind,
        level=operator.level,
        state_size=operator_figures(record, operator.id).state_bytes,
        entries=held.entries,
        keys=held.keys,
        entries_are_exact=held.is_exact,
        busy_ratio=max((subtask.busy_ratio for subtask in figures), default=0.0),
        watermark=min(marks) if marks else None,
        watermark_lag=operator_lag(record, operator_figures(record, operator.id), now),
        is_stateful=operator.is_stateful,
        is_named=operator.is_named,
    )


def _status(jobs: Jobs, call: ApiCall) -> JobStatusInfo:
    return JobStatusInfo(jobs.record(call.job_id).status)


def _config(jobs: Jobs, call: ApiCall) -> JobConfigInfo:
    record = jobs.record(call.job_id)
    return JobConfigInfo(
        record.id,
        record.name,
        ExecutionConfig(
            record.settings.restart_strategy,
            record.parallelism,
            record.settings.configuration,
            options=record.settings.options,
        ),
    )


def _settings(jobs: Jobs, call: ApiCall) -> list[JobConfigEntry]:
    """Return every setting that was given, also those that the program has set itself.

    By the scheduler Flink's autoscaler sees that it can rescale the job in place.
    """
    given = [
        JobConfigEntry(option.key, option.value, option.origin)
        for option in jobs.record(call.job_id).settings.options
        if option.value is not None and option.origin != Origin.DEFAULT.value
    ]
    return [*given, JobConfigEntry("jobmanager.scheduler", "Adaptive", Origin.DEFAULT.value)]


def _exceptions(jobs: Jobs, call: ApiCall) -> JobExceptionsInfo:
    record = jobs.record(call.job_id)
    # Failures have no labels here, so a label filter matches none.
    found = () if call.query["failureLabelFilter"] else record.exceptions
    shown = found[: call.query["maxExceptions"]]
    return JobExceptionsInfo(ExceptionHistory([_exception(record, entry) for entry in shown], len(shown) < len(found)))


def _exception(record: JobRecord, entry: ExceptionRecord) -> ExceptionInfo:
    info = ExceptionInfo(
        exception_name=entry.name,
        stacktrace=entry.stacktrace,
        timestamp=entry.at,
        failure_labels={},
        message=entry.message,
    )
    if entry.task is None:
        return info
    of = next((operator.parallelism for operator in record.operators if operator.name == entry.task), 0)
    subtask = f" ({entry.subtask + 1}/{of})" if entry.subtask is not None and of else ""
    place = entry.slot or "(unassigned)"
    return TaskExceptionInfo(
        **{name: getattr(info, name) for name in info.__struct_fields__},
        task_name=entry.task + subtask,
        endpoint=place,
        task_manager_id=place,
    )


def _result(jobs: Jobs, call: ApiCall) -> JobExecutionResult:
    record = jobs.record(call.job_id)
    if not record.status.is_terminal:
        return JobExecutionResult(ResultStatus("IN_PROGRESS"))
    result = JobResultInfo(
        id=record.id,
        name=record.name,
        application_status=_RESULTS[record.status],
        accumulator_results={},
        net_runtime=duration(record, now_ms()),
        application_id=record.id,
        start_time=record.started_at,
        end_time=record.ended_at,
    )
    if record.status is JobStatus.FAILED and record.exceptions:
        cause = record.exceptions[0]
        result.failure_cause = named_cause(cause.name, cause.message, cause.stacktrace)
    return JobExecutionResult(ResultStatus("COMPLETED"), result)


def routes(jobs: Jobs) -> list[Endpoint]:
    get = Reads(jobs, "/jobs/{jobid}")
    return [
        get(
            "",
            _details,
            "The job with its vertices",
            JobDetailsInfo,
            Query("viewer", ViewerId, "A page that asks again and again: the server waits for it at the job's end"),
        ),
        get("/status", _status, "The job's status", JobStatusInfo),
        get("/plan", _plan, "The job's graph", JobPlanInfo),
        get("/config", _config, "How the job was configured", JobConfigInfo),
        get("/jobmanager/config", _settings, "The settings, also those of the program", list[JobConfigEntry]),
        get(
            "/exceptions",
            _exceptions,
            "The job's failures, the latest first",
            JobExceptionsInfo,
            Query("maxExceptions", Positive, "Most failures to return", default=20),
            Query("failureLabelFilter", str, "key:value pairs", is_list=True),
        ),
        get("/execution-result", _result, "How the job ended", JobExecutionResult),
    ]
