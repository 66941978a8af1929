"""The durable file of keyed state: compressed blocks, split at key groups, and a footer that indexes them.

    "CHECKDAM"  u32 version  block …  footer  u32 footer length  u64 checksum  "MADKCEHC"

A block is zstd over msgpack [keys, values, removed keys], ordered by key group, of one state. The footer is msgpack
(`FileInfo`). Its checksum covers the head, the footer and its length; the index has a checksum of each block. Head
and tail have this shape in every version, so any reader can distinguish a newer file from a damaged one.

A checksum is no secret, so a file may be crafted. Before memory is allocated for a block, the index is compared with
the size of the file: blocks are adjacent and fill it, and their expanded size is in proportion to it. The writer keeps
to that proportion: a block that compresses better is followed by a zstd frame that readers skip.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from operator import lt
from typing import BinaryIO, Literal, cast

import msgspec
import pyarrow as pa
import xxhash

from checkdam.errors import CheckpointDamagedError, FormatTooNewError
from checkdam.state.key_groups import MAX_PARALLELISM_LIMIT, KeyGroupRange
from checkdam.state.snapshot_handles import StateFile
from checkdam.state.spec import StateSpec
from checkdam.state.ttl import TtlTime
from checkdam.storage.contract import Storage
from checkdam.storage.names import temporary_name
from checkdam.types.serializers import Serializer, serializer, serializer_from_spec
from checkdam.types.type_info import TypeInfo, tuple_of

VERSION = 2  # 2: states have map keys, namespaces and TTL
BLOCK_BYTES = 64 * 1024

_HEAD = struct.Struct(">8sI")
_TAIL = struct.Struct(">IQ8s")
_MAGIC = b"CHECKDAM"
_END_MAGIC = _MAGIC[::-1]
_TAIL_READ = 64 * 1024  # one small read from the end of the file; usually contains the whole footer
_READ_BYTES = 8 << 20
_SPOOL_BYTES = 32 << 20
_MOST_EXPANSION = 1024  # of a block written today; ordinary state expands 2 to 50 times
_FREE_EXPANSION = 256 << 20  # of a whole file, for files written before that limit
_SKIPPABLE = struct.Struct("<II")  # the head of a zstd frame that readers skip: magic, length
_SKIPPABLE_MAGIC = 0x184D2A50
_ALL = slice(None)
_CODEC = pa.Codec("zstd", compression_level=1)


class StateInfo(msgspec.Struct, frozen=True, array_like=True):
    """One state in a file: its name, its kind (a StateKind) and its types as text, "" where it has no such part.

    `type` is the stored type; with `ttl` it includes the time each element was last touched.
    """

    name: str
    kind: str
    type: str
    map_key: str = ""
    namespace: str = ""
    ttl: bool = False
    ttl_in_event_time: bool = False
    ttl_milliseconds: int = 0  # 0: no TTL, or not recorded in the file

    @property
    def has_compound_keys(self) -> bool:
        """Whether an entry key is a tuple that begins with the key, rather than the key alone."""
        return bool(self.map_key or self.namespace)

    def entry_key(self, key: TypeInfo) -> Serializer:
        """Return a serializer of entry keys, built from these texts alone."""
        parts = [serializer_from_spec(part).type for part in (self.namespace, self.map_key) if part]
        return serializer(tuple_of([key, *parts]) if parts else key)


def state_info(spec: StateSpec) -> StateInfo:
    """Describe a state of the job as files do.

    Raises:
        JobGraphError: one of its types has no durable form.
    """
    return StateInfo(
        spec.name,
        spec.kind.value,
        serializer(spec.value).spec,
        "" if spec.map_key is None else serializer(spec.map_key).spec,
        "" if spec.namespace is None else serializer(spec.namespace).spec,
        spec.ttl is not None,
        spec.ttl is not None and spec.ttl.time is TtlTime.EVENT_TIME,
        0 if spec.ttl is None else spec.ttl.milliseconds,
    )


class BlockInfo(msgspec.Struct, frozen=True, array_like=True):
    """The position of a block, and the numbers of entries and removed keys of each of its key groups."""

    state: int
    groups: list[int]  # those with entries or removed keys, ascending
    counts: list[int]
    removed_counts: list[int]  # empty if nothing is removed
    offset: int
    length: int
    raw_length: int
    checksum: int

    @property
    def first(self) -> int:
        return self.groups[0]

    @property
    def last(self) -> int:
        return self.groups[-1]

    @property
    def entries(self) -> int:
        return sum(self.counts)

    @property
    def removed(self) -> int:
        return sum(self.removed_counts)


class FileInfo(msgspec.Struct, frozen=True):
    """The footer: the owner of the state, and the index of blocks."""

    kind: Literal["base", "delta"]
    uid: str
    subtask: int
    checkpoint_id: int
    max_parallelism: int
    key_type: str
    states: list[StateInfo]
    blocks: list[BlockInfo] = []

    @property
    def entries(self) -> int:
        return sum(block.entries for block in self.blocks)


_footer_decoder = msgspec.msgpack.Decoder(FileInfo)
_block_decoder = msgspec.msgpack.Decoder(tuple[msgspec.Raw, msgspec.Raw, msgspec.Raw])
_elements = msgspec.msgpack.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Block:
    """One block, verified but still compressed; the slices say which part of it the reader asked for."""

    info: BlockInfo
    packed: memoryview
    entries: slice
    removed: slice
    path: str = "in memory"
    """The file it was read from, for errors."""

    @property
    def is_whole(self) -> bool:
        return self.entries is _ALL

    def unpack(self) -> tuple[memoryview, memoryview, memoryview]:
        """Return keys, values and removed keys of the whole block, each a msgpack array of the length in the index.

        Raises:
            CheckpointDamagedError: its content is different.
        """
        info = self.info
        try:
            content = _CODEC.decompress(pa.py_buffer(self.packed), info.raw_length, asbytes=True)
            keys, values, removed = _block_decoder.decode(content)
            counts = tuple(map(_array_length, (keys, values, removed)))
            if counts != (info.entries, info.entries, info.removed):
                raise ValueError(f"it holds {counts} keys, values and removed keys")
        except (OSError, ValueError, RecursionError) as error:  # zstd raises OSError
            raise damaged(self.path, f"the block at byte {info.offset} cannot be unpacked ({error})") from error
        return memoryview(keys), memoryview(values), memoryview(removed)


@dataclass(frozen=True, slots=True)
class BlockContent:
    """The content of a block: the entries of some key groups, `counts` of each, as msgpack arrays."""

    groups: list[int]
    counts: list[int]
    removed_counts: list[int]
    keys: bytes
    values: bytes
    removed: bytes

    def pack(self, state: int = 0, offset: int = 0) -> tuple[BlockInfo, bytes]:
        content = msgspec.msgpack.encode((msgspec.Raw(self.keys), msgspec.Raw(self.values), msgspec.Raw(self.removed)))
        packed = cast(bytes, _CODEC.compress(content, asbytes=True))
        packed += _padding(len(packed), len(content))
        info = BlockInfo(
            state=state,
            groups=self.groups,
            counts=self.counts,
            removed_counts=self.removed_counts if any(self.removed_counts) else [],
            offset=offset,
            length=len(packed),
            raw_length=len(content),
            checksum=xxhash.xxh3_64_intdigest(packed),
        )
        return info, packed

    def block(self) -> Block:
        """Return it as a block read from a file."""
        info, packed = self.pack()
        return Block(info, memoryview(packed), _ALL, _ALL)


class StateFileWriter:
    """Writes one state file block by block; the file appears under its name only at `finish`.

    A small file takes one write. A file larger than the spool is streamed to a temporary name and renamed. As a
    context manager it removes the temporary file if the block fails.
    """

    def __init__(self, storage: Storage, path: str, info: FileInfo) -> None:
        self._storage = storage
        self._path = path
        self._temporary = temporary_name(path)
        self._info = info
        self._blocks: list[BlockInfo] = []
        self._head = _HEAD.pack(_MAGIC, VERSION)
        self._spool: list[bytes] = [self._head]
        self._spooled = self._offset = len(self._head)
        self._stream: BinaryIO | None = None

    def add_block(self, state: int, content: BlockContent) -> None:
        """Append entries of `info.states[state]`; the blocks of a state come in the order of key groups."""
        info, packed = content.pack(state, self._offset)
        self._blocks.append(info)
        self._append(packed)

    def finish(self) -> StateFile:
        info = msgspec.structs.replace(self._info, blocks=self._blocks)
        footer = msgspec.msgpack.encode(info)
        self._append(footer + _TAIL.pack(len(footer), _footer_checksum(self._head, footer), _END_MAGIC))
        if self._stream is None:
            self._storage.write(self._path, b"".join(self._spool))
        else:
            self._flush(self._stream)
            self._stream.close()
            self._storage.rename(self._temporary, self._path)
        return StateFile(self._path, self._offset)

    def __enter__(self) -> StateFileWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, at: object) -> None:
        """Remove the streamed part of a file that was not finished."""
        if kind is not None and self._stream is not None:
            self._stream.close()
            self._storage.delete(self._temporary)

    def _append(self, data: bytes) -> None:
        self._spool.append(data)
        self._offset += len(data)
        self._spooled += len(data)
        if self._spooled > _SPOOL_BYTES:
            self._stream = self._stream or self._storage.open_output(self._temporary)
            self._flush(self._stream)

    def _flush(self, stream: BinaryIO) -> None:
        for piece in self._spool:
            stream.write(piece)
        self._spool.clear()
        self._spooled = 0


class StateFileReader:
    """One state file; reads its blocks on demand, with memory for one read of a few MB."""

    def __init__(
        self,
        storage: Storage,
        path: str,
        info: FileInfo,
        key_groups: KeyGroupRange | None,
        tail: bytes,
        tail_start: int,
    ) -> None:
        self._storage = storage
        self._path = path
        self.info = info
        self._key_groups = key_groups
        self._tail = tail  # already read with the footer; all of a small file
        self._tail_start = tail_start

    def blocks(self, state: int) -> Iterator[Block]:
        """Yield the blocks of `info.states[state]` that touch the wanted key groups, in the order of key groups."""
        wanted = [
            block
            for block in self.info.blocks
            if block.state == state
            and (
                self._key_groups is None
                or (block.first <= self._key_groups.last and block.last >= self._key_groups.first)
            )
        ]
        for run in _adjacent(wanted):
            start = run[0].offset
            data = self._fetch(start, run[-1].offset + run[-1].length - start)
            for block in run:
                yield self._checked(block, data[block.offset - start : block.offset - start + block.length])

    def blocks_of(self, name: str) -> Iterator[Block]:
        """Yield the blocks of a state by its name; none if the file does not contain it."""
        for index, info in enumerate(self.info.states):
            if info.name == name:
                yield from self.blocks(index)

    def verify(self) -> None:
        """Read every block of the wanted key groups. Raises CheckpointDamagedError if one is truncated or altered."""
        for state in range(len(self.info.states)):
            for _ in self.blocks(state):
                pass

    def _fetch(self, offset: int, length: int) -> memoryview:
        if offset >= self._tail_start:
            return memoryview(self._tail)[offset - self._tail_start :][:length]
        return memoryview(_read(self._storage, self._path, offset, length))

    def _checked(self, info: BlockInfo, packed: memoryview) -> Block:
        if len(packed) != info.length or xxhash.xxh3_64_intdigest(packed) != info.checksum:
            raise damaged(self._path, f"the block at byte {info.offset} is truncated or altered")
        owned = self._key_groups
        if owned is None or (owned.first <= info.first and info.last <= owned.last):
            return Block(info, packed, _ALL, _ALL, self._path)
        groups = range(bisect_left(info.groups, owned.first), bisect_right(info.groups, owned.last))
        return Block(info, packed, _slice(info.counts, groups), _slice(info.removed_counts, groups), self._path)


def read_state_file(storage: Storage, path: str, size: int, key_groups: KeyGroupRange | None = None) -> StateFileReader:
    """Open a state file for the given key groups, or for all.

    Raises:
        CheckpointDamagedError: the file is gone, truncated or altered, or its index is invalid; block damage shows
            when the block is read.
        FormatTooNewError: a newer version wrote it.
    """
    start = max(0, size - _TAIL_READ)
    tail = _read(storage, path, start, size - start + 1)
    if len(tail) != size - start:
        status = storage.status(path)
        raise wrong_size(path, size, 0 if status is None else status.size)
    if size < _HEAD.size + _TAIL.size:
        raise damaged(path, f"it has {size} bytes, too few for a state file")
    footer_length, checksum, end_magic = _TAIL.unpack_from(tail, len(tail) - _TAIL.size)
    if end_magic != _END_MAGIC or footer_length > size - _HEAD.size - _TAIL.size:
        raise damaged(path, "its last bytes are altered")
    footer_start = size - _TAIL.size - footer_length
    if footer_start >= start:
        footer = tail[footer_start - start : footer_start - start + footer_length]
    else:
        footer = _read(storage, path, footer_start, footer_length)
    head = tail[: _HEAD.size] if start == 0 else _read(storage, path, 0, _HEAD.size)
    if _footer_checksum(head, footer) != checksum:
        raise damaged(path, "its head or index is altered: the checksum does not match")
    _check_head(head, path)
    try:
        info = _footer_decoder.decode(footer)
        _check_index(info, footer_start, size)
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"its index cannot be read ({error})") from error
    return StateFileReader(storage, path, info, key_groups, tail, start)


def _check_index(info: FileInfo, end: int, size: int) -> None:
    """Raise ValueError unless the blocks are adjacent up to `end` and expand in proportion to the file's size."""
    if not 0 < info.max_parallelism <= MAX_PARALLELISM_LIMIT:
        raise ValueError(f"its max parallelism is {info.max_parallelism}")
    position, expanded = _HEAD.size, 0
    for block in info.blocks:
        groups, removed_counts = block.groups, block.removed_counts
        if not (
            0 <= block.state < len(info.states)
            and block.offset == position
            and block.length > 0
            and groups
            and groups[0] >= 0
            and groups[-1] < info.max_parallelism
            and (len(groups) == 1 or all(map(lt, groups, groups[1:])))
            and len(block.counts) == len(groups)
            and len(removed_counts) in (0, len(groups))
            and min(block.counts) >= 0
            and (not removed_counts or min(removed_counts) >= 0)
            and block.entries + block.removed <= block.raw_length
        ):
            raise ValueError(f"the block at byte {block.offset} has an invalid entry in the index")
        position += block.length
        expanded += block.raw_length
    if position != end:
        raise ValueError(f"its blocks end at byte {position} instead of {end}")
    if expanded > _FREE_EXPANSION + _MOST_EXPANSION * size:
        raise ValueError(f"its blocks would expand to {expanded:,} bytes")


