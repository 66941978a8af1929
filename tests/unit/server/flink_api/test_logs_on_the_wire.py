"""Log files under Flink's paths and under those of the job; from a directory, and from a slot on another machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.unit.server.made_jobs import JOB, OTHER, RECORD, AskedControl, MadeMonitor, NoQueries
from tests.unit.server.serving import Served

from checkdam.ids import JobId, SubtaskIndex
from checkdam.runtime.job_control import RunningJob
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.live_logs import RemoteLogs
from checkdam.runtime.logs.log_reader import LogDirectory, LogSource
from checkdam.runtime.monitor.job_records import JobRecord
from checkdam.runtime.slot.slot_client import RemoteSlot, SlotAddress
from checkdam.runtime.slot.slot_server import SlotServer

SLOT_0, SLOT_1 = "/taskmanagers/host:11", "/taskmanagers/host:12"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The log directory of the running job, and what an intruder would like to read."""
    (tmp_path / "secret").write_text("secret")
    directory = tmp_path / JOB
    directory.mkdir()
    (directory / "driver.log").write_text("started\nrestarted\n")
    (directory / "driver.log.1").write_text("long ago\n")
    (directory / "driver.out").write_text("1> a\n")
    (directory / "slot-0.log").write_text("of slot 0\n")
    (directory / "slot-1.out").write_text("counts[1]> <b>bold</b>\n")
    (directory / "id_rsa").write_text("secret")
    return directory


@pytest.fixture
def logged(served: Served, directory: Path) -> Served:
    served.tells(_logging_to(directory))
    return served


def _logging_to(directory: Path | str, record: JobRecord = RECORD) -> JobRecord:
    return msgspec.structs.replace(record, logs=str(directory))


def _text(served: Served, path: str, **query: str | int) -> str:
    answer = served.client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert int(answer.headers["content-length"]) == len(answer.content)
    return answer.text


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/jobmanager/log", "started\nrestarted\n"),
        ("/jobmanager/stdout", "1> a\n"),
        ("/jobmanager/logs/driver.log.1", "long ago\n"),
        (f"{SLOT_0}/log", "of slot 0\n"),
        (f"{SLOT_1}/stdout", "counts[1]> <b>bold</b>\n"),
        (f"{SLOT_1}/logs/slot-1.out", "counts[1]> <b>bold</b>\n"),
        (f"/jobs/{JOB}/logs/slot-1.out", "counts[1]> <b>bold</b>\n"),
        (f"{SLOT_1}/log", ""),  # nothing is written yet
    ],
)
def test_files_are_served_whole_and_as_text(logged: Served, path: str, text: str) -> None:
    assert _text(logged, path) == text


def test_a_part_of_a_file_is_served(logged: Served) -> None:
    assert _text(logged, "/jobmanager/log", tail=10) == "restarted\n"
    assert _text(logged, "/jobmanager/log", tail=10_000) == "started\nrestarted\n"
    assert _text(logged, "/jobmanager/log", offset=2, limit=3) == "art"
    assert _text(logged, "/jobmanager/log", offset=2**62, limit=2**62) == ""


def test_lists_have_names_sizes_and_times_as_in_flink(logged: Served, directory: Path) -> None:
    os.utime(directory / "slot-0.log", (1_700_000_000, 1_700_000_000))

    assert [each["name"] for each in logged.get("/jobmanager/logs")["logs"]] == [
        "driver.log",
        "driver.log.1",
        "driver.out",
    ]
    assert logged.get(f"{SLOT_0}/logs") == {
        "logs": [{"name": "slot-0.log", "size": 10, "mtime": 1_700_000_000_000, "process": "slot-0"}]
    }
    of_job = logged.of_job("/logs")
    assert of_job["directory"] == str(directory)
    assert [each["process"] for each in of_job["logs"]] == ["driver"] * 3 + ["slot-0", "slot-1"]


def test_urls_of_logs_are_those_of_the_job(logged: Served) -> None:
    assert _text(logged, logged.of_job("/jobmanager/log-url")["url"]) == "started\nrestarted\n"
    assert _text(logged, logged.of_job("/taskmanagers/host:11/log-url")["url"]) == "of slot 0\n"


def test_a_log_is_followed(logged: Served, directory: Path) -> None:
    first = logged.of_job("/logs/driver.log/lines")
    with (directory / "driver.log").open("a") as file:
        file.write("ended\n")

    second = logged.of_job("/logs/driver.log/lines", cursor=first["cursor"])

    assert first["text"] == "long ago\nstarted\nrestarted\n"
    assert (second["text"], second["has-gap"]) == ("ended\n", False)
    assert logged.of_job("/logs/driver.log/lines", limit=10)["has-gap"]


