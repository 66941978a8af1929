from __future__ import annotations

import os

import msgspec
import pytest
from tests.unit.server.made_jobs import COUNT, RECORD, START
from tests.unit.server.serving import Served

from checkdam.server.flink_api.vertices import STATES

VERTEX = f"/vertices/{COUNT}"


def test_a_vertex_has_its_subtasks_and_what_they_add_up_to(served: Served) -> None:
    vertex = served.of_job(VERTEX)

    assert (vertex["id"], vertex["name"], vertex["parallelism"], vertex["maxParallelism"]) == (COUNT, "count", 2, 128)
    assert [subtask["subtask"] for subtask in vertex["subtasks"]] == [0, 1]
    assert vertex["aggregated"]["metrics"]["read-records"] == {
        "min": 10,
        "max": 20,
        "avg": 15,
        "sum": 30,
        "median": 15,
        "p25": 10,
        "p75": 20,
        "p95": 20,
    }
    assert set(vertex["aggregated"]["status-duration"]) == set(STATES)


def test_a_subtask_has_its_start_in_both_spellings(served: Served) -> None:
    subtask = served.of_job(VERTEX + "/subtasks/1")

    assert subtask["start-time"] == subtask["start_time"] == START + 500
    assert (subtask["endpoint"], subtask["taskmanager-id"], subtask["attempt"]) == ("host:4001", "host:12", 1)
    assert subtask["metrics"]["accumulated-busy-time"] == 750.0
    assert served.of_job(VERTEX + "/subtasks/1/attempts/1")["subtask"] == 1


def test_times_have_every_state(served: Served) -> None:
    first = served.of_job(VERTEX + "/subtasktimes")["subtasks"][0]

    assert set(first["timestamps"]) == set(STATES)
    assert first["timestamps"]["RUNNING"] == START + 500


def test_slots_of_a_vertex(served: Served) -> None:
    slots = served.of_job(VERTEX + "/taskmanagers")["taskmanagers"]

    assert [slot["taskmanager-id"] for slot in slots] == ["host:11", "host:12"]
    assert slots[0]["status-counts"]["RUNNING"] == 1


def test_backpressure_has_both_spellings(served: Served) -> None:
    body = served.of_job(VERTEX + "/backpressure")

    assert (body["status"], body["backpressureLevel"], body["backpressure-level"]) == ("ok", "ok", "ok")
    assert body["subtasks"][1] == {
        "subtask": 1,
        "attempt-number": 1,
        "backpressureLevel": "ok",
        "backpressure-level": "ok",
        "ratio": 0.0,
        "idleRatio": 0.25,
        "busyRatio": 0.75,
    }


def test_watermarks_are_metrics_by_subtask(served: Served) -> None:
    assert served.of_job(VERTEX + "/watermarks") == [
        {"id": "0.currentInputWatermark", "value": str(START)},
        {"id": "1.currentInputWatermark", "value": str(START - 1)},
    ]


@pytest.mark.parametrize(
    ("path", "id"),
    [
        ("/metrics", "lastCheckpointSize"),
        (VERTEX + "/metrics", "1.numRecordsIn"),
        (VERTEX + "/subtasks/0/metrics", "numRecordsIn"),
        (VERTEX + "/subtasks/metrics", "numRecordsIn"),
    ],
)
def test_metrics_without_names_are_a_bare_list_of_names(served: Served, path: str, id: str) -> None:
    assert {"id": id} in served.of_job(path)


def test_values_are_text_and_unknown_names_are_left_out(served: Served) -> None:
    assert served.of_job(VERTEX + "/metrics", get="0.numRecordsIn,nothing,1.numRecordsIn") == [
        {"id": "0.numRecordsIn", "value": "10"},
        {"id": "1.numRecordsIn", "value": "20"},
    ]
    assert served.of_job("/metrics", get="numRestarts") == [{"id": "numRestarts", "value": "1"}]
    assert served.of_job(VERTEX + "/metrics", get="0.busyTimeMsPerSecond")[0]["value"] == "250.0"


def test_figures_over_subtasks_are_numbers(served: Served) -> None:
    path = VERTEX + "/subtasks/metrics"

    (all_of_them,) = served.of_job(path, get="numRecordsIn")
    (chosen,) = served.of_job(path, get="numRecordsIn", agg="min,SUM", subtasks="1-9")

    assert all_of_them == {
        "id": "numRecordsIn",
        "min": 10.0,
        "max": 20.0,
        "avg": 15.0,
        "sum": 30.0,
        "skew": all_of_them["skew"],
    }
    assert chosen == {"id": "numRecordsIn", "min": 20.0, "sum": 20.0}


def test_a_metric_without_values_is_an_empty_list(served: Served) -> None:
    assert served.of_job(VERTEX + "/subtasks/metrics", get="nothing") == []
    assert served.get("/jobs/metrics", get="numRestarts", jobs="f" * 32) == []


def test_metrics_of_the_driver_and_its_slots(served: Served) -> None:
    assert served.get("/jobmanager/metrics", get="numRunningJobs") == [{"id": "numRunningJobs", "value": "1"}]
    assert served.get("/taskmanagers/host:11/metrics", get="Status.Process.Memory.RSS") == [
        {"id": "Status.Process.Memory.RSS", "value": str(50 << 20)}
    ]


def test_the_hardware_of_a_slot_is_told_only_where_it_is_this_machines(served: Served) -> None:
    here, elsewhere = RECORD.slots
    served.tells(
        msgspec.structs.replace(RECORD, slots=(msgspec.structs.replace(here, host=os.uname().nodename), elsewhere))
    )

    first, second = (each["hardware"] for each in served.get("/taskmanagers")["taskmanagers"])

    assert first["cpuCores"] == os.cpu_count()
    assert first["physicalMemory"] > 0
    assert second == {"cpuCores": -1, "physicalMemory": -1, "freeMemory": -1}
