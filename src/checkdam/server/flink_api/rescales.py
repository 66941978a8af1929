"""The job's parallelism: what it is required to be, how to change that, and what became of each change.

All operators of a job share its slots, so one number holds for the whole job. Flink names vertices; a request that asks
for two different numbers is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import msgspec

from checkdam.runtime.monitor.job_records import JobRecord, OperatorRecord, RescaleRecord
from checkdam.server.app.endpoint import Call, Endpoint, Nothing
from checkdam.server.app.http_errors import RestError
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api.job_endpoints import slot_sharing_group
from checkdam.server.flink_api.operations import OperationKind, Operations
from checkdam.server.flink_api.statistics import Statistics, now_ms, statistics

_HISTORY_MAX = 100
_REFUSED_WITHIN = 0.25  # seconds: a change that cannot be is refused at once, before the answer


class ParallelismBounds(msgspec.Struct, frozen=True, rename="camel"):
    lower_bound: int
    upper_bound: int


class VertexRequirements(msgspec.Struct, frozen=True):
    parallelism: ParallelismBounds


class RescalesCounts(msgspec.Struct, frozen=True, rename="camel"):
    ignored: int
    in_progress: int
    completed: int
    failed: int


class VertexRescale(msgspec.Struct, frozen=True, rename="camel"):
    job_vertex_id: str
    job_vertex_name: str
    slot_sharing_group_id: str
    slot_sharing_group_name: str
    desired_parallelism: int
    sufficient_parallelism: int
    pre_rescale_parallelism: int
    post_rescale_parallelism: int | None


class SlotsRescale(msgspec.Struct, frozen=True, rename="camel"):
    slot_sharing_group_id: str
    slot_sharing_group_name: str
    desired_slots: int
    minimal_required_slots: int
    pre_rescale_slots: int
    post_rescale_slots: int | None


class SchedulerState(msgspec.Struct, frozen=True, rename="camel"):
    state: str
    enter_timestamp_in_millis: int
    leave_timestamp_in_millis: int | None
    duration_in_millis: int | None
    stringified_exception: str | None


class Rescale(msgspec.Struct, frozen=True, rename="camel"):
    rescale_uuid: str
    resource_requirements_uuid: str
    rescale_attempt_id: int
    vertices: dict[str, VertexRescale]
    slots: dict[str, SlotsRescale]
    scheduler_states: list[SchedulerState]
    start_timestamp_in_millis: int
    end_timestamp_in_millis: int | None
    terminal_state: Literal["COMPLETED", "FAILED"] | None
    trigger_cause: str
    terminated_reason: str | None


class LatestRescales(msgspec.Struct, frozen=True):
    completed: Rescale | None
    failed: Rescale | None
    ignored: Rescale | None


class RescalesOverview(msgspec.Struct, frozen=True, rename="camel"):
    rescales_counts: RescalesCounts
    latest: LatestRescales


class RescalesSummary(msgspec.Struct, frozen=True, rename="camel"):
    rescales_counts: RescalesCounts
    rescales_duration_stats_in_millis: Statistics
    completed_rescales_duration_stats_in_millis: Statistics
    failed_rescales_duration_stats_in_millis: Statistics
    ignored_rescales_duration_stats_in_millis: Statistics


class RescalesConfig(msgspec.Struct, frozen=True, rename="camel"):
    """A change begins at once: there is nothing to wait for or to cool down from."""

    rescale_history_max: int = _HISTORY_MAX
    scheduler_execution_mode: str | None = None
    submission_resource_wait_timeout_in_millis: int = 0
    submission_resource_stabilization_timeout_in_millis: int = 0
    slot_idle_timeout_in_millis: int = 0
    executing_cooldown_timeout_in_millis: int = 0
    executing_resource_stabilization_timeout_in_millis: int = 0
    maximum_delay_for_triggering_rescale_in_millis: int = 0
    rescale_on_failed_checkpoint_count: int = 1


def _requirements(jobs: Jobs, call: Call) -> dict[str, VertexRequirements]:
    record = jobs.record(call.job_id)
    return {
        operator.vertex_id: VertexRequirements(ParallelismBounds(1, operator.parallelism))
        for operator in record.operators
    }


def _require(jobs: Jobs, operations: Operations, call: Call) -> Nothing:
    wanted: dict[str, VertexRequirements] = call.body
    if not wanted:
        raise RestError(400, "Request body does not specify resource requirements.")
    record = jobs.record(call.job_id)
    parallelism = _one_parallelism(record, wanted)
    job = jobs.require_running(call.job_id)
    if parallelism is not None:
        future = job.control.rescale(parallelism)
        operations.start(OperationKind.RESCALING, call.job_id, None, lambda: future)
        refused = None
        try:
            refused = future.exception(_REFUSED_WITHIN)
        except TimeoutError:  # it is under way; the history of rescales tells how it ends
            return Nothing()
        if refused is not None:
            raise refused
    return Nothing()


def _one_parallelism(record: JobRecord, wanted: dict[str, VertexRequirements]) -> int | None:
    """The number asked for; None if it is what the job has. Raises RestError 400."""
    operators = {operator.vertex_id: operator for operator in record.operators}
    unknown, missing = sorted(wanted.keys() - operators.keys()), sorted(operators.keys() - wanted.keys())
    if unknown:
        raise RestError(400, f"Newly provided resource requirements name vertices the job does not have: {unknown}")
    if missing:
        raise RestError(400, f"The request is incomplete, missing job vertices are: {missing}")
    for vertex_id, requirements in wanted.items():
        _check_bounds(operators[vertex_id], requirements.parallelism)
    changed = {
        requirements.parallelism.upper_bound
        for vertex_id, requirements in wanted.items()
        if requirements.parallelism.upper_bound != operators[vertex_id].parallelism
    }
    if len(changed) > 1:
        raise RestError(400, f"All operators of a job have one parallelism; the request asks for {sorted(changed)}.")
    return changed.pop() if changed else None


def _check_bounds(operator: OperatorRecord, bounds: ParallelismBounds) -> None:
    if bounds.lower_bound < 1 or bounds.upper_bound < bounds.lower_bound:
        raise RestError(
            400,
            f"The bounds {bounds.lower_bound} to {bounds.upper_bound} of vertex {operator.vertex_id} are not a range "
            "that begins at 1 or above.",
        )
    if bounds.upper_bound > operator.max_parallelism:
        raise RestError(
            400,
            f"Parallelism {bounds.upper_bound} of vertex {operator.vertex_id} is above its maximum parallelism "
            f"{operator.max_parallelism}.",
        )


def _rescale(record: JobRecord, rescale: RescaleRecord, attempt: int) -> Rescale:
    ended = rescale.ended_at if rescale.ended_at >= 0 else None
    is_done = ended is not None and rescale.failure is None
    after = rescale.to_parallelism if is_done else rescale.from_parallelism if ended is not None else None
    group = slot_sharing_group(record.id)
    return Rescale(
        rescale_uuid=rescale.id,
        resource_requirements_uuid=rescale.id,
        rescale_attempt_id=attempt,
        vertices={
            operator.vertex_id: VertexRescale(
                operator.vertex_id,
                operator.name,
                group,
                "default",
                rescale.to_parallelism,
                rescale.to_parallelism,
                rescale.from_parallelism,
                after,
            )
            for operator in record.operators
        },
        slots={
            group: SlotsRescale(
                group, "default", rescale.to_parallelism, rescale.to_parallelism, rescale.from_parallelism, after
            )
        },
        scheduler_states=[
            SchedulerState(
                "Restarting",
                rescale.started_at,
                ended,
                ended - rescale.started_at if ended is not None else None,
                rescale.failure,
            )
        ],
        start_timestamp_in_millis=rescale.started_at,
        end_timestamp_in_millis=ended,
        terminal_state=None if ended is None else "COMPLETED" if is_done else "FAILED",
        trigger_cause="UPDATE_REQUIREMENT",
        terminated_reason=None if ended is None else "SUCCEEDED" if is_done else "EXCEPTION_OCCURRED",
    )


def _rescales(jobs: Jobs, call: Call) -> list[Rescale]:
    """Newest first."""
    record = jobs.record(call.job_id)
    count = len(record.rescales)
    return [_rescale(record, rescale, count - place) for place, rescale in enumerate(record.rescales)]


def _counts(rescales: list[Rescale]) -> RescalesCounts:
    states = [rescale.terminal_state for rescale in rescales]
    return RescalesCounts(0, states.count(None), states.count("COMPLETED"), states.count("FAILED"))


def _overview(jobs: Jobs, call: Call) -> RescalesOverview:
    rescales = _rescales(jobs, call)
    completed, failed = (
        next((rescale for rescale in rescales if rescale.terminal_state == state), None)
        for state in ("COMPLETED", "FAILED")
    )
    return RescalesOverview(_counts(rescales), LatestRescales(completed, failed, None))


def _details(jobs: Jobs, call: Call) -> Rescale:
    wanted = call.path["rescaleuuid"]
    for rescale in _rescales(jobs, call):
        if rescale.rescale_uuid == wanted:
            return rescale
    raise RestError(404, f"Could not find rescale {wanted} of job {call.job_id}.")


def _summary(jobs: Jobs, call: Call) -> RescalesSummary:
    rescales, now = _rescales(jobs, call), now_ms()

    def durations(*states: str | None) -> Statistics:
        return statistics(
            (now if rescale.end_timestamp_in_millis is None else rescale.end_timestamp_in_millis)
            - rescale.start_timestamp_in_millis
            for rescale in rescales
            if rescale.terminal_state in states
        )

    return RescalesSummary(
        _counts(rescales),
        durations("COMPLETED", "FAILED"),
        durations("COMPLETED"),
        durations("FAILED"),
        statistics([]),
    )


def _config(jobs: Jobs, call: Call) -> RescalesConfig:
    jobs.record(call.job_id)
    return RescalesConfig()


def routes(jobs: Jobs, operations: Operations) -> list[Endpoint]:
    def get(path: str, handler: Callable[[Jobs, Call], Any], summary: str, response: Any) -> Endpoint:
        return Endpoint(
            "GET",
            "/jobs/{jobid}" + path,
            partial(handler, jobs),
            summary,
            response=response,
            errors=(404,),
            tag="rescaling",
        )

    return [
        get("/resource-requirements", _requirements, "The parallelism required", dict[str, VertexRequirements]),
        Endpoint(
            "PUT",
            "/jobs/{jobid}/resource-requirements",
            partial(_require, jobs, operations),
            "Go on at another parallelism",
            response=Nothing,
            body=dict[str, VertexRequirements],
            body_name="JobResourceRequirementsBody",
            errors=(403, 404, 409, 503),
            tag="rescaling",
        ),
        get("/rescales/overview", _overview, "Counts, and the latest of each kind", RescalesOverview),
        get("/rescales/history", _rescales, "All rescales, newest first", list[Rescale]),
        get("/rescales/details/{rescaleuuid}", _details, "One rescale", Rescale),
        get("/rescales/summary", _summary, "How long they took", RescalesSummary),
        get("/rescales/config", _config, "How rescales are made", RescalesConfig),
    ]
