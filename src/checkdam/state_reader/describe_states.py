"""Descriptions of states out of what files and handles tell, without reading entries."""

from __future__ import annotations

from collections.abc import Mapping

from checkdam.backends.snapshot_contents import describe_keys
from checkdam.backends.state_file import StateInfo
from checkdam.checkpoint.completed import OperatorEntry
from checkdam.errors import StateNotRestorableError
from checkdam.state.snapshot_handles import KeyedStateHandle, OperatorStatePart
from checkdam.state.spec import StateKind
from checkdam.state.ttl import TtlTime
from checkdam.state_reader.descriptions import StateDescription
from checkdam.state_reader.entries import open_files
from checkdam.state_reader.operator_states import OPERATOR_KINDS
from checkdam.storage.contract import Storage
from checkdam.types.type_info import TypeInfo
from checkdam.types.type_text import type_from_text


def describe_keyed(entry: OperatorEntry, infos: Mapping[str, StateInfo], storage: Storage) -> list[StateDescription]:
    """The keyed states of an operator over all subtasks."""
    key_type = None
    known: dict[str, tuple[int, int]] = dict.fromkeys(infos, (0, 0))
    is_indexed, is_exact = True, dict.fromkeys(infos, True)
    for handle in entry.subtasks.values():
        if not handle.files:
            continue
        if key_type is None:
            keys = describe_keys(handle, storage, "")
            key_type = None if keys is None else keys[0]
        if handle.backend != "hashmap":
            is_indexed = False
            continue
        for name, (entries, size, files) in _indexed(handle, storage, infos).items():
            before = known[name]
            known[name] = before[0] + entries, before[1] + size
            is_exact[name] &= files <= 1
    return [
        _described(
            entry.uid,
            info,
            key_type or "",
            entries=known[name][0] if is_indexed else None,
            size=known[name][1] if is_indexed else None,
            is_exact=is_indexed and is_exact[name],
        )
        for name, info in infos.items()
    ]


def _indexed(
    handle: KeyedStateHandle, storage: Storage, infos: Mapping[str, StateInfo]
) -> dict[str, tuple[int, int, int]]:
    """Entries, bytes on disk and number of files of each state, as the indexes of one subtask's files have them."""
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
            if name in infos:
                before = found.get(name, (0, 0, 0))
                found[name] = before[0] + entries, before[1] + size, before[2] + 1
    return found


def _described(
    uid: str, info: StateInfo, key_type: str, *, entries: int | None, size: int | None, is_exact: bool
) -> StateDescription:
    ttl_time = TtlTime.EVENT_TIME if info.ttl_in_event_time else TtlTime.PROCESSING_TIME
    return StateDescription(
        uid=uid,
        name=info.name,
        kind=info.kind,
        type="time" if info.kind == StateKind.TIMER else _declared(info),
        key_type=type_name(key_type),
        map_key_type=type_name(info.map_key) if info.map_key else None,
        namespace_type=type_name(info.namespace) if info.namespace else None,
        ttl=info.ttl,
        ttl_time=ttl_time.value if info.ttl else None,
        entries=entries,
        entries_are_exact=is_exact,
        bytes=size,
    )


def described_operator_state(uid: str, part: OperatorStatePart) -> StateDescription:
    """One operator state of one subtask."""
    kind = OPERATOR_KINDS[part.redistribution]
    name, map_key = type_name(part.type), None
    if kind == "broadcast":
        map_key, name = _pair_names(part.type)
    size = sum(map(len, part.elements))
    return StateDescription(uid, part.name, kind, name, map_key_type=map_key, entries=len(part.elements), bytes=size)


def type_name(text: str) -> str:
    """A type as it is written in Python; one that this version does not know, as the file describes it."""
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
    """The type as the descriptor had it, without the times that TTL keeps."""
    try:
        stored = type_from_text(info.type)
    except StateNotRestorableError:
        return info.type
    if not info.ttl:
        return stored.name
    if info.kind == StateKind.LIST:
        return f"list[{_first(_first(stored)).name}]"
    return _first(stored).name


def _first(of: TypeInfo) -> TypeInfo:
    return of.fields[0][1]
