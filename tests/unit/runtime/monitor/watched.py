"""A job whose events a test tells by hand, or that a LocalJob tells."""

from __future__ import annotations

from typing import Any, cast

from tests.support.word_count import UID, WordCount

from checkdam.config import Configuration
from checkdam.ids import CheckpointId, Epoch, OperatorUid, SubtaskIndex
from checkdam.runtime.monitor.job_events import CheckpointStats, CheckpointTriggered
from checkdam.runtime.monitor.job_monitor import JobMonitor
from checkdam.runtime.monitor.job_records import JobRecord, SnapshotKind
from checkdam.runtime.monitor.listeners import JointListener
from checkdam.state.snapshot_handles import OperatorSnapshot, SlotSnapshot
from checkdam.testing.local_job import Heard, LocalJob
from checkdam.testing.manual_clock import ManualClock


class Watched:
    """A word count that never runs, its monitor, and a clock; every call below is one event."""

    def __init__(self, configuration: Configuration | None = None) -> None:
        self.clock = ManualClock()
        self.job = WordCount([["a"]]).job().job()
        self.monitor = JobMonitor(self.job, self.clock, configuration=configuration)

    @property
    def record(self) -> JobRecord:
        return self.monitor.record()

    @property
    def now(self) -> int:
        return int(self.clock.now().timestamp() * 1000)

    def trigger(self, number: int, kind: SnapshotKind = SnapshotKind.CHECKPOINT) -> None:
        self.monitor.checkpoint_triggered(CheckpointTriggered(CheckpointId(number), Epoch(number), kind))

    def acknowledge(self, number: int, subtask: int, **figures: Any) -> None:
        part = OperatorSnapshot(OperatorUid(UID), "sum", **figures)
        snapshot = SlotSnapshot(CheckpointId(number), SubtaskIndex(subtask), (part,))
        self.monitor.checkpoint_acknowledged(snapshot, self.clock.now())

    def complete(self, number: int, kind: SnapshotKind = SnapshotKind.CHECKPOINT) -> None:
        name = "savepoint-c0ffee-1" if kind.is_savepoint else f"chk-{number}"
        self.monitor.checkpoint_completed(
            CheckpointStats(
                checkpoint_id=CheckpointId(number),
                epoch=Epoch(number),
                path=f"file:///kept/{name}",
                seconds=0.25,
                sync_seconds=0.001,
                async_seconds=0.2,
                state_bytes=900,
                new_bytes=90,
                kind=kind,
                metadata_bytes=40,
            )
        )

    def checkpoint(self, number: int, kind: SnapshotKind = SnapshotKind.CHECKPOINT) -> None:
        self.trigger(number, kind)
        for subtask in range(self.job.plan.slots):
            self.acknowledge(number, subtask, new_bytes=45, state_bytes=450)
        self.complete(number, kind)


def watch(job: LocalJob) -> JobMonitor:
    """Let a monitor hear what a LocalJob tells."""
    monitor = JobMonitor(job.job())
    job.heard = cast(Heard, JointListener(job.heard, monitor))
    return monitor
