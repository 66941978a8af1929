"""The client against a server of a few lines, which answers as it is told and remembers what it was asked."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from checkdam.client import StateClient
from checkdam.client.rest_client import RestClient, segment, url_of
from checkdam.errors import RequestRefusedError, ServerUnreachableError, UsageError

DROPPED: tuple[int, Any] = (0, None)  # the connection ends without an answer


class Scripted(ThreadingHTTPServer):
    """Gives its answers one after the other; the last one again and again."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[tuple[int, Any]] = [(200, {})]
        self.asked: list[tuple[str, str, Any, dict[str, str]]] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Scripted

    def _answer(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append((self.command, self.path, json.loads(content) if content else None, headers))
        answers = self.server.answers
        status, body = answers.pop(0) if len(answers) > 1 else answers[0]
        if status == 0:
            self.close_connection = True
            return
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = _answer  # noqa: N815  http.server's names

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[Scripted]:
    with Scripted() as scripted:
        thread = threading.Thread(target=scripted.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield scripted
        scripted.shutdown()
        thread.join()


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def client(server: Scripted, pauses: list[float]) -> RestClient:
    return RestClient(server.address, token="secret", pause=pauses.append)


def test_a_read_carries_the_token_and_its_query(server: Scripted, client: RestClient) -> None:
    server.answers = [(200, [{"id": "a"}])]

    assert client.get("/jobs", get="a,b") == [{"id": "a"}]

    ((method, path, body, headers),) = server.asked
    assert (method, path, body) == ("GET", "/jobs?get=a%2Cb", None)
    assert headers["authorization"] == "Bearer secret"


def test_without_a_token_none_is_sent(server: Scripted) -> None:
    RestClient(f"http://{server.address}/").get("/jobs")

    assert "authorization" not in server.asked[0][3]


@pytest.mark.parametrize("trouble", [DROPPED, (503, {"errors": ["not ready"]})])
def test_work_is_started_under_one_id_however_often_it_must_be_sent(
    server: Scripted, client: RestClient, trouble: tuple[int, Any]
) -> None:
    server.answers = [trouble, trouble, (202, {"request-id": "r"})]

    assert client.trigger("/jobs/1/savepoints", {"target-directory": None, "cancel-job": False}) == "r"

    bodies = [body for _, _, body, _ in server.asked]
    assert len(bodies) == 3
    assert len({body["triggerId"] for body in bodies}) == 1
    assert len(bodies[0]["triggerId"]) == 32
    assert "target-directory" not in bodies[0]


@pytest.mark.parametrize("call", ["post", "patch"])
def test_what_must_not_happen_twice_is_sent_once(server: Scripted, client: RestClient, call: str) -> None:
    server.answers = [DROPPED, (200, {})]

    with pytest.raises(ServerUnreachableError, match="no answer from"):
        client.post("/x", {}) if call == "post" else client.patch("/x")

    assert len(server.asked) == 1


def test_trouble_that_stays_is_told(server: Scripted, client: RestClient) -> None:
    server.answers = [(503, {"errors": ["not ready"]})]

    with pytest.raises(RequestRefusedError, match="not ready") as caught:
        client.get("/jobs")

    assert caught.value.status == 503


def test_waiting_asks_ever_less_often_until_the_work_ends(
    server: Scripted, client: RestClient, pauses: list[float]
) -> None:
    progress = {"status": {"id": "IN_PROGRESS"}, "operation": None}
    done = {"status": {"id": "COMPLETED"}, "operation": {"location": "/sp"}}
    server.answers = [*[(200, progress)] * 10, (200, done)]
    told = []

    assert client.wait("/jobs/1/savepoints/2", on_poll=lambda: told.append(1)) == {"location": "/sp"}

    assert pauses == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.0, 2.0]
    assert len(told) == 10


@pytest.mark.parametrize("name", ["failure-cause", "failureCause"])
@pytest.mark.parametrize(
    ("cause", "told"),
    [
        ({"class": "a.E", "stack-trace": "a.E: no\n\tat x", "message": "it cannot. Mend it."}, "it cannot. Mend it."),
        ({"class": "a.E", "stack-trace": "a.E: no\n\tat x"}, "a.E: no"),
        ({"class": "a.E", "stack-trace": ""}, "a.E"),
    ],
)
def test_work_that_failed_is_an_error_though_it_is_completed(
    server: Scripted, client: RestClient, name: str, cause: dict[str, str], told: str
) -> None:
    server.answers = [(200, {"status": {"id": "COMPLETED"}, "operation": {name: cause}})]

    with pytest.raises(RequestRefusedError) as caught:
        client.wait("/x")

    assert str(caught.value) == told


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((404, {"errors": ["Job 1 not found\n\tat somewhere"]}), "Job 1 not found"),
        (
            (500, {"errors": ["Internal server error.", "<Exception on server side:\nE: no\n\nEnd of exception …>"]}),
            "Internal server error: E: no",
        ),
        ((500, {}), "the server answered with status 500 and gave no reason"),
        ((404, b"<html>"), "is not a Checkdam server: its answer is not JSON"),
        ((200, "text"), "the server answered with status 200 and gave no reason"),
    ],
)
def test_a_refusal_is_told_in_the_servers_words(
    server: Scripted, client: RestClient, answer: tuple[int, Any], told: str
) -> None:
    server.answers = [answer]

    with pytest.raises(RequestRefusedError) as caught:
        client.get("/x")

    assert told in str(caught.value)
    assert caught.value.status == answer[0]


