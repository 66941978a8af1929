"""The simulation itself: what it promises to whoever reads its results."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def simulated(*arguments: str) -> str:
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    run = subprocess.run(
        [sys.executable, "-m", "simulation", *arguments], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout[-3000:]
    return run.stdout


@pytest.mark.parametrize("seed", ["3", "15", "24", "61", "564"])
def test_a_seed_takes_the_same_steps_each_time(seed: str) -> None:
    first, second = (re.sub(r"process \d+", "", simulated("--seed", seed)) for _ in range(2))

    assert len(first.splitlines()) > 50
    assert first == second


def test_a_job_with_state_in_rocksdb_keeps_every_promise() -> None:
    told = simulated("--seeds", "10", "--rocksdb", "1")

    assert told.startswith("10 of 10 seeds kept every promise")
