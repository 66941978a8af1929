"""What other users of the machine can see of a job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

JOB = """
import json, sys
from pathlib import Path
from checkdam import StreamExecutionEnvironment
from checkdam.runtime.spark import spark_engine

directory, report = Path(sys.argv[1]), Path(sys.argv[2])
start_slots, tokens = spark_engine.start_slots, []

def watched(session, count, attempt, given, *others):
    tokens.extend([given.token, given.queries])
    return start_slots(session, count, attempt, given, *others)

spark_engine.start_slots = watched

def open_to_others(path):
    if path.is_symlink() or not path.lstat().st_mode & 0o077:
        return
    yield str(path)
    if path.is_dir():
        for entry in path.iterdir():
            yield from open_to_others(entry)

def look(word: str) -> str:
    entries = list(directory.iterdir())
    seen = [path for entry in entries for path in open_to_others(entry)]
    told = [Path(f"/proc/self/{name}").read_text() for name in ("cmdline", "environ")]
    report.write_text(json.dumps({"entries": len(entries), "seen": seen, "told": told}))
    return word

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection(["a"]).key_by(lambda word: word, key_type=str).map(look).print()
temporary = env.spark.sparkContext._jvm.java.lang.System.getProperty("java.io.tmpdir")
env.execute("look around")
found = json.loads(report.read_text())
told = found.pop("told")
found["shows token"] = any(token in text for token in tokens for text in told)
found["jvm is private"] = temporary.startswith(str(directory))
found["tokens"] = len(set(tokens))
jvm = env.spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
found["janitor waits for jvm"] = str(jvm) in [
    noted for path in directory.glob("checkdam-*/writers") for noted in path.read_text().split()
]
report.write_text(json.dumps(found))
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
    assert json.loads(report.read_text()) == {
        "entries": 2,  # the work directory, and that of the servers
        "seen": [],
        "shows token": False,
        "jvm is private": True,
        "tokens": 2,
        "janitor waits for jvm": True,
    }
