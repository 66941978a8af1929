"""Time to live: how long an element of state is kept after its last update (or read)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from checkdam.clock import milliseconds_in
from checkdam.errors import ConfigError


def _check_positive(what: str, number: int) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ConfigError(f"{what} needs a number of elements of at least 1, not {number!r}")


class TtlUpdateType(Enum):
    """Which accesses reset the age of an element."""

    ON_CREATE_AND_WRITE = "on create and write"
    ON_READ_AND_WRITE = "on read and write"


class TtlVisibility(Enum):
    """Whether an expired element may still be read."""

    NEVER_RETURN_EXPIRED = "never return expired"
    RETURN_EXPIRED_IF_NOT_CLEANED_UP = "return expired if not cleaned up"


class TtlTime(Enum):
    """The clock that measures age.

    In event time an element carries the timestamp of the record that touched it, which is compared with the watermark.
    """

    PROCESSING_TIME = "processing time"
    EVENT_TIME = "event time"


@dataclass(frozen=True)
class CleanupFullSnapshot:
    """Omits expired elements from full snapshots."""


@dataclass(frozen=True)
class CleanupIncrementally:
    """Inspects a few elements with every access to the state, or with every record, and drops expired ones."""

    cleanup_size: int = 5
    run_for_every_record: bool = False

    def __post_init__(self) -> None:
        _check_positive("CleanupIncrementally", self.cleanup_size)


@dataclass(frozen=True)
class CleanupOnCompaction:
    """Drops expired elements when state files are merged, which reads them anyway.

    `query_time_after_num_entries`: for the hashmap backend, after how many entries of a merge the clock is read again;
    in event time a merge uses the watermark of its checkpoint. RocksDB merges in the background without calling
    Python, so for that backend it is the number of entries inspected in each epoch.
    """

    query_time_after_num_entries: int = 1000

    def __post_init__(self) -> None:
        _check_positive("CleanupOnCompaction", self.query_time_after_num_entries)


Cleanup = CleanupFullSnapshot | CleanupIncrementally | CleanupOnCompaction

DEFAULT_CLEANUP: tuple[Cleanup, ...] = (CleanupFullSnapshot(), CleanupIncrementally(), CleanupOnCompaction())


@dataclass(frozen=True)
class StateTtlConfig:
    """How long elements live, and how expired ones are removed.

    A restore never brings an expired element back. A read drops it, and returns it one last time if `visibility`
    allows; `cleanup` adds other ways of removal. None: no background cleanup.
    """

    time_to_live: timedelta
    update_type: TtlUpdateType = TtlUpdateType.ON_CREATE_AND_WRITE
    visibility: TtlVisibility = TtlVisibility.NEVER_RETURN_EXPIRED
    time: TtlTime = TtlTime.PROCESSING_TIME
    cleanup: tuple[Cleanup, ...] | None = DEFAULT_CLEANUP

    def __post_init__(self) -> None:
        if not isinstance(self.time_to_live, timedelta) or self.time_to_live <= timedelta(0):
            raise ConfigError(
                f"a time to live must be positive, not {self.time_to_live!r}",
                hint="Write StateTtlConfig(timedelta(hours=1)), or omit ttl to keep the state forever.",
            )
        for name, kind in (("update_type", TtlUpdateType), ("visibility", TtlVisibility), ("time", TtlTime)):
            if not isinstance(getattr(self, name), kind):
                raise ConfigError(
                    f"{name} of a time to live must be a {kind.__name__}, not {getattr(self, name)!r}",
                    hint=f"Write {name}={next(iter(kind))}, or one of: {', '.join(each.name for each in kind)}.",
                )
        given = self.cleanup if self.cleanup is not None else ()
        if not isinstance(given, tuple) or not all(isinstance(each, Cleanup) for each in given):
            raise ConfigError(
                f"cleanup must be a tuple of strategies or None, not {self.cleanup!r}",
                hint="Write cleanup=(CleanupFullSnapshot(), CleanupIncrementally(10)).",
            )
        kinds = [type(each) for each in given]
        if len(kinds) != len(set(kinds)):
            raise ConfigError("cleanup names one strategy twice", hint="Keep one of each kind.")

    @property
    def milliseconds(self) -> int:
        return max(1, milliseconds_in(self.time_to_live))

    @property
    def prunes_full_snapshots(self) -> bool:
        return any(isinstance(each, CleanupFullSnapshot) for each in self.cleanup or ())

    @property
    def incremental(self) -> CleanupIncrementally | None:
        return next((each for each in self.cleanup or () if isinstance(each, CleanupIncrementally)), None)

    @property
    def on_compaction(self) -> CleanupOnCompaction | None:
        return next((each for each in self.cleanup or () if isinstance(each, CleanupOnCompaction)), None)
