"""The metrics of operators and their subtasks under Flink's names, those of user functions among them.

Flink has two scopes here: of a task (`numRecordsIn`) and of an operator in it (`<operator>.numRecordsIn`). Every task
has one operator, so most metrics are in both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Final

from checkdam.graph.metrics import HistogramStatistics, MeterReading, MetricValue
from checkdam.runtime.monitor.job_records import NEVER, JobRecord, OperatorRecord, SubtaskFigures
from checkdam.server.flink_api.health import watermark_lag
from checkdam.server.flink_api.statistics import operator_figures

Value = int | float | str
Metrics = Mapping[str, Value]

OF_OPERATORS: Final[tuple[str, ...]] = (
    "numRecordsIn",
    "numRecordsInPerSecond",
    "numRecordsOut",
    "numRecordsOutPerSecond",
    "currentInputWatermark",
    "currentOutputWatermark",
    "watermarkLag",
    "numLateRecordsDropped",
)
"""Metrics that Flink reports per operator, most of them per task as well; many dashboards query the operator ones."""
_SEPARATORS = re.compile(r"[.:, ]")
_LONGEST_NAME = 80  # as in Flink
QUANTILES: Final = {0.5: "median", 0.75: "p75", 0.9: "p90", 0.95: "p95", 0.98: "p98", 0.99: "p99", 0.999: "p999"}
"""The fields of HistogramStatistics by what they are."""


def metric_name(operator: OperatorRecord) -> str:
    """Return the operator's name in metrics: the program's; else its uid; else what it does. A source says so."""
    if operator.is_source:
        return operator.name if operator.name.startswith("Source: ") else f"Source: {operator.name}"
    return operator.name if operator.is_named or operator.uid is None else operator.uid


def scope(operator: OperatorRecord) -> str:
    """Return the operator's name as a part of the names of its metrics, where dots separate parts."""
    return _SEPARATORS.sub("_", metric_name(operator))[:_LONGEST_NAME]


def task_values(operator: OperatorRecord, figures: SubtaskFigures, now: int) -> dict[str, Value]:
    """Return the metrics of one subtask that are not of its function; `now` is in milliseconds since 1970."""
    busy = figures.busy_ratio * 1000 if figures.is_busy_known else math.nan
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
        "backPressuredTimeMsPerSecond": 0.0,  # no record waits for a downstream buffer
        "accumulateBusyTimeMs": round(figures.busy_ms) if figures.is_busy_known else math.nan,
        "numStateEntries": figures.entries,
        "numStateEntriesIsEstimated": int(figures.is_estimated),
    }
    if figures.keys is not None:
        values["numStateKeys"] = figures.keys
    if figures.watermark is not None:
        if not operator.is_assigner:
            values["currentInputWatermark"] = figures.watermark
        values["currentOutputWatermark"] = figures.watermark
        lag = watermark_lag(figures.watermark, now)
        if lag is not None:
            values["watermarkLag"] = lag
    if figures.late_records_dropped is not None:
        values["numLateRecordsDropped"] = figures.late_records_dropped
    return values


def operator_values(operator: OperatorRecord, figures: SubtaskFigures, now: int) -> dict[str, Value]:
    """Return the metrics of one subtask that Flink has in the operator's scope; not those of its function.

    What a source reads counts here as its input, as in Flink.
    """
    of_task = task_values(operator, figures, now)
    values = {name: of_task[name] for name in OF_OPERATORS if name in of_task}
    if operator.is_source:
        values["numRecordsIn"] = values["numRecordsOut"]
        values["numRecordsInPerSecond"] = values["numRecordsOutPerSecond"]
        if figures.emitted_at != NEVER:
            values["sourceIdleTime"] = max(0, now - figures.emitted_at)
        if figures.pending_records is not None:
            values["pendingRecords"] = figures.pending_records
    return values


def user_values(user: Mapping[str, MetricValue]) -> dict[str, Value]:
    """Return the metrics of a user's function; a histogram becomes several, a meter its rate."""
    return {name: value for metric, given in user.items() for name, value in _flat(metric, given)}


def _flat(name: str, value: MetricValue) -> Iterator[tuple[str, Value]]:
    if isinstance(value, MeterReading):
        yield name, value.rate
    elif isinstance(value, HistogramStatistics):
        yield f"{name}_count", value.count
        if value.count:
            for part in value.__struct_fields__[1:]:
                yield f"{name}_{part}", getattr(value, part)
    else:
        yield name, value


def vertex_values(record: JobRecord, operator: OperatorRecord, now: int) -> dict[str, Value]:
    """Return the metrics of all subtasks of an operator, each name prefixed with the subtask's index."""
    return {
        f"{figures.subtask}.{name}": value
        for figures in operator_figures(record, operator.id).subtasks
        for name, value in both_scopes(operator, figures, now).items()
    }


def subtask_values(record: JobRecord, operator: OperatorRecord, subtask: int, now: int) -> dict[str, Value]:
    """Return the metrics of one subtask; none where Spark runs the operator and has not used that subtask."""
    figures = operator_figures(record, operator.id).subtasks
    return next((both_scopes(operator, each, now) for each in figures if each.subtask == subtask), {})


def both_scopes(operator: OperatorRecord, figures: SubtaskFigures, now: int) -> dict[str, Value]:
    """Return all metrics of one subtask: those of the task, and with the operator's name those of the operator."""
    own = scope(operator)
    of_operator = operator_values(operator, figures, now) | user_values(figures.user)
    return task_values(operator, figures, now) | {f"{own}.{name}": value for name, value in of_operator.items()}
