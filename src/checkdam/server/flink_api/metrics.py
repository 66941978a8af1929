"""A job's metrics under Flink's names, and the endpoints that list them; operator_metrics.py has those of operators.

Metrics of things that cannot happen here are left out, such as alignment: barriers lie between epochs. Flink's
autoscaler needs some of them, which are always 0. JVM metrics are left out; those of the process are under
Status.Process.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_records import (
    NEVER,
    CheckpointRecord,
    CheckpointStatus,
    JobRecord,
    SlotRecord,
)
from checkdam.runtime.monitor.masking import without_credentials
from checkdam.runtime.slot.process_memory import resident_bytes
from checkdam.server.app.endpoint import ApiCall, Endpoint, Natural, Query, Reads, bad_parameters
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api.cluster import find_slot, live_slots
from checkdam.server.flink_api.operator_metrics import Metrics, Value, both_scopes, subtask_values, vertex_values
from checkdam.server.flink_api.statistics import Percentile, now_ms
from checkdam.server.flink_api.vertices import find_subtask, find_vertex, slot_id

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
_ONE_AGG = Query("agg", description="How the subtasks become one figure", default="sum", choices=_KINDS)
_SINCE = Query("since", Natural, "Only values since this time, in ms", default=0)
_MOST_OVER_TIME = 20
_WATERMARK = re.compile(r"\d+\.currentInputWatermark")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def aggregate(values: Iterable[Value]) -> dict[str, float]:
    """Aggregate the values of one metric that are numbers; the result is empty if none is, and NaN if all are.

    `skew` is as in Flink: the mean deviation in percent of the mean, at most 100.
    """
    given = [float(value) for value in values if not isinstance(value, str)]
    numbers = [number for number in given if math.isfinite(number)]
    if not numbers:
        return dict.fromkeys(_KINDS, math.nan) if given else {}
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
        "lastCheckpointDuration": last.end_to_end if last else NEVER,
        "lastCheckpointSize": last.checkpointed_bytes if last else NEVER,
        "lastCheckpointFullSize": last.state_bytes if last else NEVER,
        "lastCheckpointMetadataSize": last.metadata_bytes if last else NEVER,
        "lastCheckpointCompletedTimestamp": last.finished_at if last else NEVER,
        "lastCheckpointExternalPath": without_credentials((last.path if last else None) or "n/a"),
    }


def last_completed(record: JobRecord) -> CheckpointRecord | None:
    """Return the newest completed checkpoint or savepoint of the history."""
    return next((each for each in record.checkpoints if each.status is CheckpointStatus.COMPLETED), None)


def taskmanager_values(slot: SlotRecord) -> dict[str, Value]:
    """Return the metrics of a slot. No memory is set aside as Flink's managed memory, which its autoscaler asks for."""
    resident: dict[str, Value] = {"Status.Process.Memory.RSS": slot.memory} if slot.memory != NEVER else {}
    return resident | {"Status.Flink.Memory.Managed.Used": 0}


def jobmanager_values(records: Iterable[JobRecord]) -> dict[str, Value]:
    """Return the metrics of this process, the driver, and of the jobs it knows."""
    working = [record for record in records if record.status in _AT_WORK]
    slots = sum(len(record.slots) for record in working)
    values: dict[str, Value] = {
        "numRunningJobs": len(working),
        "numRegisteredTaskManagers": slots,
        "taskSlotsTotal": slots,
        "taskSlotsAvailable": 0,  # slots are created and removed with their job
        "Status.Process.CPU.Time": time.process_time_ns(),
        "Status.Process.Threads.Count": threading.active_count(),
    }
    memory = resident_bytes()
    return values | ({"Status.Process.Memory.RSS": memory} if memory != NEVER else {})


class Metric(msgspec.Struct, frozen=True):
    """One metric; `value` is omitted in a list of names."""

    id: str
    value: str | UnsetType = UNSET


