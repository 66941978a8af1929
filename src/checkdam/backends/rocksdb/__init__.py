"""Keyed state in RocksDB: larger than memory, within a budget of memory."""
