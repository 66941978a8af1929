"""The JSON of state at rest, as the types that answers and the OpenAPI document are made of."""

from __future__ import annotations

from typing import Any

import msgspec


class Snapshot(msgspec.Struct, frozen=True):
    ref: str
    path: str
    kind: str
    epoch: int
    completed: int
    state_size: int


class Snapshots(msgspec.Struct, frozen=True):
    snapshots: list[Snapshot]


class KeyedStateView(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    name: str
    kind: str
    key_type: str
    type: str
    entries: int | None
    ttl: bool
    map_key_type: str | msgspec.UnsetType = msgspec.UNSET
    namespace_type: str | msgspec.UnsetType = msgspec.UNSET
    entries_are_exact: bool | msgspec.UnsetType = msgspec.UNSET
    bytes: int | msgspec.UnsetType | None = msgspec.UNSET


class OperatorStateView(msgspec.Struct, frozen=True):
    name: str
    mode: str
    type: str
    elements: int


class OperatorView(msgspec.Struct, frozen=True, rename="kebab"):
    uid: str
    name: str
    vertex: str
    parallelism: int
    max_parallelism: int
    states: list[KeyedStateView]
    operator_states: list[OperatorStateView]


class SnapshotState(msgspec.Struct, frozen=True):
    epoch: int
    operators: list[OperatorView]


class KeyGroup(msgspec.Struct, frozen=True, rename="kebab"):
    key_group: int
    entries: int
    bytes: int
    subtask: int


class KeyGroups(msgspec.Struct, frozen=True, rename="kebab"):
    key_groups: list[KeyGroup]
    max_parallelism: int


class Difference(msgspec.Struct, frozen=True):
    what: str
    key: Any
    before: Any
    after: Any


class StateDifference(msgspec.Struct, frozen=True):
    uid: str
    name: str
    kind: str
    added: int
    changed: int
    removed: int
    unchanged: int
    examples: list[Difference]


class Differences(msgspec.Struct, frozen=True):
    states: list[StateDifference]
