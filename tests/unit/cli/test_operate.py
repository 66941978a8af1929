"""The commands that operate a job, on one that really runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli.conftest import Terminal

from checkdam.checkpoint.checkpoint_store import load_checkpoint
from checkdam.checkpoint.settings import JobEnd
from checkdam.client.rest_client import RestClient
from checkdam.state.snapshot_handles import SavepointFormat

pytestmark = pytest.mark.slow

JOB = "4fa1" + "0" * 28


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
    assert job.heard.end is JobEnd.FINISHED


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
    assert job.heard.end is JobEnd.CANCELLED
    assert len(terminal.checkdam("list", "--checkpoints", "--dir", "checkpoints", "--json").json["checkpoints"]) == 1


def test_cancel_can_take_a_savepoint_first(terminal: Terminal) -> None:
    job = terminal.job()

    ended = terminal.checkdam("cancel", "words", "-s", "sp", "--json")

    assert ended.code == 0, ended.out
    assert load_checkpoint(ended.json["savepoint"])[0].is_savepoint
    assert ended.json["status"] == "CANCELED"
    assert job.heard.end is JobEnd.CANCELLED


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
        (["-p", "0"], "Invalid value for '-p' / '--parallelism': 0 is not in the range x>=1"),
        (["-p", "two"], "'two' is not a valid integer range"),
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
        (["savepoint", "words", "-d", "sp"], "-d takes the path of a savepoint; JOB cannot be given with it"),
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
