"""RocksDB as a state backend: its configuration, and how a store of it opens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from checkdam import config
from checkdam.backends.contract import StoreOwner
from checkdam.backends.rocksdb.memory_budget import memory_bytes, slot_memory
from checkdam.backends.rocksdb.rocksdb_restore import open_empty, restore
from checkdam.backends.rocksdb.rocksdb_store import RocksDBStore
from checkdam.option_fields import OptionFields, option_field
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.storage.contract import Storage


@dataclass(frozen=True)
class RocksDBStateBackend(OptionFields):
    """Keeps state in RocksDB on local disk, so that it may outgrow memory; snapshots hold new files only.

    `memory` bounds what all stores of one slot take together: blocks and write buffers of RocksDB, and the Python
    objects of what was touched lately. A number of bytes, or text like "256 MB".
    """

    implies = ((config.STATE_BACKEND, "rocksdb"),)

    memory: int | str = option_field(config.ROCKSDB_MEMORY)

    def __post_init__(self) -> None:
        self._fill()
        memory_bytes(self.memory)

    def open(
        self,
        owner: StoreOwner,
        restore_from: Sequence[KeyedStateHandle],
        storage: Storage | None,
        directory: str,
        *,
        claim: bool,
    ) -> RocksDBStore:
        memory = slot_memory(memory_bytes(self.memory))
        if storage is None or not restore_from:
            return RocksDBStore(owner, memory, open_empty(owner, memory), {})
        restored = restore(owner, memory, restore_from, storage, directory)
        builds_on = claim and len(restore_from) == 1 and restore_from[0].key_groups == owner.key_groups
        return RocksDBStore(owner, memory, restored, restored.tables if builds_on else {})
