"""Descriptions of the operators and states in a snapshot, from its files and handles."""

from __future__ import annotations

import tempfile
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from checkdam.backends.restoring import untimed
from checkdam.backends.snapshot_contents import describe_keys, open_files, read_entries
from checkdam.backends.state_file import StateInfo
from checkdam.checkpoint.completed import OperatorEntry
from checkdam.errors import StateNotRestorableError
from checkdam.state.snapshot_handles import KeyedStateHandle, OperatorStatePart, Redistribution
from checkdam.state.spec import StateKind
from checkdam.state.ttl import TtlTime
from checkdam.storage.contract import Storage
from checkdam.types.type_text import type_from_text

OPERATOR_KINDS: Final = {
    Redistribution.SPLIT: "operator list",
    Redistribution.UNION: "operator union list",
    Redistribution.BROADCAST: "broadcast",
}


@dataclass(frozen=True)
class OperatorDescription:
    """One operator with state in a snapshot."""

    uid: str
    name: str
    parallelism: int
    max_parallelism: int
    backend: str | None
    """The backend that wrote its keyed state; None if it has none."""
    files: int
    bytes: int
    """The size of its state: files, each counted once, and state inside the metadata."""
    uncommitted_outputs: int
    """Outputs that a sink has written and that become visible when the checkpoint completes or is restored."""
    finished_subtasks: int


@dataclass(frozen=True)
class StateDescription:
    """One state of an operator over all subtasks.

    Types have their Python names; classes of the job have the names they had there. For a state with TTL the type is
    the declared one.
    """

    uid: str
    name: str
    kind: str
    """value, list, reducing, aggregating, map or timer; operator list, operator union list or broadcast."""
    type: str
    key_type: str | None = None
    map_key_type: str | None = None
    window_type: str | None = None
    """The type of the windows that it is kept by; None if it belongs to no window."""
    ttl: bool = False
    ttl_time: str | None = None
    """The clock of its TTL: processing time or event time."""
    entries: int | None = None
    """None: not known without reading everything."""
    entries_are_exact: bool = True
    """False: `entries` is an upper bound, as a key in several files of an incremental checkpoint counts repeatedly."""
    bytes: int | None = None
    """For keyed state: its size on disk, None if the files do not have it. For operator state: that of the elements."""

    @property
    def is_keyed(self) -> bool:
        """Whether entries are found by a key of the stream; true for timers too."""
        return self.key_type is not None

    @property
    def is_timers(self) -> bool:
        return self.kind == "timer"

    @property
    def is_broadcast(self) -> bool:
        return self.kind == "broadcast"


@dataclass(frozen=True)
class KeyGroupSize:
    """The content of one key group of a state: the number of entries, and the uncompressed size of keys and values."""

    key_group: int
    entries: int
    bytes: int
    subtask: int


def describe_operator(entry: OperatorEntry) -> OperatorDescription:
    """Describe an operator from the metadata."""
    files = entry.files()
    return OperatorDescription(
        uid=entry.uid,
        name=entry.name,
        parallelism=entry.parallelism,
        max_parallelism=entry.max_parallelism,
        backend=next((handle.backend for handle in entry.subtasks.values()), None),
        files=len(files),
        bytes=sum(file.size for file in files) + entry.inline_bytes,
        uncommitted_outputs=len(entry.committables),
        finished_subtasks=len(entry.finished),
    )


@dataclass
class _Size:
    """Known figures of one state over all subtasks; None: only reading everything gives the number."""

    entries: int | None = 0
    bytes: int | None = 0
    is_exact: bool = True


def describe_keyed(
    entry: OperatorEntry, infos: Mapping[str, StateInfo], storage: Storage, *, in_full: bool = False
) -> list[StateDescription]:
    """Describe the keyed states of an operator over all subtasks, from the indexes of its files.

    With `in_full` every file is read completely: counts are exact, and any damage is found.
    """
    key_type = None
    sizes = {name: _Size() for name in infos}
    for handle in entry.subtasks.values():
        if not handle.files:
            continue
        if key_type is None:
            keys = describe_keys(handle, storage)
            key_type = None if keys is None else keys[0]
        _add_sizes(sizes, handle, storage, in_full=in_full)
    return [_described(entry.uid, info, key_type or "", sizes[name]) for name, info in infos.items()]


