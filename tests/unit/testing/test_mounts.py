"""Mounted storage whose user dies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_DIES_WITH_A_FILE_OPEN = """
import atexit, gc, sys
from pathlib import Path
from checkdam.storage.filesystem import open_storage
from checkdam.testing import mounts
from checkdam.testing.mounts import Watch, mount, watched_by

storage, watch = open_storage(sys.argv[1]), Watch()
with watched_by(watch):
    output = open_storage(mount(storage)).open_output("file")
output.write(b"not flushed")
watch.is_dead = True
del output
gc.collect()
print(Path(sys.argv[1], "file").stat().st_size if Path(sys.argv[1], "file").exists() else 0)
atexit._run_exitfuncs()
mounts._open_streams.clear()  # as the interpreter does when it ends, sooner or later
"""


@pytest.mark.slow
def test_what_the_dead_left_open_is_not_closed_before_the_process_ends_and_then_without_a_warning(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", _DIES_WITH_A_FILE_OPEN, str(tmp_path)]

    ended = subprocess.run(command, capture_output=True, text=True)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "0\n", "")