@pytest.mark.parametrize(
    "name", ["..%2Fsecret", "%2Fetc%2Fpasswd", "id_rsa", "slot-0.log%00", "driver.log%2F..%2Fid_rsa"]
)
@pytest.mark.parametrize("place", ["/jobmanager/logs", f"{SLOT_0}/logs", f"/jobs/{JOB}/logs"])
def test_nothing_else_is_served(logged: Served, place: str, name: str) -> None:
    answer = logged.client.get(f"{place}/{name}")

    assert answer.status_code in (400, 404)
    assert "secret" not in answer.text.replace("secret of", "").replace("/secret", "")


@pytest.mark.parametrize(
    "path", ["/jobmanager/logs/slot-0.log", f"{SLOT_1}/logs/slot-0.log", f"{SLOT_0}/logs/driver.log"]
)
def test_a_process_has_only_its_own_files(logged: Served, path: str) -> None:
    logged.errors("GET", path, 404)


def test_a_link_is_not_followed(logged: Served, directory: Path) -> None:
    (directory / "slot-7.log").symlink_to(directory.parent / "secret")

    logged.errors("GET", f"/jobs/{JOB}/logs/slot-7.log", 404)
    logged.errors("GET", f"/jobs/{JOB}/logs/slot-7.log/lines", 404)


def test_a_forged_record_opens_no_other_directory(served: Served, directory: Path) -> None:
    served.archive.kept[OTHER] = _logging_to(directory, msgspec.structs.replace(RECORD, id=OTHER))

    assert served.get(f"/jobs/{OTHER}/logs")["logs"] == []
    served.errors("GET", f"/jobs/{OTHER}/logs/driver.log", 404)


def test_the_logs_of_a_job_that_has_ended_are_served(served: Served, tmp_path: Path) -> None:
    (tmp_path / OTHER).mkdir()
    (tmp_path / OTHER / "slot-3.log").write_text("of slot 3\n")
    ended = msgspec.structs.replace(RECORD, id=OTHER, status=JobStatus.FAILED, logs=str(tmp_path / OTHER))
    served.archive.kept[OTHER] = ended

    assert [each["name"] for each in served.get(f"/jobs/{OTHER}/logs")["logs"]] == ["slot-3.log"]
    assert _text(served, f"/jobs/{OTHER}/logs/slot-3.log") == "of slot 3\n"
    assert served.get(f"/jobs/{OTHER}/logs/slot-3.log/lines")["text"] == "of slot 3\n"
    assert _text(served, f"/jobs/{OTHER}/logs/slot-3.out") == ""  # it printed nothing
    served.errors("GET", f"/jobs/{OTHER}/logs/slot-4.out", 404)


def test_a_job_without_log_files_says_so(served: Served) -> None:
    assert served.of_job("/logs") == {"directory": None, "logs": []}
    [message] = served.errors("GET", "/jobmanager/log", 404)
    assert message == f"Job {JOB} writes no log files: env.log.dir is not set."


def test_logs_that_are_not_here_are_named_with_their_place(served: Served) -> None:
    served.archive.kept[OTHER] = msgspec.structs.replace(RECORD, id=OTHER, logs=f"/elsewhere/{OTHER}")

    [message] = served.errors("GET", f"/jobs/{OTHER}/logs/driver.log", 404)

    assert message == f"There is no log file driver.log of job {OTHER} in /elsewhere/{OTHER}."


@pytest.fixture
def far_slot(tmp_path: Path) -> Iterator[LogSource]:
    """Slot 1, as if on another machine: its files are in a directory that the driver does not know."""
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "slot-1.log").write_text("".join(f"line {number}\n" for number in range(300_000)))
    location = f"grpc+unix://{tmp_path}/s"
    server = SlotServer(location, "token", logs=LogDirectory(tmp_path / "far"))
    remote = RemoteSlot(SlotAddress(SubtaskIndex(1), location, "far", 12), "token")
    yield RemoteLogs(remote)
    remote.disconnect()
    server.stopped.set()
    server.shutdown()


def test_a_slot_on_another_machine_is_asked_for_its_log(served: Served, far_slot: LogSource, tmp_path: Path) -> None:
    record = _logging_to(tmp_path / JOB)
    logs = {1: far_slot}
    served.server.job_started(
        RunningJob(JobId(JOB), "words", AskedControl(), NoQueries(), MadeMonitor(record), logs.get)
    )

    assert [each["name"] for each in served.get(f"{SLOT_1}/logs")["logs"]] == ["slot-1.log"]
    assert _text(served, f"{SLOT_1}/log") == (tmp_path / "far" / "slot-1.log").read_text()
    assert served.of_job("/logs/slot-1.log/lines")["text"].endswith("line 299999\n")
    assert _text(served, f"{SLOT_1}/stdout") == ""
    served.errors("GET", f"{SLOT_1}/logs/..%2Ffar%2Fslot-1.log", 404)
