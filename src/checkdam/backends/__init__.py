"""State backends: how a subtask keeps its keyed state, and how it is written to files."""

from checkdam.backends.contract import KeyedStateBackend, KeyedStateStore, PendingSnapshot, StoreOwner, ValueTable
from checkdam.backends.state_backends import HashMapStateBackend, RocksDBStateBackend

__all__ = [
    "HashMapStateBackend",
    "KeyedStateBackend",
    "KeyedStateStore",
    "PendingSnapshot",
    "RocksDBStateBackend",
    "StoreOwner",
    "ValueTable",
]
