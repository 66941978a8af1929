"""The state backends that a job can choose, as configuration. A store's code is loaded only when one is opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from checkdam import config
from checkdam.backends.contract import KeyedStateBackend, StoreOwner
from checkdam.config import Configuration
from checkdam.config_values import parse_memory_size
from checkdam.errors import ConfigError
from checkdam.option_fields import OptionFields, option_field, options_from
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.storage.contract import Storage

if TYPE_CHECKING:
    from checkdam.backends.hashmap.hashmap_store import HashMapStore
    from checkdam.backends.rocksdb.rocksdb_store import RocksDBStore

SMALLEST_ROCKSDB_MEMORY = 16 << 20


@dataclass(frozen=True)
class HashMapStateBackend(OptionFields):
    """Keeps every value as a Python object in memory; snapshots contain the changes."""

    implies = ((config.STATE_BACKEND, "hashmap"),)

    def __post_init__(self) -> None:
        self._fill()

    def open(
        self, owner: StoreOwner, restore_from: Sequence[KeyedStateHandle], storage: Storage | None, *, claim: bool
    ) -> HashMapStore:
        from checkdam.backends.hashmap.hashmap_store import open_store

        return open_store(owner, restore_from, storage, claim=claim)


@dataclass(frozen=True)
class RocksDBStateBackend(OptionFields):
    """Keeps state in RocksDB on local disk, so that it may outgrow memory; snapshots contain new files only.

    `memory` limits all stores of one slot together: blocks and write buffers of RocksDB, and the Python objects of
    recently used entries. A number of bytes, or text like "256 MB".
    """

    implies = ((config.STATE_BACKEND, "rocksdb"),)

    memory: int | str = option_field(config.ROCKSDB_MEMORY)

    def __post_init__(self) -> None:
        self._fill()
        memory_bytes(self.memory)

    def open(
        self, owner: StoreOwner, restore_from: Sequence[KeyedStateHandle], storage: Storage | None, *, claim: bool
    ) -> RocksDBStore:
        from checkdam.backends.rocksdb.rocksdb_store import open_store

        return open_store(owner, memory_bytes(self.memory), restore_from, storage, claim=claim)


def backend_from(configuration: Configuration) -> KeyedStateBackend:
    """Return the backend of `state.backend.type`, with its own settings."""
    if configuration.get(config.STATE_BACKEND) == "hashmap":
        return options_from(HashMapStateBackend, configuration)
    return options_from(RocksDBStateBackend, configuration)


def memory_bytes(size: int | str) -> int:
    """Parse a number of bytes, given as such or as text like "256 MB", "64mb" or "1.5g"; units are powers of 1024.

    Raises:
        ConfigError: it is not a size, or too small to work with.
    """
    size = parse_memory_size(size)
    if size < SMALLEST_ROCKSDB_MEMORY:
        raise ConfigError(
            f"RocksDB cannot work with {size:,} bytes of memory",
            hint=f"Give it at least {SMALLEST_ROCKSDB_MEMORY >> 20} MB.",
        )
    return size
