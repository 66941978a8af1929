"""What is loaded only where it is used: a program that builds a job, and a command's help, do not wait for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {
    "checkdam.backends.hashmap",
    "checkdam.backends.rocksdb",
    "checkdam.flink",
    "checkdam.runtime.driver",
    "checkdam.runtime.monitor",
    "checkdam.runtime.slot",
    "checkdam.runtime.spark",
    "checkdam.server",
    "checkdam.state_reader",
    "fastavro",
    "obstore",
    "pandas",
    "prometheus_client",
    "py4j",
    "pyarrow.compute",
    "pyarrow.flight",
    "pyarrow.fs",
    "pyarrow.parquet",
    "pyspark",
    "rich",
    "rocksdict",
    "starlette",
    "uvicorn",
    "yaml",
}

PROGRAMS = {
    "import checkdam": "import checkdam",
    "checkdam --help": "from checkdam.cli.main import command_line; command_line(['--help'])",
    "checkdam --version": "from checkdam.cli.main import command_line; command_line(['--version'])",
}


def _loaded_by(program: str) -> set[str]:
    script = f"import sys\n{program}\nprint('loaded:', *sys.modules)"
    output = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    return set(output.rpartition("loaded:")[2].split())


@pytest.mark.parametrize("program", PROGRAMS)
def test_nothing_heavy_is_loaded_before_it_is_used(program: str) -> None:
    loaded = _loaded_by(PROGRAMS[program])

    assert "checkdam.api.environment" in loaded
    assert loaded & HEAVY == set()


@pytest.mark.slow
@pytest.mark.parametrize(("words", "answer"), [("checkdam canc", "cancel"), ("checkdam cancel --wa", "--wait")])
def test_completion_does_not_load_spark_or_a_server(words: str, answer: str) -> None:
    program = f"""
import os
os.environ |= {{"_CHECKDAM_COMPLETE": "bash_complete", "COMP_WORDS": {words!r}, "COMP_CWORD": "{words.count(" ")}"}}
from checkdam.cli.main import command_line
try:
    command_line([])
except SystemExit:
    print(flush=True)
"""
    script = f"import sys\n{program}\nprint('loaded:', *sys.modules)"
    output = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout

    completed, _, loaded = output.partition("loaded:")
    assert completed.split() == [f"plain,{answer}"]
    assert set(loaded.split()) & {"pyspark", "py4j", "starlette", "uvicorn", "pyarrow.fs"} == set()


@pytest.mark.slow
def test_every_heavy_module_is_one_that_can_be_loaded() -> None:
    """So that a module that moves does not leave the list without effect."""
    found = _loaded_by("\n".join(f"import {name}" for name in sorted(HEAVY)))

    assert found >= HEAVY