def test_nobody_there_is_told_at_once(pauses: list[float]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"

    with pytest.raises(ServerUnreachableError, match=f"no answer from http://{address}: connection refused"):
        RestClient(address, pause=pauses.append).get("/jobs")

    assert pauses == []


def test_a_proxy_of_the_environment_is_not_used(
    server: Scripted, client: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    assert client.get("/jobs") == {}


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("localhost:8081", "http://localhost:8081"),
        ("[::1]:8081", "http://[::1]:8081"),
        ("https://host/prefix/", "https://host/prefix"),
    ],
)
def test_an_address_is_a_host_and_a_port_or_a_url(address: str, url: str) -> None:
    assert url_of(address) == url


@pytest.mark.parametrize(
    "address", ["", "localhost", "8081", "host:port", "host:0", "ftp://host:1", "host:99999", ":1"]
)
def test_anything_else_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(UsageError, match=r"is not the address of a server\. Write host:port, such as localhost:8081"):
        url_of(address)


def test_a_name_is_one_segment_of_a_path() -> None:
    assert segment("a/b c?") == "a%2Fb%20c%3F"


@pytest.mark.parametrize("token", ["two\nlines", "schlüssel"])
def test_a_token_that_cannot_be_sent_is_refused_before_anything_is(token: str) -> None:
    with pytest.raises(UsageError, match="token"):
        RestClient("localhost:1", token=token)


def test_a_name_means_the_running_job_that_has_it(server: Scripted) -> None:
    jobs = [
        {"jid": digit * 32, "name": "words", "state": state} for digit, state in (("a", "CANCELED"), ("b", "RUNNING"))
    ]
    server.answers = [(200, {"jobs": jobs}), (200, {"operators": []})]

    with StateClient(server.address) as client:
        client.states("words")

    assert [path for _, path, _, _ in server.asked] == ["/jobs/overview", f"/jobs/{'b' * 32}/state"]


def test_a_name_that_two_running_jobs_have_is_refused(server: Scripted) -> None:
    server.answers = [(200, {"jobs": [{"jid": digit * 32, "name": "words", "state": "RUNNING"} for digit in "ab"]})]

    with StateClient(server.address) as client, pytest.raises(RequestRefusedError, match="2 jobs are called"):
        client.states("words")


def test_a_missing_token_is_asked_for_after_one_full_stop(client: RestClient, server: Scripted) -> None:
    server.answers = [(401, {"errors": ["Unauthorized: this server needs its token."]})]

    with pytest.raises(RequestRefusedError) as caught:
        client.get("/jobs")

    assert str(caught.value).startswith("Unauthorized: this server needs its token. Give the server's token: --token")
