"""Operator state in its durable form: the bytes of one subtask's states, and their redistribution on rescaling.

    "CDOPSTAT"  u32 version  u32 header length  header  element …  u64 checksum

The header is msgpack: name, redistribution and type text of each state and the length of each of its elements. The
checksum covers everything before it. Head and tail have this shape in every version, so that any reader can
distinguish newer content from damaged content. Every element begins at its own offset, which the handle repeats, as in
Flink.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Final

import msgspec
import xxhash

from checkdam.errors import CheckpointDamagedError, FormatTooNewError, StateNotRestorableError
from checkdam.state.snapshot_handles import OperatorStateHandle, OperatorStatePart, Redistribution, StateFile
from checkdam.storage.contract import Storage

VERSION: Final = 1
INLINE_LIMIT: Final = 20 * 1024
"""Content up to this size is stored inline in the handle; larger content gets its own file."""

Offsets = tuple[tuple[str, Redistribution, tuple[int, ...]], ...]
Read = Callable[[str], bytes]
"""Reads a state file by its path relative to the job's directory. Raises FileNotFoundError."""

_MAGIC = b"CDOPSTAT"
_HEAD = struct.Struct(">8sII")
_CHECKSUM = struct.Struct(">Q")


class _State(msgspec.Struct, frozen=True, array_like=True):
    name: str
    redistribution: Redistribution
    type: str
    lengths: list[int]


_header_decoder = msgspec.msgpack.Decoder(list[_State])


def pack(parts: Iterable[OperatorStatePart]) -> tuple[bytes, Offsets]:
    """Encode the states of one subtask; return the bytes and the offset of each element. Deterministic."""
    states = list(parts)
    header = msgspec.msgpack.encode(
        [_State(part.name, part.redistribution, part.type, [len(e) for e in part.elements]) for part in states]
    )
    pieces = [_HEAD.pack(_MAGIC, VERSION, len(header)), header]
    position = _HEAD.size + len(header)
    offsets = []
    for part in states:
        *begins, position = accumulate((len(element) for element in part.elements), initial=position)
        offsets.append((part.name, part.redistribution, tuple(begins)))
        pieces += part.elements
    body = b"".join(pieces)
    return body + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(body)), tuple(offsets)


def keep(parts: Iterable[OperatorStatePart], storage: Storage, path: str) -> OperatorStateHandle:
    """Make the states durable: inline in the handle if they are small, else as the file `path` of `storage`.

    The caller lists the file, `handle.content`, among the new files of its snapshot.
    """
    return keep_packed(*pack(parts), storage, path)


def keep_packed(content: bytes, offsets: Offsets, storage: Storage, path: str) -> OperatorStateHandle:
    """Make the output of `pack` durable, as `keep` does."""
    if len(content) <= INLINE_LIMIT:
        return OperatorStateHandle(offsets, content)
    storage.write(path, content)
    return OperatorStateHandle(offsets, StateFile(path, len(content)))


def unpack(handle: OperatorStateHandle, read: Read) -> tuple[OperatorStatePart, ...]:
    """Decode the output of `pack`.

    Raises:
        CheckpointDamagedError: a byte is altered, missing or added, the file is gone, or its length is impossible.
        FormatTooNewError: a newer Checkdam wrote them.
    """
    content, where = _content(handle, read)
    if len(content) < _HEAD.size + _CHECKSUM.size:
        raise _damaged(where, f"it has only {len(content)} bytes")
    magic, version, header_length = _HEAD.unpack_from(content)
    if magic != _MAGIC:
        raise _damaged(where, "it does not begin as operator state does")
    body_length = len(content) - _CHECKSUM.size
    (checksum,) = _CHECKSUM.unpack_from(content, body_length)
    if xxhash.xxh3_64_intdigest(memoryview(content)[:body_length]) != checksum:
        raise _damaged(where, "its checksum does not match")
    if version > VERSION:
        raise FormatTooNewError(
            f"{where} has operator state format {version}; this Checkdam reads up to {VERSION}",
            hint="Use the version of Checkdam that wrote it, or a newer one.",
        )
    try:
        states = _header_decoder.decode(memoryview(content)[_HEAD.size : _HEAD.size + header_length])
    except (ValueError, RecursionError) as error:  # valid checksum, but content that no Checkdam writes
        raise _damaged(where, str(error)) from error
    if any(length < 0 for state in states for length in state.lengths):
        raise _damaged(where, "it has an element of negative length")

    parts = []
    position = _HEAD.size + header_length
    for state in states:
        ends = list(accumulate(state.lengths, initial=position))
        elements = tuple(content[begin:end] for begin, end in pairwise(ends))
        parts.append(OperatorStatePart(state.name, state.redistribution, state.type, elements))
        position = ends[-1]
    if position != body_length:
        raise _damaged(where, "its elements do not fill it")
    return tuple(parts)


