"""A large state streams through little memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.snapshot_files import written

from checkdam.backends import HashMapStateBackend, KeyedStateBackend, RocksDBStateBackend
from checkdam.storage.filesystem import open_storage

BACKENDS: dict[str, KeyedStateBackend] = {"hashmap": HashMapStateBackend(), "rocksdb": RocksDBStateBackend("32 MB")}
VALUE_BYTES = 2_000

READ = """
import sys
from pathlib import Path
import pyarrow as pa
from checkdam.state_reader import Savepoint
from checkdam.state_reader.diffing import diff

def most():
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) // 1024

savepoint = Savepoint.load(sys.argv[1])
state = savepoint.keyed_state("op", "texts")
pa.array(["loads what the first array loads"])
next(iter(state))
before = most()
rows = sum(batch.num_rows for batch in state.to_batches())
pairs = sum(1 for _ in state)
same = sum(each.unchanged for each in diff(savepoint, Savepoint.load(sys.argv[1])))
print(rows, pairs, same, most() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_reading_takes_memory_that_does_not_grow_with_the_state(backend: str, tmp_path: Path) -> None:
    count = 100_000
    texts = {number: f"{number:0{VALUE_BYTES}}" for number in range(count)}
    path = written(open_storage(str(tmp_path)), {"op": {("texts", int, str): texts}}, backend=BACKENDS[backend])
    del texts

    answer = subprocess.run(
        [sys.executable, "-c", READ, path], capture_output=True, text=True, check=True, timeout=200
    ).stdout

    rows, pairs, same, megabytes = map(int, answer.split())
    assert (rows, pairs, same) == (count, count, count)
    assert megabytes < 100, f"{megabytes} MB for {count * VALUE_BYTES >> 20} MB of state"
