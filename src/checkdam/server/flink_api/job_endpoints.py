"""One job: its state, vertices, configuration, failures and result; and what of it changes over time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any

from checkdam.runtime.monitor.job_records import ExceptionRecord, JobRecord, JobStatus, OperatorRecord
from checkdam.runtime.monitor.masking import without_credentials
from checkdam.server.app.endpoint import Call, Endpoint, Positive, Query
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api import job_shapes as shapes
from checkdam.server.flink_api.execution_states import (
    STATES,
    running_for,
    running_since,
    state_counts,
    subtask_states,
    task_state,
)
from checkdam.server.flink_api.failure_cause import named_cause
from checkdam.server.flink_api.plans import plan
from checkdam.server.flink_api.statistics import duration, figures_of, now_ms, operator_figures, task_metrics

_RESULTS = {JobStatus.FINISHED: "SUCCEEDED", JobStatus.FAILED: "FAILED", JobStatus.CANCELED: "CANCELED"}


def slot_sharing_group(job_id: str) -> str:
    """All operators of a job share its slots: one group, whose id follows from the job's."""
    return hashlib.blake2b(job_id.encode(), digest_size=16).hexdigest()


def _details(jobs: Jobs, call: Call) -> shapes.JobDetailsInfo:
    record, now = jobs.record(call.job_id), now_ms()
    states = [task_state(record, operator) for operator in record.operators]
    return shapes.JobDetailsInfo(
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
        keys=record.keys,
        restarts=record.restarts,
        parallelism=record.parallelism,
    )


def _vertex(record: JobRecord, operator: OperatorRecord, now: int) -> shapes.Vertex:
    figures, running = figures_of(record, operator.id, operator.parallelism), running_for(record, now)
    marks = [subtask.watermark for subtask in figures if subtask.watermark is not None]
    return shapes.Vertex(
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
        entries=sum(subtask.entries for subtask in figures),
        busy_ratio=max((subtask.busy_ratio for subtask in figures), default=0.0),
        watermark=min(marks) if marks else None,
        is_stateful=operator.is_stateful,
    )


def _status(jobs: Jobs, call: Call) -> shapes.JobStatusInfo:
    return shapes.JobStatusInfo(jobs.record(call.job_id).status)


def _config(jobs: Jobs, call: Call) -> shapes.JobConfigInfo:
    record = jobs.record(call.job_id)
    return shapes.JobConfigInfo(
        record.id,
        record.name,
        shapes.ExecutionConfig(
            record.settings.restart_strategy,
            record.parallelism,
            record.settings.configuration,
            options=[shapes.Option(each.key, each.value, each.origin) for each in record.settings.options],
        ),
    )


def _exceptions(jobs: Jobs, call: Call) -> shapes.JobExceptionsInfo:
    record = jobs.record(call.job_id)
    # No failure carries a label here, so one that is asked for is carried by none.
    found = () if call.query["failureLabelFilter"] else record.exceptions
    shown = found[: call.query["maxExceptions"]]
    return shapes.JobExceptionsInfo(
        shapes.ExceptionHistory([_exception(record, entry) for entry in shown], len(shown) < len(found))
    )


def _exception(record: JobRecord, entry: ExceptionRecord) -> shapes.ExceptionInfo:
    info = shapes.ExceptionInfo(
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
    return shapes.TaskExceptionInfo(
        **{name: getattr(info, name) for name in info.__struct_fields__},
        task_name=entry.task + subtask,
        endpoint=place,
        task_manager_id=place,
    )


def _result(jobs: Jobs, call: Call) -> shapes.JobExecutionResult:
    record = jobs.record(call.job_id)
    if not record.status.is_terminal:
        return shapes.JobExecutionResult(shapes.ResultStatus("IN_PROGRESS"))
    result = shapes.JobResult(
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
    return shapes.JobExecutionResult(shapes.ResultStatus("COMPLETED"), result)


def routes(jobs: Jobs) -> list[Endpoint]:
    def get(path: str, handler: Callable[[Jobs, Call], Any], summary: str, response: Any, *query: Query) -> Endpoint:
        return Endpoint(
            "GET",
            "/jobs/{jobid}" + path,
            partial(handler, jobs),
            summary,
            response=response,
            query=query,
            errors=(404,),
        )

    return [
        get("", _details, "The job with its vertices", shapes.JobDetailsInfo),
        get("/status", _status, "The job's status", shapes.JobStatusInfo),
        get("/config", _config, "How the job was configured", shapes.JobConfigInfo),
        get(
            "/exceptions",
            _exceptions,
            "The job's failures, the latest first",
            shapes.JobExceptionsInfo,
            Query("maxExceptions", Positive, "How many at most", default=20),
            Query("failureLabelFilter", str, "key:value pairs", is_list=True),
        ),
        get("/execution-result", _result, "How the job ended", shapes.JobExecutionResult),
    ]
