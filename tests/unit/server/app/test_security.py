from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.unit.server.made_jobs import JOB
from tests.unit.server.serving import Served, serving

from checkdam.config import Configuration
from checkdam.errors import ConfigError
from checkdam.server.app.http_errors import RestError
from checkdam.server.app.rest_server import RestServer
from checkdam.server.app.security import Guard, rest_token

TOKEN = "a-secret-of-the-operators"


@pytest.fixture(scope="module")
def guarded_server() -> Iterator[Served]:
    yield from serving(Configuration().with_value("rest.auth.token", TOKEN))


@pytest.fixture
def guarded(guarded_server: Served) -> Served:
    return guarded_server.renew()


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_listening_to_other_machines_without_a_token_is_refused(address: str) -> None:
    configuration = Configuration().with_value("rest.bind-address", address).with_value("rest.port", 0)
    server = RestServer(configuration)

    with pytest.raises(ConfigError, match=r"rest\.auth\.token"):
        server.start()

    assert server.port == 0


@pytest.mark.parametrize("token", ["", "  "])
def test_a_blank_token_is_none(token: str) -> None:
    with pytest.raises(ConfigError, match=r"rest\.auth\.token"):
        Configuration().with_value("rest.auth.token", token)


def test_a_token_that_no_client_could_send_is_refused() -> None:
    configuration = Configuration().with_value("rest.port", 0)
    server = RestServer(configuration.with_value("rest.auth.token", "schlüssel"))

    with pytest.raises(ConfigError, match=r"rest\.auth\.token"):
        server.start()

    assert server.port == 0


def test_an_address_nobody_knows_is_refused() -> None:
    server = RestServer(Configuration().with_value("rest.bind-address", "no-such-machine.invalid"))

    with pytest.raises(ConfigError, match="cannot be resolved"):
        server.start()


def test_with_a_token_it_listens_to_other_machines() -> None:
    configuration = Configuration().with_value("rest.bind-address", "0.0.0.0").with_value("rest.port", 0)
    with RestServer(configuration.with_value("rest.auth.token", TOKEN)) as server:
        answer = httpx.get(f"{server.url}/overview", headers={"Authorization": f"Bearer {TOKEN}"})

    assert answer.status_code == 200


@pytest.mark.parametrize("header", [None, "Bearer wrong", f"Basic {TOKEN}", TOKEN, "Bearer", "Bearer é"])
@pytest.mark.parametrize("path", ["/overview", f"/jobs/{JOB}/yarn-cancel", "/no/such/path", "/openapi.json"])
def test_every_request_needs_the_token(guarded: Served, header: str | None, path: str) -> None:
    headers = {} if header is None else {"Authorization": header.encode()}

    messages = guarded.errors("GET", path, 401, headers=headers)

    assert messages == ['Unauthorized: this server needs its token, sent as "Authorization: Bearer <token>".']
    assert guarded.control.asked == []


def test_the_token_opens(guarded: Served) -> None:
    answer = guarded.client.get("/overview", headers={"Authorization": f"bearer {TOKEN}"})

    assert answer.status_code == 200


def test_a_browser_shows_the_token_once_and_gets_a_cookie_that_scripts_cannot_read(guarded: Served) -> None:
    answer = guarded.client.get("/jobs/overview", params={"a": "b", "token": TOKEN})

    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs/overview?a=b")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert TOKEN not in cookie
    name, _, value = cookie.partition(";")[0].partition("=")
    assert guarded.client.get("/overview", headers={"Cookie": f"{name}={value}"}).status_code == 200


def test_a_wrong_token_in_the_address_is_refused(guarded: Served) -> None:
    guarded.errors("GET", "/overview?token=guess", 401)


def test_a_parameter_whose_name_ends_in_token_is_no_token(guarded: Served) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}

    assert guarded.client.get("/overview?next_token=5", headers=headers).status_code == 200
    guarded.errors("GET", "/overview?next_token=5", 401)


@pytest.mark.parametrize("start", ["//", "/\\", "/\\/"])
def test_the_way_in_leads_nowhere_else(guarded: Served, start: str) -> None:
    with httpx.Client() as client:
        answer = client.send(
            client.build_request(
                "GET",
                f"http://localhost:{guarded.server.port}",
                extensions={"target": f"{start}evil.example/?token={TOKEN}".encode()},
            )
        )

    assert answer.headers["location"] == "/evil.example/"


@pytest.mark.parametrize(
    "path", ["/ui/../jobs/overview", "/ui/%2e%2e/jobs/overview", "/ui//jobs/overview", "//jobs/overview", "/ui"]
)
def test_nothing_but_the_page_is_open_however_a_path_is_written(guarded: Served, path: str) -> None:
    answer = guarded.client.send(
        guarded.client.build_request(
            "GET", f"http://localhost:{guarded.server.port}", extensions={"target": path.encode()}
        )
    )

    assert answer.status_code in (401, 404)
    assert JOB not in answer.text


