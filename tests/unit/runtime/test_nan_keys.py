"""NaN as a key, on the real runtime: the record that brings it ends the job, whatever keeps the state."""

from __future__ import annotations

from typing import Any

import pytest

from checkdam import HashMapStateBackend, RocksDBStateBackend
from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.errors import StateAccessError
from checkdam.testing.local_job import LocalJob
from checkdam.testing.memory_storage import MemoryStorage


def _by_number(stream: DataStream) -> Any:
    return stream.map(float, output_type=float).key_by(lambda number: number, key_type=float)


def _by_pair(stream: DataStream) -> Any:
    return stream.map(float, output_type=float).key_by(lambda number: ("a", number), key_type=tuple[str, float])


@pytest.mark.parametrize("backend", [HashMapStateBackend(), RocksDBStateBackend()], ids=["hashmap", "rocksdb"])
@pytest.mark.parametrize("keyed", [_by_number, _by_pair])
def test_a_key_that_is_nan_is_refused_with_the_operators_name(backend: Any, keyed: Any) -> None:
    def build(env: StreamExecutionEnvironment, stream: DataStream) -> None:
        env.set_state_backend(backend)
        keyed(stream).reduce(lambda kept, added: kept + added).name("total").uid("total").print()

    assert LocalJob(build, [["1.5", "1.5"]], MemoryStorage(), parallelism=1).run().printed_lines == ["1.5", "3.0"]
    with pytest.raises(StateAccessError, match=r'for operator "total" has the key .*nan.*, and NaN cannot be a key'):
        LocalJob(build, [["1.5", "nan"]], MemoryStorage(), parallelism=1).run()
