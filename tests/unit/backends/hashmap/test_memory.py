"""The memory that the state of a slot takes, beside a bare dict of the same content."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_KEYS = 300_000
_PROGRAM = """
import sys
from benchmarks.sides import state
measure = getattr(state, sys.argv[1])
print(measure(keys=int(sys.argv[2]), traced=False)["bytes"])
"""


def _resident(measure: str, directory: Path) -> int:
    """Return what the measured content takes in a process of its own."""
    root = Path(__file__).parents[4]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    command = [sys.executable, "-c", _PROGRAM, measure, str(_KEYS)]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere freed memory is not returned")
def test_after_checkpoints_counters_take_little_more_memory_than_a_dict(tmp_path: Path) -> None:
    of_dict = _resident("memory_of_dict", tmp_path)

    of_state = _resident("memory_of_store", tmp_path)

    assert of_state < 1.2 * of_dict
