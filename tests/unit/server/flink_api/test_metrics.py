"""What metrics promise: Flink's names, values as of the record, text on the wire."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace
from tests.unit.server.made_jobs import JOB
from tests.unit.server.records import COUNT, JOB_ID, SOURCE, START, job
from tests.unit.server.serving import Served

from checkdam.graph.metrics import HistogramStatistics, MeterReading, MetricValue
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.figure_history import FigureSample
from checkdam.runtime.monitor.job_records import (
    JobRecord,
    OperatorFigures,
    RescaleRecord,
    RestoreRecord,
    SubtaskFigures,
)
from checkdam.server.flink_api.metrics import aggregate, job_values, jobmanager_values, taskmanager_values
from checkdam.server.flink_api.operator_metrics import (
    metric_name,
    operator_values,
    subtask_values,
    task_values,
    vertex_values,
)


def test_a_running_job_tells_of_its_last_checkpoint_and_of_all() -> None:
    told = job_values(job(), now=START + 11_000)

    assert told["lastCheckpointDuration"] == 300
    assert told["lastCheckpointSize"] == 90
    assert told["lastCheckpointFullSize"] == 900
    assert told["lastCheckpointMetadataSize"] == 40
    assert told["lastCompletedCheckpointId"] == 2
    assert told["lastCheckpointCompletedTimestamp"] == START + 300
    assert told["lastCheckpointExternalPath"] == f"file:///kept/{JOB_ID}/chk-2"
    assert told["totalNumberOfCheckpoints"] == 3
    assert told["numberOfCompletedCheckpoints"] == 2
    assert told["numberOfFailedCheckpoints"] == 1
    assert told["numberOfInProgressCheckpoints"] == 0
    assert told["lastCheckpointRestoreTimestamp"] == -1
    assert told["numRestarts"] == 1


def test_times_of_statuses_are_those_of_this_stay_and_of_all() -> None:
    told = job_values(job(), now=START + 11_000)

    assert (told["uptime"], told["downtime"]) == (10000, 0)
    assert (told["runningState"], told["runningTime"], told["runningTimeTotal"]) == (1, 10000, 15000)
    assert (told["createdState"], told["createdTime"], told["createdTimeTotal"]) == (0, 0, 100)
    assert told["restartingTimeTotal"] == 0


@pytest.mark.parametrize(
    ("status", "uptime", "downtime"),
    [(JobStatus.RESTARTING, 0, 10000), (JobStatus.FINISHED, -1, -1), (JobStatus.CREATED, 0, 0)],
)
def test_a_job_that_does_not_run_is_not_up(status: JobStatus, uptime: int, downtime: int) -> None:
    told = job_values(job(status=status, timestamps={status: START}), now=START + 10_000)

    assert (told["uptime"], told["downtime"]) == (uptime, downtime)


def test_a_job_without_checkpoints_has_minus_one_as_flink() -> None:
    told = job_values(job(checkpoints=()))

    assert (told["lastCheckpointDuration"], told["lastCheckpointExternalPath"]) == (-1, "n/a")


def test_restores_and_rescales_are_told() -> None:
    restored = RestoreRecord(4, START + 5, "file:///kept/chk-4", is_savepoint=False)
    done = RescaleRecord("1" * 32, START, 2, 4, START + 1)
    refused = RescaleRecord("2" * 32, START, 2, 400, START + 1, "no")

    told = job_values(job(restored=restored, rescales=(done, refused)))

    assert (told["lastCheckpointRestoreTimestamp"], told["numRescales"]) == (START + 5, 1)


def test_a_vertex_has_the_metrics_of_its_subtasks_by_index() -> None:
    told = vertex_values(job(), COUNT, START)

    assert (told["0.numRecordsIn"], told["1.numRecordsIn"]) == (10, 20)
    assert told["0.numRecordsInPerSecond"] == 2.5
    assert (told["1.busyTimeMsPerSecond"], told["1.idleTimeMsPerSecond"]) == (750.0, 250.0)
    assert told["0.currentInputWatermark"] == 7
    assert "1.currentInputWatermark" not in told


def test_dropped_late_records_are_told_of_operators_that_drop_them() -> None:
    dropping = task_values(COUNT, SubtaskFigures(0, late_records_dropped=3), START)

    assert dropping["numLateRecordsDropped"] == 3
    assert "numLateRecordsDropped" not in task_values(COUNT, SubtaskFigures(0), START)


def test_a_subtask_that_nobody_can_tell_apart_has_none() -> None:
    assert subtask_values(job(), SOURCE, 0, START)["numRecordsOut"] == 30
    assert subtask_values(job(), SOURCE, 1, START) == {}
    assert subtask_values(job(), COUNT, 9, START) == {}


def test_processes_tell_of_themselves() -> None:
    record = job()

    driver = jobmanager_values([record, job(id="b" * 32, status=JobStatus.FINISHED)])

    managed = {"Status.Flink.Memory.Managed.Used": 0}
    assert taskmanager_values(record.slots[0]) == {"Status.Process.Memory.RSS": 1 << 20} | managed
    assert taskmanager_values(record.slots[1]) == managed
    assert (driver["numRunningJobs"], driver["taskSlotsTotal"]) == (1, 2)
    assert int(driver["Status.Process.Memory.RSS"]) > 1_000_000


def test_several_values_become_one_as_in_flink() -> None:
    together = aggregate([1, 3, "n/a", float("nan"), 8.0])

    assert together == {
        "min": 1.0,
        "max": 8.0,
        "sum": 12.0,
        "avg": 4.0,
        "skew": pytest.approx((3 + 1 + 4) / 3 / 4 * 100),
    }


def test_no_numbers_are_nothing_and_zeros_have_no_skew() -> None:
    assert aggregate(["n/a"]) == {}
    assert aggregate([0, 0])["skew"] == 0.0


USER: dict[str, MetricValue] = {
    "seen": 5,
    "cache.hits": 0.5,
    "mode": "fast",
    "events": MeterReading(30, 60.0, 0.5),
    "length": HistogramStatistics(3, 1.0, 9.0, 4.0, p99=9.0),
    "empty": HistogramStatistics(),
}


def _measured(name: str = "count, by word") -> JobRecord:
    figures = OperatorFigures(1, (SubtaskFigures(0, user=USER), SubtaskFigures(1, user={"seen": 7})))
    return job(operators=(SOURCE, replace(COUNT, name=name)), figures=(figures,))


def test_metrics_of_functions_stand_under_their_operators_name() -> None:
    record = _measured()

    told = vertex_values(record, record.operators[1], START)

    assert (told["0.count__by_word.seen"], told["1.count__by_word.seen"]) == (5, 7)
    assert (told["0.count__by_word.cache.hits"], told["0.count__by_word.mode"]) == (0.5, "fast")
    assert told["0.count__by_word.events"] == 0.5
    assert (told["0.count__by_word.length_count"], told["0.count__by_word.length_max"]) == (3, 9.0)
    assert told["0.count__by_word.numRecordsIn"] == told["0.numRecordsIn"]
    assert [name for name in told if "empty" in name] == ["0.count__by_word.empty_count"]


def test_metrics_of_functions_on_the_wire(served: Served) -> None:
    served.tells(replace(_measured(), id=JOB))

    vertex = f"/vertices/{COUNT.vertex_id}"
    name = "count__by_word.seen"

    assert {"id": f"0.{name}"} in served.of_job(f"{vertex}/metrics")
    assert served.of_job(f"{vertex}/metrics", get=f"1.{name}") == [{"id": f"1.{name}", "value": "7"}]
    assert served.of_job(f"{vertex}/subtasks/0/metrics", get=name) == [{"id": name, "value": "5"}]
    assert served.of_job(f"{vertex}/subtasks/metrics", get=name, agg="min,sum") == [{"id": name, "min": 5, "sum": 12}]


def test_the_operators_of_sources_say_so() -> None:
    assert vertex_values(job(), SOURCE, START)["0.Source__words.numRecordsOut"] == 30


def test_a_source_reads_its_input_and_tells_what_it_has_not_read() -> None:
    silent, telling = SubtaskFigures(0, records_out=5), SubtaskFigures(0, records_out=5, pending_records=0)

    told = operator_values(SOURCE, replace(telling, emitted_at=START - 1500), START)

    assert (told["numRecordsIn"], told["pendingRecords"], told["sourceIdleTime"]) == (5, 0, 1500)
    assert task_values(SOURCE, telling, START)["numRecordsIn"] == 0
    assert not {"pendingRecords", "sourceIdleTime"} & operator_values(SOURCE, silent, START).keys()
    assert "sourceIdleTime" not in operator_values(COUNT, replace(telling, emitted_at=START), START)


def test_the_time_that_spark_takes_is_not_known() -> None:
    told = task_values(SOURCE, SubtaskFigures(0, is_busy_known=False), START)

    assert math.isnan(float(told["busyTimeMsPerSecond"]))
    assert math.isnan(aggregate([told["busyTimeMsPerSecond"]])["avg"])


@pytest.mark.parametrize(("watermark", "lag"), [(START - 90, 90), (START + 5, -5), (-(2**63), None), (2**63 - 1, None)])
def test_a_watermark_lags_behind_the_clock(watermark: int, lag: int | None) -> None:
    told = task_values(COUNT, SubtaskFigures(0, watermark=watermark), START)

    assert (told["currentInputWatermark"], told["currentOutputWatermark"]) == (watermark, watermark)
    assert told.get("watermarkLag") == lag


def test_who_assigns_timestamps_has_a_watermark_of_its_own() -> None:
    assigner = replace(COUNT, kind="timestamps")

    told = task_values(assigner, SubtaskFigures(0, watermark=7), START)

    assert "currentInputWatermark" not in told
    assert told["currentOutputWatermark"] == 7


def test_a_metric_over_time_is_of_all_subtasks(served: Served) -> None:
    record = replace(_measured(), id=JOB)
    served.tells(record)
    served.monitor.history = [FigureSample(START + 5_000 * n, record.figures) for n in range(3)]
    path = f"/vertices/{COUNT.vertex_id}/metrics/history"
    names = "count__by_word.seen,count__by_word.mode,nothing"

    told = served.of_job(path, get=names, agg="max", since=START + 1)

    assert told["at"] == [START + 5_000, START + 10_000]
    assert {each["id"]: each["values"] for each in told["metrics"]} == {
        "count__by_word.seen": [7, 7],
        "count__by_word.mode": [None, None],
        "nothing": [None, None],
    }
    [summed] = served.of_job(path, get="count__by_word.seen")["metrics"]
    assert summed["values"] == [12, 12, 12]
    assert served.of_job(path)["metrics"] == []


def test_an_operator_without_a_name_is_called_by_its_uid() -> None:
    unnamed = replace(COUNT, is_named=False)

    assert (metric_name(COUNT), metric_name(unnamed)) == (COUNT.name, "count")
    assert metric_name(replace(unnamed, uid=None)) == COUNT.name
    assert metric_name(SOURCE) == "Source: words"
