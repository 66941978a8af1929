"""The shapes of jobs, letter by letter where Flink's document and its wire disagree."""

from __future__ import annotations

import base64

import pytest
from tests.unit.server.made_jobs import COUNT, JOB, OTHER, SOURCE, START, with_status
from tests.unit.server.serving import Served

from checkdam.runtime.job_status import JobStatus
from checkdam.server.flink_api.vertices import STATES


def test_jobs_have_an_id_and_a_status(served: Served) -> None:
    assert served.get("/jobs") == {"jobs": [{"id": JOB, "status": "RUNNING"}]}


def test_the_overview_counts_tasks_in_lower_case(served: Served) -> None:
    (job,) = served.get("/jobs/overview")["jobs"]

    assert job["tasks"] == {"total": 4} | {state.lower(): 4 * (state == "RUNNING") for state in STATES}
    assert {name: job[name] for name in ("jid", "name", "state", "jobType", "schedulerType", "pending-operators")} == {
        "jid": JOB,
        "name": "words",
        "state": "RUNNING",
        "jobType": "STREAMING",
        "schedulerType": "Adaptive",
        "pending-operators": 0,
    }
    assert (job["start-time"], job["end-time"], job["last-modification"]) == (START, -1, START + 500)
    assert job["last-checkpoint"] == {"id": 2, "timestamp": START + 5_040, "duration": 70, "state_size": 1000}


def test_a_job_counts_vertices_and_subtasks_in_upper_case(served: Served) -> None:
    job = served.of_job()

    assert job["status-counts"] == {state: 2 * (state == "RUNNING") for state in STATES}
    assert job["vertices"][1]["tasks"] == {state: 2 * (state == "RUNNING") for state in STATES}


def test_a_job_tells_when_it_entered_each_status_and_0_for_the_rest(served: Served) -> None:
    expected = {status.value: 0 for status in JobStatus} | {"INITIALIZING": START, "RUNNING": START + 500}

    assert served.of_job()["timestamps"] == expected


def test_a_job_spells_its_type_otherwise_than_the_overview(served: Served) -> None:
    job = served.of_job()

    assert (job["job-type"], job["schedulerType"], job["isStoppable"]) == ("STREAMING", "Adaptive", False)
    assert (job["maxParallelism"], job["application-id"], job["end-time"]) == (128, JOB, -1)


def test_a_vertex_tells_what_went_through_it(served: Served) -> None:
    vertex = served.of_job()["vertices"][1]

    idle = vertex["metrics"].pop("accumulated-idle-time")
    assert vertex["metrics"] == {
        "read-bytes": 300,
        "read-bytes-complete": True,
        "write-bytes": 11,
        "write-bytes-complete": True,
        "read-records": 30,
        "read-records-complete": True,
        "write-records": 3,
        "write-records-complete": True,
        "accumulated-backpressured-time": 0,
        "accumulated-busy-time": 1000.0,
    }
    assert idle == 2 * vertex["duration"] - 1000
    assert {name: vertex[name] for name in ("id", "uid", "kind", "level", "state-size", "entries")} == {
        "id": COUNT,
        "uid": "count",
        "kind": "keyed process",
        "level": 1,
        "state-size": 1000,
        "entries": 7,
    }
    assert (vertex["busy-ratio"], vertex["watermark"], vertex["is-stateful"]) == (0.75, START - 1, True)


def test_the_plan_is_escaped_and_a_source_has_no_inputs(served: Served) -> None:
    plan = served.of_job("/plan")["plan"]

    assert plan == served.of_job()["plan"]
    assert plan["nodes"] == [
        {
            "id": SOURCE,
            "parallelism": 2,
            "operator": "",
            "operator_strategy": "",
            "description": "Source: &quot;words&quot; &lt;text&gt;",
            "optimizer_properties": {},
        },
        {
            "id": COUNT,
            "parallelism": 2,
            "operator": "",
            "operator_strategy": "",
            "description": "count",
            "optimizer_properties": {},
            "inputs": [{"num": 0, "id": SOURCE, "ship_strategy": "HASH", "exchange": "pipelined_bounded"}],
        },
    ]


def test_the_configuration_has_flinks_hyphens(served: Served) -> None:
    assert served.of_job("/config") == {
        "jid": JOB,
        "name": "words",
        "execution-config": {
            "restart-strategy": "fixed-delay (3 attempts)",
            "job-parallelism": 2,
            "object-reuse-mode": False,
            "user-config": {"parallelism.default": "2"},
            "options": [
                {"key": "execution.checkpointing.interval", "value": "10000 ms", "origin": "file"},
                {"key": "parallelism.default", "value": "2", "origin": "command line"},
            ],
        },
    }


