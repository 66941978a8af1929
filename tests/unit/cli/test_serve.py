"""`checkdam serve`, and what `checkdam run` and it have in common."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Terminal

from checkdam.cli.job_server import Hosting
from checkdam.client.rest_client import RestClient
from checkdam.config import Configuration
from checkdam.errors import ConfigError
from checkdam.server.app.rest_server import RestServer
from checkdam.server.catalog import registry

JOB = "4fa1" + "0" * 28


def test_the_page_and_the_api_share_a_port(terminal: Terminal) -> None:
    terminal.job()
    client = RestClient(terminal.hosts[0].url)

    assert [job["id"] for job in client.get("/jobs")["jobs"]] == [JOB]
    assert client.get("/v1/overview")["jobs-running"] == 1
    assert client.get("/openapi.json")["openapi"]


def test_a_server_can_be_found_while_it_serves_and_not_after(terminal: Terminal) -> None:
    with Hosting(Configuration.load(None, {"rest.port": "0", "rest.auth.token": "secret"})) as host:
        (found,) = registry.servers()
        assert (found.url, found.token) == (host.url, "secret")

    assert registry.servers() == []


def test_jobs_that_ended_where_a_running_job_keeps_its_checkpoints_are_served_too(terminal: Terminal) -> None:
    terminal.job("before", "b" * 32)
    terminal.checkdam("checkpoint", "before")
    terminal.checkdam("cancel", "before")
    terminal.stack.close()
    terminal.job()

    jobs = terminal.checkdam("list", "-a", "--json").json["jobs"]

    assert {job["name"]: job["state"] for job in jobs} == {"before": "CANCELED", "words": "RUNNING"}


def test_an_address_that_others_can_reach_is_refused_without_a_token(terminal: Terminal) -> None:
    with (
        pytest.raises(ConfigError, match=r"rest\.auth\.token"),
        Hosting(Configuration.load(None, {"rest.bind-address": "0.0.0.0"})),
    ):
        pass

    assert registry.servers() == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_shows_jobs_that_ended_until_it_is_told_to_end(terminal: Terminal, tmp_path: Path, number: int) -> None:
    terminal.job()
    terminal.checkdam("checkpoint", "words")
    terminal.checkdam("cancel", "words")
    command = [sys.executable, "-m", "checkdam.cli", "serve", "--dir", "checkpoints", "--port", "0"]
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        url = line.removeprefix("web page and REST: ").partition(" ")[0]

        jobs = terminal.checkdam("list", "-a", "--json", "-m", url).json["jobs"]
        kept = terminal.checkdam("list", "--checkpoints", "words", "-m", url, "--json").json["checkpoints"]
        process.send_signal(number)

    assert process.returncode == 0
    assert [(job["name"], job["jid"]) for job in jobs] == [("words", JOB)]
    assert [each["id"] for each in kept] == [1]


@pytest.mark.parametrize(
    ("words", "told", "code"),
    [
        (["--dir", "nowhere"], 'there is nothing in "nowhere"', 1),
        (["--dir", ".", "--port", "x"], '"rest.port"', 2),
    ],
)
def test_serve_refuses_what_it_could_not_show(terminal: Terminal, words: list[str], told: str, code: int) -> None:
    Path("file").write_text("something")

    ended = terminal.checkdam("serve", *words)

    assert ended.code == code
    assert told in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_server_whose_end_is_cut_short_is_no_longer_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "checkdam-me" / "servers"
    host = Hosting(Configuration.load(None, {"rest.port": "0"}), registry_directory=directory)
    host.start()

    def interrupted(server: RestServer) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RestServer, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            host.close()

    assert list(registry.servers(directory)) == []
    host.close()
