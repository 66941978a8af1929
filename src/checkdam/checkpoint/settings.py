"""Checkpoint settings: when checkpoints are taken, their timeout and their retention."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Final

from checkdam import config
from checkdam.config import Configuration, Origin, parse_memory_size
from checkdam.errors import ConfigError
from checkdam.option_fields import OptionFields, option_field, options_from
from checkdam.storage.memory_storage import is_in_memory

IN_MEMORY: Final = "memory://jobmanager"
"""The storage setting for checkpoints in the memory of the driver."""


_JOB_MANAGER: Final = "jobmanager"


class CheckpointingMode(Enum):
    """When output becomes visible; state is exactly-once in both modes."""

    EXACTLY_ONCE = "exactly_once"  # with the checkpoint that covers it
    AT_LEAST_ONCE = "at_least_once"  # with its epoch; repeated after a failover


class CheckpointRetention(Enum):
    """After which end of a job its retained checkpoints stay.

    ===========================  ========  =========  =======
    value                        finished  cancelled  failed
    ===========================  ========  =========  =======
    RETAIN_ON_CANCELLATION       kept      kept       kept
    DELETE_ON_CANCELLATION       deleted   deleted    kept
    NO_EXTERNALIZED_CHECKPOINTS  deleted   deleted    deleted
    ===========================  ========  =========  =======

    As in Flink, with one exception: under RETAIN_ON_CANCELLATION Flink deletes the checkpoints of a finished job,
    while here the final checkpoint of a bounded job stays, to be inspected and resumed from. A suspended job (SIGTERM)
    keeps them under any retention, as does one whose driver is killed.
    """

    RETAIN_ON_CANCELLATION = "retain_on_cancellation"
    DELETE_ON_CANCELLATION = "delete_on_cancellation"
    RETAIN_ON_FAILURE = "delete_on_cancellation"  # noqa: PIE796  Flink's other name for it
    NO_EXTERNALIZED_CHECKPOINTS = "no_externalized_checkpoints"


class RestoreMode(Enum):
    """Which job owns the snapshot that a job is restored from."""

    NO_CLAIM = "no_claim"
    """The owner stays the same: the job is a new one, its first snapshot is full, and nothing is deleted."""

    CLAIM = "claim"
    """The restored job: it resumes as the job of the checkpoint; it deletes a savepoint after its first checkpoint."""


def restore_mode(text: str) -> RestoreMode:
    """Parse the name of a mode, in any case, with "-" or "_".

    Raises:
        ConfigError: there is no such mode.
    """
    name = text.strip().replace("-", "_").upper()
    if name in RestoreMode.__members__:
        return RestoreMode[name]
    if name == "LEGACY":
        raise ConfigError(
            "restore mode LEGACY is not supported: in it the files that the job continues to share have no owner",
            hint="Use no_claim to leave the snapshot alone, or claim to let the job have it.",
        )
    raise ConfigError(f'there is no restore mode "{text}"', hint="Use no_claim or claim.")


class JobEnd(Enum):
    """How a job ended: its input ended, it was cancelled, or it failed and restarts did not help.

    A suspended job is not over: its driver was asked to stop, and the next one resumes from the retained checkpoints.
    """

    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"
    SUSPENDED = "suspended"


_KEPT_AFTER = {
    CheckpointRetention.RETAIN_ON_CANCELLATION: frozenset(JobEnd),
    CheckpointRetention.DELETE_ON_CANCELLATION: frozenset({JobEnd.FAILED, JobEnd.SUSPENDED}),
    CheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS: frozenset({JobEnd.SUSPENDED}),
}


def keeps_checkpoints(retention: CheckpointRetention, end: JobEnd) -> bool:
    """Return whether the retained checkpoints stay after this end; see the table of CheckpointRetention."""
    return end in _KEPT_AFTER[retention]


@dataclass(frozen=True)
class CheckpointConfig(OptionFields):
    """How a job takes checkpoints. Checked when built; the defaults are Flink's.

    An option that a program does not set keeps the value of the command line or the settings file.

    `interval` runs from start to start: None takes only manual checkpoints and the final one, zero takes one after
    every epoch. `min_pause` runs from the end of one checkpoint to the start of the next and, as in Flink, implies
    `max_concurrent=1`. More than `tolerable_failures` failed checkpoints in a row cause a failover. Without
    `incremental` every checkpoint is full.

    `storage` is a directory or URI, or "jobmanager": the memory of the driver, which survives only a failover and
    accepts at most `max_state_size` per state. None leaves the choice to the settings.

    Raises:
        ConfigError: a value is invalid; names it with valid ones.
    """

    interval: timedelta | None = option_field(config.CHECKPOINT_INTERVAL)
    mode: CheckpointingMode = option_field(config.CHECKPOINT_MODE, CheckpointingMode.__getitem__)
    min_pause: timedelta = option_field(config.CHECKPOINT_MIN_PAUSE)
    timeout: timedelta = option_field(config.CHECKPOINT_TIMEOUT)
    tolerable_failures: int = option_field(config.TOLERABLE_FAILED_CHECKPOINTS)
    max_concurrent: int = option_field(config.MAX_CONCURRENT_CHECKPOINTS)
    retention: CheckpointRetention = option_field(config.CHECKPOINT_RETENTION, CheckpointRetention.__getitem__)
    num_retained: int = option_field(config.NUM_RETAINED_CHECKPOINTS)
    storage: str | None = option_field(config.CHECKPOINT_DIR)
    incremental: bool = option_field(config.INCREMENTAL_CHECKPOINTS)
    max_state_size: int | str = option_field(config.MEMORY_STORAGE_MAX_SIZE)

    def __post_init__(self) -> None:
        self._fill(none_is_unnamed=("storage",))
        if self.interval is not None:
            _check_duration("interval", self.interval)
        _check_duration("min_pause", self.min_pause)
        _check_duration("timeout", self.timeout)
        if not self.timeout:
            raise ConfigError("CheckpointConfig: timeout is zero", hint="Give a checkpoint time, or use the default.")
        _check_count("tolerable_failures", self.tolerable_failures, minimum=0)
        _check_count("max_concurrent", self.max_concurrent, minimum=1)
        _check_count("num_retained", self.num_retained, minimum=1)
        if not isinstance(self.incremental, bool):
            raise ConfigError(f"CheckpointConfig: incremental is {self.incremental!r}", hint="Write True or False.")
        _check_member("mode", self.mode, CheckpointingMode)
        _check_member("retention", self.retention, CheckpointRetention)
        if self.storage is not None and (not isinstance(self.storage, str) or not self.storage.strip()):
            raise ConfigError(
                f"CheckpointConfig: storage is {self.storage!r}, not a directory or URI",
                hint='Write for example storage="file:///data/checkpoints".',
            )
        object.__setattr__(self, "max_state_size", parse_memory_size(self.max_state_size))
        if self.storage is not None:
            object.__setattr__(self, "storage", _place(self.storage))
        if self.min_pause:
            object.__setattr__(self, "max_concurrent", 1)

    @classmethod
    def from_configuration(cls, configuration: Configuration) -> CheckpointConfig:
        """Read the settings, with Flink's defaults for the rest."""
        return options_from(cls, configuration)


