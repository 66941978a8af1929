"""What other users of the machine can see of a job."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

JOB = """
import os, re, sys
from pathlib import Path
from checkdam import StreamExecutionEnvironment

directory, report = Path(sys.argv[1]), Path(sys.argv[2])

def open_to_others(path):
    status = path.lstat()
    if not status.st_mode & 0o077 or path.is_symlink():
        return
    yield str(path)
    if path.is_dir():
        for entry in path.iterdir():
            yield from open_to_others(entry)

def look(word: str) -> str:
    seen = [path for entry in directory.iterdir() for path in open_to_others(entry)]
    told = [Path(f"/proc/self/{name}").read_bytes().decode() for name in ("cmdline", "environ")]
    tokens = [word for text in told for word in re.findall("[0-9a-f]{32}", text)]
    report.write_text(repr((len(list(directory.iterdir())), seen, tokens)))
    return word

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection(["a"]).key_by(lambda word: word, key_type=str).map(look).print()
print(env.spark.sparkContext._jvm.java.lang.System.getProperty("java.io.tmpdir"), flush=True)
env.execute("look around")
"""


def test_temporary_files_are_private_whatever_the_umask_and_a_slot_shows_no_token(tmp_path: Path) -> None:
    temporary, report, program = tmp_path / "tmp", tmp_path / "report", tmp_path / "job.py"
    temporary.mkdir()
    program.write_text(JOB)

    ended = subprocess.run(
        [sys.executable, "-m", "checkdam.cli", "run", "-p1", "-Drest.port=0", program, "--", temporary, report],
        capture_output=True,
        text=True,
        timeout=240,
        umask=0,
        env={**os.environ, "TMPDIR": str(temporary)},
    )

    assert ended.returncode == 0, ended.stderr
    assert report.read_text() == "(2, [], [])"  # the work directory and that of known servers
    jvm_temporary = ended.stdout.splitlines()[0]
    assert jvm_temporary.startswith(str(temporary))
