"""What a snapshot tells of the states in it, as plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OperatorDescription:
    """One operator that a snapshot has state of."""

    uid: str
    name: str
    parallelism: int
    max_parallelism: int
    backend: str | None
    """What wrote its keyed state; None if it has none."""
    bytes: int
    """The size of its files, each counted once."""


@dataclass(frozen=True)
class StateDescription:
    """One state of an operator, all subtasks together.

    Types are named as in Python; what was a class of the job is named as it was there. The type of a state with TTL is
    the one it was declared with.
    """

    uid: str
    name: str
    kind: str
    """value, list, reducing, aggregating, map or timer; operator list, operator union list or broadcast."""
    type: str
    key_type: str | None = None
    map_key_type: str | None = None
    namespace_type: str | None = None
    ttl: bool = False
    ttl_time: str | None = None
    """The clock of its TTL: processing time or event time."""
    entries: int | None = None
    """None: not known without reading everything."""
    entries_are_exact: bool = True
    """Else `entries` is an upper bound: a key that several files of an incremental checkpoint hold counts more than
    once."""
    bytes: int | None = None
    """Of keyed state: what it takes on disk, None if the files do not tell. Of operator state: the elements' size."""

    @property
    def is_keyed(self) -> bool:
        """Whether entries are found by a key of the stream; timers are."""
        return self.key_type is not None

    @property
    def is_timers(self) -> bool:
        return self.kind == "timer"

    @property
    def is_broadcast(self) -> bool:
        return self.kind == "broadcast"


@dataclass(frozen=True)
class KeyGroupSize:
    """What one key group of a state holds: how many entries, and the size of their keys and values, uncompressed."""

    key_group: int
    entries: int
    bytes: int
    subtask: int
