from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.server.made_jobs import COUNT, JOB, RECORD, SAVEPOINT, SETTINGS, SOURCE, START
from tests.unit.server.serving import Served

from checkdam.graph.metrics import percentile
from checkdam.runtime.monitor.job_records import CheckpointCounts, SnapshotKind
from checkdam.server.flink_api.statistics import statistics

NOTHING_YET = {"min": 0, "max": 0, "avg": 0, "p50": "NaN", "p90": "NaN", "p95": "NaN", "p99": "NaN", "p999": "NaN"}
ZEROS = {"min": 0, "max": 0, "avg": 0, "p50": 0.0, "p90": 0.0, "p95": 0.0, "p99": 0.0, "p999": 0.0}


def test_counts_are_those_of_the_drivers_life(served: Served) -> None:
    assert served.of_job("/checkpoints")["counts"] == {
        "restored": 1,
        "total": 4,
        "in_progress": 1,
        "completed": 2,
        "failed": 1,
    }


def test_each_kind_carries_its_class_name(served: Served) -> None:
    history = served.of_job("/checkpoints")["history"]

    assert [(entry["className"], entry["status"], entry["id"]) for entry in history] == [
        ("in_progress", "IN_PROGRESS", 4),
        ("completed", "COMPLETED", 3),
        ("completed", "COMPLETED", 2),
        ("failed", "FAILED", 1),
    ]
    assert all(entry["tasks"] == {} for entry in history)


def test_a_completed_checkpoint_in_full(served: Served) -> None:
    assert served.of_job("/checkpoints")["latest"]["completed"] == {
        "className": "completed",
        "id": 2,
        "status": "COMPLETED",
        "is_savepoint": False,
        "savepointFormat": None,
        "checkpoint_type": "CHECKPOINT",
        "trigger_timestamp": START + 4_970,
        "latest_ack_timestamp": START + 5_001,
        "end_to_end_duration": 31,
        "checkpointed_size": 300,
        "state_size": 1000,
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": 0,
        "num_subtasks": 2,
        "num_acknowledged_subtasks": 2,
        "tasks": {},
        "external_path": "file:/checkpoints/0123/chk-2",
        "discarded": False,
    }


def test_every_figure_of_a_checkpoints_time_is_the_same(served: Served) -> None:
    """It is that from the trigger to the last acknowledgement; `duration` in the record, of an old archive, is not."""
    entries = served.of_job("/checkpoints")["history"]
    done = [entry for entry in entries if entry["status"] == "COMPLETED"]

    assert [entry["latest_ack_timestamp"] - entry["trigger_timestamp"] for entry in done] == [
        entry["end_to_end_duration"] for entry in done
    ]
    by_id = {entry["id"]: entry["end_to_end_duration"] for entry in entries}
    plotted = [each for each in served.of_job("/series")["checkpoint_duration"] if each is not None]
    assert plotted == [by_id[entry["id"]] for entry in done if not entry["is_savepoint"]]
    latest = served.get("/jobs/overview")["jobs"][0]["last-checkpoint"]
    assert latest["duration"] == by_id[latest["id"]]
    newest = max(entry["id"] for entry in done)
    assert served.of_job("/metrics", get="lastCheckpointDuration") == [
        {"id": "lastCheckpointDuration", "value": str(by_id[newest])}
    ]


@pytest.mark.parametrize("values", [[95.9, 76.2], [0.4], [1.9] * 300, [float(n) + 0.99 for n in range(7)]])
def test_no_percentile_exceeds_the_maximum(values: list[float]) -> None:
    figures = statistics(values)

    ranked = [figures.min, figures.p50, figures.p90, figures.p95, figures.p99, figures.p999, figures.max]
    assert ranked == sorted(ranked)


def test_the_latest_of_each_kind(served: Served, tmp_path: Path) -> None:
    (tmp_path / "_metadata").touch()
    savepoint = msgspec.structs.replace(SAVEPOINT, path=str(tmp_path))
    served.tells(msgspec.structs.replace(RECORD, savepoints=(savepoint,)))

    latest = served.of_job("/checkpoints")["latest"]

    assert (latest["savepoint"]["id"], latest["savepoint"]["savepointFormat"]) == (3, "CANONICAL")
    assert latest["failed"]["failure_timestamp"] == START + 2_000
    assert latest["failed"]["failure_message"] == "Checkpoint expired before completing."
    assert latest["failed"]["latest_ack_timestamp"] == latest["failed"]["end_to_end_duration"] == -1
    assert latest["restored"] == {
        "id": 1,
        "restore_timestamp": START + 100,
        "is_savepoint": False,
        "external_path": "file:/checkpoints/old/chk-1",
    }


def test_before_the_first_checkpoint_there_is_no_number(served: Served) -> None:
    nothing: dict[str, Any] = {"checkpoints": (), "savepoints": (), "restored": None}
    served.tells(msgspec.structs.replace(RECORD, checkpoint_counts=CheckpointCounts(), **nothing))

    body = served.of_job("/checkpoints")

    assert body["summary"]["state_size"] == NOTHING_YET
    assert body["summary"]["alignment_buffered"] == ZEROS
    assert body["latest"] == {"completed": None, "savepoint": None, "failed": None, "restored": None}


