"""A job's metrics under Flink's names, and the endpoints that list them; prometheus.py exports them to Prometheus.

Metrics of things that cannot happen here are left out: no operator waits for a downstream buffer (back pressure), and
barriers lie between epochs (alignment). JVM metrics are left out; those of the process are under Status.Process.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UNSET, UnsetType

from checkdam.clock import SystemClock, to_milliseconds
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_records import (
    NEVER,
    CheckpointRecord,
    CheckpointStatus,
    JobRecord,
    OperatorFigures,
    OperatorRecord,
    SlotRecord,
    SubtaskFigures,
)
from checkdam.runtime.monitor.masking import without_credentials
from checkdam.runtime.slot.process_memory import resident_bytes
from checkdam.server.app.endpoint import ApiCall, Endpoint, Query, Reads, bad_parameters
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api.cluster import find_slot, live_slots
from checkdam.server.flink_api.vertices import find_subtask, find_vertex, slot_id

Value = int | float | str
Metrics = Mapping[str, Value]

_TIMED = (
    JobStatus.INITIALIZING,
    JobStatus.CREATED,
    JobStatus.RUNNING,
    JobStatus.RESTARTING,
    JobStatus.FAILING,
    JobStatus.CANCELLING,
)
_AT_WORK = frozenset({JobStatus.CREATED, JobStatus.RUNNING, JobStatus.RESTARTING, JobStatus.INITIALIZING})
_DOWN = frozenset({JobStatus.FAILING, JobStatus.RESTARTING})
_GET = Query("get", description="Names; left out: the list of names", is_list=True)
_KINDS = ("min", "max", "avg", "sum", "skew")
_AGG = Query("agg", description="Which figures; left out: all", is_list=True, choices=_KINDS)
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def job_metrics(record: JobRecord, now: int | None = None) -> dict[str, str]:
    """Return the metrics of `/jobs/:id/metrics` by name; `now` is in milliseconds since 1970."""
    return _texts(job_values(record, now))


def vertex_metrics(record: JobRecord, operator: OperatorRecord) -> dict[str, str]:
    """Return the metrics of all subtasks of an operator, each name prefixed with the subtask's index."""
    return {
        f"{figures.subtask}.{name}": text
        for figures in _figures(record, operator)
        for name, text in _texts(task_values(figures)).items()
    }


def subtask_metrics(record: JobRecord, operator: OperatorRecord, subtask: int) -> dict[str, str]:
    """Return the metrics of one subtask; none where Spark runs the operator and reports no figures by subtask."""
    found = next((each for each in _figures(record, operator) if each.subtask == subtask), None)
    return {} if found is None else _texts(task_values(found))


def taskmanager_metrics(record: JobRecord, slot: SlotRecord) -> dict[str, str]:
    return _texts(taskmanager_values(slot))


def jobmanager_metrics(records: Iterable[JobRecord]) -> dict[str, str]:
    return _texts(jobmanager_values(records))


@dataclass(frozen=True)
class Aggregate:
    """Several values of one metric; `skew` as in Flink: the mean deviation in percent of the mean, at most 100."""

    min: float
    max: float
    avg: float
    sum: float
    skew: float


def aggregate(values: Iterable[str]) -> Aggregate | None:
    """Aggregate the values of one metric, ignoring those that are not numbers. Return None if none is left."""
    numbers = [number for text in values if (number := _number(text)) is not None]
    if not numbers:
        return None
    total = math.fsum(numbers)
    mean = total / len(numbers)
    deviation = math.fsum(abs(mean - number) for number in numbers) / len(numbers)
    return Aggregate(min(numbers), max(numbers), mean, total, min(deviation / mean * 100, 100.0) if mean else 0.0)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _texts(values: Metrics) -> dict[str, str]:
    return {name: value if isinstance(value, str) else _text(value) for name, value in values.items()}


