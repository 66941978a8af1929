"""A job made by hand, with a little of everything, and a control that writes down what it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import msgspec

from checkdam.errors import StateAccessError
from checkdam.ids import CheckpointId, JobId
from checkdam.runtime.job_control import KeysPage, QueryableState, QueryAnswer, RunningJob, SavepointFormat
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.figure_history import FigureSample
from checkdam.runtime.monitor.job_records import (
    CheckpointCounts,
    CheckpointRecord,
    CheckpointStatus,
    EpochRecord,
    ExceptionRecord,
    InputRecord,
    JobRecord,
    JobSettings,
    OperatorCheckpoint,
    OperatorFigures,
    OperatorRecord,
    OptionRecord,
    RescaleRecord,
    RestoreRecord,
    SlotRecord,
    SnapshotKind,
    SubtaskCheckpoint,
    SubtaskFigures,
)

JOB = JobId("0123456789abcdef0123456789abcdef")
OTHER = JobId("ffffffffffffffffffffffffffffffff")
SOURCE, COUNT = "a" * 32, "b" * 32
RESCALE = "c" * 32
START = 1_700_000_000_000

SETTINGS = JobSettings(
    mode="EXACTLY_ONCE",
    interval=10_000,
    timeout=600_000,
    min_pause=0,
    max_concurrent=1,
    tolerable_failures=0,
    retention="RETAIN_ON_CANCELLATION",
    num_retained=3,
    state_backend="rocksdb",
    storage="file:/checkpoints",
    savepoint_directory="file:/savepoints",
    restart_strategy="fixed-delay (3 attempts)",
    configuration={"parallelism.default": "2"},
    options=(
        OptionRecord("execution.checkpointing.interval", "10000 ms", "file"),
        OptionRecord("parallelism.default", "2", "command line"),
    ),
)

OPERATORS = (
    OperatorRecord(0, SOURCE, None, 'Source: "words" <text>', "source", 2, 128, 0),
    OperatorRecord(1, COUNT, "count", "count", "keyed process", 2, 128, 1, (InputRecord(0, "HASH"),), is_stateful=True),
)


def _part(subtask: int, *, new: int, whole: int) -> SubtaskCheckpoint:
    return SubtaskCheckpoint(subtask, START + 5_000 + subtask, 1.5, 20.0 + subtask, 30.0 + subtask, new, whole)


COMPLETED = CheckpointRecord(
    2,
    SnapshotKind.CHECKPOINT,
    CheckpointStatus.COMPLETED,
    START + 4_970,
    7,
    2,
    finished_at=START + 5_040,
    duration=70.0,
    checkpointed_bytes=300,
    state_bytes=1000,
    path="file:/checkpoints/0123/chk-2",
    operators=(OperatorCheckpoint(1, 2, (_part(0, new=100, whole=400), _part(1, new=200, whole=600))),),
)
PENDING = CheckpointRecord(
    4,
    SnapshotKind.CHECKPOINT,
    CheckpointStatus.IN_PROGRESS,
    START + 9_000,
    12,
    2,
    operators=(OperatorCheckpoint(1, 2, (_part(1, new=50, whole=700),)),),
)
FAILED = CheckpointRecord(
    1,
    SnapshotKind.CHECKPOINT,
    CheckpointStatus.FAILED,
    START + 1_000,
    3,
    2,
    finished_at=START + 2_000,
    failure="Checkpoint expired before completing.",
)
SAVEPOINT = CheckpointRecord(
    3,
    SnapshotKind.SAVEPOINT,
    CheckpointStatus.COMPLETED,
    START + 6_000,
    9,
    2,
    savepoint_format="CANONICAL",
    finished_at=START + 6_500,
    duration=500.0,
    checkpointed_bytes=1000,
    state_bytes=1000,
    path="/nowhere/savepoint-012345-0123456789ab",
)

RECORD = JobRecord(
    id=JOB,
    name="words",
    status=JobStatus.RUNNING,
    timestamps={JobStatus.INITIALIZING: START, JobStatus.RUNNING: START + 500},
    parallelism=2,
    max_parallelism=128,
    settings=SETTINGS,
    operators=OPERATORS,
    figures=(
        OperatorFigures(0, (SubtaskFigures(0, 0, 10, 0, 100), SubtaskFigures(1, 0, 20, 0, 200))),
        OperatorFigures(
            1,
            (
                SubtaskFigures(0, 10, 1, 100, 5, 250.0, 0.25, START, 3),
                SubtaskFigures(1, 20, 2, 200, 6, 750.0, 0.75, START - 1, 4),
            ),
            1000,
        ),
    ),
    slots=(SlotRecord(0, "host", "host:4000", 11, START, 50 << 20), SlotRecord(1, "host", "host:4001", 12, START)),
    checkpoints=(PENDING, SAVEPOINT, COMPLETED, FAILED),
    checkpoint_counts=CheckpointCounts(1, 4, 1, 2, 1),
    savepoints=(SAVEPOINT,),
    restored=RestoreRecord(1, START + 100, "file:/checkpoints/old/chk-1", is_savepoint=False),
    exceptions=(
        ExceptionRecord("ValueError", "bad word", "ValueError: bad word", START + 3_000, "count", 1, "host:12"),
        ExceptionRecord("SlotLostError", "gone", "SlotLostError: gone", START + 2_000),
    ),
    rescales=(RescaleRecord(RESCALE, START + 7_000, 1, 2, START + 7_800),),
    epochs=(EpochRecord(1, START + 600, 12.5, 5, 3), EpochRecord(2, START + 700, 10.0, 6, 2, 4, is_estimated=True)),
    epoch=2,
    keys=7,
    restarts=1,
)


def with_status(status: JobStatus, **changes: Any) -> JobRecord:
    timestamps = {**RECORD.timestamps, status: START + 10_000}
    return msgspec.structs.replace(RECORD, status=status, timestamps=timestamps, **changes)


@dataclass
class AskedControl:
    """A JobControl. What it is asked is in `asked`; each future is left open for the test to end."""

    asked: list[tuple[Any, ...]] = field(default_factory=list)
    futures: list[Future[Any]] = field(default_factory=list)

    def _ask(self, *what: Any) -> Future[Any]:
        self.asked.append(what)
        self.futures.append(Future())
        return self.futures[-1]

    def trigger_checkpoint(self, *, full: bool = False) -> Future[CheckpointId]:
        return self._ask("checkpoint", full)

    def trigger_savepoint(self, target: str, format: SavepointFormat) -> Future[str]:
        return self._ask("savepoint", target, format)

    def stop_with_savepoint(self, target: str, format: SavepointFormat, *, drain: bool) -> Future[str]:
        return self._ask("stop", target, format, drain)

    def rescale(self, parallelism: int) -> Future[None]:
        return self._ask("rescale", parallelism)

    def cancel(self) -> None:
        self.asked.append(("cancel",))


class NoQueries:
    """StateQueries of a job without state."""

    def states(self) -> Sequence[QueryableState]:
        return ()

    def get(
        self, uid: str, name: str, keys: Sequence[Any], *, map_key: Any = None, window: Any = None
    ) -> Sequence[QueryAnswer]:
        raise StateAccessError(f'the job has no operator "{uid}"')

    def page(self, uid: str, name: str, cursor: str | None, limit: int, text: str | None = None) -> KeysPage:
        raise StateAccessError(f'the job has no operator "{uid}"')


@dataclass
class MadeMonitor:
    now: JobRecord
    history: Sequence[FigureSample] = ()

    def record(self) -> JobRecord:
        return self.now

    def figure_history(self) -> Sequence[FigureSample]:
        return self.history


@dataclass
class MadeArchive:
    kept: dict[str, JobRecord] = field(default_factory=dict)

    def records(self) -> Sequence[JobRecord]:
        return list(self.kept.values())

    def record(self, job_id: str) -> JobRecord | None:
        return self.kept.get(job_id)


def running_job(record: JobRecord = RECORD, control: AskedControl | None = None) -> RunningJob:
    return RunningJob(JobId(record.id), record.name, control or AskedControl(), NoQueries(), MadeMonitor(record))
