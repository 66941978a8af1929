"""One server for all jobs of this user: it finds them, speaks for their drivers, and outlives them."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
from tests.support.waiting import poll
from tests.unit.cli.conftest import EPOCHS, Terminal, count_words

from checkdam.cli.job_server import Hosting
from checkdam.cli.remote import Remote, wait_for_end
from checkdam.cli.serve import find_jobs
from checkdam.client import StateClient
from checkdam.config import Configuration
from checkdam.ids import JobId
from checkdam.runtime.job import Job
from checkdam.runtime.job_control import WatchedJob
from checkdam.runtime.monitor.job_events import JobListener
from checkdam.server.app import forwarding
from checkdam.server.catalog import registry
from checkdam.testing.local_job import LocalJob

pytestmark = pytest.mark.slow

FIRST, SECOND, THIRD, NOBODY = "4fa1" + "0" * 28, "4fa2" + "0" * 28, "4fa3" + "0" * 28, "d" * 32


class Standing:
    """A standing server, and a client of it."""

    def __init__(self, host: Hosting | None, client: httpx.Client) -> None:
        self._host, self.client = host, client

    @property
    def host(self) -> Hosting:
        assert self._host is not None, "it is another process"
        return self._host

    def get(self, path: str, **query: Any) -> Any:
        answer = self.client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def states(self) -> dict[str, str]:
        return {job["name"]: job["state"] for job in self.get("/jobs/overview")["jobs"]}

    def operation(self, path: str, **body: Any) -> dict[str, Any]:
        answer = self.client.post(path, json=body)
        assert answer.is_success, answer.text
        status = f"{path.replace('/stop', '/savepoints')}/{answer.json()['request-id']}"
        poll(lambda: self.get(status)["status"]["id"] == "COMPLETED")
        return dict(self.get(status)["operation"])


@contextmanager
def _standing(**settings: str) -> Iterator[Standing]:
    given = Configuration.load(None, {"rest.port": "0", **settings})
    with Hosting(given, is_standing=True) as host, httpx.Client(base_url=host.url, timeout=30) as client:
        host.find_jobs()
        yield Standing(host, client)


@pytest.fixture
def standing(terminal: Terminal) -> Iterator[Standing]:
    """Two jobs, each with a server of its own, and one server for both."""
    terminal.job("one", FIRST)
    terminal.job("two", SECOND)
    with _standing() as server:
        yield server


def test_running_jobs_are_found_and_shown_on_one_page(standing: Standing) -> None:
    jobs = standing.get("/jobs/overview")["jobs"]

    assert {(job["jid"], job["name"], job["state"]) for job in jobs} == {
        (FIRST, "one", "RUNNING"),
        (SECOND, "two", "RUNNING"),
    }
    assert {job["id"] for job in standing.get("/jobs")["jobs"]} == {FIRST, SECOND}
    overview = standing.get("/overview")
    assert (overview["jobs-running"], overview["taskmanagers"], overview["slots-total"]) == (2, 4, 4)
    assert standing.client.get("/").status_code == 200


def test_a_job_that_starts_later_is_found_too(terminal: Terminal) -> None:
    with _standing() as standing:
        assert standing.states() == {}

        terminal.job("one", FIRST)

        poll(lambda: standing.states() == {"one": "RUNNING"})


def test_rest_of_a_job_is_that_of_its_own_driver(standing: Standing, terminal: Terminal) -> None:
    with httpx.Client(base_url=terminal.hosts[1].url) as own:
        for path in ("/config", "/plan", "/exceptions", "/checkpoints", "/snapshots", "/state"):
            assert standing.get(f"/jobs/{SECOND}{path}") == own.get(f"/jobs/{SECOND}{path}").json()
        assert standing.get(f"/v1/jobs/{SECOND}")["epoch"] == own.get(f"/jobs/{SECOND}").json()["epoch"] > 0


def test_buttons_reach_the_driver(standing: Standing, terminal: Terminal, tmp_path: Path) -> None:
    taken = standing.operation(f"/jobs/{FIRST}/checkpoints")
    saved = standing.operation(f"/jobs/{FIRST}/savepoints", **{"target-directory": str(tmp_path / "sp")})

    assert taken["checkpointId"] == 1
    assert (Path(saved["location"].removeprefix("file://")) / "_metadata").is_file()
    assert standing.client.patch(f"/jobs/{SECOND}").status_code == 202
    poll(lambda: standing.states()["two"] == "CANCELED")
    assert standing.states()["one"] == "RUNNING"


def test_a_server_with_a_token_lets_no_client_choose_where_a_driver_writes(terminal: Terminal, tmp_path: Path) -> None:
    terminal.job("one", FIRST)
    with _standing(**{"rest.auth.token": "secret"}) as standing:
        standing.client.headers["Authorization"] = "Bearer secret"
        answer = standing.client.post(f"/jobs/{FIRST}/savepoints", json={"target-directory": str(tmp_path / "sp")})

    assert answer.status_code == 403
    assert "state.savepoints.allowed-dirs" in answer.json()["errors"][0]
    assert not (tmp_path / "sp").exists()


def test_live_state_comes_from_the_driver(standing: Standing) -> None:
    with StateClient(standing.host.url) as client:
        assert client.get("two", "counts", "_op_state", "to").value == ["to", 2]
        assert len(client.get_many("two", "counts", "_op_state", ["to", "be", "or"])) == 3


def test_slots_of_all_jobs_are_listed_and_each_can_be_looked_at(standing: Standing) -> None:
    slots = standing.get("/taskmanagers")["taskmanagers"]

    assert sorted((slot["jobId"], slot["subtask"]) for slot in slots) == [
        (FIRST, 0),
        (FIRST, 1),
        (SECOND, 0),
        (SECOND, 1),
    ]
    last = slots[-1]
    assert standing.get(f"/taskmanagers/{last['id']}")["jobId"] in (FIRST, SECOND)
    assert standing.client.get("/taskmanagers/host:1").status_code == 404


def test_one_scrape_has_the_metrics_of_all_jobs(standing: Standing) -> None:
    text = standing.client.get("/metrics").text

    assert 'flink_jobmanager_job_uptime{job_id="' + FIRST in text
    assert 'flink_jobmanager_job_uptime{job_id="' + SECOND in text
    assert text.count("# TYPE flink_jobmanager_job_uptime ") == 1
    assert "\nflink_jobmanager_numRunningJobs 2.0\n" in text


def test_a_job_that_has_ended_stays_and_its_driver_need_not_live(terminal: Terminal) -> None:
    terminal.job("one", FIRST)
    with _standing() as standing:
        standing.operation(f"/jobs/{FIRST}/checkpoints")
        standing.client.patch(f"/jobs/{FIRST}")
        poll(lambda: standing.states() == {"one": "CANCELED"})

        terminal.stack.close()  # the driver and its server end

        poll(lambda: not registry.servers() or all(server.is_standing for server in registry.servers()))
        poll(lambda: standing.states() == {"one": "CANCELED"})
        assert standing.get(f"/jobs/{FIRST}")["state"] == "CANCELED"
        assert [each["ref"] for each in standing.get(f"/jobs/{FIRST}/snapshots")["snapshots"]] == ["chk-1"]
        refused = standing.client.post(f"/jobs/{FIRST}/checkpoints", json={})
        failed = standing.get(f"/jobs/{FIRST}/checkpoints/{refused.json()['request-id']}")["operation"]
        assert "is not running" in failed["failureCause"]["message"]


def test_unknown_jobs_are_not_found_and_odd_ids_are_refused(standing: Standing) -> None:
    assert standing.client.get(f"/jobs/{NOBODY}").status_code == 404
    assert standing.client.patch(f"/jobs/{NOBODY}").status_code == 404
    for odd in ("%2e%2e%2fjobs", FIRST + "0", "x" * 32):
        assert standing.client.get(f"/jobs/{odd}/config").status_code in (400, 404)


# ------------------------------------------------------------------------------------------------------- security


@pytest.mark.parametrize(
    ("headers", "path"),
    [
        ({"Origin": "http://evil.example"}, f"/jobs/{FIRST}"),
        ({"Sec-Fetch-Site": "cross-site"}, f"/jobs/{FIRST}"),
        ({"Host": "evil.example"}, f"/jobs/{FIRST}"),
    ],
)
def test_pages_of_other_sites_reach_no_driver(standing: Standing, headers: dict[str, str], path: str) -> None:
    assert standing.client.patch(path, headers=headers).status_code == 403
    assert standing.client.get(f"{path}/yarn-cancel", headers=headers).status_code == 403
    assert standing.states()["one"] == "RUNNING"


def test_a_job_with_a_token_is_only_shown_by_a_server_with_one(terminal: Terminal) -> None:
    terminal.job("guarded", FIRST, host=terminal.host(rest_auth_token="of-the-job"))

    with _standing() as standing:
        assert standing.states() == {}
        assert standing.client.get(f"/jobs/{FIRST}").status_code == 404
        assert standing.client.patch(f"/jobs/{FIRST}").status_code == 404
        assert [server.url for server in standing.host.find_jobs()] == [terminal.hosts[0].url]


def test_the_token_of_a_job_opens_no_job_with_another(terminal: Terminal) -> None:
    terminal.job("one", FIRST, host=terminal.host(rest_auth_token="of-one"))
    terminal.job("two", SECOND, host=terminal.host(rest_auth_token="of-two"))
    terminal.job("open", THIRD)

    with httpx.Client(base_url=terminal.hosts[0].url, headers={"Authorization": "Bearer of-one"}) as client:
        assert client.get(f"/jobs/{FIRST}/plan").status_code == 200
        refused = [client.patch(f"/jobs/{job_id}").status_code for job_id in (SECOND, THIRD)]
        states = [client.get(f"/jobs/{job_id}/state").status_code for job_id in (SECOND, THIRD)]

    assert {*refused, *states} <= {404, 409}


def test_the_jobs_token_is_used_by_a_server_with_a_token_and_seen_by_nobody(
    terminal: Terminal, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    terminal.job("guarded", FIRST, host=terminal.host(rest_auth_token="of-the-job"))

    with _standing(**{"rest.auth.token": "of-the-server"}) as standing:
        assert standing.client.get(f"/jobs/{FIRST}").status_code == 401
        assert standing.client.get(f"/jobs/{FIRST}", headers={"Authorization": "Bearer of-the-job"}).status_code == 401
        standing.client.headers["Authorization"] = "Bearer of-the-server"
        answers = [
            standing.client.get(f"/jobs/{FIRST}{path}") for path in ("", "/config", "/checkpoints", "/vertices/x")
        ]
        answers.append(standing.client.get("/jobs/overview"))

    assert [answer.status_code for answer in answers] == [200, 200, 200, 400, 200]
    for answer in answers:
        assert "of-the-job" not in answer.text + str(answer.headers)
        assert "set-cookie" not in answer.headers
    assert "of-the-job" not in caplog.text


class Recorded(BaseHTTPRequestHandler):
    """A driver made by hand, which notes what it is sent."""

    url: str
    seen: ClassVar[list[tuple[str, str, dict[str, str], bytes]]]
    answer = b'{"request-id": "1"}'
    may_answer: threading.Event
    breaks_off = False

    def do_GET(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.seen.append((self.command, self.path, headers, self.rfile.read(length)))
        self.may_answer.wait(30)
        if self.breaks_off:
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Set-Cookie", "stolen=1")
        self.send_header("Access-Control-Allow-Origin", "*")
        self.end_headers()
        self.wfile.write(self.answer)

    do_POST = do_PATCH = do_GET  # noqa: N815  the names that http.server calls

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def recorded(terminal: Terminal, request: pytest.FixtureRequest) -> Iterator[type[Recorded]]:
    token = getattr(request, "param", None)

    class Handler(Recorded):
        seen: ClassVar = []
        may_answer = threading.Event()

    Handler.may_answer.set()
    server = ThreadingHTTPServer(("localhost", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Handler.url = f"http://localhost:{server.server_port}"
    registration = registry.register(Handler.url, token)
    registration.runs(JobId(THIRD))
    yield Handler
    registration.close()
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("recorded", ["of-the-job"], indirect=True)
def test_what_is_forwarded_is_the_request_and_no_header_that_was_meant_for_this_server(
    recorded: type[Recorded],
) -> None:
    headers = {
        "Authorization": "Bearer of-the-server",
        "Cookie": "checkdam-1=session",
        "X-Forwarded-For": "1.2.3.4",
    }
    with _standing(**{"rest.auth.token": "of-the-server"}) as standing:
        answer = standing.client.post(f"/v1/jobs/{THIRD}/savepoints?x=%20y", headers=headers, json={"cancel-job": True})

    (method, path, sent, body) = recorded.seen[-1]
    assert (method, path, body) == ("POST", f"/v1/jobs/{THIRD}/savepoints?x=%20y", b'{"cancel-job":true}')
    assert sent["authorization"] == "Bearer of-the-job"
    assert sent.keys() <= {
        "host",
        "accept",
        "accept-encoding",
        "content-type",
        "content-length",
        "authorization",
        "checkdam-forwarded",
        "checkdam-guarded",
    }
    assert "checkdam-guarded" in sent
    assert sent["host"].startswith("localhost:")
    assert answer.json() == {"request-id": "1"}
    assert "set-cookie" not in answer.headers
    assert "access-control-allow-origin" not in answer.headers


def test_a_savepoint_through_a_server_with_a_token_stays_within_the_places_of_the_job(
    terminal: Terminal, tmp_path: Path
) -> None:
    terminal.job("one", FIRST)
    with _standing(**{"rest.auth.token": "t"}) as standing:
        standing.client.headers["Authorization"] = "Bearer t"
        answer = standing.client.post(f"/jobs/{FIRST}/savepoints", json={"target-directory": str(tmp_path / "any")})

    assert answer.status_code == 403, answer.text
    assert not (tmp_path / "any").exists()


def test_a_request_is_forwarded_once(recorded: type[Recorded]) -> None:
    with _standing() as standing:
        answer = standing.client.get(f"/jobs/{THIRD}", headers={"Checkdam-Forwarded": "1"})

    assert answer.status_code == 404
    assert [path for _, path, _, _ in recorded.seen if path == f"/jobs/{THIRD}"] == []


def test_an_answer_that_is_too_large_is_refused(recorded: type[Recorded], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "answer", b"x" * 100_000)
    monkeypatch.setattr(forwarding, "MOST_BYTES", 10_000)
    with _standing() as standing:
        answer = standing.client.get(f"/jobs/{THIRD}")

    assert answer.status_code == 502
    assert "larger than 10000 bytes" in answer.text


def test_a_driver_that_hangs_blocks_no_other(
    recorded: type[Recorded], standing: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "MOST_AT_ONCE", 2)
    recorded.may_answer.clear()
    with ThreadPoolExecutor(2) as beside:
        waiting = [beside.submit(standing.client.get, f"/jobs/{THIRD}") for _ in range(2)]
        poll(lambda: len([each for each in recorded.seen if each[1] == f"/jobs/{THIRD}"]) == 2)

        refused = standing.client.get(f"/jobs/{THIRD}")
        states = standing.states()
        other = standing.get(f"/jobs/{SECOND}")
        recorded.may_answer.set()

    assert refused.status_code == 503
    assert "2 requests wait" in refused.text
    assert (states["one"], states["two"], other["state"]) == ("RUNNING", "RUNNING", "RUNNING")
    assert [each.result().status_code for each in waiting] == [200, 200]


def test_what_a_driver_may_have_done_before_it_broke_off_is_not_answered_as_undone(
    recorded: type[Recorded], standing: Standing
) -> None:
    recorded.breaks_off = True

    read, written = standing.client.get(f"/jobs/{THIRD}"), standing.client.patch(f"/jobs/{THIRD}")

    assert (read.status_code, written.status_code) == (404, 503)  # the archive knows nothing of this job
    assert "does not answer" in written.text


@pytest.mark.parametrize("is_in_memory", [False, True])
def test_a_job_waits_for_a_standing_server_only_if_that_can_know_it(
    recorded: type[Recorded], terminal: Terminal, is_in_memory: bool
) -> None:
    place = "memory://jobmanager" if is_in_memory else str(terminal.directory)
    registry.register(recorded.url, None, is_standing=True)

    with Hosting(Configuration.load(None, {"rest.port": "0"})) as host:

        def watchers(job: Job, monitor: WatchedJob) -> Sequence[JobListener]:
            return host.watchers(replace(job, checkpoints=replace(job.checkpoints, storage=place)), monitor)

        LocalJob(count_words, EPOCHS, None, host=host, watchers=watchers, job_id=JobId(FIRST)).run()

    asked = [path for _, path, _, _ in recorded.seen if path == f"/jobs/{FIRST}/status"]
    assert len(asked) == (0 if is_in_memory else 1)
    assert (host.page_afterwards(JobId(FIRST)) is None) == is_in_memory


# ------------------------------------------------------------------------------------------------ the command line


def test_commands_still_find_each_job_at_its_own_driver(standing: Standing, terminal: Terminal) -> None:
    jobs = terminal.checkdam("list", "--json").json["jobs"]

    assert {job["name"]: job["where"] for job in jobs} == {
        "one": terminal.hosts[0].url,
        "two": terminal.hosts[1].url,
    }
    assert terminal.checkdam("checkpoint", "two").code == 0
    assert terminal.checkdam("checkpoint", "two", "-m", standing.host.url).code == 0


def test_the_end_of_a_job_without_an_archive_is_no_error(terminal: Terminal) -> None:
    job = terminal.job("one", FIRST, stored=False)
    with _standing() as standing:
        found = Remote(Configuration(), standing.host.url).find("one")
        job.control.cancel()
        terminal.stack.close()  # the driver and its server end
        poll(lambda: standing.client.get(f"/jobs/{FIRST}/status").status_code == 404)

        assert wait_for_end(found) is None


def test_a_server_without_a_token_says_which_jobs_it_does_not_show(
    terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal.job("guarded", FIRST, host=terminal.host(rest_auth_token="of-the-job"))
    ended = threading.Event()
    ended.set()

    with _standing() as standing:
        find_jobs(standing.host, ended)

    said = capsys.readouterr().err
    assert f"the jobs at {terminal.hosts[0].url} are not shown: they need a token" in said
    assert "rest.auth.token-file" in said


# ------------------------------------------------------------------------------------------- processes of their own

PROGRAM = """
import sys
from checkdam import NoRestart, StreamExecutionEnvironment
from checkdam.testing import Gate
from checkdam.testing.local_target import LocalTarget

