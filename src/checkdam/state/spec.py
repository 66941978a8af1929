"""A state as a backend sees it: what is stored under which key, whatever handle the function holds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from checkdam.state.ttl import StateTtlConfig
from checkdam.types.type_info import TypeInfo, tuple_of


class StateKind(StrEnum):
    """What a function asked for. Written into state files, so a kind never changes its name."""

    VALUE = "value"
    LIST = "list"
    REDUCING = "reducing"
    AGGREGATING = "aggregating"
    MAP = "map"
    TIMER = "timer"


@dataclass(frozen=True)
class StateSpec:
    """One keyed state in its stored form.

    An entry is found by its key, then its namespace if the state has one, then its map key if it is a mapping: values,
    lists and accumulators are one entry a key, each entry of a map and each timer is one of its own. With TTL every
    element carries the time it was last touched, and `value` is the type with it.
    """

    name: str
    kind: StateKind
    value: TypeInfo
    map_key: TypeInfo | None = None
    namespace: TypeInfo | None = None
    ttl: StateTtlConfig | None = None

    @property
    def is_mapping(self) -> bool:
        return self.map_key is not None

    def entry_key(self, key: TypeInfo) -> TypeInfo:
        """The type of what an entry is found by: the key alone, or a tuple that begins with it."""
        parts = [key, *(part for part in (self.namespace, self.map_key) if part is not None)]
        return key if len(parts) == 1 else tuple_of(parts)

    def holder_key(self, key: TypeInfo) -> TypeInfo:
        """The type of what a value or a whole map is found by: the key, with its namespace if the state has one."""
        return key if self.namespace is None else tuple_of([key, self.namespace])
