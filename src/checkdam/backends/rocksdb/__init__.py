"""The RocksDB backend: keyed state larger than memory, within a memory budget."""