def fail_if_told(pair):
    if "fails" in sys.argv:
        raise ValueError("a bad record")
    return pair

env = StreamExecutionEnvironment.get_execution_environment({"state.checkpoints.dir": sys.argv[1]})
env.set_restart_strategy(NoRestart())
env._launch.target = LocalTarget(until=Gate())
words = env.from_collection([("a", 1), ("b", 1), ("a", 1)]).key_by(0).sum(1).uid("count")
words.map(fail_if_told, output_type=tuple[str, int]).print()
env.execute(sys.argv[1])
"""


class Commands:
    """Runs commands in processes of their own, with a registry of their own."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        (directory / "job.py").write_text(PROGRAM)
        self._directory, self._stack = directory, stack

    def start(self, *words: str) -> tuple[subprocess.Popen[str], Path]:
        """Start a command; return it, and the file that its standard error goes to."""
        said = self._directory / f"{'-'.join(words[:4]).replace('/', '_')}.err"
        process = self._stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", "checkdam.cli", *words],
                cwd=self._directory,
                stdout=subprocess.DEVNULL,
                stderr=self._stack.enter_context(said.open("w")),
                env={**os.environ, "TMPDIR": str(self._directory)},
                text=True,
            )
        )
        self._stack.callback(process.kill)
        return process, said

    def run(self, name: str, *words: str) -> tuple[subprocess.Popen[str], Path]:
        return self.start("run", "--port", "0", "job.py", "--", name, *words)


