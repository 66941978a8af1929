"""A job ready to run: the plan and all options that go with it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta

from checkdam import config
from checkdam.backends.contract import KeyedStateBackend
from checkdam.checkpoint.settings import CheckpointConfig, CheckpointingMode
from checkdam.graph.levels import JobPlan, plan_job
from checkdam.ids import JobId
from checkdam.runtime.driver_memory import DriverMemory
from checkdam.runtime.heartbeat import Heartbeat
from checkdam.runtime.local_copy_places import LocalCopyPlaces
from checkdam.runtime.logs.log_settings import LogSettings
from checkdam.runtime.restart import NoRestart, RestartStrategy
from checkdam.runtime.source_position import SourceChoices


@dataclass(frozen=True)
class Job:
    job_id: JobId
    name: str
    plan: JobPlan
    backend: KeyedStateBackend
    checkpoints: CheckpointConfig
    restart: RestartStrategy = field(default_factory=NoRestart)
    fail_on_repeated_rejection: bool = False  # of one record by the same error, whatever the restart strategy
    local_directory: str | None = None  # of the slots' working files; None: the usual temporary directory
    local_copies: LocalCopyPlaces | None = None  # of snapshots; None: none are kept
    driver_memory: DriverMemory | None = None  # how slots reach checkpoints in the driver's memory
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    cancellation_timeout: timedelta = config.CANCELLATION_TIMEOUT.default
    parallelism: int = 1  # of operators that do not set their own
    allow_repeated_output: bool = False  # when resuming from an older checkpoint and a sink cannot withdraw
    source_choices: SourceChoices = field(default_factory=SourceChoices)
    logs: LogSettings | None = None  # None: it writes no log files

    def at_parallelism(self, parallelism: int) -> Job:
        """Return the same job, planned anew; operators with a parallelism of their own keep it.

        Raises:
            JobGraphError: it is not between 1 and the max parallelism of the job, or of one of its operators.
        """
        plan = plan_job(
            self.plan.name, self.plan.operators, parallelism=parallelism, max_parallelism=self.plan.max_parallelism
        )
        return replace(self, plan=plan, parallelism=parallelism)

    @property
    def storage(self) -> str | None:
        """The URI of the checkpoint storage; None if there is none."""
        return self.checkpoints.storage

    @property
    def may_repeat_output(self) -> bool:
        return self.allow_repeated_output or self.mode is CheckpointingMode.AT_LEAST_ONCE

    @property
    def mode(self) -> CheckpointingMode:
        return self.checkpoints.mode
