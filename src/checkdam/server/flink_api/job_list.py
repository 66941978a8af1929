"""All jobs at a glance: GET /jobs and /jobs/overview, and Flink's applications, of which each job is one."""

from __future__ import annotations

from collections import Counter
from functools import partial

import msgspec

from checkdam.runtime.monitor.job_records import CheckpointStatus, JobRecord, JobStatus
from checkdam.server.app.endpoint import Call, Endpoint, Nothing, Query
from checkdam.server.app.http_errors import RestError
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api.execution_states import STATES, subtask_states
from checkdam.server.flink_api.statistics import duration, now_ms
from checkdam.server.flink_api.verbs import cancel


class JobIdWithStatus(msgspec.Struct, frozen=True):
    id: str
    status: JobStatus


class JobIdsWithStatusOverview(msgspec.Struct, frozen=True):
    jobs: list[JobIdWithStatus]


class LastCheckpoint(msgspec.Struct, frozen=True):
    """Not Flink's: so that a list of jobs needs one request."""

    id: int
    timestamp: int
    duration: int
    state_size: int


class JobOverview(msgspec.Struct, frozen=True, rename="kebab"):
    jid: str
    name: str
    state: JobStatus
    job_type: str = msgspec.field(name="jobType")
    scheduler_type: str = msgspec.field(name="schedulerType")
    start_time: int
    end_time: int
    duration: int
    last_modification: int
    tasks: dict[str, int]
    pending_operators: int
    parallelism: int  # this and the following are ours
    last_checkpoint: LastCheckpoint | None
    restarts: int


class MultipleJobsDetails(msgspec.Struct, frozen=True):
    jobs: list[JobOverview]


class _Application(msgspec.Struct, frozen=True, rename="kebab"):
    id: str
    name: str
    status: JobStatus
    start_time: int
    end_time: int
    duration: int


class Application(_Application, frozen=True):
    jobs: dict[str, int]


class ApplicationsOverview(msgspec.Struct, frozen=True):
    applications: list[Application]


class ApplicationDetails(_Application, frozen=True):
    timestamps: dict[str, int]
    jobs: list[JobOverview]


class ApplicationException(msgspec.Struct, frozen=True, rename="camel"):
    exception_name: str
    stacktrace: str
    timestamp: int
    job_id: str


class ApplicationExceptionEntries(msgspec.Struct, frozen=True):
    entries: list[ApplicationException]


class ApplicationExceptions(msgspec.Struct, frozen=True, rename="camel"):
    exception_history: ApplicationExceptionEntries


def job_overview(record: JobRecord, now: int) -> JobOverview:
    states = Counter(state for operator in record.operators for state in subtask_states(record, operator))
    return JobOverview(
        jid=record.id,
        name=record.name,
        state=record.status,
        job_type="STREAMING",
        scheduler_type="Adaptive",
        start_time=record.started_at,
        end_time=record.ended_at,
        duration=duration(record, now),
        last_modification=max(record.timestamps.values(), default=record.started_at),
        tasks={"total": states.total(), **{state.lower(): states[state] for state in STATES}},
        pending_operators=0,
        parallelism=record.parallelism,
        last_checkpoint=_last_checkpoint(record),
        restarts=record.restarts,
    )


def _last_checkpoint(record: JobRecord) -> LastCheckpoint | None:
    for checkpoint in record.checkpoints:
        if checkpoint.status is CheckpointStatus.COMPLETED and not checkpoint.kind.is_savepoint:
            return LastCheckpoint(
                checkpoint.id, checkpoint.finished_at, int(checkpoint.duration), checkpoint.state_bytes
            )
    return None


def _ids(jobs: Jobs, _: Call) -> JobIdsWithStatusOverview:
    return JobIdsWithStatusOverview([JobIdWithStatus(record.id, record.status) for record in jobs.records()])


def _overview(jobs: Jobs, _: Call) -> MultipleJobsDetails:
    now = now_ms()
    return MultipleJobsDetails([job_overview(record, now) for record in jobs.records()])


def _applications(jobs: Jobs, _: Call) -> ApplicationsOverview:
    now = now_ms()
    return ApplicationsOverview(
        [
            Application(
                record.id,
                record.name,
                record.status,
                record.started_at,
                record.ended_at,
                duration(record, now),
                {record.status: 1},
            )
            for record in jobs.records()
        ]
    )


def _record(jobs: Jobs, call: Call) -> JobRecord:
    application = str(call.path["applicationid"])
    try:
        return jobs.record(application)
    except RestError as error:
        raise RestError(404, f"Application {application} not found") from error


def _application(jobs: Jobs, call: Call) -> ApplicationDetails:
    record, now = _record(jobs, call), now_ms()
    return ApplicationDetails(
        record.id,
        record.name,
        record.status,
        record.started_at,
        record.ended_at,
        duration(record, now),
        {status: record.timestamps.get(status, 0) for status in JobStatus},
        [job_overview(record, now)],
    )


def _application_exceptions(jobs: Jobs, call: Call) -> ApplicationExceptions:
    record = _record(jobs, call)
    entries = [ApplicationException(e.name, e.stacktrace, e.at, record.id) for e in record.exceptions]
    return ApplicationExceptions(ApplicationExceptionEntries(entries[: call.query["maxExceptions"]]))


def _cancel_application(jobs: Jobs, call: Call) -> Nothing:
    cancel(jobs, _record(jobs, call).id)
    return Nothing()


def routes(jobs: Jobs) -> list[Endpoint]:
    one = "/applications/{applicationid}"
    return [
        Endpoint("GET", "/jobs", partial(_ids, jobs), "All jobs with their status", response=JobIdsWithStatusOverview),
        Endpoint(
            "GET", "/jobs/overview", partial(_overview, jobs), "All jobs at a glance", response=MultipleJobsDetails
        ),
        Endpoint(
            "GET",
            "/applications/overview",
            partial(_applications, jobs),
            "All applications; each job is one",
            response=ApplicationsOverview,
            tag="applications",
        ),
        Endpoint(
            "GET",
            one,
            partial(_application, jobs),
            "One application",
            response=ApplicationDetails,
            errors=(404,),
            tag="applications",
        ),
        Endpoint(
            "GET",
            one + "/exceptions",
            partial(_application_exceptions, jobs),
            "The failures of an application",
            response=ApplicationExceptions,
            query=(Query("maxExceptions", int, "How many at most", default=20, minimum=1),),
            errors=(404,),
            tag="applications",
        ),
        Endpoint(
            "POST",
            one + "/cancel",
            partial(_cancel_application, jobs),
            "Cancel an application",
            response=Nothing,
            status=202,
            errors=(403, 404, 409),
            tag="applications",
        ),
    ]
