"""The metrics endpoints: lists of names, values as text, and figures over many; metrics.py has the values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from checkdam.server.app.endpoint import Call, Endpoint, Query, bad_parameters
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api.metrics import (
    aggregate,
    job_metrics,
    jobmanager_metrics,
    subtask_metrics,
    taskmanager_metrics,
    vertex_metrics,
)
from checkdam.server.flink_api.taskmanagers import find_slot, live_slots
from checkdam.server.flink_api.vertices import find_subtask, find_vertex, slot_id

_GET = Query("get", description="Names; left out: the list of names", is_list=True)
_KINDS = ("min", "max", "avg", "sum", "skew")
_AGG = Query("agg", description="Which figures; left out: all", is_list=True, choices=_KINDS)
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


class Metric(msgspec.Struct, frozen=True):
    """Without `value` in a list of names."""

    id: str
    value: str | UnsetType = UNSET


class AggregatedMetric(msgspec.Struct, frozen=True):
    id: str
    min: float | UnsetType = UNSET
    max: float | UnsetType = UNSET
    avg: float | UnsetType = UNSET
    sum: float | UnsetType = UNSET
    skew: float | UnsetType = UNSET


def _listed(values: Mapping[str, str], names: Sequence[str] | None) -> list[Metric]:
    """A name nobody knows is left out without a word, as in Flink."""
    if names is None:
        return [Metric(name) for name in values]
    return [Metric(name, values[name]) for name in dict.fromkeys(names) if name in values]


def _over_many(many: Iterable[Mapping[str, str]], call: Call) -> list[AggregatedMetric]:
    found = list(many)
    names, kinds = call.query["get"], call.query["agg"] or _KINDS
    if names is None:
        return [AggregatedMetric(name) for name in dict.fromkeys(name for values in found for name in values)]
    figures = [(name, aggregate(values[name] for values in found if name in values)) for name in dict.fromkeys(names)]
    return [
        AggregatedMetric(name, **{kind: getattr(figure, kind) for kind in kinds})
        for name, figure in figures
        if figure is not None
    ]


def _job(jobs: Jobs, call: Call) -> list[Metric]:
    return _listed(job_metrics(jobs.record(call.job_id)), call.query["get"])


def _vertex(jobs: Jobs, call: Call) -> list[Metric]:
    return _listed(vertex_metrics(*find_vertex(jobs, call)), call.query["get"])


def _watermarks(jobs: Jobs, call: Call) -> list[Metric]:
    values = vertex_metrics(*find_vertex(jobs, call))
    return [Metric(name, value) for name, value in values.items() if name.endswith(".currentInputWatermark")]


def _subtask(jobs: Jobs, call: Call) -> list[Metric]:
    record, operator = find_vertex(jobs, call)
    return _listed(subtask_metrics(record, operator, find_subtask(operator, call)), call.query["get"])


def _slot(jobs: Jobs, call: Call) -> list[Metric]:
    return _listed(taskmanager_metrics(*find_slot(jobs, call)), call.query["get"])


def _driver(jobs: Jobs, call: Call) -> list[Metric]:
    return _listed(jobmanager_metrics(jobs.records()), call.query["get"])


def _jobs(jobs: Jobs, call: Call) -> list[AggregatedMetric]:
    wanted = call.query["jobs"]
    records = [record for record in jobs.records() if wanted is None or record.id in wanted]
    return _over_many((job_metrics(record) for record in records), call)


def _slots(jobs: Jobs, call: Call) -> list[AggregatedMetric]:
    wanted = call.query["taskmanagers"]
    slots = [(record, slot) for record, slot in live_slots(jobs) if wanted is None or slot_id(slot) in wanted]
    return _over_many((taskmanager_metrics(record, slot) for record, slot in slots), call)


def _subtasks(jobs: Jobs, call: Call) -> list[AggregatedMetric]:
    record, operator = find_vertex(jobs, call)
    wanted = call.query["subtasks"]
    chosen = range(operator.parallelism) if wanted is None else _indices(wanted, operator.parallelism)
    return _over_many((subtask_metrics(record, operator, index) for index in chosen), call)


def _indices(parts: Sequence[str], parallelism: int) -> list[int]:
    """Of "0", "3-5": those the operator has."""
    found: set[int] = set()
    for part in parts:
        match = _RANGE.fullmatch(part)
        if match is None:
            raise bad_parameters(f'Cannot resolve query parameter (subtasks) from value "{part}".')
        first, last = int(match[1]), int(match[2] or match[1])
        found |= set(range(first, min(last, parallelism - 1) + 1))
    return sorted(found)


def routes(jobs: Jobs) -> list[Endpoint]:
    def get(
        path: str, handler: Callable[[Jobs, Call], Any], summary: str, query: tuple[Query, ...] = (_GET,)
    ) -> Endpoint:
        return Endpoint(
            "GET",
            path,
            partial(handler, jobs),
            summary,
            response=list[AggregatedMetric] if _AGG in query else list[Metric],
            query=query,
            errors=(404,) if "{" in path else (),
            tag="metrics",
        )

    vertex = "/jobs/{jobid}/vertices/{vertexid}"
    of_jobs = Query("jobs", description="Job ids; left out: all", is_list=True)
    of_slots = Query("taskmanagers", description="Slots; left out: all", is_list=True)
    of_subtasks = Query("subtasks", description="Such as 0,3-5; left out: all", is_list=True)
    return [
        get("/jobs/metrics", _jobs, "Metrics over jobs", (_GET, _AGG, of_jobs)),
        get("/jobs/{jobid}/metrics", _job, "Metrics of a job"),
        get(vertex + "/metrics", _vertex, "Metrics of a vertex, by subtask"),
        get(vertex + "/watermarks", _watermarks, "How far event time is", ()),
        get(vertex + "/subtasks/metrics", _subtasks, "Metrics over subtasks", (_GET, _AGG, of_subtasks)),
        get(vertex + "/subtasks/{subtaskindex}/metrics", _subtask, "Metrics of a subtask"),
        get("/taskmanagers/metrics", _slots, "Metrics over slots", (_GET, _AGG, of_slots)),
        get("/taskmanagers/{taskmanagerid}/metrics", _slot, "Metrics of a slot"),
        get("/jobmanager/metrics", _driver, "Metrics of the driver"),
    ]
