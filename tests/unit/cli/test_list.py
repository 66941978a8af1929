"""Jobs, checkpoints and savepoints listed: of jobs that run, that ended, and that nobody serves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.waiting import poll
from tests.unit.cli.conftest import EPOCHS, Terminal, lines

pytestmark = pytest.mark.slow

JOB = "4fa1" + "0" * 28


def test_running_jobs_are_listed_with_where_they_are(terminal: Terminal) -> None:
    terminal.job()
    terminal.checkdam("checkpoint", "words")

    header, row = lines(terminal.checkdam("list").out)

    assert header.split() == ["job", "name", "status", "started", "duration", "checkpoint", "health", "where"]
    assert row.split()[:3] == [JOB, "words", "RUNNING"]
    assert row.split()[-2:] == ["ok", terminal.hosts[0].url]


@pytest.mark.parametrize(
    ("flag", "told"), [([], "No running jobs."), (["-r"], "No running jobs."), (["-s"], "No scheduled jobs.")]
)
def test_ended_jobs_are_listed_only_if_all_are_wanted(terminal: Terminal, flag: list[str], told: str) -> None:
    terminal.job()
    terminal.checkdam("cancel", "words")

    assert terminal.checkdam("list", *flag).out == f"{told}\n"
    assert terminal.checkdam("list", *flag, "--json").json == {"jobs": []}
    assert [job["state"] for job in terminal.checkdam("list", "-a", "--json").json["jobs"]] == ["CANCELED"]


def test_a_running_job_is_not_a_scheduled_one(terminal: Terminal) -> None:
    terminal.job()

    assert terminal.checkdam("list", "-s").out == "No scheduled jobs.\n"
    assert len(terminal.checkdam("list", "-r", "--json").json["jobs"]) == 1


def test_nothing_anywhere_is_no_error(terminal: Terminal) -> None:
    ended = terminal.checkdam("list", "-a", "-D", "rest.port=1")

    assert (ended.code, ended.out) == (0, "No jobs.\n")


def test_kept_checkpoints_and_savepoints_of_a_running_job_are_listed(terminal: Terminal) -> None:
    terminal.job()
    checkpoint = terminal.checkdam("checkpoint", "words", "--json").json
    savepoint = terminal.checkdam("savepoint", "words", "sp", "--json").json["savepoint"]

    checkpoints = terminal.checkdam("list", "--checkpoints", "words", "--json").json["checkpoints"]
    savepoints = terminal.checkdam("list", "--savepoints", "4fa1", "--json").json["savepoints"]

    assert [(each["job"], each["id"], each["path"]) for each in checkpoints] == [
        (JOB, checkpoint["checkpoint"], checkpoint["path"])
    ]
    assert [(each["job"], each["path"], each["format"]) for each in savepoints] == [(JOB, savepoint, "CANONICAL")]
    assert [each["epoch"] for each in savepoints] == [len(EPOCHS)]
    header, row = lines(terminal.checkdam("list", "--savepoints").out)
    assert row[header.index("epoch") :].split()[0] == str(len(EPOCHS))
    assert row.endswith(savepoint)
    assert checkpoint["path"] in terminal.checkdam("list", "--checkpoints").out


def test_a_savepoint_that_is_disposed_of_is_listed_no_more(terminal: Terminal) -> None:
    terminal.job()
    savepoint = terminal.checkdam("savepoint", "words", "sp", "--json").json["savepoint"]
    terminal.checkdam("savepoint", "-d", savepoint)

    assert terminal.checkdam("list", "--savepoints").out == "No savepoints.\n"


def test_what_lies_in_a_directory_is_listed_without_any_server(terminal: Terminal) -> None:
    terminal.job()
    paths = [terminal.checkdam("checkpoint", "words", "--json").json["path"] for _ in range(2)]
    savepoint = terminal.checkdam("savepoint", "words", "sp", "--json").json["savepoint"]
    terminal.checkdam("cancel", "words")
    terminal.stack.close()

    jobs = terminal.checkdam("list", "--dir", "checkpoints", "--json").json["jobs"]
    checkpoints = terminal.checkdam("list", "--checkpoints", "--dir", "checkpoints", "--json").json["checkpoints"]
    savepoints = terminal.checkdam("list", "--savepoints", "--dir", "sp", "--json").json["savepoints"]

    assert [(job["jid"], job["name"]) for job in jobs] == [(JOB, "words")]
    assert [Path(each["path"]).name for each in checkpoints] == [Path(path).name for path in reversed(paths)]
    assert [each["path"] for each in savepoints] == [savepoint]


def test_a_job_that_runs_is_asked_how_it_is_whatever_its_record_says(terminal: Terminal, tmp_path: Path) -> None:
    terminal.job()
    entry = tmp_path / "checkpoints" / "_jobs" / f"{JOB}.json"
    poll(lambda: entry.is_file() and b'"RUNNING"' in entry.read_bytes())
    record = json.loads(entry.read_text())
    entry.write_text(json.dumps({**record, "status": "CREATED", "address": terminal.hosts[0].url}))
    lost = {**record, "id": "d" * 32, "status": "RESTARTING", "address": terminal.hosts[0].url}
    entry.with_name(f"{'d' * 32}.json").write_text(json.dumps(lost))  # of a driver that was killed

    jobs = terminal.checkdam("list", "-a", "--dir", "checkpoints", "--json").json["jobs"]

    assert {job["jid"]: job["state"] for job in jobs} == {JOB: "RUNNING", "d" * 32: "SUSPENDED"}


def test_the_directory_of_the_settings_is_looked_into_by_itself(terminal: Terminal, tmp_path: Path) -> None:
    terminal.job()
    terminal.checkdam("checkpoint", "words")
    terminal.checkdam("cancel", "words")
    terminal.stack.close()
    (tmp_path / "checkdam.yaml").write_text("state.checkpoints.dir: checkpoints\nrest.port: 1\n")

    assert [job["name"] for job in terminal.checkdam("list", "-a", "--json").json["jobs"]] == ["words"]
    assert terminal.checkdam("list").out == "No running jobs.\n"


def test_a_damaged_checkpoint_is_listed_as_such(terminal: Terminal, tmp_path: Path) -> None:
    terminal.job()
    terminal.checkdam("checkpoint", "words")
    terminal.checkdam("checkpoint", "words")
    terminal.checkdam("cancel", "words")
    metadata = tmp_path / "checkpoints" / JOB / "chk-1" / "_metadata"
    metadata.write_bytes(metadata.read_bytes()[:-1])

    listed = terminal.checkdam("list", "--checkpoints", "--dir", "checkpoints")

    assert listed.code == 0
    assert [line.split()[2] for line in lines(listed.out)[1:]] == ["2", "damaged"]


def test_a_directory_without_anything_is_an_error_not_an_empty_list(terminal: Terminal) -> None:
    for option in ([], ["--checkpoints"], ["--savepoints"]):
        ended = terminal.checkdam("list", *option, "--dir", "nowhere")
        assert ended.code == 1
        assert ended.err == 'error: there is nothing in "nowhere". Name a directory that holds checkpoints.\n'


@pytest.mark.parametrize("option", ["--checkpoints", "--savepoints"])
def test_an_unknown_job_is_an_error_not_an_empty_list(terminal: Terminal, option: str) -> None:
    terminal.job()

    ended = terminal.checkdam("list", option, "nobody")

    assert ended.code == 1
    assert ended.err == 'error: there is no job "nobody". "checkdam list -a" lists all jobs.\n'
