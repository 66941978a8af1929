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

import msgspec
from msgspec import UNSET, UnsetType

from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_records import (
    NEVER,
    CheckpointRecord,
    CheckpointStatus,
    JobRecord,
    OperatorRecord,
    SlotRecord,
    SubtaskFigures,
)
from checkdam.runtime.monitor.masking import without_credentials
from checkdam.runtime.slot.process_memory import resident_bytes
from checkdam.server.app.endpoint import ApiCall, Endpoint, Query, Reads, bad_parameters
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api.cluster import find_slot, live_slots
from checkdam.server.flink_api.statistics import now_ms, operator_figures
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


def aggregate(values: Iterable[Value]) -> dict[str, float]:
    """Aggregate the values of one metric that are numbers; the result is empty if none is.

    `skew` is as in Flink: the mean deviation in percent of the mean, at most 100.
    """
    numbers = [float(value) for value in values if not isinstance(value, str) and math.isfinite(value)]
    if not numbers:
        return {}
    total = math.fsum(numbers)
    mean = total / len(numbers)
    deviation = math.fsum(abs(mean - number) for number in numbers) / len(numbers)
    skew = min(deviation / mean * 100, 100.0) if mean else 0.0
    return {"min": min(numbers), "max": max(numbers), "avg": mean, "sum": total, "skew": skew}


def job_values(record: JobRecord, now: int | None = None) -> dict[str, Value]:
    """Return the metrics of a job by name; `now` is in milliseconds since 1970."""
    at = now if now is not None else now_ms()
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
    if figures.late_records_dropped is not None:
        values["numLateRecordsDropped"] = figures.late_records_dropped
    return values


def taskmanager_values(slot: SlotRecord) -> dict[str, Value]:
    """Return the metrics of a slot."""
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


def vertex_values(record: JobRecord, operator: OperatorRecord) -> dict[str, Value]:
    """Return the metrics of all subtasks of an operator, each name prefixed with the subtask's index."""
    return {
        f"{figures.subtask}.{name}": value
        for figures in operator_figures(record, operator.id).subtasks
        for name, value in task_values(figures).items()
    }


def subtask_values(record: JobRecord, operator: OperatorRecord, subtask: int) -> dict[str, Value]:
    """Return the metrics of one subtask; none where Spark runs the operator and reports no figures by subtask."""
    figures = operator_figures(record, operator.id).subtasks
    return next((task_values(each) for each in figures if each.subtask == subtask), {})


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


def _text(value: Value) -> str:
    return repr(round(value, 6)) if isinstance(value, float) else str(value)


def _listed(values: Metrics, names: Sequence[str] | None) -> list[Metric]:
    """Return the named metrics, or the names of all; unknown names are skipped silently, as in Flink."""
    if names is None:
        return [Metric(name) for name in values]
    return [Metric(name, _text(values[name])) for name in dict.fromkeys(names) if name in values]


def _over_many(many: Iterable[Metrics], call: ApiCall) -> list[AggregatedMetric]:
    found = list(many)
    names, kinds = call.query["get"], call.query["agg"] or _KINDS
    if names is None:
        return [AggregatedMetric(name) for name in dict.fromkeys(name for values in found for name in values)]
    figures = [(name, aggregate(values[name] for values in found if name in values)) for name in dict.fromkeys(names)]
    return [
        AggregatedMetric(name, **{kind: aggregated[kind] for kind in kinds})
        for name, aggregated in figures
        if aggregated
    ]


def _job(jobs: Jobs, call: ApiCall) -> list[Metric]:
    return _listed(job_values(jobs.record(call.job_id)), call.query["get"])


def _vertex(jobs: Jobs, call: ApiCall) -> list[Metric]:
    return _listed(vertex_values(*find_vertex(jobs, call)), call.query["get"])


def _watermarks(jobs: Jobs, call: ApiCall) -> list[Metric]:
    values = vertex_values(*find_vertex(jobs, call))
    return [Metric(name, _text(value)) for name, value in values.items() if name.endswith(".currentInputWatermark")]


def _subtask(jobs: Jobs, call: ApiCall) -> list[Metric]:
    record, operator = find_vertex(jobs, call)
    return _listed(subtask_values(record, operator, find_subtask(operator, call)), call.query["get"])


def _slot(jobs: Jobs, call: ApiCall) -> list[Metric]:
    _, slot = find_slot(jobs, call)
    return _listed(taskmanager_values(slot), call.query["get"])


def _driver(jobs: Jobs, call: ApiCall) -> list[Metric]:
    return _listed(jobmanager_values(jobs.records()), call.query["get"])


def _jobs(jobs: Jobs, call: ApiCall) -> list[AggregatedMetric]:
    wanted = call.query["jobs"]
    records = [record for record in jobs.records() if wanted is None or record.id in wanted]
    return _over_many((job_values(record) for record in records), call)


def _slots(jobs: Jobs, call: ApiCall) -> list[AggregatedMetric]:
    wanted = call.query["taskmanagers"]
    slots = [slot for _, slot in live_slots(jobs) if wanted is None or slot_id(slot) in wanted]
    return _over_many((taskmanager_values(slot) for slot in slots), call)


def _subtasks(jobs: Jobs, call: ApiCall) -> list[AggregatedMetric]:
    record, operator = find_vertex(jobs, call)
    wanted = call.query["subtasks"]
    chosen = range(operator.parallelism) if wanted is None else _indices(wanted, operator.parallelism)
    return _over_many((subtask_values(record, operator, index) for index in chosen), call)


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
        get(vertex + "/watermarks", _watermarks, "The watermarks of a vertex, by subtask", one),
        get(vertex + "/subtasks/metrics", _subtasks, "Metrics over subtasks", many, _GET, _AGG, of_subtasks),
        get(vertex + "/subtasks/{subtaskindex}/metrics", _subtask, "Metrics of a subtask", one, _GET),
        get("/taskmanagers/metrics", _slots, "Metrics over slots", many, _GET, _AGG, of_slots),
        get("/taskmanagers/{taskmanagerid}/metrics", _slot, "Metrics of a slot", one, _GET),
        get("/jobmanager/metrics", _driver, "Metrics of the driver", one, _GET),
    ]
