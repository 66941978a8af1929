"""The job's graph as Flink's plan: one node for each operator, joined to the vertices by its id."""

from __future__ import annotations

import html
from functools import partial

import msgspec
from msgspec import UNSET, UnsetType

from checkdam.runtime.monitor.job_records import JobRecord, OperatorRecord
from checkdam.server.app.endpoint import Call, Endpoint
from checkdam.server.catalog.known_jobs import Jobs


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


def _plan(jobs: Jobs, call: Call) -> JobPlanInfo:
    return JobPlanInfo(plan(jobs.record(call.job_id)))


def routes(jobs: Jobs) -> list[Endpoint]:
    return [
        Endpoint(
            "GET", "/jobs/{jobid}/plan", partial(_plan, jobs), "The job's graph", response=JobPlanInfo, errors=(404,)
        )
    ]
