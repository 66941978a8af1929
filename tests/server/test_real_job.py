"""Verbs on a real job: what they do, and that what cannot be done leaves the job as it was."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.server.real_job import ServedJob, served_job

from checkdam import CheckpointConfig, FixedDelayRestart
from checkdam.checkpoint.checkpoint_store import load_checkpoint
from checkdam.checkpoint.settings import JobEnd
from checkdam.config import Configuration
from checkdam.testing.local_job import JOB_ID

pytestmark = pytest.mark.slow

BASE = f"/jobs/{JOB_ID}"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[ServedJob]:
    with served_job(tmp_path) as served:
        yield served


def test_a_checkpoint_is_cut_and_told_down_to_its_subtasks(job: ServedJob) -> None:
    checkpoint = job.operation(f"{BASE}/checkpoints")["checkpointId"]

    details = job.client.get(f"{BASE}/checkpoints/details/{checkpoint}").json()

    assert (details["className"], details["status"]) == ("completed", "COMPLETED")
    assert details["num_acknowledged_subtasks"] == details["num_subtasks"] > 0
    assert details["state_size"] > 0
    (vertex, task), *_ = details["tasks"].items()
    subtasks = job.client.get(f"{BASE}/checkpoints/details/{checkpoint}/subtasks/{vertex}").json()["subtasks"]
    assert [subtask["className"] for subtask in subtasks] == ["completed"] * task["num_subtasks"]


def test_a_savepoint_is_written_and_disposed_of(job: ServedJob) -> None:
    place = Path(job.operation(f"{BASE}/savepoints", **{"target-directory": str(job.root / "sp")})["location"])
    was_there = (place / "_metadata").is_file()
    listed = job.client.get(f"{BASE}/savepoints").json()["savepoints"]

    disposed = job.operation("/savepoint-disposal", **{"savepoint-path": str(place)})

    assert was_there
    assert [(entry["path"], entry["exists"]) for entry in listed] == [(str(place), True)]
    assert disposed == {}
    assert not place.exists()
    assert job.client.get(f"{BASE}/savepoints").json()["savepoints"] == []
    assert place.name not in job.client.get(f"{BASE}/snapshots").text


def test_a_stop_writes_a_savepoint_and_the_job_is_finished(job: ServedJob) -> None:
    place = Path(job.operation(f"{BASE}/stop", targetDirectory=str(job.root / "sp"))["location"])

    heard = job.job.join()

    assert (place / "_metadata").is_file()
    assert heard.end is JobEnd.FINISHED
    assert job.status == "FINISHED"
    assert (
        job.client.get(f"{BASE}/execution-result").json()["job-execution-result"]["application-status"] == "SUCCEEDED"
    )


def test_cancel_ends_the_job(job: ServedJob) -> None:
    assert job.client.patch(BASE).status_code == 202

    assert job.job.join().end is JobEnd.CANCELLED
    assert job.status == "CANCELED"


def test_a_rescale_goes_on_at_the_new_parallelism(job: ServedJob) -> None:
    trigger = job.client.patch(f"{BASE}/rescaling?parallelism=3").json()["request-id"]

    assert job.ended(f"{BASE}/rescaling/{trigger}") == {}

    details = job.client.get(BASE).json()
    assert (details["parallelism"], details["state"]) == (3, "RUNNING")
    options = job.client.get(f"{BASE}/config").json()["execution-config"]["options"]
    assert {"key": "parallelism.default", "value": "3", "origin": "rescaling"} in options
    (rescale,) = job.client.get(f"{BASE}/rescales/history").json()
    assert rescale["terminalState"] == "COMPLETED"


def test_the_state_of_a_key_is_told(job: ServedJob) -> None:
    (operator,) = job.client.get(f"{BASE}/state").json()["operators"]
    (state,) = operator["states"]

    found = job.client.get(f"{BASE}/state/count/{state['name']}", params={"key": "a"}).json()

    assert (found["found"], found["value"]) == (True, ["a", 3])
    assert not job.client.get(f"{BASE}/state/count/{state['name']}?key=z").json()["found"]
    assert job.client.get(f"{BASE}/state/nobody/{state['name']}?key=a").status_code == 404


def _still_runs(job: ServedJob) -> None:
    assert job.status == "RUNNING"
    assert job.operation(f"{BASE}/checkpoints")["checkpointId"] > 0
    assert job.job.heard.restarts == []


@pytest.mark.parametrize("verb", ["savepoints", "stop"])
def test_a_savepoint_to_a_place_that_cannot_be_written_leaves_the_job_running(job: ServedJob, verb: str) -> None:
    (job.root / "file").write_text("not a directory")
    place = str(job.root / "file" / "below")

    operation = job.operation(f"{BASE}/{verb}", **{"target-directory": place, "targetDirectory": place})

    assert "file" in operation["failure-cause"]["message"]
    assert operation["failure-cause"]["serialized-throwable"]
    _still_runs(job)


@pytest.mark.parametrize("scheme", ["nothing://there", "s3://", "/proc/1/nowhere"])
def test_a_savepoint_to_no_place_at_all_leaves_the_job_running(job: ServedJob, scheme: str) -> None:
    operation = job.operation(f"{BASE}/savepoints", **{"target-directory": scheme})

    assert operation["failure-cause"]["message"]
    _still_runs(job)


def test_two_stops_at_once_make_one_savepoint(job: ServedJob) -> None:
    target = str(job.root / "sp")
    triggers = [
        job.client.post(f"{BASE}/stop", json={"targetDirectory": target}).json()["request-id"] for _ in range(2)
    ]

    outcomes = [job.ended(f"{BASE}/savepoints/{trigger}") for trigger in triggers]

    assert sorted(next(iter(outcome)) for outcome in outcomes) == ["failure-cause", "location"]
    assert len(list((job.root / "sp").iterdir())) == 1


@pytest.mark.parametrize("parallelism", [129, 32768])
def test_a_rescale_above_max_parallelism_leaves_the_job_as_it_was(job: ServedJob, parallelism: int) -> None:
    trigger = job.client.patch(f"{BASE}/rescaling?parallelism={parallelism}").json()["request-id"]

    operation = job.ended(f"{BASE}/rescaling/{trigger}")

    assert "parallelism" in operation["failure-cause"]["message"]
    assert job.client.get(BASE).json()["parallelism"] == 2
    _still_runs(job)


def test_only_a_savepoint_is_disposed_of(job: ServedJob) -> None:
    (job.root / "precious").mkdir()
    (job.root / "precious" / "file").write_text("keep")
    job.operation(f"{BASE}/checkpoints")
    checkpoint = job.client.get(f"{BASE}/checkpoints").json()["latest"]["completed"]["external_path"]

    for path in (str(job.root / "precious"), str(job.root), checkpoint, "/", "", "nowhere", "x://y", "\x00"):
        operation = job.operation("/savepoint-disposal", **{"savepoint-path": path})
        assert operation["failure-cause"]["message"], path

    assert (job.root / "precious" / "file").read_text() == "keep"
    latest = job.client.get(f"{BASE}/checkpoints").json()["latest"]["completed"]["external_path"]
    assert load_checkpoint(latest)[0].checkpoint_id > 0  # whole, with all files it names
    _still_runs(job)


def test_what_is_shown_of_the_settings_is_what_holds_and_where_it_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "checkdam.yaml"
    file.write_text(
        "execution.checkpointing.externalized-checkpoint-retention: RETAIN_ON_CANCELLATION\n"
        "execution.checkpointing.interval: 1 h\n"
        "restart-strategy.fixed-delay.delay: 7 s\n"
        "restart-strategy.type: failure-rate\n"
    )
    settings = Configuration.load(file, {"state.checkpoints.num-retained": "2"})
    every_epoch, three_times = CheckpointConfig(interval=timedelta(0)), FixedDelayRestart(attempts=3)
    with served_job(tmp_path, settings=settings, checkpoints=every_epoch, restart=three_times) as served:
        shown = served.client.get(f"{BASE}/config").json()["execution-config"]
        checkpoints = served.client.get(f"{BASE}/checkpoints/config").json()
        served.operation(f"{BASE}/checkpoints")  # the second at least
        served.client.patch(BASE)
        served.job.join()

    options = {each["key"]: (each["value"], each["origin"]) for each in shown["options"]}
    held = {
        "execution.checkpointing.interval": ("0 ms", "code"),
        "execution.checkpointing.externalized-checkpoint-retention": ("RETAIN_ON_CANCELLATION", "file"),
        "execution.checkpointing.num-retained": ("2", "command line"),
        "execution.checkpointing.timeout": ("600000 ms", "default"),
        "restart-strategy.type": ("fixed-delay", "code"),
        "restart-strategy.fixed-delay.attempts": ("3", "code"),
        "restart-strategy.fixed-delay.delay": ("7000 ms", "file"),
        "pipeline.name": ("local job", "code"),
    }
    assert {key: options[key] for key in held} == held
    assert "Restart after 7 s, at most 3 times." in shown["restart-strategy"]
    assert shown["user-config"]["execution.checkpointing.interval"] == "0 ms"
    assert (checkpoints["interval"], checkpoints["origins"]["interval"]) == (0, "code")
    assert checkpoints["origins"]["externalization"] == "file"
    assert len(served.job._store().completed()) == 2