def redistribute(
    handles: Sequence[OperatorStateHandle | None],
    old_parallelism: int,
    new_parallelism: int,
    subtask: int,
    read: Read,
) -> dict[tuple[str, Redistribution], OperatorStatePart]:
    """Return the initial states of one subtask at the new parallelism; reads only content that holds some of them.

    `handles` are those of the old subtasks in order, None for a subtask without state, such as a finished one. SPLIT:
    at the same parallelism each subtask gets its own list back; otherwise the elements of all, in the order of the
    subtasks, are split into runs whose lengths differ by one at most. UNION: every subtask gets all elements.
    BROADCAST: a copy of one old subtask's state.

    Raises:
        CheckpointDamagedError, FormatTooNewError: as `unpack`.
        StateNotRestorableError: two subtasks have a state of this name with different types.
    """
    if len(handles) > old_parallelism:
        raise ValueError(f"{len(handles)} handles of {old_parallelism} subtasks")
    rescaled = old_parallelism != new_parallelism
    parts: dict[int, dict[tuple[str, Redistribution], OperatorStatePart]] = {}

    def part_of(old: int, state: tuple[str, Redistribution]) -> OperatorStatePart | None:
        handle = handles[old]
        if handle is None or state not in {(name, mode) for name, mode, _ in handle.offsets}:
            return None
        if old not in parts:
            parts[old] = {(part.name, part.redistribution): part for part in unpack(handle, read)}
        return parts[old].get(state)

    states = dict.fromkeys((name, mode) for handle in handles if handle for name, mode, _ in handle.offsets)
    restored: dict[tuple[str, Redistribution], OperatorStatePart] = {}
    for state in states:
        if state[1] is Redistribution.BROADCAST:
            nearest = [(subtask + step) % old_parallelism for step in range(old_parallelism)]
            found = next((part for old in nearest if old < len(handles) and (part := part_of(old, state))), None)
        elif state[1] is Redistribution.SPLIT and not rescaled:
            found = part_of(subtask, state) if subtask < len(handles) else None
        else:
            found = _joined([part for old in range(len(handles)) if (part := part_of(old, state))])
            if found and state[1] is Redistribution.SPLIT:
                found = _share(found, new_parallelism, subtask)
        if found is not None:
            restored[state] = found
    return restored


def _joined(parts: Sequence[OperatorStatePart]) -> OperatorStatePart | None:
    """Return one state of all subtasks as a single list; an empty list fits any type."""
    filled = [part for part in parts if part.elements]
    types = {part.type for part in filled}
    if len(types) > 1:
        raise StateNotRestorableError(
            f'operator state "{filled[0].name}" was kept with different types: {", ".join(sorted(types))}',
            hint="Every subtask must register a state with the same type.",
        )
    if not filled:
        return parts[0] if parts else None
    first = filled[0]
    elements = tuple(element for part in filled for element in part.elements)
    return OperatorStatePart(first.name, first.redistribution, first.type, elements)


def _share(part: OperatorStatePart, parallelism: int, subtask: int) -> OperatorStatePart:
    size, longer = divmod(len(part.elements), parallelism)
    begin = subtask * size + min(subtask, longer)
    end = begin + size + (1 if subtask < longer else 0)
    return OperatorStatePart(part.name, part.redistribution, part.type, part.elements[begin:end])


def _content(handle: OperatorStateHandle, read: Read) -> tuple[bytes, str]:
    if isinstance(handle.content, bytes):
        return handle.content, "operator state in the checkpoint's metadata"
    where = f'state file "{handle.content.path}"'
    try:
        return read(handle.content.path), where
    except FileNotFoundError as error:
        raise _damaged(where, "it is gone") from error


def _damaged(where: str, what: str) -> CheckpointDamagedError:
    return CheckpointDamagedError(f"{where} is damaged: {what}", hint="Use another checkpoint of the job.")
