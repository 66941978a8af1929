"""Which state backend the settings ask for."""

from __future__ import annotations

from checkdam import config
from checkdam.backends.contract import KeyedStateBackend
from checkdam.backends.hashmap import HashMapStateBackend
from checkdam.config import Configuration


def backend_from(configuration: Configuration) -> KeyedStateBackend:
    """The backend of `state.backend.type`, with its own settings."""
    if configuration.get(config.STATE_BACKEND) == "hashmap":
        return HashMapStateBackend()
    from checkdam.backends.rocksdb import RocksDBStateBackend  # its library is loaded only where it is used

    memory = configuration.get(config.ROCKSDB_MEMORY)
    return RocksDBStateBackend() if memory is None else RocksDBStateBackend(memory=memory)