def _padding(packed: int, raw: int) -> bytes:
    """Return padding to put after a block that compresses too well, so that readers accept it."""
    missing = -(-raw // _MOST_EXPANSION) - packed
    length = max(0, missing - _SKIPPABLE.size)
    return _SKIPPABLE.pack(_SKIPPABLE_MAGIC, length) + bytes(length) if missing > 0 else b""


def split_array(packed: bytes | memoryview) -> list[bytes]:
    """Return the elements of a msgpack array, each still encoded."""
    return list(map(bytes, _elements.decode(packed)))


def packed_array(elements: Sequence[bytes]) -> bytes:
    """Return a msgpack array of already encoded elements."""
    count = len(elements)
    if count < 16:
        head = bytes([0x90 | count])
    elif count < 1 << 16:
        head = b"\xdc" + count.to_bytes(2, "big")
    else:
        head = b"\xdd" + count.to_bytes(4, "big")
    return head + b"".join(elements)


def _array_length(packed: msgspec.Raw) -> int:
    """Return the number of elements of a msgpack array. Raises ValueError if it is none."""
    data = bytes(memoryview(packed)[:5])
    if 0x90 <= data[0] <= 0x9F:
        return data[0] & 0x0F
    if data[0] not in (0xDC, 0xDD):
        raise ValueError("it holds no lists")
    return int.from_bytes(data[1:3] if data[0] == 0xDC else data[1:5], "big")


def _footer_checksum(head: bytes, footer: bytes) -> int:
    return xxhash.xxh3_64_intdigest(head + footer + len(footer).to_bytes(4, "big"))


def _check_head(head: bytes | memoryview, path: str) -> None:
    magic, version = _HEAD.unpack(head)
    if magic != _MAGIC:
        raise damaged(path, "it does not begin with the mark of a state file")
    check_version(path, version, VERSION)


def check_version(path: str, version: int, newest: int) -> None:
    """Raise FormatTooNewError if a newer version wrote the file."""
    if version > newest:
        raise FormatTooNewError(
            f'state file "{path}" has format version {version}, this version of checkdam reads up to {newest}',
            hint="Restore with the version of checkdam that wrote it, or a newer one.",
        )


def _read(storage: Storage, path: str, offset: int, length: int) -> bytes:
    with reading_file(path):
        return storage.read_range(path, offset, length)


@contextmanager
def reading_file(path: str) -> Iterator[None]:
    """Report a missing file as CheckpointDamagedError."""
    try:
        yield
    except FileNotFoundError as error:
        raise damaged(path, "it is missing") from error


def wrong_size(path: str, expected: int, found: int) -> CheckpointDamagedError:
    """Return the error about a file that has another size than its handle says."""
    if found < expected:
        return damaged(path, f"expected {expected} bytes, found {found}: the file is truncated")
    return damaged(path, f"expected {expected} bytes, found more: the file is altered")


def damaged(path: str, reason: str) -> CheckpointDamagedError:
    return CheckpointDamagedError(
        f'state file "{path}" is damaged: {reason}', hint="Restore from an older checkpoint or a savepoint."
    )


def _adjacent(blocks: Sequence[BlockInfo]) -> Iterator[list[BlockInfo]]:
    """Yield groups of blocks that one read can fetch: adjacent, and a few MB together."""
    run: list[BlockInfo] = []
    for block in blocks:
        if run and (
            run[-1].offset + run[-1].length != block.offset or block.offset + block.length - run[0].offset > _READ_BYTES
        ):
            yield run
            run = []
        run.append(block)
    if run:
        yield run


def _slice(counts: list[int], groups: range) -> slice:
    if not counts:
        return slice(0, 0)
    ends = [0, *accumulate(counts)]
    return slice(ends[groups.start], ends[groups.stop])
