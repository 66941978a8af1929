"""A job ready to run: the plan and every choice that goes with it."""

from __future__ import annotations

from dataclasses import dataclass, field

from checkdam.backends.contract import KeyedStateBackend
from checkdam.checkpoint.settings import CheckpointConfig, CheckpointingMode
from checkdam.graph.levels import JobPlan
from checkdam.ids import JobId
from checkdam.runtime.restart import NoRestart, RestartStrategy


@dataclass(frozen=True)
class Job:
    job_id: JobId
    name: str
    plan: JobPlan
    backend: KeyedStateBackend
    checkpoints: CheckpointConfig
    restart: RestartStrategy = field(default_factory=NoRestart)
    local_directory: str | None = None  # where slots keep working files; None: with other temporary files

    @property
    def storage(self) -> str | None:
        """Where checkpoints go; None: there are none."""
        return self.checkpoints.storage

    @property
    def mode(self) -> CheckpointingMode:
        return self.checkpoints.mode
