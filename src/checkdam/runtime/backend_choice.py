"""Which state backend the settings ask for."""

from __future__ import annotations

from checkdam import config
from checkdam.backends.contract import KeyedStateBackend
from checkdam.backends.hashmap.hashmap_store import HashMapStateBackend
from checkdam.config import Configuration
from checkdam.option_fields import options_from


def backend_from(configuration: Configuration) -> KeyedStateBackend:
    """The backend of `state.backend.type`, with its own settings."""
    if configuration.get(config.STATE_BACKEND) == "hashmap":
        return options_from(HashMapStateBackend, configuration)
    from checkdam.backends.rocksdb import RocksDBStateBackend  # its library is loaded only where it is used

    return options_from(RocksDBStateBackend, configuration)
