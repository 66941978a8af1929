"""`/metrics`: every running job for Prometheus, under the names and labels of Flink's own reporter.

As in Flink, every metric is a gauge: a Flink counter may go back, and does so when a new attempt begins. `rate()`
treats that as a restart. A Prometheus counter would also need the suffix "_total".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector
from starlette.responses import Response

from checkdam.runtime.monitor.job_records import JobRecord, OperatorRecord, SlotRecord, SubtaskFigures
from checkdam.server.app.endpoint import ApiCall, Endpoint
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api.metrics import Metrics, job_values, jobmanager_values, task_values, taskmanager_values
from checkdam.server.flink_api.vertices import slot_id

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

_UNFIT = re.compile(r"[^a-zA-Z0-9_:]")
_OF_OPERATORS = frozenset(
    {
        "numRecordsIn",
        "numRecordsInPerSecond",
        "numRecordsOut",
        "numRecordsOutPerSecond",
        "currentInputWatermark",
        "numLateRecordsDropped",
    }
)
"""Metrics that Flink reports per operator, most of them per task as well; many dashboards query the operator ones."""


def routes(jobs: Jobs) -> list[Endpoint]:
    summary = "All metrics of running jobs, for Prometheus"
    return [Endpoint("GET", "/metrics", partial(_scrape, jobs), summary, tag="metrics", media_type="text/plain")]


def _scrape(jobs: Jobs, call: ApiCall) -> Response:
    return Response(exposition(jobs.running_records()), media_type=CONTENT_TYPE)


def exposition(records: Iterable[JobRecord]) -> bytes:
    """Return the jobs' metrics in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Jobs(list(records)))
    return generate_latest(registry)


class _Jobs(Collector):
    def __init__(self, records: Sequence[JobRecord]) -> None:
        self._records = records

    def collect(self) -> Iterable[GaugeMetricFamily]:
        families = _Families()
        families.add("flink_jobmanager", jobmanager_values(self._records), {})
        for record in self._records:
            _add_job(families, record)
        return families.all()


class _Families:
    """Metrics grouped by name: the text format requires all samples of a name together."""

    def __init__(self) -> None:
        self._families: dict[str, GaugeMetricFamily] = {}

    def add(self, scope: str, metrics: Metrics, labels: dict[str, str]) -> None:
        for name, value in metrics.items():
            if isinstance(value, str):
                continue  # Prometheus supports numbers only
            full = _UNFIT.sub("_", f"{scope}_{name}")
            family = self._families.get(full)
            if family is None:
                about = f"{name} (scope: {scope.removeprefix('flink_')})"
                family = self._families[full] = GaugeMetricFamily(full, about, labels=list(labels))
            family.add_metric(list(labels.values()), float(value))

    def all(self) -> Iterator[GaugeMetricFamily]:
        return iter(self._families.values())


def _add_job(families: _Families, record: JobRecord) -> None:
    job = {"job_id": record.id, "job_name": record.name}
    slots = {slot.subtask: slot for slot in record.slots}
    operators = {operator.id: operator for operator in record.operators}
    families.add("flink_jobmanager_job", job_values(record), job)
    for slot in record.slots:
        families.add("flink_taskmanager", taskmanager_values(slot), {"host": slot.host, "tm_id": slot_id(slot)})
    for figures in record.figures:
        for subtask in figures.subtasks:
            _add_task(families, record, operators[figures.operator], subtask, slots.get(subtask.subtask), job)


def _add_task(
    families: _Families,
    record: JobRecord,
    operator: OperatorRecord,
    figures: SubtaskFigures,
    slot: SlotRecord | None,
    job: dict[str, str],
) -> None:
    where = slot if operator.level else None  # Spark decides where the source side runs
    labels = {
        "host": where.host if where is not None else "",
        "tm_id": slot_id(where) if where is not None else "",
        **job,
        "task_id": operator.vertex_id,
        "task_name": operator.name,
        "subtask_index": str(figures.subtask),
        "task_attempt_num": str(record.restarts),
    }
    values = task_values(figures)
    families.add("flink_taskmanager_job_task", values, labels)
    own = {"operator_id": operator.vertex_id, "operator_name": operator.name}
    common = {name: value for name, value in values.items() if name in _OF_OPERATORS}
    families.add("flink_taskmanager_job_task_operator", common, labels | own)
