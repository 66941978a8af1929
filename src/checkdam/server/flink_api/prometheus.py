"""`/metrics`: every running job for Prometheus, under the names and labels of Flink's own reporter; `uid` is ours.

As in Flink, every metric is a gauge: a Flink counter may go back, and does so when a new attempt begins. `rate()`
treats that as a restart. A Prometheus counter would also need the suffix "_total".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector
from starlette.responses import Response

from checkdam.graph.metrics import HistogramStatistics
from checkdam.runtime.monitor.job_records import JobRecord, OperatorRecord, SlotRecord, SubtaskFigures
from checkdam.server.app.endpoint import ApiCall, Endpoint
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api.metrics import job_values, jobmanager_values, taskmanager_values
from checkdam.server.flink_api.operator_metrics import (
    QUANTILES,
    Metrics,
    metric_name,
    operator_values,
    task_values,
    user_values,
)
from checkdam.server.flink_api.statistics import now_ms
from checkdam.server.flink_api.vertices import slot_id

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

_OPERATOR: Final = "flink_taskmanager_job_task_operator"
_UNFIT = re.compile(r"[^a-zA-Z0-9_:]")


def routes(jobs: Jobs) -> list[Endpoint]:
    summary = "All metrics of running jobs, for Prometheus"
    return [Endpoint("GET", "/metrics", partial(_scrape, jobs), summary, tag="metrics", media_type="text/plain")]


def _scrape(jobs: Jobs, call: ApiCall) -> Response:
    own = exposition(jobs.running_records())
    others = jobs.metrics_elsewhere()
    return Response(merged([own, *others]) if others else own, media_type=CONTENT_TYPE)


def merged(expositions: Iterable[bytes]) -> bytes:
    """Return the metrics of several processes as one text. Samples without a job, such as counts of jobs, are added up.

    The format wants each metric once, with its description, and all its samples behind it.
    """
    descriptions: dict[str, str] = {}
    samples: dict[str, dict[str, str]] = {}
    for line in (line for text in expositions for line in text.decode("utf-8", "replace").splitlines()):
        if line.startswith("# "):
            what, name, *_ = line[2:].split(" ")
            descriptions.setdefault(f"{name} {what}", line)
            samples.setdefault(name, {})
            continue
        sample, _, value = line.rpartition(" ")
        of_name = samples.setdefault(sample.partition("{")[0], {})
        with suppress(ValueError):
            of_name[sample] = str(float(of_name[sample]) + float(value)) if sample in of_name else value
    lines = []
    for name, values in samples.items():
        lines += [descriptions[key] for key in (f"{name} HELP", f"{name} TYPE") if key in descriptions]
        lines += [f"{sample} {value}" for sample, value in values.items()]
    return "".join(f"{line}\n" for line in lines).encode()


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
    now = now_ms()
    families.add("flink_jobmanager_job", job_values(record, now), job)
    for slot in record.slots:
        families.add("flink_taskmanager", taskmanager_values(slot), {"host": slot.host, "tm_id": slot_id(slot)})
    for figures in record.figures:
        for subtask in figures.subtasks:
            _add_task(families, record, operators[figures.operator], subtask, slots.get(subtask.subtask), job, now)


def _add_task(
    families: _Families,
    record: JobRecord,
    operator: OperatorRecord,
    figures: SubtaskFigures,
    slot: SlotRecord | None,
    job: dict[str, str],
    now: int,
) -> None:
    labels = {
        "host": slot.host if slot is not None else "",
        "tm_id": slot_id(slot) if slot is not None else "",
        **job,
        "task_id": operator.vertex_id,
        "task_name": metric_name(operator),
        "uid": operator.uid or "",
        "subtask_index": str(figures.subtask),
        "task_attempt_num": str(record.restarts),
    }
    families.add("flink_taskmanager_job_task", task_values(operator, figures, now), labels)
    own = labels | {"operator_id": operator.vertex_id, "operator_name": metric_name(operator)}
    families.add(_OPERATOR, operator_values(operator, figures, now), own)
    plain = {name: value for name, value in figures.user.items() if not isinstance(value, HistogramStatistics)}
    families.add(_OPERATOR, user_values(plain), own)
    for name, value in figures.user.items():
        if isinstance(value, HistogramStatistics):
            _add_histogram(families, name, value, own)


def _add_histogram(families: _Families, name: str, histogram: HistogramStatistics, labels: dict[str, str]) -> None:
    """Add a histogram as Flink's reporter does: its quantiles by label, and the number of its values."""
    families.add(_OPERATOR, {f"{name}_count": histogram.count}, labels)
    if histogram.count:
        for quantile, field in QUANTILES.items():
            families.add(_OPERATOR, {name: getattr(histogram, field)}, labels | {"quantile": str(quantile)})
