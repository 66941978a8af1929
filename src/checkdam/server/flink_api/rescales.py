"""The job's parallelism: what is required, how to change it, and the history of changes.

All operators of a job share its slots, so one number applies to the whole job. Flink sets it by vertex: of different
numbers the largest counts, leaving out operators whose parallelism the program sets.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import msgspec

from checkdam.runtime.monitor.job_records import JobRecord, OperatorRecord, RescaleRecord
from checkdam.server.app.endpoint import ApiCall, Endpoint, Nothing, Reads
from checkdam.server.app.http_errors import RestError
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api.operations import OperationKind, Operations

_REFUSED_WITHIN = 0.25  # seconds to wait for an immediate refusal before answering


class ParallelismBounds(msgspec.Struct, frozen=True, rename="camel"):
    lower_bound: int
    upper_bound: int


class VertexRequirements(msgspec.Struct, frozen=True):
    parallelism: ParallelismBounds


class VertexRescale(msgspec.Struct, frozen=True, rename="camel"):
    desired_parallelism: int
    pre_rescale_parallelism: int


class SchedulerState(msgspec.Struct, frozen=True, rename="camel"):
    stringified_exception: str | None


class Rescale(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of Flink's that the page shows. `scheduler_states` has one entry, with the reason for a failure."""

    rescale_uuid: str
    vertices: dict[str, VertexRescale]
    scheduler_states: list[SchedulerState]
    start_timestamp_in_millis: int
    end_timestamp_in_millis: int | None
    terminal_state: Literal["COMPLETED", "FAILED"] | None


def _requirements(jobs: Jobs, call: ApiCall) -> dict[str, VertexRequirements]:
    record = jobs.record(call.job_id)
    return {
        operator.vertex_id: VertexRequirements(ParallelismBounds(1, operator.parallelism))
        for operator in record.operators
    }


def _require(jobs: Jobs, operations: Operations, call: ApiCall) -> Nothing:
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
        except TimeoutError:  # in progress; the history of rescales shows how it ends
            return Nothing()
        if refused is not None:
            raise refused
    return Nothing()


def _one_parallelism(record: JobRecord, wanted: dict[str, VertexRequirements]) -> int | None:
    """Return the requested parallelism; None if the job already has it. Raise RestError 400.

    Operators whose parallelism the program sets keep it, so what is requested for them does not count.
    """
    operators = {operator.vertex_id: operator for operator in record.operators}
    unknown, missing = sorted(wanted.keys() - operators.keys()), sorted(operators.keys() - wanted.keys())
    if unknown:
        raise RestError(400, f"Newly provided resource requirements name vertices the job does not have: {unknown}")
    if missing:
        raise RestError(400, f"The request is incomplete, missing job vertices are: {missing}")
    for vertex_id, requirements in wanted.items():
        _check_bounds(operators[vertex_id], requirements.parallelism)
    scaled = [operator for operator in record.operators if not operator.is_fixed]
    largest = max((wanted[operator.vertex_id].parallelism.upper_bound for operator in scaled), default=None)
    return None if largest in {operator.parallelism for operator in scaled} else largest


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


def _rescales(jobs: Jobs, call: ApiCall) -> list[Rescale]:
    """List the rescales, newest first."""
    record = jobs.record(call.job_id)
    return [_rescale(record, rescale) for rescale in record.rescales]


def _rescale(record: JobRecord, rescale: RescaleRecord) -> Rescale:
    has_ended = rescale.ended_at >= 0
    change = VertexRescale(rescale.to_parallelism, rescale.from_parallelism)
    return Rescale(
        rescale_uuid=rescale.id,
        vertices={operator.vertex_id: change for operator in record.operators},
        scheduler_states=[SchedulerState(rescale.failure)],
        start_timestamp_in_millis=rescale.started_at,
        end_timestamp_in_millis=rescale.ended_at if has_ended else None,
        terminal_state=None if not has_ended else "COMPLETED" if rescale.failure is None else "FAILED",
    )


def routes(jobs: Jobs, operations: Operations) -> list[Endpoint]:
    get = Reads(jobs, "/jobs/{jobid}", "rescaling")
    return [
        get("/resource-requirements", _requirements, "The parallelism required", dict[str, VertexRequirements]),
        Endpoint(
            "PUT",
            "/jobs/{jobid}/resource-requirements",
            partial(_require, jobs, operations),
            "Change the parallelism",
            response=Nothing,
            body=dict[str, VertexRequirements],
            body_name="JobResourceRequirementsBody",
            errors=(403, 404, 409, 503),
            tag="rescaling",
        ),
        get("/rescales/history", _rescales, "All rescales, newest first", list[Rescale]),
    ]
