"""Which job, on which server: found by itself, or by what the user says."""

from __future__ import annotations

import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.unit.cli.conftest import Terminal

from checkdam.cli.remote import Remote, RemoteJob
from checkdam.client.rest_client import RestClient
from checkdam.config import Configuration
from checkdam.ids import JobId
from checkdam.processes import this_process
from checkdam.server.catalog import registry

pytestmark = pytest.mark.slow

FIRST, SECOND = "4fa1" + "0" * 28, "4fa2" + "0" * 28


def test_jobs_of_several_servers_are_found_without_saying_where(terminal: Terminal) -> None:
    terminal.job("one", FIRST)
    terminal.job("two", SECOND)

    assert terminal.checkdam("checkpoint", "one", "--json").json["job"] == FIRST
    assert terminal.checkdam("checkpoint", "two", "--json").json["job"] == SECOND
    assert [job["name"] for job in terminal.checkdam("list", "--json").json["jobs"]] == ["one", "two"]


def test_a_job_is_told_of_by_the_server_it_runs_on_though_others_see_its_checkpoints(terminal: Terminal) -> None:
    for name, job_id in (("one", FIRST), ("two", SECOND)):
        terminal.job(name, job_id).control.trigger_checkpoint().result(60)

    jobs = terminal.checkdam("list", "-a", "--json").json["jobs"]

    assert {job["name"]: job["where"] for job in jobs} == {"one": terminal.hosts[0].url, "two": terminal.hosts[1].url}
    assert {job["state"] for job in jobs} == {"RUNNING"}


def test_what_could_be_two_jobs_is_refused_with_their_ids(terminal: Terminal) -> None:
    host = terminal.host()
    terminal.job("same", FIRST, host=host)
    terminal.job("same", SECOND, host=host)

    for word in ("same", "4fa"):
        ended = terminal.checkdam("cancel", word)
        assert ended.code == 2
        assert ended.err.startswith(f'error: "{word}" matches 2 jobs: ')
        assert FIRST in ended.err
        assert SECOND in ended.err


def test_a_running_job_comes_before_one_of_the_same_name_that_ended(terminal: Terminal) -> None:
    terminal.job("same", FIRST)
    terminal.checkdam("cancel", "same")
    terminal.job("same", SECOND)

    assert terminal.checkdam("checkpoint", "same", "--json").json["job"] == SECOND
    assert terminal.checkdam("checkpoint", "4fa", "--json").json["job"] == SECOND


def test_the_server_named_with_m_is_the_only_one_asked(terminal: Terminal) -> None:
    terminal.job("one", FIRST, stored=False)
    terminal.job("two", SECOND, stored=False)

    for address in (terminal.hosts[1].url, terminal.hosts[1].url.removeprefix("http://")):
        jobs = terminal.checkdam("list", "--json", "-m", address).json["jobs"]
        assert {(job["name"], job["where"]) for job in jobs} == {("two", terminal.hosts[1].url)}


def test_the_token_of_a_server_here_is_known_and_another_must_be_told(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.job(host=terminal.host(rest_auth_token="secret"))
    where = ["-m", terminal.hosts[0].url]

    assert terminal.checkdam("checkpoint", "words").code == 0
    refused = terminal.checkdam("list", *where)
    assert refused.code == 1
    assert "needs its token" in refused.err
    assert "--token" in refused.err
    assert "CHECKDAM_REST_TOKEN" in refused.err
    assert terminal.checkdam("list", *where, "--token", "wrong").code == 1
    assert terminal.checkdam("list", *where, "--token", "secret").code == 0
    assert terminal.checkdam("list", *where, "-D", "rest.auth.token=secret").code == 0
    monkeypatch.setenv("CHECKDAM_REST_TOKEN", "secret")
    assert terminal.checkdam("list", *where).code == 0


def test_without_any_server_the_default_place_is_tried_and_the_failure_says_both(terminal: Terminal) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]

    ended = terminal.checkdam("stop", "words", "-D", f"rest.port={port}")

    assert ended.code == 1
    assert ended.err == (
        f"error: no job is running on this machine, and no answer from http://localhost:{port}: connection refused. "
        "Start a job with checkdam run, or name its server with -m host:port.\n"
    )


def test_a_server_at_the_default_place_is_found_without_a_registry(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.job()
    port = terminal.hosts[0].url.rpartition(":")[2]
    monkeypatch.setattr("checkdam.server.catalog.registry.default_directory", lambda: tmp_path / "none" / "servers")

    assert terminal.checkdam("checkpoint", "words", "-D", f"rest.port={port}").code == 0


def test_the_server_of_m_that_does_not_answer_is_an_error_also_for_a_list(terminal: Terminal) -> None:
    with socket.create_server(("localhost", 0)) as gone:
        port = gone.getsockname()[1]

    ended = terminal.checkdam("list", "-m", f"localhost:{port}")

    assert ended.code == 1
    assert f"no answer from http://localhost:{port}" in ended.err


def test_a_server_that_does_not_answer_is_warned_of_while_others_do(terminal: Terminal) -> None:
    terminal.job()
    with socket.create_server(("localhost", 0)) as gone:
        url = f"http://localhost:{gone.getsockname()[1]}"
    registry.register(url, None)

    ended = terminal.checkdam("list", "--json")

    assert [job["name"] for job in ended.json["jobs"]] == ["words"]
    assert ended.err == f"WARNING: no answer from {url}: connection refused\n"


def test_the_process_of_a_job_is_the_one_that_took_it_over(tmp_path: Path) -> None:
    directory = tmp_path / "mine" / "servers"
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as earlier:
        old = registry.register("http://localhost:1", None, directory)
        old._server = msgspec.structs.replace(old._server, owner=replace(this_process(), pid=earlier.pid, started=""))
        for registration in (old, registry.register("http://localhost:2", None, directory)):
            registration.runs(JobId(FIRST))
        assert len(registry.servers(directory)) == 2

        found = Remote(Configuration(), registry_directory=directory).process_of(
            RemoteJob(RestClient("localhost:2"), {"jid": FIRST})
        )

    assert found == this_process()


def test_an_empty_word_names_no_job(terminal: Terminal) -> None:
    job = terminal.job()

    ended = terminal.checkdam("cancel", "")

    assert ended.code == 2
    assert "JOB must not be empty" in ended.err
    assert job.control.trigger_checkpoint().result(60)


def test_the_token_of_a_server_here_goes_before_one_that_is_meant_for_another(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.job(host=terminal.host(rest_auth_token="secret"))
    monkeypatch.setenv("CHECKDAM_REST_TOKEN", "of-another")

    assert terminal.checkdam("checkpoint", "words").code == 0


def test_a_server_that_refuses_to_tell_is_warned_of_while_others_do(terminal: Terminal) -> None:
    terminal.job()
    other = terminal.host(rest_auth_token="secret")
    registry.register(other.url, "an-old-one")

    ended = terminal.checkdam("list", "--json")

    assert [job["name"] for job in ended.json["jobs"]] == ["words"]
    assert f"WARNING: {other.url} refuses to list its jobs" in ended.err


def test_what_answers_in_other_words_is_no_server_of_jobs(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RestClient, "get", lambda *_, **__: {"status": "up"})

    ended = terminal.checkdam("list", "-m", "localhost:1", "--json")

    assert ended.code == 1
    assert "is not a Checkdam server" in ended.json["errors"][0]
