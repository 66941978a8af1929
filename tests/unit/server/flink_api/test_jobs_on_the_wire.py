"""The shapes of jobs, letter by letter where Flink's document and its wire disagree."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.server.made_jobs import COMPLETED, COUNT, JOB, OTHER, RECORD, SAVEPOINT, SOURCE, START, with_status
from tests.unit.server.serving import Served

from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_records import (
    NEVER,
    JobEventKind,
    JobEventRecord,
    OperatorFigures,
    SeriesPoint,
    SubtaskFigures,
)
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
    assert job["last-checkpoint"] == {"id": 2, "timestamp": START + 5_040, "duration": 31, "state_size": 1000}


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


def test_keys_and_entries_are_two_figures_and_estimates_are_marked(served: Served) -> None:
    figures = (SubtaskFigures(0, entries=30, keys=10), SubtaskFigures(1, entries=40, keys=20, is_estimated=True))
    uncounted = (SubtaskFigures(0, entries=30, keys=10), SubtaskFigures(1, entries=40, keys=None))
    names = ("entries", "keys", "entries-are-exact")

    found = []
    for subtasks in (figures, uncounted):
        served.tells(with_status(JobStatus.RUNNING, figures=(OperatorFigures(1, subtasks),), keys=NEVER, entries=70))
        found.append([served.of_job()["vertices"][1][name] for name in names])

    assert found == [[70, 30, False], [70, None, True]]
    assert [served.of_job()[name] for name in names] == [70, None, True]


def test_the_series_has_the_figures_of_each_stretch_of_time(served: Served) -> None:
    points = (
        SeriesPoint(START, 1000, 2, 22.5, 12.5, 11.0, 500.0, 4),
        SeriesPoint(START + 5000, 1000, checkpoints=2, checkpoint_ms=90.0, longest_checkpoint_ms=60.0, state_bytes=7),
    )
    event = JobEventRecord(START + 5500, JobEventKind.RESCALE, "rescaled to parallelism 2")
    served.tells(msgspec.structs.replace(RECORD, series=points, events=(event,)))

    series = served.of_job("/series")

    assert series["start"] == [START, START + 5000]
    assert series["records_per_second"] == [22.0, None]
    assert series["epoch_duration"] == [11.25, None]
    assert series["epoch_duration_max"] == [12.5, None]
    assert series["entries"] == [4, None]
    assert series["checkpoint_duration"] == [None, 45.0]
    assert series["state_size"] == [None, 7]
    assert series["events"] == [{"at": START + 5500, "kind": "RESCALE", "text": "rescaled to parallelism 2"}]


def test_the_series_has_only_what_is_new_if_asked_so(served: Served) -> None:
    event = JobEventRecord(START + 5500, JobEventKind.RESCALE, "rescaled to parallelism 2")
    points = (SeriesPoint(START, 1000), SeriesPoint(START + 1000, 1000))
    served.tells(msgspec.structs.replace(RECORD, series=points, events=(event,)))

    assert served.of_job("/series", since=START + 1500)["start"] == [START + 1000]
    assert len(served.of_job("/series", since=START + 5500)["events"]) == 1
    assert served.of_job("/series", since=START + 5501)["events"] == []


def test_the_series_of_an_older_record_is_made_from_its_epochs_and_checkpoints(served: Served) -> None:
    series = served.of_job("/series")

    assert [entries for entries in series["entries"] if entries is not None] == [4]
    assert [rate for rate in series["records_per_second"] if rate is not None] == [pytest.approx(11 / 0.1125, rel=1e-3)]
    assert [size for size in series["state_size"] if size is not None] == [COMPLETED.state_bytes]  # not the savepoint's


@pytest.fixture
def savepoint(served: Served, tmp_path: Path) -> Path:
    """A savepoint of the job that exists, as its place."""
    place = tmp_path / "savepoint-012345-0123456789ab"
    place.mkdir()
    (place / "_metadata").touch()
    record = msgspec.structs.replace(SAVEPOINT, path=str(place))
    served.tells(msgspec.structs.replace(RECORD, checkpoints=(record, COMPLETED), savepoints=(record,)))
    return place


def test_savepoints_are_listed(served: Served, savepoint: Path) -> None:
    assert served.of_job("/savepoints") == {
        "savepoints": [
            {
                "id": 3,
                "path": str(savepoint),
                "format": "CANONICAL",
                "kind": "SAVEPOINT",
                "trigger_timestamp": START + 6_000,
                "completed_timestamp": START + 6_500,
                "state_size": 1000,
                "epoch": 9,
                "exists": True,
            }
        ]
    }


def test_a_savepoint_that_is_gone_is_listed_nowhere_and_history_says_so(served: Served, savepoint: Path) -> None:
    def shown() -> tuple[int, list[str], Any, bool]:
        checkpoints = served.of_job("/checkpoints")
        return (
            len(served.of_job("/savepoints")["savepoints"]),
            [each["ref"] for each in served.of_job("/snapshots")["snapshots"]],
            checkpoints["latest"]["savepoint"] and checkpoints["latest"]["savepoint"]["id"],
            checkpoints["history"][0]["discarded"],
        )

    before = shown()
    shutil.rmtree(savepoint)
    served.server.jobs.savepoint_files.expire()

    assert before == (1, [savepoint.name, "chk-2"], 3, False)
    assert shown() == (0, ["chk-2"], None, True)
    assert served.of_job("/checkpoints/details/3")["discarded"]
    assert served.client.get(f"/jobs/{JOB}/snapshots/{savepoint.name}/state").status_code == 404