def settle_checkpoints(configuration: Configuration) -> Configuration:
    """Return a copy of the settings with the effective values of all checkpoint options, which depend on each other."""
    storage, place = configuration.setting(config.CHECKPOINT_STORAGE), configuration.setting(config.CHECKPOINT_DIR)
    if storage.value == _JOB_MANAGER and not place.origin.outranks(storage.origin):
        configuration = settle_place(configuration, IN_MEMORY, storage.origin)
    elif place.value is not None:
        configuration = settle_place(configuration, _place(place.value), place.origin)
    checkpoints = CheckpointConfig.from_configuration(configuration)
    if checkpoints.max_concurrent == configuration.get(config.MAX_CONCURRENT_CHECKPOINTS):
        return configuration
    origin = configuration.setting(config.CHECKPOINT_MIN_PAUSE).origin
    return configuration.settled(config.MAX_CONCURRENT_CHECKPOINTS, checkpoints.max_concurrent, origin)


def settle_place(configuration: Configuration, place: str, origin: Origin) -> Configuration:
    """Return a copy of the settings with this checkpoint directory; the kind of storage follows from it."""
    configuration = configuration.settled(config.CHECKPOINT_DIR, place, origin)
    kind = _JOB_MANAGER if is_in_memory(place) else "filesystem"
    if configuration.get(config.CHECKPOINT_STORAGE) == kind:
        return configuration
    return configuration.settled(config.CHECKPOINT_STORAGE, kind, origin)


def _place(storage: str) -> str:
    return IN_MEMORY if storage == _JOB_MANAGER else storage


def _check_duration(name: str, value: object) -> None:
    if not isinstance(value, timedelta) or value < timedelta(0):
        raise ConfigError(
            f"CheckpointConfig: {name} is {value!r}, not a duration of zero or more",
            hint=f"Write for example {name}=timedelta(seconds=10).",
        )


def _check_count(name: str, value: object, *, minimum: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise ConfigError(
            f"CheckpointConfig: {name} is {value!r}, not a whole number of at least {minimum}",
            hint=f"Write for example {name}={max(minimum, 1)}.",
        )


def _check_member(name: str, value: object, kind: type[Enum]) -> None:
    if not isinstance(value, kind):
        members = ", ".join(f"{kind.__name__}.{member.name}" for member in kind)
        raise ConfigError(f"CheckpointConfig: {name} is {value!r}", hint=f"Use one of {members}.")
