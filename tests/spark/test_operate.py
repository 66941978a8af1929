"""A job on Spark, operated by Checkdam's commands from other processes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.spark.served_job import ServedJobs

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[ServedJobs]:
    served = ServedJobs(tmp_path)
    yield served
    served.close()


def test_a_job_is_watched_rescaled_stopped_moved_resumed_and_cancelled_and_counts_every_number_once(
    jobs: ServedJobs, tmp_path: Path
) -> None:
    first, job_id, url = jobs.run()
    (listed,) = jobs.asked("list")["jobs"]
    assert (listed["jid"], listed["name"], listed["state"]) == (job_id, "numbers", "RUNNING")
    assert listed["where"] == f"http://{url}"
    _check_settings(url, job_id)

    assert jobs.asked("checkpoint", "numbers")["path"].startswith("file://")
    kept = jobs.asked("savepoint", job_id[:6], "sp")["savepoint"]
    assert jobs.asked("rescale", "numbers", "-p", "3") == {"job": job_id, "parallelism": 3}
    refused = jobs.checkdam("rescale", "numbers", "-p", "500", "-m", url)
    assert (refused.returncode, "max parallelism 128" in refused.stderr) == (1, True), refused
    unwritable = jobs.checkdam("savepoint", "numbers", str(tmp_path / "job.py"))
    assert unwritable.returncode == 1
    assert len(unwritable.stderr.splitlines()) == 1, unwritable.stderr
    stopped = jobs.asked("stop", "numbers", "-p", "sp", "--wait")
    assert first.wait(seconds=0) == 0
    assert not [line for line in first.lines if "restarting" in line]

    moved = tmp_path / "elsewhere"
    shutil.move(stopped["savepoint"], moved)
    jobs.check_output()
    second, resumed_id, _ = jobs.run("-s", str(moved))
    assert resumed_id != job_id
    jobs.asked("checkpoint", "numbers")  # a second one, so that there are as many as are retained
    assert jobs.checkdam("cancel", "numbers", "--wait").stdout.splitlines()[-1] == f"Cancelled job {resumed_id}."
    assert second.wait(seconds=0) == 130
    assert jobs.check_output() > 0

    ended = {job["jid"]: job["state"] for job in jobs.asked("list", "--dir", "ck")["jobs"]}
    assert ended == {job_id: "FINISHED", resumed_id: "CANCELED"}
    kept_of = [each["job"] for each in jobs.asked("list", "--checkpoints", "--dir", "ck")["checkpoints"]]
    assert set(kept_of) == set(ended)  # the file's retention holds, although the program names another option
    assert kept_of.count(resumed_id) == 2
    assert [each["path"] for each in jobs.asked("list", "--savepoints", "--dir", "ck")["savepoints"]] == [kept]
    jobs.asked("savepoint", "-d", kept)
    assert jobs.asked("list", "--savepoints", "--dir", "ck")["savepoints"] == []


def _check_settings(url: str, job_id: str) -> None:
    """What is shown is what holds, and where it comes from."""
    shown = httpx.get(f"http://{url}/jobs/{job_id}/checkpoints/config").json()
    assert (shown["interval"], shown["externalization"]["delete_on_cancellation"]) == (1000, False)
    assert shown["num_retained"] == 2
    assert {field: shown["origins"][field] for field in ("interval", "externalization", "directory", "timeout")} == {
        "interval": "code",
        "externalization": "file",
        "directory": "command line",
        "timeout": "default",
    }


def test_a_killed_job_is_not_listed_as_running_and_goes_on_under_its_id_when_claimed(jobs: ServedJobs) -> None:
    first, job_id, _ = jobs.run()
    first.kill()

    assert jobs.asked("list", "-Drest.port=1")["jobs"] == []
    ((state, name),) = [(job["state"], job["name"]) for job in jobs.asked("list", "--dir", "ck")["jobs"]]
    assert (state, name) == ("SUSPENDED", "numbers")
    newest = jobs.asked("list", "--checkpoints", "numbers", "--dir", "ck")["checkpoints"][0]["path"]

    second, resumed_id, _ = jobs.run("-s", newest, "--claim-mode", "claim")
    assert resumed_id == job_id
    assert "RUNNING" in jobs.checkdam("list").stdout
    assert jobs.asked("stop", job_id, "-p", "sp")["status"] in ("FINISHED", None)
    assert second.wait(seconds=60) == 0
    assert jobs.check_output() > 0
