"""Keyed state in RocksDB: larger than memory, within a budget of memory."""

from checkdam.backends.rocksdb.rocksdb_backend import RocksDBStateBackend

__all__ = ["RocksDBStateBackend"]