class AggregatedMetric(msgspec.Struct, frozen=True):
    """Figures are the text "NaN" if the metric is not known of any subtask."""

    id: str
    min: Percentile | UnsetType = UNSET
    max: Percentile | UnsetType = UNSET
    avg: Percentile | UnsetType = UNSET
    sum: Percentile | UnsetType = UNSET
    skew: Percentile | UnsetType = UNSET


def _text(value: Value) -> str:
    """Return a value as Java writes it."""
    if not isinstance(value, float):
        return str(value)
    if math.isfinite(value):
        return repr(round(value, 6))
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


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
        AggregatedMetric(name, **{kind: _figure(aggregated[kind]) for kind in kinds})
        for name, aggregated in figures
        if aggregated
    ]


def _figure(value: float) -> Percentile:
    return "NaN" if math.isnan(value) else value


def _job(jobs: Jobs, call: ApiCall) -> list[Metric]:
    return _listed(job_values(jobs.record(call.job_id)), call.query["get"])


def _vertex(jobs: Jobs, call: ApiCall) -> list[Metric]:
    return _listed(vertex_values(*find_vertex(jobs, call), now_ms()), call.query["get"])


def _watermarks(jobs: Jobs, call: ApiCall) -> list[Metric]:
    values = vertex_values(*find_vertex(jobs, call), now_ms())
    return [Metric(name, _text(value)) for name, value in values.items() if _WATERMARK.fullmatch(name)]


def _subtask(jobs: Jobs, call: ApiCall) -> list[Metric]:
    record, operator = find_vertex(jobs, call)
    return _listed(subtask_values(record, operator, find_subtask(operator, call), now_ms()), call.query["get"])


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
    now = now_ms()
    return _over_many((subtask_values(record, operator, index, now) for index in chosen), call)


class MetricOverTime(msgspec.Struct, frozen=True):
    """The values of one metric, null where it is not known."""

    id: str
    values: list[float | None]


class MetricHistory(msgspec.Struct, frozen=True):
    """Metrics of a vertex over time; `at` has the times of their values, oldest first."""

    now: int
    at: list[int]
    metrics: list[MetricOverTime]


def _history(jobs: Jobs, call: ApiCall) -> MetricHistory:
    _, operator = find_vertex(jobs, call)
    names = list(dict.fromkeys(call.query["get"] or ()))[:_MOST_OVER_TIME]
    samples = [sample for sample in jobs.figure_history(call.job_id) if sample.at >= call.query["since"]]
    columns: dict[str, list[float | None]] = {name: [] for name in names}
    for sample in samples:
        own = next((each.subtasks for each in sample.figures if each.operator == operator.id), ())
        values = [both_scopes(operator, figures, sample.at) for figures in own]
        for name, column in columns.items():
            figure = aggregate(each[name] for each in values if name in each).get(call.query["agg"], math.nan)
            column.append(figure if math.isfinite(figure) else None)
    metrics = [MetricOverTime(name, column) for name, column in columns.items()]
    return MetricHistory(now_ms(), [sample.at for sample in samples], metrics)


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
        get(vertex + "/metrics/history", _history, "Metrics over time", MetricHistory, _GET, _ONE_AGG, _SINCE),
        get(vertex + "/watermarks", _watermarks, "The watermarks of a vertex, by subtask", one),
        get(vertex + "/subtasks/metrics", _subtasks, "Metrics over subtasks", many, _GET, _AGG, of_subtasks),
        get(vertex + "/subtasks/{subtaskindex}/metrics", _subtask, "Metrics of a subtask", one, _GET),
        get("/taskmanagers/metrics", _slots, "Metrics over slots", many, _GET, _AGG, of_slots),
        get("/taskmanagers/{taskmanagerid}/metrics", _slot, "Metrics of a slot", one, _GET),
        get("/jobmanager/metrics", _driver, "Metrics of the driver", one, _GET),
    ]
