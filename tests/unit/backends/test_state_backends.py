from __future__ import annotations

from checkdam.backends import HashMapStateBackend, RocksDBStateBackend
from checkdam.backends.state_backends import backend_from
from checkdam.config import Configuration


def test_the_settings_choose_the_backend_and_its_memory() -> None:
    rocksdb = {"state.backend.type": "rocksdb"}
    budget = {"state.backend.rocksdb.memory.fixed-per-slot": "64 mb"}
    managed = {"taskmanager.memory.managed.size": "128m"}

    assert backend_from(Configuration()) == HashMapStateBackend()
    assert backend_from(Configuration.load(None, rocksdb)) == RocksDBStateBackend()
    assert backend_from(Configuration.load(None, rocksdb | budget)) == RocksDBStateBackend(memory=64 << 20)
    assert backend_from(Configuration.load(None, rocksdb | managed)) == RocksDBStateBackend(memory=128 << 20)
    assert backend_from(Configuration.load(None, budget)) == HashMapStateBackend()