def _has_epoch(standing: Standing, job_id: str) -> bool:
    return bool(standing.get(f"/jobs/{job_id}")["epoch"] >= 0)


def test_one_server_for_drivers_in_processes_of_their_own_which_it_outlives(tmp_path: Path) -> None:
    with ExitStack() as stack:
        commands = Commands(tmp_path, stack)
        serve, said = commands.start("serve", "--port", "0")
        poll(lambda: "REST: http" in said.read_text())
        url = said.read_text().split()[4]
        client = stack.enter_context(httpx.Client(base_url=url, timeout=30))
        standing = Standing(None, client)
        killed, _ = commands.run("killed")
        cancelled, _ = commands.run("cancelled")
        poll(lambda: standing.states() == {"killed": "RUNNING", "cancelled": "RUNNING"}, lambda: str(standing.states()))
        ids = {job["name"]: job["jid"] for job in standing.get("/jobs/overview")["jobs"]}

        for job_id in ids.values():
            poll(partial(_has_epoch, standing, job_id))
            assert "checkpointId" in standing.operation(f"/jobs/{job_id}/checkpoints")
        killed.kill()
        assert client.patch(f"/jobs/{ids['cancelled']}").status_code == 202
        assert cancelled.wait(60) == 130
        failed, last_words = commands.run("failed", "fails")
        assert failed.wait(60) == 1

        poll(
            lambda: standing.states() == {"killed": "SUSPENDED", "cancelled": "CANCELED", "failed": "FAILED"},
            lambda: str(standing.states()),
        )
        failed_id = next(job["jid"] for job in standing.get("/jobs/overview")["jobs"] if job["name"] == "failed")
        assert last_words.read_text().splitlines()[-1] == f"the job's page: {url}/#/jobs/{failed_id}"
        assert "a bad record" in str(standing.get(f"/jobs/{failed_id}/exceptions"))
        assert standing.get(f"/jobs/{ids['killed']}/snapshots")["snapshots"]
        serve.send_signal(signal.SIGTERM)
        assert serve.wait(60) == 0
