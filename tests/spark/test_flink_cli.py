"""Flink's own command line, from PyPI, operates a real Checkdam job, at its own server and through a standing one."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.spark.served_job import ServedJobs

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

NOBODY = "d" * 32
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def flink() -> str:
    """Flink's script, installed on first use."""
    made = subprocess.run(["sh", str(ROOT / "tools" / "flink.sh")], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[ServedJobs]:
    served = ServedJobs(tmp_path)
    yield served
    served.close()


def _flink(flink: str, url: str, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([flink, verb, "-m", url, *words], capture_output=True, text=True, timeout=180)


def _cause(ended: subprocess.CompletedProcess[str]) -> str:
    """What a failure of Flink's command line comes down to."""
    assert ended.returncode == 1, ended
    assert "The program finished with the following exception:" in ended.stderr
    return str(re.findall(r"Caused by: (.*)", ended.stderr)[-1])


def test_flinks_command_line_lists_saves_checkpoints_cancels_and_stops(
    flink: str, jobs: ServedJobs, tmp_path: Path
) -> None:
    first, job_id, url = jobs.run()

    listed = _flink(flink, url, "list")
    assert listed.returncode == 0, listed
    assert "Running/Restarting Jobs" in listed.stdout
    assert f" : {job_id} : numbers (RUNNING)" in listed.stdout

    saved = _flink(flink, url, "savepoint", "-type", "native", job_id, str(tmp_path / "sp"))
    assert saved.returncode == 0, saved
    assert "Savepoint completed. Path: " in saved.stdout
    savepoint = Path(re.findall(r"Savepoint completed\. Path: (.*)", saved.stdout)[0].removeprefix("file:"))
    assert (savepoint / "_metadata").is_file()

    for options, kind in (([], "Checkpoint"), (["-full"], "Checkpoint(FULL)")):
        taken = _flink(flink, url, "checkpoint", *options, job_id)
        assert taken.returncode == 0, taken
        assert re.search(rf"{re.escape(kind)} \d+ for job {job_id} completed\.", taken.stdout), taken.stdout

    refused = [
        ("Could not find Flink job", ["savepoint", NOBODY, str(tmp_path / "sp")]),
        ("Could not find Flink job", ["stop", "-p", str(tmp_path / "sp"), NOBODY]),
        (f"Job {NOBODY} not found", ["cancel", NOBODY]),
        ("savepoint-dir", ["savepoint", job_id]),
    ]
    with ThreadPoolExecutor(len(refused)) as beside:  # each starts a JVM
        causes = beside.map(lambda each: _cause(_flink(flink, url, *each[1])), refused)
        for (expected, _), cause in zip(refused, causes, strict=True):
            assert expected in cause

    cancelled = _flink(flink, url, "cancel", job_id)
    assert cancelled.returncode == 0, cancelled
    assert f"Cancelled job {job_id}." in cancelled.stdout
    assert first.wait(seconds=60) == 130
    jobs.check_output()

    # What was counted between the savepoint and the end is counted again: into files of its own.
    (tmp_path / "out").rename(tmp_path / "out of the first")
    second, resumed_id, url = jobs.run("-s", str(savepoint))
    assert [line for line in second.lines if f"restored file://{savepoint}" in line or f"restored {savepoint}" in line]
    stopped = _flink(flink, url, "stop", "--drain", "-p", str(tmp_path / "sp"), resumed_id)
    assert stopped.returncode == 0, stopped
    assert f'Draining job "{resumed_id}" with a CANONICAL savepoint.' in stopped.stdout
    assert second.wait(seconds=60) == 0
    last = Path(re.findall(r"Savepoint completed\. Path: (.*)", stopped.stdout)[0].removeprefix("file:"))
    disposed = jobs.checkdam("savepoint", "-d", str(last))
    assert disposed.returncode == 0, disposed
    assert not last.exists()


def test_flinks_command_line_operates_a_job_through_a_standing_server(
    flink: str, jobs: ServedJobs, tmp_path: Path
) -> None:
    with jobs.standing() as url:
        driver, job_id, own_url = jobs.run()
        assert url != own_url

        listed = _flink(flink, url, "list")
        assert f" : {job_id} : numbers (RUNNING)" in listed.stdout, listed
        taken = _flink(flink, url, "checkpoint", job_id)
        assert re.search(rf"Checkpoint \d+ for job {job_id} completed\.", taken.stdout), taken
        saved = _flink(flink, url, "savepoint", job_id, str(tmp_path / "sp"))
        assert "Savepoint completed. Path: " in saved.stdout, saved
        assert "Could not find Flink job" in _cause(_flink(flink, url, "savepoint", NOBODY, str(tmp_path / "sp")))

        stopped = _flink(flink, url, "stop", "-p", str(tmp_path / "sp"), job_id)
        assert "Savepoint completed. Path: " in stopped.stdout, stopped
        assert driver.wait(seconds=60) == 0
        jobs.check_output()

        ended = _flink(flink, url, "list", "-a")
        assert f" : {job_id} : numbers (FINISHED)" in ended.stdout, ended
        too_late = _flink(flink, url, "cancel", job_id)
        assert "already reached another terminal state (FINISHED)" in _cause(too_late)