def _text(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(round(value, 6))


def job_values(record: JobRecord, now: int | None = None) -> dict[str, Value]:
    at = now if now is not None else to_milliseconds(SystemClock().now())
    return {
        **_status_values(record, at),
        "numRestarts": record.restarts,
        "numRescales": sum(1 for each in record.rescales if each.ended_at != NEVER and each.failure is None),
        **_checkpoint_values(record),
    }


def _status_values(record: JobRecord, now: int) -> dict[str, Value]:
    stayed = max(now - record.timestamps.get(record.status, now), 0)
    values: dict[str, Value] = {"uptime": 0, "downtime": 0}
    if record.status.has_ended:
        values = {"uptime": -1, "downtime": -1}
    elif record.status is JobStatus.RUNNING:
        values["uptime"] = stayed
    elif record.status in _DOWN:
        values["downtime"] = stayed
    for status in _TIMED:
        name, is_now = status.value.lower(), status is record.status
        current = stayed if is_now else 0
        values[f"{name}State"] = int(is_now)
        values[f"{name}Time"] = current
        values[f"{name}TimeTotal"] = record.spent.get(status, 0) + current
    return values


def _checkpoint_values(record: JobRecord) -> dict[str, Value]:
    counts, last = record.checkpoint_counts, last_completed(record)
    return {
        "totalNumberOfCheckpoints": counts.total,
        "numberOfInProgressCheckpoints": counts.in_progress,
        "numberOfCompletedCheckpoints": counts.completed,
        "numberOfFailedCheckpoints": counts.failed,
        "lastCheckpointRestoreTimestamp": record.restored.restored_at if record.restored else NEVER,
        "lastCompletedCheckpointId": last.id if last else NEVER,
        "lastCheckpointDuration": round(last.duration) if last else NEVER,
        "lastCheckpointSize": last.checkpointed_bytes if last else NEVER,
        "lastCheckpointFullSize": last.state_bytes if last else NEVER,
        "lastCheckpointMetadataSize": last.metadata_bytes if last else NEVER,
        "lastCheckpointCompletedTimestamp": last.finished_at if last else NEVER,
        "lastCheckpointExternalPath": without_credentials((last.path if last else None) or "n/a"),
    }


def last_completed(record: JobRecord) -> CheckpointRecord | None:
    """Return the newest completed checkpoint or savepoint of the history."""
    return next((each for each in record.checkpoints if each.status is CheckpointStatus.COMPLETED), None)


def task_values(figures: SubtaskFigures) -> dict[str, Value]:
    busy = figures.busy_ratio * 1000
    values: dict[str, Value] = {
        "numRecordsIn": figures.records_in,
        "numRecordsInPerSecond": figures.records_in_per_second,
        "numRecordsOut": figures.records_out,
        "numRecordsOutPerSecond": figures.records_out_per_second,
        "numBytesIn": figures.bytes_in,
        "numBytesInPerSecond": figures.bytes_in_per_second,
        "numBytesOut": figures.bytes_out,
        "numBytesOutPerSecond": figures.bytes_out_per_second,
        "busyTimeMsPerSecond": busy,
        "idleTimeMsPerSecond": 1000 - busy,
        "accumulateBusyTimeMs": round(figures.busy_ms),
        "numStateEntries": figures.entries,
    }
    if figures.watermark is not None:
        values["currentInputWatermark"] = figures.watermark
    return values


def taskmanager_values(slot: SlotRecord) -> dict[str, Value]:
    return {"Status.Process.Memory.RSS": slot.memory} if slot.memory != NEVER else {}


def jobmanager_values(records: Iterable[JobRecord]) -> dict[str, Value]:
    """Return the metrics of this process, the driver, and of the jobs it knows."""
    working = [record for record in records if record.status in _AT_WORK]
    slots = sum(len(record.slots) for record in working)
    values: dict[str, Value] = {
        "numRunningJobs": len(working),
        "numRegisteredTaskManagers": slots,
        "taskSlotsTotal": slots,
        "Status.Process.CPU.Time": time.process_time_ns(),
        "Status.Process.Threads.Count": threading.active_count(),
    }
    memory = resident_bytes()
    return values | ({"Status.Process.Memory.RSS": memory} if memory != NEVER else {})


def _figures(record: JobRecord, operator: OperatorRecord) -> Sequence[SubtaskFigures]:
    figures: OperatorFigures | None = next((each for each in record.figures if each.operator == operator.id), None)
    return figures.subtasks if figures is not None else ()


class Metric(msgspec.Struct, frozen=True):
    """One metric; `value` is omitted in a list of names."""

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
    """Return the named metrics, or all; unknown names are skipped silently, as in Flink."""
    if names is None:
        return [Metric(name) for name in values]
    return [Metric(name, values[name]) for name in dict.fromkeys(names) if name in values]


def _over_many(many: Iterable[Mapping[str, str]], call: ApiCall) -> list[AggregatedMetric]:
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


def _job(jobs: Jobs, call: ApiCall) -> list[Metric]:
    return _listed(job_metrics(jobs.record(call.job_id)), call.query["get"])


def _vertex(jobs: Jobs, call: ApiCall) -> list[Metric]:
    return _listed(vertex_metrics(*find_vertex(jobs, call)), call.query["get"])


def _watermarks(jobs: Jobs, call: ApiCall) -> list[Metric]:
    values = vertex_metrics(*find_vertex(jobs, call))
    return [Metric(name, value) for name, value in values.items() if name.endswith(".currentInputWatermark")]


def _subtask(jobs: Jobs, call: ApiCall) -> list[Metric]:
    record, operator = find_vertex(jobs, call)
    return _listed(subtask_metrics(record, operator, find_subtask(operator, call)), call.query["get"])


def _slot(jobs: Jobs, call: ApiCall) -> list[Metric]:
    return _listed(taskmanager_metrics(*find_slot(jobs, call)), call.query["get"])


def _driver(jobs: Jobs, call: ApiCall) -> list[Metric]:
    return _listed(jobmanager_metrics(jobs.records()), call.query["get"])


def _jobs(jobs: Jobs, call: ApiCall) -> list[AggregatedMetric]:
    wanted = call.query["jobs"]
    records = [record for record in jobs.records() if wanted is None or record.id in wanted]
    return _over_many((job_metrics(record) for record in records), call)


def _slots(jobs: Jobs, call: ApiCall) -> list[AggregatedMetric]:
    wanted = call.query["taskmanagers"]
    slots = [(record, slot) for record, slot in live_slots(jobs) if wanted is None or slot_id(slot) in wanted]
    return _over_many((taskmanager_metrics(record, slot) for record, slot in slots), call)


def _subtasks(jobs: Jobs, call: ApiCall) -> list[AggregatedMetric]:
    record, operator = find_vertex(jobs, call)
    wanted = call.query["subtasks"]
    chosen = range(operator.parallelism) if wanted is None else _indices(wanted, operator.parallelism)
    return _over_many((subtask_metrics(record, operator, index) for index in chosen), call)


def _indices(parts: Sequence[str], parallelism: int) -> list[int]:
    """Return the operator's subtask indices in ranges such as "0" and "3-5"."""
    found: set[int] = set()
    for part in parts:
        match = _RANGE.fullmatch(part)
        if match is None:
            raise bad_parameters(f'Cannot resolve query parameter (subtasks) from value "{part}".')
        first, last = int(match[1]), int(match[2] or match[1])
        found |= set(range(first, min(last, parallelism - 1) + 1))
    return sorted(found)


def routes(jobs: Jobs) -> list[Endpoint]:
    get = Reads(jobs, "", "metrics")
    one, many = list[Metric], list[AggregatedMetric]
    vertex = "/jobs/{jobid}/vertices/{vertexid}"
    of_jobs = Query("jobs", description="Job ids; left out: all", is_list=True)
    of_slots = Query("taskmanagers", description="Slots; left out: all", is_list=True)
    of_subtasks = Query("subtasks", description="Such as 0,3-5; left out: all", is_list=True)
    return [
        get("/jobs/metrics", _jobs, "Metrics over jobs", many, _GET, _AGG, of_jobs),
        get("/jobs/{jobid}/metrics", _job, "Metrics of a job", one, _GET),
        get(vertex + "/metrics", _vertex, "Metrics of a vertex, by subtask", one, _GET),
        get(vertex + "/watermarks", _watermarks, "How far event time is", one),
        get(vertex + "/subtasks/metrics", _subtasks, "Metrics over subtasks", many, _GET, _AGG, of_subtasks),
        get(vertex + "/subtasks/{subtaskindex}/metrics", _subtask, "Metrics of a subtask", one, _GET),
        get("/taskmanagers/metrics", _slots, "Metrics over slots", many, _GET, _AGG, of_slots),
        get("/taskmanagers/{taskmanagerid}/metrics", _slot, "Metrics of a slot", one, _GET),
        get("/jobmanager/metrics", _driver, "Metrics of the driver", one, _GET),
    ]
