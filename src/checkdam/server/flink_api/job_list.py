"""All jobs at a glance: GET /jobs and /jobs/overview."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import msgspec

from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_records import CheckpointStatus, JobRecord
from checkdam.server.app.endpoint import ApiCall, Endpoint, Query, Reads
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api.health import Health, health
from checkdam.server.flink_api.statistics import duration, now_ms
from checkdam.server.flink_api.vertices import STATES, subtask_states


class JobIdWithStatus(msgspec.Struct, frozen=True):
    id: str
    status: JobStatus


class JobIdsWithStatusOverview(msgspec.Struct, frozen=True):
    jobs: list[JobIdWithStatus]


class LastCheckpoint(msgspec.Struct, frozen=True):
    """Not in Flink: lets a client list jobs with one request."""

    id: int
    timestamp: int
    duration: int
    state_size: int


class JobOverview(msgspec.Struct, frozen=True, rename="kebab", kw_only=True):
    jid: str
    name: str
    state: JobStatus
    job_type: str = msgspec.field(default="STREAMING", name="jobType")
    scheduler_type: str = msgspec.field(default="Adaptive", name="schedulerType")
    start_time: int
    end_time: int
    duration: int
    last_modification: int
    tasks: dict[str, int]
    pending_operators: int = 0
    parallelism: int  # this and the following are ours
    last_checkpoint: LastCheckpoint | None
    restarts: int
    health: Health = Health()


class MultipleJobsDetails(msgspec.Struct, frozen=True):
    jobs: list[JobOverview]


def job_overview(record: JobRecord, now: int) -> JobOverview:
    states = Counter(state for operator in record.operators for state in subtask_states(record, operator))
    return JobOverview(
        jid=record.id,
        name=record.name,
        state=record.status,
        start_time=record.started_at,
        end_time=record.ended_at,
        duration=duration(record, now),
        last_modification=max(record.timestamps.values(), default=record.started_at),
        tasks={"total": states.total(), **{state.lower(): states[state] for state in STATES}},
        parallelism=record.parallelism,
        last_checkpoint=_last_checkpoint(record),
        restarts=record.restarts,
        health=health(record, now),
    )


def _last_checkpoint(record: JobRecord) -> LastCheckpoint | None:
    for each in record.checkpoints:
        if each.status is CheckpointStatus.COMPLETED and not each.kind.is_savepoint:
            return LastCheckpoint(each.id, each.finished_at, each.end_to_end, each.state_bytes)
    return None


def _listed(jobs: Jobs, call: ApiCall) -> list[JobOverview]:
    """Return all jobs, latest start first. Those in other processes are as their own driver describes them."""
    if call.query["here"]:
        return [job_overview(record, now_ms()) for record in jobs.own_records()]
    live = jobs_elsewhere(jobs)
    now = now_ms()
    listed = [job_overview(record, now) for record in jobs.records() if record.id not in live]
    return sorted([*listed, *live.values()], key=lambda job: job.start_time, reverse=True)


def jobs_elsewhere(jobs: Jobs) -> dict[str, JobOverview]:
    """Return the jobs in other processes of this user, by id; one whose driver is of another version is left out."""
    found = {}
    for job_id, entry in jobs.elsewhere().items():
        with suppress(msgspec.ValidationError):
            found[job_id] = msgspec.convert(entry, JobOverview)
    return found


def _ids(jobs: Jobs, call: ApiCall) -> JobIdsWithStatusOverview:
    return JobIdsWithStatusOverview([JobIdWithStatus(each.jid, each.state) for each in _listed(jobs, call)])


def _overview(jobs: Jobs, call: ApiCall) -> MultipleJobsDetails:
    return MultipleJobsDetails(_listed(jobs, call))


def routes(jobs: Jobs) -> list[Endpoint]:
    get = Reads(jobs, "/jobs")
    here = Query("here", bool, "Only jobs of the answering process", default=False)
    return [
        get("", _ids, "All jobs with their status", JobIdsWithStatusOverview, here),
        get("/overview", _overview, "All jobs at a glance", MultipleJobsDetails, here),
    ]
