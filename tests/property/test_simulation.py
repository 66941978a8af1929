"""Seeds of the simulation that once broke a promise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "seed",
    [
        1677,  # metadata of an old checkpoint could not be removed, and an aborted one deleted files that it needs
    ],
)
def test_a_seed_that_found_a_fault_keeps_every_promise(seed: int) -> None:
    environment = os.environ | {"PYTHONHASHSEED": "0"}

    run = subprocess.run(
        [sys.executable, "-m", "simulation", "--seed", str(seed)], env=environment, capture_output=True, text=True
    )

    assert run.returncode == 0, run.stdout[-3000:]
