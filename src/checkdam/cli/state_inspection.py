"""The states that handles lead to: names, kinds, types and how many entries, whichever backend wrote them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from checkdam.backends.state_file import StateFileReader, StateInfo, read_state_file
from checkdam.checkpoint.operator_state_file import unpack
from checkdam.errors import StateNotRestorableError
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import KeyedStateHandle, OperatorStateHandle, Redistribution
from checkdam.state.spec import StateKind
from checkdam.storage.contract import Storage
from checkdam.types.serializers import serializer_from_spec
from checkdam.types.type_info import TypeInfo

_elements = msgspec.msgpack.Decoder(list[msgspec.Raw])
_OPERATOR_KINDS = {
    Redistribution.SPLIT: "operator list",
    Redistribution.UNION: "operator union list",
    Redistribution.BROADCAST: "broadcast",
}


@dataclass(frozen=True)
class StateView:
    """One state of an operator, all subtasks together; elements count as entries."""

    name: str
    kind: str
    type: str
    entries: int | None  # None: not known without reading everything
    entries_are_exact: bool  # else at most: keys that several files of a chain hold count more than once
    ttl: bool = False
    bytes: int | None = None  # of operator state: the size of all elements

    def and_of(self, other: StateView) -> StateView:
        """The same state of two subtasks."""
        is_known = self.entries is not None and other.entries is not None
        return replace(
            other,
            entries=(self.entries or 0) + (other.entries or 0) if is_known else None,
            entries_are_exact=self.entries_are_exact and other.entries_are_exact,
            bytes=None if self.bytes is None or other.bytes is None else self.bytes + other.bytes,
        )


@dataclass(frozen=True)
class KeyedView:
    """The keyed state of one subtask."""

    key_type: str | None  # None: there is none
    states: tuple[StateView, ...]


def keyed_states(handle: KeyedStateHandle, storage: Storage, *, read_all: bool) -> KeyedView:
    """What a handle holds; without `read_all` as far as the indexes of its files tell.

    Raises:
        CheckpointDamagedError, FormatTooNewError: a file is not whole, or of a newer version.
    """
    if handle.backend == "rocksdb":
        return _rocksdb_states(handle, storage, read_all=read_all)
    readers = [read_state_file(storage, file.path, file.size, handle.key_groups) for file in handle.files]
    states = {state.name: state for reader in readers for state in reader.info.states}  # as the newest file has it
    views = tuple(_count(state, readers, handle.key_groups, read_all=read_all) for state in states.values())
    return KeyedView(_type_name(readers[-1].info.key_type) if readers else None, views)


def operator_states(handle: OperatorStateHandle, storage: Storage) -> Iterator[StateView]:
    """The operator states of one subtask. Raises as `keyed_states`."""
    for part in unpack(handle, storage.read):
        yield StateView(
            part.name,
            _OPERATOR_KINDS[part.redistribution],
            _type_name(part.type),
            len(part.elements),
            entries_are_exact=True,
            bytes=sum(map(len, part.elements)),
        )


def together(views: Iterable[StateView]) -> tuple[StateView, ...]:
    """Each state once, over all subtasks."""
    found: dict[tuple[str, str], StateView] = {}
    for view in views:
        key = view.name, view.kind
        found[key] = found[key].and_of(view) if key in found else view
    return tuple(found.values())


def _rocksdb_states(handle: KeyedStateHandle, storage: Storage, *, read_all: bool) -> KeyedView:
    if not handle.files:
        return KeyedView(None, ())
    from checkdam.backends.rocksdb.rocksdb_reading import read_handle
    from checkdam.backends.rocksdb.snapshot_files import read_info  # its library is loaded only where it is used

    info = read_info(handle, storage, "")
    counts: dict[str, int] = {}
    if read_all:
        with tempfile.TemporaryDirectory(prefix="checkdam-inspect-") as work:
            for state, entries in read_handle(handle, storage, "", handle.key_groups, lambda: Path(work) / "db"):
                counts[state.name] = sum(1 for _ in entries)
    views = tuple(_view(state, counts.get(state.name), is_exact=read_all) for state in info.states)
    return KeyedView(_type_name(info.key_type), views)


def _count(
    state: StateInfo, readers: Sequence[StateFileReader], key_groups: KeyGroupRange, *, read_all: bool
) -> StateView:
    if read_all:
        entries = _exact_entries(state.name, readers)
    else:
        entries = sum(_indexed_entries(state.name, reader, key_groups) for reader in readers)
    return _view(state, entries, is_exact=read_all or len(readers) == 1)


def _view(state: StateInfo, entries: int | None, *, is_exact: bool) -> StateView:
    return StateView(state.name, state.kind, _shown_type(state), entries, entries_are_exact=is_exact, ttl=state.ttl)


def _shown_type(state: StateInfo) -> str:
    """The type as the descriptor had it: without the times that TTL keeps, with the keys of a map."""
    if state.kind == StateKind.TIMER:
        return "time"
    name = _type_name(state.type, ttl_in=state.kind if state.ttl else None)
    return f"dict[{_type_name(state.map_key)}, {name}]" if state.map_key else name


def _type_name(spec: str, *, ttl_in: str | None = None) -> str:
    """A type as it is written in Python; one that this version does not know, as the file describes it."""
    try:
        stored = serializer_from_spec(spec).type
    except StateNotRestorableError:
        return spec
    if ttl_in is None:
        return stored.name
    if ttl_in == StateKind.LIST:
        return f"list[{_untimed(stored.fields[0][1]).name}]"
    return _untimed(stored).name


def _untimed(stored: TypeInfo) -> TypeInfo:
    return stored.fields[0][1]


def _indexed_entries(name: str, reader: StateFileReader, owned: KeyGroupRange) -> int:
    return sum(
        count
        for block in reader.info.blocks
        if reader.info.states[block.state].name == name
        for group, count in zip(block.groups, block.counts, strict=True)
        if group in owned
    )


def _exact_entries(name: str, readers: Sequence[StateFileReader]) -> int:
    """How many keys are left when each file, oldest first, has overridden what came before it."""
    keys: set[bytes] = set()
    for reader in readers:
        for index, state in enumerate(reader.info.states):
            if state.name != name:
                continue
            for block in reader.blocks(index):
                packed_keys, _, packed_removed = block.unpack()
                keys.difference_update(map(bytes, _elements.decode(packed_removed)[block.removed]))
                keys.update(map(bytes, _elements.decode(packed_keys)[block.entries]))
    return len(keys)
