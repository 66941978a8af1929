"""What opens a storage is not told to whoever may look at a job."""

from __future__ import annotations

import msgspec
from tests.unit.server.made_jobs import JOB, RECORD
from tests.unit.server.serving import Served

from checkdam.config import Configuration
from checkdam.errors import StorageError
from checkdam.runtime.monitor.job_records import (
    CheckpointRecord,
    CheckpointStatus,
    JobRecord,
    RestoreRecord,
    SnapshotKind,
)
from checkdam.runtime.monitor.masking import without_credentials
from checkdam.server.app.endpoint import ApiCall
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api import cluster
from checkdam.storage.filesystem import open_storage

_replace = msgspec.structs.replace

ROOT = "memory://key:xyzzy@bucket"  # as s3 would be, but asked for nothing over a network
PATHS = (
    "",
    "/checkpoints",
    "/checkpoints/details/71",
    "/checkpoints/details/72",
    "/savepoints",
    "/metrics",
    "/snapshots",
)


def _snapshot(number: int, kind: SnapshotKind, path: str) -> CheckpointRecord:
    return CheckpointRecord(
        number, kind, CheckpointStatus.COMPLETED, 1, 1, 1, finished_at=2, duration=1.0, path=f"{ROOT}/{path}"
    )


def _secretive() -> JobRecord:
    savepoint = _snapshot(72, SnapshotKind.SAVEPOINT, "savepoint-a")
    return _replace(
        RECORD,
        settings=_replace(RECORD.settings, savepoint_directory=f"{ROOT}/sp", storage=f"{ROOT}/ck"),
        checkpoints=(savepoint, _snapshot(71, SnapshotKind.CHECKPOINT, "ck/chk-71")),
        savepoints=(savepoint,),
        restored=RestoreRecord(70, 1, f"{ROOT}/ck/chk-70", is_savepoint=False),
    )


def test_credentials_of_storage_are_not_shown(served: Served) -> None:
    served.tells(_secretive())

    answers = [served.client.get(f"/jobs/{JOB}{path}").text for path in PATHS]
    answers.append(served.client.get(f"/jobs/{JOB}/metrics?get=lastCheckpointExternalPath").text)

    assert "xyzzy" not in "".join(answers)
    assert "memory://******@bucket/ck/chk-71" in answers[1]
    assert "memory://******@bucket/sp" in answers[0]


def test_the_configured_directory_is_used_with_its_credentials(served: Served) -> None:
    served.tells(_secretive())

    served.client.post(f"/jobs/{JOB}/savepoints", json={})

    assert served.control.asked[0][:2] == ("savepoint", f"{ROOT}/sp")


def test_a_savepoint_can_be_disposed_of_as_it_is_shown(served: Served) -> None:
    open_storage(f"{ROOT}/savepoint-a").write("_metadata", b"")
    served.tells(_secretive())
    shown = served.of_job("/savepoints")["savepoints"][0]["path"]

    trigger = served.client.post("/savepoint-disposal", json={"savepoint-path": shown}).json()["request-id"]
    while served.get(f"/savepoint-disposal/{trigger}")["status"]["id"] != "COMPLETED":
        pass

    assert shown == without_credentials(f"{ROOT}/savepoint-a")
    assert served.disposed == [f"{ROOT}/savepoint-a"]


def test_a_failure_tells_no_credentials_and_may_hold_half_a_character(served: Served) -> None:
    trigger = served.client.post(f"/jobs/{JOB}/checkpoints", json={}).json()["request-id"]
    served.control.futures[0].set_exception(StorageError(f'cannot write "{ROOT}/ck/\udcff"'))

    cause = served.of_job(f"/checkpoints/{trigger}")["operation"]["failureCause"]

    assert cause["message"] == 'cannot write "memory://******@bucket/ck/\\udcff"'
    assert "xyzzy" not in str(cause)


def test_the_settings_of_the_server_show_no_credentials() -> None:
    given = {
        "execution.checkpointing.dir": f"{ROOT}/ck",
        "spark.hadoop.fs.azure.account.key.store": "xyzzy",
        "rest.auth.token": "xyzzy",
    }

    endpoints = {each.path: each for each in cluster.routes(Jobs(), Configuration.load(None, given))}
    told = {entry.key: entry.value for entry in endpoints["/jobmanager/config"].handler(ApiCall({}, {}))}

    assert told["execution.checkpointing.dir"] == "memory://******@bucket/ck"
    assert "xyzzy" not in str(told)
