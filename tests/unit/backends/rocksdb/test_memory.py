from __future__ import annotations

import subprocess
import sys

import pytest

from checkdam.backends import RocksDBStateBackend
from checkdam.backends.rocksdb.memory_budget import SlotMemory, slot_memory
from checkdam.backends.state_backends import memory_bytes
from checkdam.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (64 << 20, 64 << 20),
        ("256 MB", 256 << 20),
        ("64mb", 64 << 20),
        ("1.5g", 3 << 29),
        ("512 MiB", 512 << 20),
        (" 16777216 bytes ", 16 << 20),
        ("20000 kb", 20000 << 10),
        ("64 mebibytes", 64 << 20),
    ],
)
def test_memory_is_a_number_of_bytes_or_text_with_a_unit(given: int | str, expected: int) -> None:
    assert memory_bytes(given) == expected


@pytest.mark.parametrize("given", ["much", "", "-1 MB", "1 MB", 4096, True, 1.5, None, "256 XB"])
def test_what_is_no_memory_or_too_little_is_refused_when_the_backend_is_made(given: object) -> None:
    with pytest.raises(ConfigError):
        RocksDBStateBackend(given)  # type: ignore[arg-type]


def test_stores_with_one_budget_share_it() -> None:
    assert slot_memory(64 << 20) is slot_memory(64 << 20)
    assert slot_memory(64 << 20) is not slot_memory(65 << 20)


def test_a_state_may_take_what_others_leave_and_never_less_than_an_even_part() -> None:
    memory = SlotMemory(106 << 20)
    alone = memory.allowance("one", 0)

    memory.allowance("one", alone)
    beside = memory.allowance("two", 0)
    pushed_back = memory.allowance("one", alone)
    memory.allowance("two", beside)
    memory.remove("two")

    assert alone == 40 << 20
    assert beside == alone // 2
    assert pushed_back == alone
    assert memory.allowance("one", alone) == alone
    memory.allowance("two", beside)
    assert memory.allowance("one", alone) == alone - beside


_LARGER_THAN_MEMORY = """
import os, random, sys, tempfile
from pathlib import Path
from checkdam.backends import StoreOwner
from checkdam.backends import RocksDBStateBackend
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.spec import StateKind, StateSpec
from checkdam.types.type_info import type_info
from checkdam.storage import open_storage

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def fill(store, entries, size):
    values = store.cells(StateSpec("v", StateKind.VALUE, type_info(bytes)))
    tallies = store.maps(StateSpec("m", StateKind.MAP, type_info(int), type_info(str)))
    peak = 0
    for i in range(entries):
        store.current_key = f"key-{i}"
        values.update(random.randbytes(size))
        tallies.put("n", (tallies.get("n") or 0) + 1)
        if i % 10_000 == 9_999:
            store.current_key = f"key-{random.randrange(i)}"
            assert len(values.value()) == size
            store.end_epoch()
            peak = max(peak, resident())
    return peak

with tempfile.TemporaryDirectory() as place:
    def opened(memory, name):
        path = Path(place, name)
        owner = StoreOwner("op", 0, "a", KeyGroupRange(0, 127), 128, type_info(str), lambda: path)
        return RocksDBStateBackend(memory).open(owner, (), None, claim=False)
    small = opened("16 MB", "small")
    fill(small, 100, 10)
    small.close()
    base = resident()
    store = opened("24 MB", "large")
    peak = fill(store, 60_000, 4096)
    store.snapshot(1).write(open_storage(place + "/checkpoints"), "shared")
    print(max(peak, resident()) - base)
    store.close()
"""


@pytest.mark.slow
def test_state_ten_times_the_budget_stays_within_the_budget_and_a_quarter() -> None:
    done = subprocess.run([sys.executable, "-c", _LARGER_THAN_MEMORY], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1.25 * (24 << 20)