def test_without_a_token_setting_the_word_token_in_an_address_means_nothing(served: Served) -> None:
    assert served.client.get("/overview?token=x").status_code == 200


@pytest.mark.parametrize("host", ["localhost", "localhost:99", "127.0.0.1:8081", "[::1]:8081", "LOCALHOST:1"])
def test_the_servers_own_names_are_taken(served: Served, host: str) -> None:
    assert served.client.get("/overview", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:8081", "10.0.0.1", "169.254.169.254"])
def test_a_name_that_only_resolves_to_this_machine_is_refused(served: Served, host: str) -> None:
    messages = served.errors("GET", "/jobs", 403, headers={"Host": host})

    assert "is not a name of this server" in messages[0]


@pytest.mark.parametrize("host", ["", "a b", "user@localhost", "localhost/x", "[::1"])
def test_a_malformed_host_is_refused(host: str) -> None:
    with pytest.raises(RestError) as refused:
        Guard().check_host({"host": host})

    assert refused.value.status == 400


def test_listening_on_all_addresses_any_of_them_in_figures_is_a_name_but_not_any_word() -> None:
    guard = Guard.of("0.0.0.0", 8081, TOKEN, "jobs.example")

    guard.check_host({"host": "10.1.2.3:8081"})
    guard.check_host({"host": "jobs.example"})
    with pytest.raises(RestError):
        guard.check_host({"host": "evil.example"})


WRITES = [
    ("PATCH", f"/jobs/{JOB}"),
    ("GET", f"/jobs/{JOB}/yarn-cancel"),
    ("GET", f"/v1/jobs/{JOB}/yarn-stop"),
    ("POST", f"/jobs/{JOB}/stop"),
    ("POST", f"/jobs/{JOB}/savepoints"),
    ("POST", f"/jobs/{JOB}/checkpoints"),
    ("PATCH", f"/jobs/{JOB}/rescaling?parallelism=3"),
    ("PUT", f"/jobs/{JOB}/resource-requirements"),
    ("POST", "/savepoint-disposal"),
]


@pytest.mark.parametrize(("method", "path"), WRITES)
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Referer": "https://evil.example/page"},
    ],
    ids=str,
)
def test_pages_of_other_origins_change_nothing(served: Served, method: str, path: str, headers: dict[str, str]) -> None:
    served.errors(method, path, 403, headers=headers)

    assert served.control.asked == []
    assert served.disposed == []


def test_the_servers_own_page_may_change_things(served: Served) -> None:
    own = {"Origin": f"http://localhost:{served.server.port}", "Sec-Fetch-Site": "same-origin"}

    assert served.client.patch(f"/jobs/{JOB}", headers=own).status_code == 202
    assert served.control.asked == [("cancel",)]


def test_reads_of_other_sites_are_answered_without_leave_to_look(served: Served) -> None:
    answer = served.client.get("/jobs", headers={"Origin": "https://evil.example"})

    assert "access-control-allow-origin" not in answer.headers


def test_leave_is_given_for_reads_alone_and_only_where_it_is_set() -> None:
    for served in serving(Configuration().with_value("web.access-control-allow-origin", "https://dash.example")):
        read = served.client.get("/jobs")
        write = served.client.patch(f"/jobs/{JOB}")

        assert read.headers["access-control-allow-origin"] == "https://dash.example"
        assert "access-control-allow-origin" not in write.headers


def test_no_other_page_may_frame_this_one(served: Served) -> None:
    headers = served.client.get("/overview").headers

    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"


def test_the_token_can_be_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\nand a note\n")
    file.chmod(0o600)
    configuration = Configuration().with_value("rest.auth.token-file", str(file)).with_value("rest.port", 0)

    with RestServer(configuration) as server:
        asked = [
            httpx.get(f"{server.url}/overview", headers={"Authorization": f"Bearer {token}"}).status_code
            for token in (TOKEN, "wrong")
        ]

    assert asked == [200, 401]


def test_a_token_that_is_set_goes_before_the_file(tmp_path: Path) -> None:
    configuration = Configuration().with_value("rest.auth.token-file", str(tmp_path / "none"))

    assert rest_token(configuration.with_value("rest.auth.token", TOKEN)) == TOKEN
    assert rest_token(Configuration()) is None


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "No such file"), (b"", "is empty"), (b"  \nx", "is empty"), (b"\xff\n", "not text")]
)
def test_a_file_without_a_token_is_refused(tmp_path: Path, content: bytes | None, reason: str) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(ConfigError, match=reason):
        rest_token(Configuration().with_value("rest.auth.token-file", str(file)))


def test_a_token_file_that_others_can_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    configuration = Configuration().with_value("rest.auth.token-file", str(file))

    file.chmod(0o640)
    assert rest_token(configuration) == TOKEN
    assert "chmod 600" in caplog.text
    caplog.clear()
    file.chmod(0o600)
    rest_token(configuration)
    assert caplog.text == ""