def test_a_stop_is_a_savepoint_of_its_own_kind(served: Served) -> None:
    stop = msgspec.structs.replace(SAVEPOINT, kind=SnapshotKind.SYNC_SAVEPOINT)
    served.tells(msgspec.structs.replace(RECORD, checkpoints=(stop,), savepoints=(stop,)))

    entry = served.of_job("/checkpoints")["history"][0]

    assert (entry["checkpoint_type"], entry["is_savepoint"]) == ("SYNC_SAVEPOINT", True)


def test_details_name_the_operators(served: Served) -> None:
    tasks = served.of_job("/checkpoints/details/2")["tasks"]

    assert tasks == {
        COUNT: {
            "id": 2,
            "status": "COMPLETED",
            "latest_ack_timestamp": START + 5_001,
            "checkpointed_size": 300,
            "state_size": 1000,
            "end_to_end_duration": 31,
            "alignment_buffered": 0,
            "processed_data": 0,
            "persisted_data": 0,
            "num_subtasks": 2,
            "num_acknowledged_subtasks": 2,
        }
    }


def test_one_that_is_under_way_counts_who_has_answered(served: Served) -> None:
    entry = served.of_job("/checkpoints/details/4")

    assert (entry["num_acknowledged_subtasks"], entry["num_subtasks"]) == (1, 2)
    assert entry["tasks"][COUNT]["status"] == "IN_PROGRESS"
    assert "external_path" not in entry


def test_subtasks_are_completed_or_pending_in_two_spellings(served: Served) -> None:
    pending, completed = served.of_job(f"/checkpoints/details/4/subtasks/{COUNT}")["subtasks"]

    assert pending == {"className": "pending", "index": 0, "status": "pending_or_failed"}
    assert completed == {
        "className": "completed",
        "index": 1,
        "status": "completed",
        "ack_timestamp": START + 5_001,
        "end_to_end_duration": 31,
        "checkpointed_size": 50,
        "state_size": 700,
        "checkpoint": {"sync": 1, "async": 21},
        "alignment": {"buffered": 0, "processed": 0, "persisted": 0, "duration": 0},
        "start_delay": 9,
        "unaligned_checkpoint": False,
        "aborted": False,
    }


def test_the_summary_of_subtasks(served: Served) -> None:
    summary = served.of_job(f"/checkpoints/details/2/subtasks/{COUNT}")["summary"]

    assert summary["checkpointed_size"]["max"] == 200
    assert summary["checkpoint_duration"]["async"]["avg"] == 20
    assert summary["alignment"] == dict.fromkeys(("buffered", "processed", "persisted", "duration"), ZEROS)


def test_a_checkpoint_that_is_not_remembered_is_not_found(served: Served) -> None:
    assert served.errors("GET", f"/jobs/{JOB}/checkpoints/details/99", 404) == [
        "Could not find checkpointing statistics for checkpoint 99."
    ]


def test_an_operator_that_took_no_part_is_not_found(served: Served) -> None:
    served.errors("GET", f"/jobs/{JOB}/checkpoints/details/2/subtasks/{SOURCE}", 404)


def test_the_configuration_has_its_mode_in_lower_case(served: Served) -> None:
    assert served.of_job("/checkpoints/config") == {
        "mode": "exactly_once",
        "interval": 10_000,
        "timeout": 600_000,
        "min_pause": 0,
        "max_concurrent": 1,
        "externalization": {"enabled": True, "delete_on_cancellation": False},
        "state_backend": "EmbeddedRocksDBStateBackend",
        "checkpoint_storage": "FileSystemCheckpointStorage",
        "unaligned_checkpoints": False,
        "aligned_checkpoint_timeout": 0,
        "tolerable_failed_checkpoints": 0,
        "checkpoints_after_tasks_finish": True,
        "state_changelog_enabled": False,
        "changelog_periodic_materialization_interval": 600_000,
        "changelog_storage": None,
        "num_retained": 3,
        "directory": "file:/checkpoints",
        "origins": {"interval": "file"},
    }


def test_no_periodic_checkpoints_is_flinks_largest_number(served: Served) -> None:
    served.tells(msgspec.structs.replace(RECORD, settings=msgspec.structs.replace(SETTINGS, interval=-1)))

    assert served.of_job("/checkpoints/config")["interval"] == 9223372036854775807


def test_without_storage_there_is_nothing_to_tell(served: Served) -> None:
    off = msgspec.structs.replace(SETTINGS, storage=None)
    served.tells(msgspec.structs.replace(RECORD, settings=off, checkpoints=(), savepoints=()))

    assert served.errors("GET", f"/jobs/{JOB}/checkpoints", 404) == ["Checkpointing has not been enabled."]
    assert served.errors("GET", f"/jobs/{JOB}/checkpoints/config", 404) == [
        f"Checkpointing is not enabled for this job ({JOB})."
    ]


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([5], 50.0, 5.0), ([1, 2, 3, 4], 50.0, 2.5), ([1, 2, 3], 99.9, 3.0), ([10, 20], 10.0, 10.0)],
)
def test_percentiles_are_estimated_as_flinks_library_does(values: list[float], percent: float, expected: float) -> None:
    assert percentile(values, percent) == expected


def test_statistics_of_nothing_have_no_percentiles() -> None:
    assert statistics([]).p50 == "NaN"