def _add_sizes(sizes: Mapping[str, _Size], handle: KeyedStateHandle, storage: Storage, *, in_full: bool) -> None:
    counts = _counted(handle, storage) if in_full else None
    indexed = _indexed(handle, storage, sizes) if handle.backend == "hashmap" else None
    for name, size in sizes.items():
        entries, taken, files = (0, 0, 0) if indexed is None else indexed.get(name, (0, 0, 0))
        if counts is not None:
            entries, files = counts.get(name, 0), 1
        is_known = counts is not None or indexed is not None
        size.entries = size.entries + entries if is_known and size.entries is not None else None
        size.bytes = size.bytes + taken if indexed is not None and size.bytes is not None else None
        size.is_exact &= is_known and files <= 1


def _counted(handle: KeyedStateHandle, storage: Storage) -> dict[str, int]:
    with tempfile.TemporaryDirectory(prefix="checkdam-reader-") as work:
        found = read_entries(handle, storage, handle.key_groups, lambda: Path(work) / "db")
        return {info.name: sum(1 for _ in entries) for info, entries in found}


def _indexed(handle: KeyedStateHandle, storage: Storage, names: Container[str]) -> dict[str, tuple[int, int, int]]:
    """Return entries, bytes on disk and number of files of each state, from the indexes of one subtask's files."""
    found: dict[str, tuple[int, int, int]] = {}
    for reader in open_files(handle, storage, handle.key_groups):
        of_file: dict[str, tuple[int, int]] = {}
        for block in reader.info.blocks:
            name = reader.info.states[block.state].name
            own = sum(
                count for group, count in zip(block.groups, block.counts, strict=True) if group in handle.key_groups
            )
            entries, size = of_file.get(name, (0, 0))
            of_file[name] = entries + own, size + (block.length if own or block.removed_counts else 0)
        for name, (entries, size) in of_file.items():
            if name in names:
                before = found.get(name, (0, 0, 0))
                found[name] = before[0] + entries, before[1] + size, before[2] + 1
    return found


def _described(uid: str, info: StateInfo, key_type: str, size: _Size) -> StateDescription:
    ttl_time = TtlTime.EVENT_TIME if info.ttl_in_event_time else TtlTime.PROCESSING_TIME
    return StateDescription(
        uid=uid,
        name=info.name,
        kind=info.kind,
        type="time" if info.kind == StateKind.TIMER else _declared(info),
        key_type=type_name(key_type),
        map_key_type=type_name(info.map_key) if info.map_key else None,
        window_type=type_name(info.namespace) if info.namespace else None,
        ttl=info.ttl,
        ttl_time=ttl_time.value if info.ttl else None,
        entries=size.entries,
        entries_are_exact=size.is_exact,
        bytes=size.bytes,
    )


def describe_operator_states(uid: str, parts: Iterable[OperatorStatePart]) -> list[StateDescription]:
    """Describe the operator states of all subtasks; for broadcast state, which is the same in all, those of one."""
    found: dict[tuple[str, str], StateDescription] = {}
    for part in parts:
        one = describe_part(uid, part)
        before = found.get((one.name, one.kind))
        if before is not None and one.is_broadcast:
            continue
        if before is not None:
            entries, size = (before.entries or 0) + (one.entries or 0), (before.bytes or 0) + (one.bytes or 0)
            one = replace(one if one.entries else before, entries=entries, bytes=size)
        found[one.name, one.kind] = one
    return list(found.values())


def describe_part(uid: str, part: OperatorStatePart) -> StateDescription:
    """Describe one operator state of one subtask."""
    kind = OPERATOR_KINDS[part.redistribution]
    name, map_key = type_name(part.type), None
    if kind == "broadcast":
        map_key, name = _pair_names(part.type)
    size = sum(map(len, part.elements))
    return StateDescription(uid, part.name, kind, name, map_key_type=map_key, entries=len(part.elements), bytes=size)


def type_name(text: str) -> str:
    """Return a type's Python name; for a type unknown to this version, its description in the file."""
    try:
        return type_from_text(text).name
    except StateNotRestorableError:
        return text


def _pair_names(text: str) -> tuple[str | None, str]:
    try:
        (_, key), (_, value) = type_from_text(text).fields
    except (StateNotRestorableError, ValueError):
        return None, text
    return key.name, value.name


def _declared(info: StateInfo) -> str:
    """Return the declared type, without the timestamps that TTL adds."""
    try:
        stored = type_from_text(info.type)
    except StateNotRestorableError:
        return info.type
    return (untimed(stored) if info.ttl else stored).name
