"""A sealed hashmap store on its way to files; runs beside the processing thread and shares nothing with it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from checkdam.backends.compaction import merge, merge_blocks, plan
from checkdam.backends.contract import StoreOwner
from checkdam.backends.state_file import BLOCK_BYTES, Block, FileInfo, StateFileWriter, StateInfo
from checkdam.errors import CheckpointDeclinedError, JobGraphError, StorageError
from checkdam.ids import CheckpointId
from checkdam.state.key_groups import key_groups
from checkdam.state.serializers import Serializer, serializer
from checkdam.state.snapshots import KeyedStateHandle, StateFile
from checkdam.state.types import TypeInfo
from checkdam.storage.contract import Storage

REMOVED: Any = type("Removed", (), {"__slots__": ()})()
"""Stands in a set of changes for the value of a key that is gone."""

_SAMPLE = 1000


@dataclass(frozen=True, slots=True)
class SealedTable:
    """What one state adds to a snapshot: values by key, REMOVED for keys that are gone.

    Values that can change are already encoded, in the order of their keys, and only the keys count in `entries`.
    """

    info: StateInfo
    serializer: Serializer
    entries: dict[Any, Any]
    encoded: bytes | None

    def split(self) -> tuple[list[Any], list[Any], list[Any]]:
        """Keys, their values, and the keys that are gone."""
        removed = [key for key, value in self.entries.items() if value is REMOVED]
        if not removed:
            keys, values = list(self.entries), list(self.entries.values())
        else:
            keys = [key for key, value in self.entries.items() if value is not REMOVED]
            values = [value for value in self.entries.values() if value is not REMOVED]
        return keys, values if self.encoded is None else self.serializer.decode(self.encoded), removed


class HashMapSealed:
    """One seal: a delta on the files of the last completed checkpoint, or a base when `builds_on` is None."""

    def __init__(
        self,
        owner: StoreOwner,
        checkpoint_id: CheckpointId,
        *,
        builds_on: tuple[StateFile, ...] | None,
        changes: dict[str, dict[Any, Any]],
        carried: list[tuple[StateInfo, Sequence[Sequence[Block]]]],
        file_stem: str,
    ) -> None:
        self.changes = changes  # since the seal before; the next seal repeats them unless this one completes
        self.tables: list[SealedTable] = []
        self.handle: KeyedStateHandle | None = None
        self._owner = owner
        self._checkpoint_id = checkpoint_id
        self._builds_on = builds_on
        self._carried = carried  # restored, but not asked for: a base must hold it, a delta need not
        self._file_stem = file_stem
        self._new_files: list[StateFile] = []
        self._lock = threading.Lock()
        self._is_aborted = False

    @property
    def new_files(self) -> tuple[StateFile, ...]:
        return tuple(self._new_files)

    def abort(self) -> None:
        with self._lock:
            self._is_aborted = True

    def write(self, storage: Storage, directory: str) -> KeyedStateHandle:
        path = f"{directory}/{self._file_stem}" if directory else self._file_stem
        try:
            self._new_files.clear()
            self._refuse_if_aborted()
            files = self._write_files(storage, path)
            with self._lock:
                self._refuse_if_aborted()
                self.handle = handle = KeyedStateHandle(self._owner.key_groups, files)
        except BaseException:
            self._new_files.clear()
            for attempted in (path, _merged(path)):
                with contextlib.suppress(StorageError):  # the first error is the one to tell; a sweep finds the file
                    storage.delete(attempted)
            raise
        self.tables, self._carried = [], []  # the files hold it now
        return handle

    def _refuse_if_aborted(self) -> None:
        if self._is_aborted:
            raise CheckpointDeclinedError(
                f'checkpoint {self._checkpoint_id} was aborted before operator "{self._owner.uid}" wrote its state'
            )

    def _write_files(self, storage: Storage, path: str) -> tuple[StateFile, ...]:
        if self._builds_on is None:
            written = self._write_file(storage, path, "base")
            return () if written is None else (written,)
        written = self._write_file(storage, path, "delta")
        if written is None:
            return self._builds_on
        run = plan(self._builds_on)
        if run is None:
            return (*self._builds_on, written)
        # The old files stay as they are until a checkpoint that uses the merged one completes.
        merged = merge(storage, self._builds_on[run], _merged(path))
        self._new_files.append(merged)
        return (*self._builds_on[: run.start], merged, written)

    def _write_file(self, storage: Storage, path: str, kind: Literal["base", "delta"]) -> StateFile | None:
        """Write the sealed tables, and what is carried if it is a base; None if there is nothing to write."""
        carried = self._carried if kind == "base" else []
        if not carried and not any(table.entries for table in self.tables):
            return None
        owner, keys = self._owner, serializer(self._owner.key_type)
        info = FileInfo(
            kind=kind,
            uid=owner.uid,
            subtask=owner.subtask,
            checkpoint_id=self._checkpoint_id,
            max_parallelism=owner.max_parallelism,
            key_type=keys.spec,
            states=[table.info for table in self.tables] + [state for state, _ in carried],
        )
        writer = StateFileWriter(storage, path, info)
        try:
            for index, table in enumerate(self.tables):
                with naming(owner, table.info):
                    _write_table(writer, index, table, keys, owner.max_parallelism)
            for index, (_, sources) in enumerate(carried, start=len(self.tables)):
                merge_blocks(writer, index, sources, key_groups=owner.key_groups, keep_removed=False)
            written = writer.finish()
        except BaseException:
            writer.abandon()
            raise
        self._new_files.append(written)
        return written


@contextlib.contextmanager
def naming(owner: StoreOwner, state: StateInfo) -> Iterator[None]:
    """Add whose state it is to the complaint about a value that does not fit its type."""
    try:
        yield
    except JobGraphError as error:
        raise JobGraphError(
            f'state "{state.name}" of operator "{owner.uid}": {error.message}', hint=error.hint
        ) from error


def _merged(path: str) -> str:
    return f"{path}-merged"


class _Sorted:
    """Keys in the order of their key groups, and which stretch of them each group has."""

    def __init__(self, keys: list[Any], of: TypeInfo, max_parallelism: int) -> None:
        # 16 bits hold any key group, and numpy sorts them by radix
        groups = key_groups(keys, of, max_parallelism).astype(np.uint16) if keys else np.empty(0, np.uint16)
        order = np.argsort(groups, kind="stable")
        present, counts = np.unique(groups[order], return_counts=True)
        self.order: list[int] = order.tolist()
        self.keys = [keys[i] for i in self.order]
        self.counts: dict[int, int] = dict(zip(present.tolist(), counts.tolist(), strict=True))


def _write_table(
    writer: StateFileWriter, state: int, table: SealedTable, key_serializer: Serializer, max_parallelism: int
) -> None:
    keys, unsorted_values, removed_keys = table.split()
    found = _Sorted(keys, key_serializer.type, max_parallelism)
    removed = _Sorted(removed_keys, key_serializer.type, max_parallelism)
    values = [unsorted_values[i] for i in found.order]
    limit = _entries_per_block(found.keys, values, key_serializer, table.serializer)

    entry = gone = 0
    for groups in _block_groups(found.counts, removed.counts, limit):
        counts = [found.counts.get(group, 0) for group in groups]
        removed_counts = [removed.counts.get(group, 0) for group in groups]
        entry_end, gone_end = entry + sum(counts), gone + sum(removed_counts)
        writer.add_block(
            state,
            groups,
            counts,
            removed_counts,
            key_serializer.encode_keys(found.keys[entry:entry_end]),
            table.serializer.encode_checked(values[entry:entry_end]),
            key_serializer.encode_keys(removed.keys[gone:gone_end]),
        )
        entry, gone = entry_end, gone_end


def _entries_per_block(keys: list[Any], values: list[Any], of_keys: Serializer, of_values: Serializer) -> int:
    sampled_keys, sampled_values = keys[:_SAMPLE], values[:_SAMPLE]
    sampled = len(of_keys.encode_keys(sampled_keys)) + len(of_values.encode_checked(sampled_values))
    return max(1, BLOCK_BYTES * max(1, len(sampled_keys)) // sampled)


def _block_groups(counts: dict[int, int], removed_counts: dict[int, int], limit: int) -> Iterator[list[int]]:
    """Key groups, ascending, cut into blocks of about `limit` entries."""
    block: list[int] = []
    filled = 0
    for group in sorted(counts.keys() | removed_counts.keys()):
        block.append(group)
        filled += counts.get(group, 0) + removed_counts.get(group, 0)
        if filled >= limit:
            yield block
            block, filled = [], 0
    if block:
        yield block
