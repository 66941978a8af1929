"""Job records to test with."""

from __future__ import annotations

from typing import Any

from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_records import (
    CheckpointCounts,
    CheckpointRecord,
    CheckpointStatus,
    InputRecord,
    JobRecord,
    JobSettings,
    OperatorCheckpoint,
    OperatorFigures,
    OperatorRecord,
    SlotRecord,
    SnapshotKind,
    SubtaskCheckpoint,
    SubtaskFigures,
)

JOB_ID = "a" * 32
START = 1_700_000_000_000

SETTINGS = JobSettings(
    mode="exactly_once",
    interval=1000,
    timeout=600_000,
    min_pause=0,
    max_concurrent=1,
    tolerable_failures=0,
    retention="retain_on_cancellation",
    num_retained=1,
    state_backend="hashmap",
    storage="file:///kept",
    savepoint_directory=None,
    restart_strategy="none",
)
SOURCE = OperatorRecord(0, "1" * 32, None, "words", "source", 2, 128, 0)
COUNT = OperatorRecord(
    1, "2" * 32, "count", 'sum "of\nall"', "sum", 2, 128, 1, (InputRecord(0, "HASH"),), is_stateful=True, is_named=True
)


def checkpoint(number: int, **changes: Any) -> CheckpointRecord:
    parts = tuple(SubtaskCheckpoint(i, START + 300, 1.0, 100.0, 300.0, 45, 450) for i in range(2))
    values: dict[str, Any] = {
        "id": number,
        "kind": SnapshotKind.CHECKPOINT,
        "status": CheckpointStatus.COMPLETED,
        "triggered_at": START,
        "epoch": number,
        "num_subtasks": 2,
        "finished_at": START + 300,
        "duration": 299.6,
        "checkpointed_bytes": 90,
        "state_bytes": 900,
        "metadata_bytes": 40,
        "path": f"file:///kept/{JOB_ID}/chk-{number}",
        "operators": (OperatorCheckpoint(1, 2, parts),),
    }
    return CheckpointRecord(**{**values, **changes})


def job(**changes: Any) -> JobRecord:
    values: dict[str, Any] = {
        "id": JOB_ID,
        "name": "word count",
        "status": JobStatus.RUNNING,
        "timestamps": {JobStatus.INITIALIZING: START, JobStatus.RUNNING: START + 1000},
        "parallelism": 2,
        "max_parallelism": 128,
        "settings": SETTINGS,
        "operators": (SOURCE, COUNT),
        "figures": (
            OperatorFigures(0, (SubtaskFigures(0, records_out=30),)),
            OperatorFigures(
                1,
                (
                    SubtaskFigures(0, 10, 10, 100, 50, 500.0, 0.25, 7, 3, 2.5),
                    SubtaskFigures(1, 20, 20, 200, 90, 900.0, 0.75, None, 4, 5.0),
                ),
                900,
            ),
        ),
        "slots": (SlotRecord(0, "h", "unix:x", 11, START, 1 << 20), SlotRecord(1, "h", "unix:y", 12, START)),
        "checkpoints": (checkpoint(2),),
        "checkpoint_counts": CheckpointCounts(total=3, completed=2, failed=1),
        "restarts": 1,
        "spent": {JobStatus.INITIALIZING: 900, JobStatus.CREATED: 100, JobStatus.RUNNING: 5000},
    }
    return JobRecord(**{**values, **changes})
