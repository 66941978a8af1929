"""What clients may ask of a job, and how they hear what became of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.unit.server.made_jobs import COUNT, JOB, OTHER, RECORD, RESCALE, SOURCE, START, with_status
from tests.unit.server.serving import Served, serving

from checkdam.config import Configuration
from checkdam.errors import StorageError, UsageError
from checkdam.runtime.job_control import SavepointFormat
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_records import RescaleRecord

IN_PROGRESS = {"status": {"id": "IN_PROGRESS"}, "operation": None}


def _start(served: Served, verb: str, body: Any = None, job: str = JOB) -> str:
    answer = served.client.post(f"/jobs/{job}/{verb}", json=body)
    assert answer.status_code == 202, answer.text
    assert list(answer.json()) == ["request-id"]
    return str(answer.json()["request-id"])


def test_a_checkpoint_is_in_progress_until_it_is_complete(served: Served) -> None:
    trigger = _start(served, "checkpoints", {})
    before = served.of_job(f"/checkpoints/{trigger}")

    served.control.futures[0].set_result(42)

    assert before == IN_PROGRESS
    assert served.of_job(f"/checkpoints/{trigger}") == {
        "status": {"id": "COMPLETED"},
        "operation": {"checkpointId": 42},
    }
    assert served.control.asked == [("checkpoint", False)]


def test_a_full_checkpoint_is_asked_for_as_one(served: Served) -> None:
    _start(served, "checkpoints", {"checkpointType": "FULL", "triggerId": None})

    assert served.control.asked == [("checkpoint", True)]


def test_a_checkpoint_that_failed_is_completed_with_a_cause(served: Served) -> None:
    trigger = _start(served, "checkpoints")
    served.control.futures[0].set_exception(StorageError("the disk is full", hint="Make room."))

    body = served.of_job(f"/checkpoints/{trigger}")

    assert body["status"] == {"id": "COMPLETED"}
    cause = body["operation"]["failureCause"]
    assert (cause["class"], cause["message"]) == ("checkdam.errors.StorageError", "the disk is full. Make room.")
    assert cause["stack-trace"] == "checkdam.errors.StorageError: the disk is full. Make room."
    assert cause["serialized-throwable"]
    assert "checkpointId" not in body["operation"]


def test_a_savepoint_goes_where_the_body_says(served: Served) -> None:
    trigger = _start(served, "savepoints", {"target-directory": "/sp", "formatType": "NATIVE", "unknown": [1]})
    served.control.futures[0].set_result("file:/sp/savepoint-012345-0123456789ab")

    assert served.control.asked == [("savepoint", "/sp", SavepointFormat.NATIVE)]
    assert served.of_job(f"/savepoints/{trigger}")["operation"] == {
        "location": "file:/sp/savepoint-012345-0123456789ab"
    }


@pytest.mark.parametrize("content", [b"", b"{}", b" \n", b'{"target-directory":null,"cancel-job":false}'])
def test_an_empty_body_means_the_configured_directory(served: Served, content: bytes) -> None:
    assert served.client.post(f"/v1/jobs/{JOB}/savepoints", content=content).status_code == 202

    assert served.control.asked == [("savepoint", "file:/savepoints", SavepointFormat.CANONICAL)]


def test_a_savepoint_with_cancel_cancels_once_it_is_complete(served: Served) -> None:
    trigger = _start(served, "savepoints", {"cancel-job": True})
    asked_before = list(served.control.asked)

    served.control.futures[0].set_result("/sp/one")

    assert ("cancel",) not in asked_before
    assert served.control.asked[-1] == ("cancel",)
    assert served.of_job(f"/savepoints/{trigger}")["operation"] == {"location": "/sp/one"}


def test_a_savepoint_that_failed_cancels_nothing(served: Served) -> None:
    trigger = _start(served, "savepoints", {"cancel-job": True})

    served.control.futures[0].set_exception(StorageError("no"))

    assert served.of_job(f"/savepoints/{trigger}")["operation"]["failure-cause"]["message"] == "no"
    assert ("cancel",) not in served.control.asked


@pytest.mark.parametrize("drain", [True, False])
def test_a_stop_is_asked_for_as_a_savepoint(served: Served, drain: bool) -> None:
    trigger = _start(served, "stop", {"targetDirectory": "/sp", "drain": drain})
    served.control.futures[0].set_result("/sp/one")

    assert served.control.asked == [("stop", "/sp", SavepointFormat.CANONICAL, drain)]
    assert served.of_job(f"/savepoints/{trigger}")["operation"] == {"location": "/sp/one"}


def test_two_stops_at_once_are_two_operations_and_the_second_tells_why_it_failed(served: Served) -> None:
    first = _start(served, "stop")
    second = _start(served, "stop")
    served.control.futures[1].set_exception(UsageError("the job is being stopped already"))

    assert served.of_job(f"/savepoints/{first}") == IN_PROGRESS
    failure = served.of_job(f"/savepoints/{second}")["operation"]["failure-cause"]
    assert failure["message"] == "the job is being stopped already"


def test_the_same_trigger_id_starts_nothing_twice(served: Served) -> None:
    answers = [_start(served, "savepoints", {"triggerId": "d" * 32}) for _ in range(2)]

    assert answers == ["d" * 32, "d" * 32]
    assert len(served.control.asked) == 1


def test_a_trigger_id_belongs_to_one_kind_of_operation(served: Served) -> None:
    trigger = _start(served, "savepoints")

    assert served.errors("GET", f"/jobs/{JOB}/checkpoints/{trigger}", 404) == [
        f"There is no checkpoint operation with triggerId={trigger} for job {JOB}."
    ]


@pytest.mark.parametrize("verb", ["savepoints", "stop", "checkpoints"])
def test_an_unknown_job_is_told_by_the_status_call(served: Served, verb: str) -> None:
    body = {} if verb == "checkpoints" else {"target-directory": "/sp", "targetDirectory": "/sp"}
    trigger = _start(served, verb, body, OTHER)

    status = served.get(f"/jobs/{OTHER}/{'savepoints' if verb == 'stop' else verb}/{trigger}")

    (cause,) = status["operation"].values()
    assert cause["class"] == "org.apache.flink.runtime.messages.FlinkJobNotFoundException"
    assert cause["message"] == f"Could not find Flink job ({OTHER})"


def test_a_savepoint_of_a_job_that_ended_fails_with_its_status(served: Served) -> None:
    served.archive.kept[OTHER] = with_status(JobStatus.FINISHED, id=OTHER)
    trigger = _start(served, "savepoints", {}, OTHER)

    cause = served.get(f"/jobs/{OTHER}/savepoints/{trigger}")["operation"]["failure-cause"]

    assert cause["message"] == f"Job {OTHER} is not running on this server: its status is FINISHED"


def test_nothing_is_asked_of_a_job_that_has_ended_before_its_driver_has_returned(served: Served) -> None:
    served.monitor.now = with_status(JobStatus.CANCELED)
    trigger = _start(served, "savepoints", {"target-directory": "sp"})

    cause = served.of_job(f"/savepoints/{trigger}")["operation"]["failure-cause"]

    assert cause["message"] == f"Job {JOB} is not running on this server: its status is CANCELED"
    assert served.control.asked == []


@pytest.mark.parametrize(("verb", "name"), [("savepoints", "target-directory"), ("stop", "targetDirectory")])
def test_without_any_directory_a_savepoint_is_refused_at_once(served: Served, verb: str, name: str) -> None:
    assert served.errors("POST", f"/jobs/{OTHER}/{verb}", 400, json={}) == [
        f"Config key [execution.checkpointing.savepoint-dir] is not set. Property [{name}] must be provided."
    ]


@pytest.mark.parametrize(("verb", "name"), [("savepoints", "target-directory"), ("stop", "targetDirectory")])
def test_a_relative_directory_is_one_below_the_configured_and_never_another(
    served: Served, verb: str, name: str
) -> None:
    _start(served, verb, {name: "of/today"})

    assert served.control.asked[0][:2] == (verb.removesuffix("s"), "/savepoints/of/today")
    for outside in ("../elsewhere", "of/../../elsewhere", "file:../elsewhere", "..", "%2e%2e/../.."):
        messages = served.errors("POST", f"/jobs/{JOB}/{verb}", 403, json={name: outside})
        assert messages[0].startswith(f'Savepoints may not be written to "{outside}".')
    assert served.errors("POST", f"/jobs/{JOB}/{verb}", 400, json={name: "a\0b"}) == ["'a\\x00b' is not a directory."]
    assert len(served.control.asked) == 1


@pytest.fixture
def guarded() -> Iterator[Served]:
    """A server that other machines may reach."""
    for served in serving(Configuration().with_value("rest.auth.token", "secret")):
        served.client.headers["Authorization"] = "Bearer secret"
        yield served


@pytest.fixture
def permissive() -> Iterator[Served]:
    settings = {"rest.auth.token": "secret", "state.savepoints.allowed-dirs": "/backups, s3://bucket/sp"}
    for served in serving(Configuration.load(None, settings)):
        served.client.headers["Authorization"] = "Bearer secret"
        yield served


def test_a_server_with_a_token_writes_into_the_configured_directory_only(guarded: Served) -> None:
    _start(guarded, "savepoints", {"target-directory": "/savepoints/of/today"})
    _start(guarded, "savepoints", {})

    [message] = guarded.errors("POST", f"/jobs/{JOB}/savepoints", 403, json={"target-directory": "/backups/sp"})

    assert [asked[1] for asked in guarded.control.asked] == ["/savepoints/of/today", "file:/savepoints"]
    assert "state.savepoints.allowed-dirs" in message
    assert '"file:/savepoints"' in message


def test_what_a_server_with_a_token_forwards_is_kept_to_the_same_places(served: Served) -> None:
    forwarded = {"json": {"target-directory": "/backups/sp"}, "headers": {"Checkdam-Guarded": "1"}}

    served.errors("POST", f"/jobs/{JOB}/savepoints", 403, **forwarded)

    assert served.control.asked == []


def test_more_places_can_be_allowed(permissive: Served) -> None:
    for place in ("/backups/sp", "s3://bucket/sp/today", "/savepoints"):
        _start(permissive, "savepoints", {"target-directory": place})

    permissive.errors("POST", f"/jobs/{JOB}/savepoints", 403, json={"target-directory": "/elsewhere"})
    assert len(permissive.control.asked) == 3


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PATCH", ""),
        ("PATCH", "?mode=cancel"),
        ("PATCH", "?mode=CANCEL"),
        ("GET", "/yarn-cancel"),
    ],
)
def test_cancel_by_any_of_its_ways(served: Served, method: str, path: str) -> None:
    answer = served.client.request(method, f"/jobs/{JOB}{path}")

    assert (answer.status_code, answer.json()) == (202, {})
    assert served.control.asked == [("cancel",)]


@pytest.mark.parametrize(("method", "path"), [("PATCH", "?mode=stop"), ("GET", "/yarn-stop")])
def test_the_old_ways_to_stop_point_to_the_new_one_and_cancel_nothing(served: Served, method: str, path: str) -> None:
    messages = served.errors(method, f"/jobs/{JOB}{path}", 308)

    assert "jobs/:jobid/stop" in messages[0]
    assert served.control.asked == []


@pytest.mark.parametrize("status", [JobStatus.FINISHED, JobStatus.FAILED])
def test_a_job_that_ended_otherwise_cannot_be_cancelled(served: Served, status: JobStatus) -> None:
    served.archive.kept[OTHER] = with_status(status, id=OTHER)

    assert served.errors("PATCH", f"/jobs/{OTHER}", 409) == [
        f"Job cancellation failed because the job has already reached another terminal state ({status})."
    ]


def test_a_suspended_job_cannot_be_cancelled_since_nobody_runs_it(served: Served) -> None:
    served.archive.kept[OTHER] = with_status(JobStatus.SUSPENDED, id=OTHER)

    assert served.errors("PATCH", f"/jobs/{OTHER}", 409) == [
        f"Job {OTHER} is not running on this server: its status is SUSPENDED"
    ]


def test_cancelling_a_cancelled_job_is_no_error(served: Served) -> None:
    served.archive.kept[OTHER] = with_status(JobStatus.CANCELED, id=OTHER)

    assert served.client.patch(f"/jobs/{OTHER}").status_code == 202


def test_disposal_answers_200_and_tells_how_it_went(served: Served) -> None:
    answer = served.client.post("/savepoint-disposal", json={"savepoint-path": "/sp/one"})
    assert answer.status_code == 200

    status = _ended(served, f"/savepoint-disposal/{answer.json()['request-id']}")

    assert status["operation"] == {}
    assert served.disposed == ["/sp/one"]


def _ended(served: Served, path: str) -> Any:
    while (status := served.get(path)) == IN_PROGRESS:
        pass
    return status


def test_rescaling_by_the_old_way(served: Served) -> None:
    answer = served.client.patch(f"/jobs/{JOB}/rescaling?parallelism=3")
    path = f"/rescaling/{answer.json()['request-id']}"
    before = served.of_job(path)

    served.control.futures[0].set_result(None)

    assert answer.status_code == 200
    assert before == IN_PROGRESS
    assert served.of_job(path) == {"status": {"id": "COMPLETED"}, "operation": {}}
    assert served.control.asked == [("rescale", 3)]


def _requirements(upper: dict[str, int], lower: int = 1) -> dict[str, Any]:
    return {vertex: {"parallelism": {"lowerBound": lower, "upperBound": n}} for vertex, n in upper.items()}


def test_requirements_are_a_flat_map_by_vertex(served: Served) -> None:
    assert served.of_job("/resource-requirements") == _requirements({SOURCE: 2, COUNT: 2})


@pytest.mark.parametrize(
    "upper", [{SOURCE: 4, COUNT: 4}, {SOURCE: 2, COUNT: 4}, {SOURCE: 1, COUNT: 4}, {SOURCE: 4, COUNT: 3}]
)
def test_new_requirements_rescale_the_job(served: Served, upper: dict[str, int]) -> None:
    answer = served.client.put(f"/jobs/{JOB}/resource-requirements", json=_requirements(upper))

    assert (answer.status_code, answer.json()) == (200, {})
    assert served.control.asked == [("rescale", 4)]


def test_an_operator_that_the_program_sets_does_not_hold_the_others_up(served: Served) -> None:
    _fix_count(served, at=8)

    served.client.put(f"/jobs/{JOB}/resource-requirements", json=_requirements({SOURCE: 3, COUNT: 8}))

    assert served.control.asked == [("rescale", 3)]


@pytest.mark.parametrize(("fixed", "wanted"), [(1, 2), (1, 3), (2, 1), (8, 4), (8, 9)])
def test_only_an_operator_that_the_program_sets_rescales_nothing(served: Served, fixed: int, wanted: int) -> None:
    _fix_count(served, at=fixed)

    answer = served.client.put(f"/jobs/{JOB}/resource-requirements", json=_requirements({SOURCE: 2, COUNT: wanted}))

    assert (answer.status_code, served.control.asked) == (200, [])


def _fix_count(served: Served, *, at: int) -> None:
    fixed = msgspec.structs.replace(RECORD.operators[1], parallelism=at, is_fixed=True)
    served.tells(msgspec.structs.replace(RECORD, operators=(RECORD.operators[0], fixed)))


@pytest.mark.parametrize("upper", [{SOURCE: 2, COUNT: 2}, {SOURCE: 1, COUNT: 2}])
def test_the_largest_as_it_is_changes_nothing(served: Served, upper: dict[str, int]) -> None:
    unchanged = _requirements(upper)

    assert served.client.put(f"/jobs/{JOB}/resource-requirements", json=unchanged).status_code == 200
    assert served.control.asked == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "Request body does not specify resource requirements."),
        (_requirements({SOURCE: 3}), "incomplete"),
        (_requirements({SOURCE: 3, COUNT: 3, "e" * 32: 3}), "does not have"),
        (_requirements({SOURCE: 129, COUNT: 129}), "above its maximum parallelism 128"),
        (_requirements({SOURCE: 3, COUNT: 3}, lower=4), "not a range"),
        (_requirements({SOURCE: 3, COUNT: 3}, lower=0), "not a range"),
    ],
)
def test_requirements_that_cannot_be_are_refused(served: Served, body: dict[str, Any], words: str) -> None:
    messages = served.errors("PUT", f"/jobs/{JOB}/resource-requirements", 400, json=body)

    assert words in messages[0]
    assert served.control.asked == []


def test_rescales_are_told_with_what_the_page_shows(served: Served) -> None:
    (rescale,) = served.of_job("/rescales/history")

    assert rescale == {
        "rescaleUuid": RESCALE,
        "vertices": {vertex: {"preRescaleParallelism": 1, "desiredParallelism": 2} for vertex in (SOURCE, COUNT)},
        "schedulerStates": [{"stringifiedException": None}],
        "startTimestampInMillis": START + 7_000,
        "endTimestampInMillis": START + 7_800,
        "terminalState": "COMPLETED",
    }


def test_a_rescale_that_failed_tells_why_and_one_under_way_has_no_end(served: Served) -> None:
    failed = RescaleRecord("2" * 32, START, 2, 400, START + 1, "no such slots")
    served.tells(msgspec.structs.replace(RECORD, rescales=(RescaleRecord("3" * 32, START, 2, 4), failed)))

    under_way, ended = served.of_job("/rescales/history")

    assert (under_way["terminalState"], under_way["endTimestampInMillis"]) == (None, None)
    assert (ended["terminalState"], ended["schedulerStates"]) == ("FAILED", [{"stringifiedException": "no such slots"}])
