"""The first answers of all slots come at the same time, each in a thread of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
from checkdam.runtime.slot import control_messages
from checkdam.runtime.slot.messages import EpochReport
from checkdam.state.snapshot_handles import SlotSnapshot

for each in (EpochReport, SlotSnapshot, control_messages.Pending):
    assert "__msgspec_cache__" in vars(each), each
"""


@pytest.mark.slow
def test_what_slots_answer_is_looked_into_before_any_thread_decodes_it() -> None:
    """msgspec crashes the process if two threads are the first to decode a dataclass."""
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)

    assert (ended.returncode, ended.stderr) == (0, "")
