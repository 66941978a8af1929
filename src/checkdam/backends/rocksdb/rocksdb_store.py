"""The live RocksDB state of one operator in one subtask."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from checkdam.backends.contract import NO_KEY, HeldChanges, MemberOwner, Prune, StoreOwner, asked_twice
from checkdam.backends.restoring import reading_of
from checkdam.backends.rocksdb.cells import RocksDBCells, RocksDBNamespacedCells
from checkdam.backends.rocksdb.maps import RocksDBMaps, RocksDBNamespacedMaps
from checkdam.backends.rocksdb.memory_budget import SlotMemory, slot_memory
from checkdam.backends.rocksdb.rocksdb_restore import RestoredDatabase, open_empty, restore
from checkdam.backends.rocksdb.rocksdb_snapshot import DurableTable, RocksDBSnapshot, WrittenInfo
from checkdam.backends.rocksdb.rocksdb_view import RocksDBPublished
from checkdam.backends.rocksdb.table import StateTable
from checkdam.ids import CheckpointId, Epoch
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.state.spec import StateKind, StateSpec
from checkdam.state.state_count import StateCount, count_of_states
from checkdam.storage.contract import Storage

_T = TypeVar("_T", bound=StateTable)
_MERGED_AT_ONCE = 256 << 20


def open_store(
    owner: StoreOwner,
    memory_bytes: int,
    restore_from: Sequence[KeyedStateHandle],
    storage: Storage | None,
    *,
    claim: bool,
) -> RocksDBStore:
    """Open the state of one subtask, as `KeyedStateBackend.open` promises."""
    memory = slot_memory(memory_bytes)
    if storage is None or not restore_from:
        return RocksDBStore(owner, memory, open_empty(owner, memory), {})
    restored = restore(owner, memory, restore_from, storage)
    builds_on = claim and len(restore_from) == 1 and restore_from[0].key_groups == owner.key_groups
    return RocksDBStore(owner, memory, restored, restored.tables if builds_on else {})


class RocksDBStore:
    """One database with a column family per state, behind a cache of objects.

    A snapshot is a set of immutable tables, so a snapshot that builds on another shares the tables of both.
    """

    def __init__(
        self, owner: StoreOwner, memory: SlotMemory, restored: RestoredDatabase, confirmed: dict[str, DurableTable]
    ) -> None:
        self.current_key: Any = NO_KEY
        self.current_namespace: Any = None
        self._owner = owner
        self._memory = memory
        self._path = restored.path
        self._database = restored.database
        self._unclaimed = restored.states  # restored, and not asked for by a descriptor yet
        self._tables: dict[str, StateTable] = {}
        self._sets: list[tuple[MemberOwner, RocksDBCells]] = []
        self._held_back: list[HeldChanges] = []
        self.published: RocksDBPublished | None = None
        self._lock = threading.Lock()  # completed() and aborted() may be called from another thread
        self._confirmed = confirmed  # the tables of the last completed checkpoint
        self._info: WrittenInfo | None = None  # and its file that describes the states
        self._last_completed = 0
        self._pending: dict[CheckpointId, RocksDBSnapshot] = {}  # newer than that, or not written yet
        self._is_merged = False
        self._is_closed = False

    def cells(self, spec: StateSpec, prune: Prune | None = None) -> RocksDBCells:
        return self._open(RocksDBCells if spec.namespace is None else RocksDBNamespacedCells, spec, prune)

    def maps(self, spec: StateSpec, prune: Prune | None = None) -> RocksDBMaps:
        return self._open(RocksDBMaps if spec.namespace is None else RocksDBNamespacedMaps, spec, prune)

    def table(self, spec: StateSpec) -> RocksDBCells:
        return self.cells(spec)

    def kept_set(self, spec: StateSpec, owner: MemberOwner) -> Iterator[Any]:
        cells = self.cells(spec)
        self._sets.append((owner, cells))
        return (entry for entry, _ in cells.all())

    def _open(self, kind: type[_T], spec: StateSpec, prune: Prune | None) -> _T:
        if spec.name in self._tables:
            raise asked_twice(self._owner.uid, spec.name)
        stored = self._unclaimed.get(spec.name)
        reading = None if stored is None else reading_of(self._owner.uid, stored, spec)
        table = kind(self, self._owner, spec, prune, self._database.column(spec.name), self._memory)
        self._tables[spec.name] = table
        self._unclaimed.pop(spec.name, None)
        if reading is not None and reading.convert is not None:
            table.rewrite(reading)
            with self._lock:
                self._confirmed, self._info = {}, None
        if reading is not None and prune is not None:
            table.sweep_all(reading.prune(prune))
        return table

    @property
    def not_asked_for(self) -> Sequence[str]:
        return list(self._unclaimed)

    def count(self) -> StateCount:
        counts = ((table.spec.kind, table.count()) for table in self._tables.values())
        return count_of_states(replace(each, keys=0) if kind is StateKind.TIMER else each for kind, each in counts)

    def hold_back(self, changes: HeldChanges) -> int:
        self._held_back.append(changes)
        return self._memory.lent(changes)

    def _write_back(self) -> None:
        for held in self._held_back:
            held.write_back()

    def _gather(self) -> None:
        """Take over the changes of sets."""
        for owner, cells in self._sets:
            members, are_added = owner.take_changes()
            cells.put_all(dict(zip(members, [added or None for added in are_added], strict=True)))

    def batch_ended(self) -> None:
        """Do nothing: what is buffered belongs to the epoch."""

    def end_epoch(self) -> None:
        self._gather()
        self._write_back()
        for table in self._tables.values():
            ttl = table.spec.ttl
            if ttl is not None and ttl.on_compaction is not None:
                # RocksDB compacts without calling Python, so a part of the state is swept at the end of each epoch
                table.sweep(ttl.on_compaction.query_time_after_num_entries)
            table.write()
            table.advance_count()

    def publish(self, epoch: Epoch) -> None:
        self._write_back()
        for table in self._tables.values():
            table.write()
        self.published = RocksDBPublished(self._owner, epoch, list(self._tables.values()), self.published)

    def unpublish(self) -> None:
        self.published = None

    def snapshot(self, checkpoint_id: CheckpointId, *, full: bool = False) -> RocksDBSnapshot:
        self._gather()
        with self._lock:
            builds_on, info = ({}, None) if full else (self._confirmed, self._info)
        self._write_back()
        for table in self._tables.values():
            table.write()
            if not builds_on and table.spec.ttl is not None and table.spec.ttl.prunes_full_snapshots:
                table.sweep_all()
        if not builds_on:
            self._merge_once()
        local = self._path / f"checkpoint-{checkpoint_id}"
        self._database.checkpoint(local)
        snapshot = RocksDBSnapshot(
            self._owner,
            checkpoint_id,
            local=local,
            states=[table.info for table in self._tables.values()] + list(self._unclaimed.values()),
            builds_on=builds_on,
            key_groups=self._database.tables(),
            info=info,
        )
        with self._lock:
            self._pending[checkpoint_id] = snapshot
        return snapshot

    def _merge_once(self) -> None:
        """Merge the tables before the first full snapshot, so that the next snapshots copy little.

        This also removes other subtasks' key groups from disk. If there are none, a store that is too large to merge
        synchronously is left to RocksDB, which merges it in the background.
        """
        if not self._is_merged and (self._database.is_clipped or self._database.stored_bytes <= _MERGED_AT_ONCE):
            self._database.merge()
        self._is_merged = True

    def completed(self, checkpoint_id: CheckpointId) -> None:
        with self._lock:
            snapshot = self._pending.get(checkpoint_id)
            if snapshot is None or checkpoint_id < self._last_completed:
                return  # older than the last completed one, or taken before this store was opened
            if snapshot.tables is None:
                raise RuntimeError(f"checkpoint {checkpoint_id} cannot be complete: its state is not written")
            self._confirmed, self._info = snapshot.tables, snapshot.info
            self._last_completed = checkpoint_id
            self._pending = {
                number: pending
                for number, pending in self._pending.items()
                if number > checkpoint_id or (number < checkpoint_id and pending.tables is None)
            }

    def aborted(self, checkpoint_id: CheckpointId) -> None:
        with self._lock:
            snapshot = self._pending.pop(checkpoint_id, None)
        if snapshot is not None:
            snapshot.abort()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self.published = None
        for snapshot in self._pending.values():
            snapshot.abort()
        for table in self._tables.values():
            table.close()
        for held in self._held_back:
            self._memory.remove(held)
        self._database.close()
        shutil.rmtree(self._path, ignore_errors=True)