def test_failures_are_told_newest_first_and_their_place_only_where_a_task_met_them(served: Served) -> None:
    history = served.of_job("/exceptions")["exceptionHistory"]

    assert history == {
        "entries": [
            {
                "exceptionName": "ValueError",
                "stacktrace": "ValueError: bad word",
                "timestamp": START + 3_000,
                "failureLabels": {},
                "concurrentExceptions": [],
                "message": "bad word",
                "taskName": "count (2/2)",
                "endpoint": "host:12",
                "taskManagerId": "host:12",
            },
            {
                "exceptionName": "SlotLostError",
                "stacktrace": "SlotLostError: gone",
                "timestamp": START + 2_000,
                "failureLabels": {},
                "concurrentExceptions": [],
                "message": "gone",
            },
        ],
        "truncated": False,
    }


def test_no_more_failures_are_told_than_asked_for(served: Served) -> None:
    history = served.of_job("/exceptions", maxExceptions=1)["exceptionHistory"]

    assert (len(history["entries"]), history["truncated"]) == (1, True)


def test_a_label_that_no_failure_carries_finds_none(served: Served) -> None:
    assert served.of_job("/exceptions", failureLabelFilter="type:user")["exceptionHistory"]["entries"] == []


def test_a_running_job_has_no_result_yet(served: Served) -> None:
    assert served.of_job("/execution-result") == {"status": {"id": "IN_PROGRESS"}}
    assert served.of_job("/status") == {"status": "RUNNING"}


@pytest.mark.parametrize(
    ("status", "result"),
    [(JobStatus.FINISHED, "SUCCEEDED"), (JobStatus.CANCELED, "CANCELED"), (JobStatus.FAILED, "FAILED")],
)
def test_the_result_of_a_job_that_ended(served: Served, status: JobStatus, result: str) -> None:
    served.tells(with_status(status))

    body = served.of_job("/execution-result")

    assert body["status"] == {"id": "COMPLETED"}
    cause = body["job-execution-result"].pop("failure-cause", None)
    assert body["job-execution-result"] == {
        "id": JOB,
        "name": "words",
        "application-status": result,
        "accumulator-results": {},
        "net-runtime": 10_000,
        "application-id": JOB,
        "start-time": START,
        "end-time": START + 10_000,
    }
    assert (cause is not None) == (status is JobStatus.FAILED)
    if cause is not None:
        assert (cause["class"], cause["stack-trace"]) == ("ValueError", "ValueError: bad word")
        assert base64.b64decode(cause["serialized-throwable"]).startswith(b"\xac\xed")  # Java's own mark


def test_the_task_that_failed_the_job_is_failed_and_the_others_canceled(served: Served) -> None:
    served.tells(with_status(JobStatus.FAILED))

    source, count = served.of_job()["vertices"]

    assert (source["status"], count["status"]) == ("CANCELED", "FAILED")
    assert (count["tasks"]["FAILED"], count["tasks"]["CANCELED"]) == (1, 1)


def test_the_duration_of_a_job_whose_driver_is_gone_does_not_grow(served: Served) -> None:
    served.tells(with_status(JobStatus.SUSPENDED))

    job = served.of_job()

    assert (job["end-time"], job["duration"]) == (START + 10_000, 10_000)


def test_an_archived_job_is_served_as_a_running_one_is(served: Served) -> None:
    served.archive.kept[OTHER] = with_status(JobStatus.FINISHED, id=OTHER)

    assert served.get(f"/jobs/{OTHER}")["state"] == "FINISHED"
    assert {job["id"]: job["status"] for job in served.get("/jobs")["jobs"]} == {JOB: "RUNNING", OTHER: "FINISHED"}


def test_a_job_that_ended_here_is_still_told_of(served: Served) -> None:
    served.server.job_ended(JOB)
    served.tells(with_status(JobStatus.FINISHED))

    assert served.of_job("/status") == {"status": "FINISHED"}


def test_the_series_has_what_ended_since(served: Served) -> None:
    series = served.of_job("/series", since=START + 650)

    assert series["epochs"] == [{"epoch": 2, "ended": START + 700, "duration": 10.0, "records": 6, "keys": 4}]
    assert [point["id"] for point in series["checkpoints"]] == [1, 2, 3, 4]
    assert [point["id"] for point in served.of_job("/series", since=START + 6_200)["checkpoints"]] == [3, 4]


def test_savepoints_tell_whether_they_are_still_there(served: Served) -> None:
    assert served.of_job("/savepoints") == {
        "savepoints": [
            {
                "id": 3,
                "path": "/nowhere/savepoint-012345-0123456789ab",
                "format": "CANONICAL",
                "kind": "SAVEPOINT",
                "trigger_timestamp": START + 6_000,
                "completed_timestamp": START + 6_500,
                "state_size": 1000,
                "exists": False,
            }
        ]
    }
