"""Working state: how a subtask keeps its keyed state, and how it becomes files."""

from checkdam.backends.contract import KeyedStateBackend, KeyedStateStore, Sealed, StoreOwner, ValueTable
from checkdam.backends.hashmap.hashmap_store import HashMapStateBackend

__all__ = ["HashMapStateBackend", "KeyedStateBackend", "KeyedStateStore", "Sealed", "StoreOwner", "ValueTable"]
