"""The commands that operate a job, on one that really runs."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Terminal

from checkdam.checkpoint.checkpoint_store import load_checkpoint
from checkdam.checkpoint.settings import JobEnd
from checkdam.cli.remote import RemoteJob, wait_for_process
from checkdam.client.rest_client import RestClient
from checkdam.errors import CheckdamError, RequestRefusedError, ServerUnreachableError
from checkdam.processes import this_process
from checkdam.state.snapshot_handles import SavepointFormat

pytestmark = pytest.mark.slow

JOB = "4fa1" + "0" * 28
OTHER = "beef" + "1" * 28


@pytest.mark.parametrize("word", ["words", "4fa1", "4FA10", JOB])
def test_a_job_is_meant_by_its_name_its_id_or_the_beginning_of_it(terminal: Terminal, word: str) -> None:
    terminal.job()

    assert terminal.checkdam("checkpoint", word, "--json").json["job"] == JOB


def test_a_savepoint_is_written_below_the_directory_of_the_terminal(terminal: Terminal, tmp_path: Path) -> None:
    job = terminal.job()

    ended = terminal.checkdam("savepoint", "words", "sp")

    (path,) = (tmp_path / "sp").iterdir()
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        f"Triggering savepoint for job {JOB}.",
        f"Savepoint completed. Path: {path}",
        f"Resume with: checkdam run -s {path} …",
    ]
    assert load_checkpoint(str(path))[0].savepoint_format is SavepointFormat.CANONICAL
    assert job.heard.end is None


def test_a_native_savepoint_is_asked_for_as_in_flink(terminal: Terminal) -> None:
    terminal.job()

    path = terminal.checkdam("savepoint", "words", "sp", "-type", "native", "--json").json["savepoint"]

    assert load_checkpoint(path)[0].savepoint_format is SavepointFormat.NATIVE


@pytest.mark.parametrize("verb", [["savepoint", "words", "sp"], ["stop", "words", "-p", "sp"]])
def test_what_is_detached_is_not_waited_for_and_can_be_asked_for(terminal: Terminal, verb: list[str]) -> None:
    terminal.job()

    answer = terminal.checkdam(*verb, "-detached", "--json").json

    asked = RestClient(terminal.hosts[0].url).wait(f"/jobs/{JOB}/savepoints/{answer['request-id']}")
    assert answer["job"] == JOB
    assert load_checkpoint(asked["location"])[0].is_savepoint


@pytest.mark.parametrize("verb", [["savepoint", "words", "sp"], ["stop", "words", "-p", "sp"]])
def test_the_result_of_what_is_detached_is_told_by_its_id(terminal: Terminal, verb: list[str]) -> None:
    terminal.job()

    told = terminal.checkdam(*verb, "--detached").out.splitlines()
    trigger = told[1].rpartition(" ")[2]
    assert told[2] == f"Ask for its result with: checkdam savepoint --status {trigger}"
    plain = terminal.checkdam("savepoint", "--status", trigger, "--wait")
    known = terminal.checkdam("savepoint", "--status", trigger, "words", "--json").json

    path = known["savepoint"]
    assert plain.out == f"Savepoint completed. Path: {path}\n"
    assert load_checkpoint(path)[0].is_savepoint
    assert known == {"job": JOB, "request-id": trigger, "status": "COMPLETED", "savepoint": path}


def test_a_savepoint_that_failed_or_that_nobody_knows_is_an_error(terminal: Terminal, tmp_path: Path) -> None:
    terminal.job()
    (tmp_path / "file").write_text("no directory")
    trigger = terminal.checkdam("savepoint", "words", "file", "--detached", "--json").json["request-id"]

    failed = terminal.checkdam("savepoint", "--status", trigger, "--wait")
    unknown = terminal.checkdam("savepoint", "--status", "0" * 32)

    assert (failed.code, "file" in failed.err) == (1, True)
    assert unknown.code == 1
    assert "checkdam list --savepoints" in unknown.err


@pytest.mark.parametrize("options", [[], ["--wait"]])
def test_a_result_is_not_lost_by_a_driver_that_ends_once_it_is_fetched(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    terminal.job()
    trigger = terminal.checkdam("stop", "words", "-p", "sp", "--detached", "--json").json["request-id"]
    location = RestClient(terminal.hosts[0].url).wait(f"/jobs/{JOB}/savepoints/{trigger}")["location"]
    get = RestClient.get
    fetched: list[str] = []

    def get_until_fetched(client: RestClient, path: str, **query: Any) -> Any:
        if fetched:
            raise ServerUnreachableError("connection refused")
        if path.endswith(trigger):
            fetched.append(path)
        return get(client, path, **query)

    monkeypatch.setattr(RestClient, "get", get_until_fetched)
    told = terminal.checkdam("savepoint", "--status", trigger, *options)

    assert (told.code, told.out) == (0, f"Savepoint completed. Path: {location}\n"), told.err


def _unreachable() -> CheckdamError:
    return ServerUnreachableError("one is silent")


def _busy() -> CheckdamError:
    error = RequestRefusedError("one is silent")
    error.status = 503
    return error


@pytest.mark.parametrize("silent", [_unreachable, _busy])
def test_a_job_that_does_not_answer_hides_no_result_of_another(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, silent: Callable[[], CheckdamError]
) -> None:
    terminal.job("one", OTHER)
    terminal.job()
    trigger = terminal.checkdam("savepoint", "words", "sp", "--detached", "--json").json["request-id"]
    get = RestClient.get

    def get_unless_silent(client: RestClient, path: str, **query: Any) -> Any:
        if path.startswith(f"/jobs/{OTHER}/"):
            raise silent()
        return get(client, path, **query)

    monkeypatch.setattr(RestClient, "get", get_unless_silent)
    known = terminal.checkdam("savepoint", "--status", trigger, "--wait", "--json").json
    unknown = terminal.checkdam("savepoint", "--status", "0" * 32)

    assert (known["job"], known["status"]) == (JOB, "COMPLETED")
    assert (unknown.code, unknown.err) == (1, "error: one is silent\n")


def test_a_savepoint_in_progress_is_told_as_such(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    job = terminal.job()
    trigger = "d" * 32
    unfinished: Future[str] = Future()
    monkeypatch.setattr(type(job.control), "trigger_savepoint", lambda *_: unfinished)
    RestClient(terminal.hosts[0].url).post(f"/jobs/{JOB}/savepoints", {"target-directory": "/sp", "triggerId": trigger})

    told = terminal.checkdam("savepoint", "--status", trigger)
    as_json = terminal.checkdam("savepoint", "--status", trigger, "--json").json

    assert (told.code, told.out) == (0, f"Savepoint of job {JOB} is in progress.\n")
    assert as_json == {"job": JOB, "request-id": trigger, "status": "IN_PROGRESS"}


def test_the_settings_of_a_job_are_shown_with_where_they_come_from(terminal: Terminal) -> None:
    terminal.job()

    given = terminal.checkdam("config", "words", "--json").json["settings"]
    everything = terminal.checkdam("config", "words", "--all", "--json").json["settings"]
    shown = terminal.checkdam("config", "words").out
    by_rest = RestClient(terminal.hosts[0].url).get(f"/jobs/{JOB}/jobmanager/config")

    origins = {each["key"]: (each["value"], each["origin"]) for each in everything}
    assert origins["execution.checkpointing.num-retained"] == ("3", "code")
    assert origins["heartbeat.interval"][1] == "default"
    assert given == [each for each in everything if each["origin"] != "default"]
    scheduler = {"key": "jobmanager.scheduler", "value": "Adaptive", "origin": "default"}  # for Flink's autoscaler
    assert by_rest == [*(each for each in given if each["value"] is not None), scheduler]
    assert ["execution.checkpointing.num-retained", "3", "code"] in [line.split() for line in shown.splitlines()]


def test_the_settings_that_a_run_would_find_are_shown_without_a_job(terminal: Terminal, tmp_path: Path) -> None:
    nothing = terminal.checkdam("config")
    (tmp_path / "checkdam.yaml").write_text("parallelism.default: 3\nrest.auth.token: secret\n")
    found = terminal.checkdam("config", "-D", "pipeline.name=x y")

    assert nothing.out == "No setting is given: all have their defaults, which --all shows.\n"
    assert [line.split() for line in found.out.splitlines()] == [
        ["setting", "value", "from"],
        ["parallelism.default", "3", "file"],
        ["pipeline.name", "x", "y", "command", "line"],
        ["rest.auth.token", "******", "file"],
    ]


def test_waiting_ends_with_the_process_of_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        process = replace(this_process(), pid=child.pid, started="")
        waiting = threading.Thread(target=wait_for_process, args=(process,))
        waiting.start()
        assert waiting.is_alive()
        assert child.stdin is not None
        child.stdin.close()
        waiting.join(timeout=30)

        assert not waiting.is_alive()
    finally:
        child.kill()
        child.wait()
    wait_for_process(None)
    assert "is not one of this machine" in capsys.readouterr().err


def test_a_savepoint_goes_to_the_directory_of_the_settings_if_none_is_given(terminal: Terminal, tmp_path: Path) -> None:
    host = terminal.host(state_savepoints_dir=str(tmp_path / "kept"))
    terminal.job(host=host)

    assert terminal.checkdam("savepoint", "words", "--json").json["savepoint"].startswith(str(tmp_path / "kept"))


@pytest.mark.parametrize("command", [["savepoint"], ["stop"], ["stop", "-p"], ["cancel", "-s"]])
def test_without_any_directory_the_user_is_told_to_give_one(terminal: Terminal, command: list[str]) -> None:
    job = terminal.job()

    ended = terminal.checkdam(*command, "words")

    assert ended.code == 2
    assert ended.err == (
        f"error: no directory is given for the savepoint, and job {JOB} does not set "
        "execution.checkpointing.savepoint-dir. Give a directory.\n"
    )
    assert job.heard.end is None


def test_a_checkpoint_is_taken_now_and_its_place_told(terminal: Terminal, tmp_path: Path) -> None:
    terminal.job()

    told = terminal.checkdam("checkpoint", "words").out.splitlines()
    again = terminal.checkdam("checkpoint", "words", "-full", "--json").json

    assert told[0] == f"Triggering checkpoint for job {JOB}."
    assert told[1].startswith(f"Checkpoint 1 for job {JOB} completed. Path: ")
    assert again["checkpoint"] == 2
    assert again["path"].endswith(f"/{JOB}/chk-2")


def test_a_job_without_storage_cannot_be_checkpointed_and_says_so(terminal: Terminal) -> None:
    job = terminal.job(stored=False)

    ended = terminal.checkdam("checkpoint", "words")

    assert ended.code == 1
    assert ended.err.startswith("error: ")
    assert job.heard.end is None


@pytest.mark.parametrize("options", [["-p", "sp"], ["--drain", "-p", "sp", "-type", "native"]])
def test_stop_writes_a_savepoint_and_returns_when_the_job_has_ended(terminal: Terminal, options: list[str]) -> None:
    job = terminal.job()

    ended = terminal.checkdam("stop", "words", *options)

    assert ended.code == 0, ended.err
    first, last = ended.out.splitlines()
    word, kind = ("Draining", "NATIVE") if "--drain" in options else ("Suspending", "CANONICAL")
    assert first == f'{word} job "{JOB}" with a {kind} savepoint.'
    assert load_checkpoint(last.removeprefix("Savepoint completed. Path: "))[0].epoch >= 3
    job.heard.wait_until(lambda: job.heard.end is JobEnd.FINISHED)


def test_the_savepoint_is_told_before_the_end_of_the_job_is_awaited(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: RemoteJob) -> None:
        raise KeyboardInterrupt

    terminal.job()
    monkeypatch.setattr("checkdam.cli.stop.wait_for_end", interrupt)

    ended = terminal.checkdam("stop", "words", "-p", "sp")

    assert ended.code == 130
    assert load_checkpoint(ended.out.splitlines()[-1].removeprefix("Savepoint completed. Path: "))[0].is_savepoint


def test_the_job_may_follow_an_option_whose_value_is_left_out(terminal: Terminal, tmp_path: Path) -> None:
    terminal.job(host=terminal.host(state_savepoints_dir=str(tmp_path / "kept")))

    ended = terminal.checkdam("stop", "--json", "-p", "words")

    assert ended.code == 0, ended.out
    assert ended.json["savepoint"].startswith(str(tmp_path / "kept"))
    assert ended.json["status"] == "FINISHED"


def test_cancel_ends_the_job_and_its_checkpoints_stay_as_the_retention_says(terminal: Terminal) -> None:
    job = terminal.job()
    terminal.checkdam("checkpoint", "words")

    ended = terminal.checkdam("cancel", "words")

    assert (ended.code, ended.out) == (0, f"Cancelling job {JOB}.\nCancelled job {JOB}.\n")
    job.heard.wait_until(lambda: job.heard.end is JobEnd.CANCELLED)
    assert len(terminal.checkdam("list", "--checkpoints", "--dir", "checkpoints", "--json").json["checkpoints"]) == 1


def test_cancel_can_take_a_savepoint_first(terminal: Terminal) -> None:
    job = terminal.job()

    ended = terminal.checkdam("cancel", "words", "-s", "sp", "--json")

    assert ended.code == 0, ended.out
    assert load_checkpoint(ended.json["savepoint"])[0].is_savepoint
    assert ended.json["status"] == "CANCELED"
    job.heard.wait_until(lambda: job.heard.end is JobEnd.CANCELLED)


def test_rescaling_goes_on_with_the_new_parallelism(terminal: Terminal) -> None:
    job = terminal.job()

    ended = terminal.checkdam("rescale", "words", "-p", "3")

    assert ended.code == 0, ended.err
    assert ended.out.splitlines() == [
        f"Rescaling job {JOB} to parallelism 3.",
        f"Job {JOB} runs with parallelism 3.",
    ]
    assert job.heard.rescales == [(3, None)]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["-p", "0"], '"0" is not a whole number of at least 1'),
        (["-p", "two"], '"two" is not a whole number of at least 1'),
        ([], "Missing option '-p' / '--parallelism'"),
        (["-p", "1000"], "parallelism 1000 of the job is not between 1 and the max parallelism 128"),
    ],
)
def test_a_parallelism_that_cannot_be_is_refused_and_the_job_goes_on(
    terminal: Terminal, arguments: list[str], told: str
) -> None:
    job = terminal.job()

    ended = terminal.checkdam("rescale", "words", *arguments)

    assert ended.code in (1, 2)
    assert told in ended.err
    assert len(ended.err.splitlines()) == 1
    assert job.heard.end is None
    assert not job.heard.rescales


def test_a_savepoint_is_disposed_of_with_and_without_a_server(terminal: Terminal, tmp_path: Path) -> None:
    terminal.job()
    paths = [terminal.checkdam("savepoint", "words", "sp", "--json").json["savepoint"] for _ in range(2)]

    here = terminal.checkdam("savepoint", "-d", paths[0])
    there = terminal.checkdam("savepoint", "--dispose", paths[1], "-m", terminal.hosts[0].url, "--json")

    assert here.out == f"Disposing savepoint '{paths[0]}'.\nSavepoint '{paths[0]}' disposed.\n"
    assert there.json == {"disposed": paths[1]}
    assert list((tmp_path / "sp").iterdir()) == []


@pytest.mark.parametrize("through_server", [False, True])
def test_only_savepoints_are_ever_disposed_of(terminal: Terminal, tmp_path: Path, through_server: bool) -> None:
    terminal.job()
    checkpoint = terminal.checkdam("checkpoint", "words", "--json").json["path"]
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("mine")
    where = ["-m", terminal.hosts[0].url] if through_server else []

    ended = [terminal.checkdam("savepoint", "-d", path, *where) for path in (checkpoint, str(tmp_path / "precious"))]

    assert [each.code for each in ended] == [1, 1]
    assert all(each.err.startswith("error: ") for each in ended)
    assert (tmp_path / "precious" / "file").exists()
    assert load_checkpoint(checkpoint)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["savepoint"], "Missing argument 'JOB'"),
        (["savepoint", "words", "-d", "sp"], "-d takes the path of a savepoint, and nothing else can be given with it"),
        (["savepoint", "words", "sp", "-type", "mixed"], "'mixed' is not one of 'canonical', 'native'"),
        (["stop"], "Missing argument 'JOB'"),
        (["cancel"], "Missing argument 'JOB'"),
        (["checkpoint"], "Missing argument 'JOB'"),
        (["list", "-m", "nowhere"], '"nowhere" is not the address of a server'),
        (["list", "-D", "rest.prot=1"], "rest.prot"),
        (["list", "--checkpoints", "--savepoints"], "cannot be combined"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_wrong_words_are_told_in_one_line_or_as_json(
    terminal: Terminal, words: list[str], told: str, as_json: bool
) -> None:
    ended = terminal.checkdam(*words, *(["--json"] if as_json else []))

    assert ended.code == 2
    if as_json:
        assert told in ended.json["errors"][0]
        assert ended.err == ""
    else:
        assert told in ended.err
        assert len(ended.err.splitlines()) == 1
        assert ended.out == ""


@pytest.mark.parametrize("verb", ["savepoint", "checkpoint", "stop", "cancel"])
def test_an_unknown_job_is_told_with_a_way_to_find_those_there_are(terminal: Terminal, verb: str) -> None:
    terminal.job()

    ended = terminal.checkdam(verb, "nobody")
    as_json = terminal.checkdam(verb, "nobody", "--json")

    told = 'there is no job "nobody". "checkdam list -a" lists all jobs.'
    assert (ended.code, ended.err) == (1, f"error: {told}\n")
    assert (as_json.code, as_json.json, as_json.err) == (1, {"errors": [told]}, "")


def test_a_job_that_has_ended_cannot_be_operated_any_more(terminal: Terminal) -> None:
    terminal.job()
    terminal.checkdam("cancel", "words")

    ended = terminal.checkdam("savepoint", "words", "sp")

    assert ended.code == 1
    assert f"Job {JOB} is not running" in ended.err


def test_a_job_whose_name_is_misspelt_is_suggested(terminal: Terminal) -> None:
    terminal.job()

    ended = terminal.checkdam("checkpoint", "wrods")

    assert ended.err == 'error: there is no job "wrods". Did you mean "words"? "checkdam list -a" lists all jobs.\n'
