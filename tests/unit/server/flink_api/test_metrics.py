"""What metrics promise: Flink's names, values as of the record, text on the wire."""

from __future__ import annotations

import pytest
from tests.unit.server.records import COUNT, JOB_ID, SOURCE, START, job

from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_records import RescaleRecord, RestoreRecord, SubtaskFigures
from checkdam.server.flink_api.metrics import (
    aggregate,
    job_values,
    jobmanager_values,
    subtask_values,
    task_values,
    taskmanager_values,
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
    told = vertex_values(job(), COUNT)

    assert (told["0.numRecordsIn"], told["1.numRecordsIn"]) == (10, 20)
    assert told["0.numRecordsInPerSecond"] == 2.5
    assert (told["1.busyTimeMsPerSecond"], told["1.idleTimeMsPerSecond"]) == (750.0, 250.0)
    assert told["0.currentInputWatermark"] == 7
    assert "1.currentInputWatermark" not in told


def test_dropped_late_records_are_told_of_operators_that_drop_them() -> None:
    dropping = task_values(SubtaskFigures(0, late_records_dropped=3))

    assert dropping["numLateRecordsDropped"] == 3
    assert "numLateRecordsDropped" not in task_values(SubtaskFigures(0))


def test_a_subtask_that_nobody_can_tell_apart_has_none() -> None:
    assert subtask_values(job(), SOURCE, 0)["numRecordsOut"] == 30
    assert subtask_values(job(), SOURCE, 1) == {}
    assert subtask_values(job(), COUNT, 9) == {}


def test_processes_tell_of_themselves() -> None:
    record = job()

    driver = jobmanager_values([record, job(id="b" * 32, status=JobStatus.FINISHED)])

    assert taskmanager_values(record.slots[0]) == {"Status.Process.Memory.RSS": 1 << 20}
    assert taskmanager_values(record.slots[1]) == {}
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
