from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from checkdam.cli.job_file import run_job_file
from checkdam.errors import JobFileError


def test_the_file_runs_as_the_main_program_with_its_arguments_and_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_job.py").write_text("NAME = 'seen'\n")
    out = tmp_path / "out"
    job = tmp_path / "job.py"
    job.write_text(
        "import os, pathlib, sys, neighbour_of_job\n"
        f"pathlib.Path({str(out)!r}).write_text('|'.join([__name__, neighbour_of_job.NAME, *sys.argv[1:], "
        "os.environ['PYTHONPATH'].split(os.pathsep)[0]]))\n"
    )
    before = list(sys.argv), list(sys.path), os.environ.get("PYTHONPATH")

    run_job_file(job, ["--input", "x"])

    assert out.read_text() == f"__main__|seen|--input|x|{tmp_path}"
    assert (sys.argv, sys.path, os.environ.get("PYTHONPATH")) == before


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobFileError, match=r'job file ".*none\.py" does not exist'):
        run_job_file(tmp_path / "none.py", [])


def test_a_directory_is_no_job_file(tmp_path: Path) -> None:
    with pytest.raises(JobFileError, match="is a directory"):
        run_job_file(tmp_path, [])


@pytest.mark.parametrize(
    ("program", "reason"),
    [("import not_there_at_all", "No module named 'not_there_at_all'"), ("x = = 1", "invalid syntax")],
)
def test_a_file_that_cannot_be_loaded_says_why(tmp_path: Path, program: str, reason: str) -> None:
    job = tmp_path / "job.py"
    job.write_text(program)

    with pytest.raises(JobFileError, match=reason):
        run_job_file(job, [])


def test_what_the_program_raises_comes_out(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text("raise LookupError('theirs')")

    with pytest.raises(LookupError, match="theirs"):
        run_job_file(job, [])
