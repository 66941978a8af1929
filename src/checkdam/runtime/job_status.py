"""The status of a job."""

from __future__ import annotations

from enum import StrEnum


class JobStatus(StrEnum):
    """Flink's names. FAILED, CANCELED and FINISHED are final; a SUSPENDED job has no driver, and may be resumed."""

    INITIALIZING = "INITIALIZING"
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    FAILING = "FAILING"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELED = "CANCELED"
    FINISHED = "FINISHED"
    RESTARTING = "RESTARTING"
    SUSPENDED = "SUSPENDED"
    RECONCILING = "RECONCILING"

    @property
    def is_terminal(self) -> bool:
        return self in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED)

    @property
    def has_ended(self) -> bool:
        """Whether no driver runs the job any more."""
        return self.is_terminal or self is JobStatus.SUSPENDED
