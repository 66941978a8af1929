"""Nothing a client sends harms the server or the job: every refusal is in Flink's form."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from tests.unit.server.made_jobs import COUNT, JOB, OTHER
from tests.unit.server.serving import Served, serving

from checkdam.config import Configuration
from checkdam.errors import (
    CheckdamError,
    CheckpointDamagedError,
    CheckpointNotFoundError,
    SlotLostError,
    StateAccessError,
    UsageError,
)
from checkdam.server.app.http_errors import status_of

V = f"/jobs/{JOB}/vertices/{COUNT}"


@pytest.mark.parametrize("path", ["/nothing", "/v2/jobs", "/v1", "/jobs/x/y/z/1"])
def test_an_unknown_path_is_not_found(served: Served, path: str) -> None:
    assert served.errors("GET", path + "?a=1", 404) == [f"Not found: {path}?a=1"]


@pytest.mark.parametrize(
    "path",
    [
        "/applications/overview",
        f"/applications/{JOB}",
        "/datasets",
        "/jobmanager/environment",
        f"/jobs/{JOB}/accumulators",
        f"/jobs/{JOB}/rescales/overview",
        f"/jobs/{JOB}/rescales/summary",
        f"/jobs/{JOB}/rescales/config",
        f"{V}/flamegraph",
        f"{V}/accumulators",
        f"{V}/jm-operator-metrics",
    ],
)
def test_what_flink_serves_and_nobody_reads_here_is_an_unknown_path(served: Served, path: str) -> None:
    assert served.errors("GET", path, 404) == [f"Not found: {path}"]


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/plan",
        "/config",
        "/exceptions",
        "/status",
        "/execution-result",
        "/checkpoints",
        "/checkpoints/config",
        "/checkpoints/details/1",
        "/metrics",
        "/resource-requirements",
        "/rescales/history",
        "/savepoints",
        "/series",
        f"/vertices/{COUNT}",
    ],
)
def test_an_unknown_job_is_not_found(served: Served, path: str) -> None:
    assert served.errors("GET", f"/jobs/{OTHER}{path}", 404) == [f"Job {OTHER} not found"]


@pytest.mark.parametrize("job", ["x", "0123", "g" * 32, "0" * 33, "%00", "%ff%fe"])
def test_a_malformed_job_id_is_told(served: Served, job: str) -> None:
    (message,) = served.errors("GET", f"/jobs/{job}", 400)

    assert message.startswith("Bad request, could not parse parameters: Cannot resolve path parameter (jobid)")


def test_an_id_in_capitals_is_the_same_id(served: Served) -> None:
    assert served.get(f"/jobs/{JOB.upper()}/status") == {"status": "RUNNING"}


@pytest.mark.parametrize("checkpoint", ["x", "-1", "1.5", "9223372036854775808", "٣"])
def test_a_malformed_checkpoint_id_is_told(served: Served, checkpoint: str) -> None:
    served.errors("GET", f"/jobs/{JOB}/checkpoints/details/{checkpoint}", 400)


@pytest.mark.parametrize(
    "path",
    [
        "/exceptions?maxExceptions=many",
        "/exceptions?maxExceptions=0",
        "/exceptions?maxExceptions=1&maxExceptions=2",
        "/series?since=-5",
        f"/vertices/{COUNT}/subtasks/metrics?get=numRecordsIn&agg=median",
        f"/vertices/{COUNT}/subtasks/metrics?get=numRecordsIn&subtasks=a-b",
    ],
)
def test_a_malformed_query_is_told(served: Served, path: str) -> None:
    (message,) = served.errors("GET", f"/jobs/{JOB}{path}", 400)

    assert message.startswith("Bad request, could not parse parameters:")


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("POST", f"/jobs/{JOB}/savepoints", "SavepointTriggerRequestBody"),
        ("POST", f"/jobs/{JOB}/stop", "StopWithSavepointRequestBody"),
        ("POST", f"/jobs/{JOB}/checkpoints", "CheckpointTriggerRequestBody"),
        ("POST", "/savepoint-disposal", "SavepointDisposalRequest"),
        ("PUT", f"/jobs/{JOB}/resource-requirements", "JobResourceRequirementsBody"),
    ],
)
@pytest.mark.parametrize("content", [b"{", b"not json", b"[]", b"null", b"1", b'{"a":', b"\xff\xfe", b"[" * 100_000])
def test_a_body_that_is_not_what_is_expected_is_told(
    served: Served, method: str, path: str, name: str, content: bytes
) -> None:
    (message,) = served.errors(method, path, 400, content=content)

    assert message.startswith(f"Request did not match expected format {name}.")
    assert served.control.asked == []


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("savepoints", {"target-directory": 5}),
        ("savepoints", {"cancel-job": "yes"}),
        ("savepoints", {"formatType": "ZIP"}),
        ("savepoints", {"triggerId": "short"}),
        ("stop", {"drain": 1}),
        ("checkpoints", {"checkpointType": "HALF"}),
        ("checkpoints", {"checkpointType": "INCREMENTAL"}),
    ],
)
def test_a_value_of_the_wrong_type_is_told(served: Served, verb: str, body: dict[str, object]) -> None:
    served.errors("POST", f"/jobs/{JOB}/{verb}", 400, json=body)

    assert served.control.asked == []


def test_disposal_without_a_path_is_told(served: Served) -> None:
    served.errors("POST", "/savepoint-disposal", 400, json={})

    assert served.disposed == []


@pytest.mark.parametrize("query", ["", "?parallelism=0", "?parallelism=-1", "?parallelism=two", "?parallelism=99999"])
def test_a_parallelism_that_cannot_be_is_told(served: Served, query: str) -> None:
    served.errors("PATCH", f"/jobs/{JOB}/rescaling{query}", 400)

    assert served.control.asked == []


@pytest.mark.parametrize(
    "path",
    [
        f"/jobs/{JOB}/vertices/{'e' * 32}",
        f"{V}/subtasks/2",
        f"{V}/subtasks/2/metrics",
        f"{V}/subtasks/0/attempts/9",
        "/taskmanagers/nobody",
        "/taskmanagers/nobody/metrics",
        f"/jobs/{JOB}/savepoints/{'0' * 32}",
        f"/jobs/{JOB}/rescaling/{'0' * 32}",
        f"/savepoint-disposal/{'0' * 32}",
    ],
)
def test_what_is_not_there_is_not_found(served: Served, path: str) -> None:
    served.errors("GET", path, 404)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/jars"),
        ("POST", "/jars/upload"),
        ("POST", "/jars/x.jar/run"),
        ("POST", f"/jobs/{JOB}/coordinators/x"),
        ("GET", "/jobmanager/profiler"),
    ],
)
def test_what_a_jvm_alone_can_do_is_refused_with_the_reason(served: Served, method: str, path: str) -> None:
    (message,) = served.errors(method, path, 404)

    assert message.startswith(("Jars", "Profiling", "Operator coordinators"))


@pytest.mark.parametrize(("method", "path"), [("POST", "/jobs"), ("DELETE", "/cluster")])
def test_what_would_start_or_end_everything_is_refused(served: Served, method: str, path: str) -> None:
    served.errors(method, path, 405)


@pytest.fixture
def small() -> Iterator[Served]:
    yield from serving(Configuration().with_value("rest.server.max-content-length", "1kb"))


def test_a_body_that_is_too_large_is_not_read(small: Served) -> None:
    small.errors("POST", f"/jobs/{JOB}/savepoints", 413, content=b" " * 2000)


def test_a_body_that_grows_too_large_is_not_read_on(small: Served) -> None:
    small.errors("POST", f"/jobs/{JOB}/savepoints", 413, content=iter([b" " * 600] * 3))


def test_a_get_with_a_body_is_answered_and_the_connection_goes_on(served: Served) -> None:
    for _ in range(3):  # as Flink's own client sends them
        assert served.client.request("GET", "/v1/jobs/overview", content=b"{}").status_code == 200


def test_bytes_that_are_no_http_do_not_stop_the_server(served: Served) -> None:
    with socket.create_connection(("localhost", served.server.port)) as connection:
        connection.sendall(b"\x16\x03\x01\x00 not http\r\n\r\n")
        connection.recv(1000)

    assert served.client.get("/overview").status_code == 200


def test_a_fault_in_a_handler_is_two_messages_and_the_server_goes_on(served: Served) -> None:
    served.tells(None)  # type: ignore[arg-type]  # a monitor that is broken

    first, second = served.errors("GET", f"/jobs/{JOB}", 500)

    assert first == "Internal server error."
    assert second.startswith("<Exception on server side:\n")
    assert second.endswith("\nEnd of exception on server side>")
    assert served.client.get("/config").status_code == 200


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (StateAccessError("no such state"), 404),
        (UsageError("no"), 400),
        (CheckpointNotFoundError("none"), 404),
        (CheckpointDamagedError("bad"), 409),
        (SlotLostError("gone"), 503),
        (CheckdamError("else"), 409),
    ],
)
def test_our_own_errors_have_a_status(error: CheckdamError, status: int) -> None:
    assert status_of(error) == status
