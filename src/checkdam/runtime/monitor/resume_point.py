"""What a job that has ended can be resumed from: which path, and at which parallelism."""

from __future__ import annotations

from checkdam.checkpoint.settings import JobEnd
from checkdam.errors import CheckdamError
from checkdam.runtime.monitor.job_events import CheckpointStats
from checkdam.runtime.monitor.job_records import SnapshotKind


class ResumePoint:
    """Follows a job's events. A job that was stopped or cancelled with a savepoint is resumed from that savepoint."""

    def __init__(self) -> None:
        self._stopped_with: str | None = None  # the savepoint
        self._newest_savepoint: str | None = None  # None once a later checkpoint has completed
        self.is_drained = False  # event time has ended: the job should not be resumed from its savepoint
        self.parallelism: int | None = None  # of the last rescale; None: as the job was started

    def checkpoint_completed(self, stats: CheckpointStats) -> None:
        if stats.kind is SnapshotKind.SYNC_SAVEPOINT:
            self._stopped_with = stats.path
        self._newest_savepoint = stats.path if stats.kind.is_savepoint else None

    def drained(self) -> None:
        self.is_drained = True

    def restarting(self) -> None:
        self._stopped_with = self._newest_savepoint = None
        self.is_drained = False

    def rescaled(self, parallelism: int, failure: CheckdamError | None) -> None:
        if failure is None:
            self.parallelism = parallelism

    def savepoint(self, end: JobEnd) -> str | None:
        """Return the savepoint the job ended with, if any."""
        return {JobEnd.FINISHED: self._stopped_with, JobEnd.CANCELLED: self._newest_savepoint}.get(end)
