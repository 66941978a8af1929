"""State specs: a state as a backend sees it, independent of the handle that the function uses."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from checkdam.state.ttl import StateTtlConfig
from checkdam.types.type_info import TypeInfo, tuple_of


class StateKind(StrEnum):
    """The kind of state that a function asked for. Written into state files, so a kind never changes its name."""

    VALUE = "value"
    LIST = "list"
    REDUCING = "reducing"
    AGGREGATING = "aggregating"
    MAP = "map"
    TIMER = "timer"


@dataclass(frozen=True)
class StateSpec:
    """One keyed state in its stored form.

    An entry is identified by its key, then its namespace if the state has one, then its map key if it is a mapping.
    Values, lists and accumulators have one entry per key; each map entry and each timer is a separate entry. With TTL
    every element carries the time of its last update or read, and `value` is the type that includes it.
    """

    name: str
    kind: StateKind
    value: TypeInfo
    map_key: TypeInfo | None = None
    namespace: TypeInfo | None = None
    ttl: StateTtlConfig | None = None

    def entry_key(self, key: TypeInfo) -> TypeInfo:
        """Return the type that identifies an entry: the key alone, or a tuple that begins with it."""
        parts = [key, *(part for part in (self.namespace, self.map_key) if part is not None)]
        return key if len(parts) == 1 else tuple_of(parts)

    def holder_key(self, key: TypeInfo) -> TypeInfo:
        """Return the type that identifies a value or a whole map: the key, with its namespace if the state has one."""
        return key if self.namespace is None else tuple_of([key, self.namespace])
