"""How a job ended."""

from __future__ import annotations

from dataclasses import dataclass

from checkdam.checkpoint.settings import JobEnd
from checkdam.ids import JobId


@dataclass(frozen=True)
class JobResult:
    """How a job ended, and the checkpoint it can be resumed from, if one was kept."""

    job_id: JobId
    end: JobEnd
    last_checkpoint: str | None
