"""The judge of chaos rounds: it has nothing to say of a job that was left alone, and notices every fault."""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path

import pytest
from chaos import all_states
from chaos.jobs import JOBS
from chaos.judge import job_faults, rest_faults
from chaos.place import Place

from checkdam.storage.filesystem import open_storage
from checkdam.testing.local_job import LocalJob

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_states, "_PAUSE_SECONDS", 0)


def run(name: str, root: Path, *, parallelism: int = 2) -> Place:
    place = Place(root, root / "tmp")
    place.make()
    job = JOBS[name]
    job.write_input(place, random.Random(1))
    storage = open_storage(str(place.checkpoints))
    LocalJob(
        lambda environment, lines: job.build(environment, lines, place),
        place.read_input(),
        storage,
        parallelism=parallelism,
        record_type=str,
    ).run()
    return place


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("name", JOBS)
def test_a_job_that_was_left_alone_is_as_the_model_says(name: str, parallelism: int, tmp_path: Path) -> None:
    place = run(name, tmp_path, parallelism=parallelism)

    assert list(job_faults(JOBS[name], place)) == []
    assert list(rest_faults(place.temporary, "nobody", patience_seconds=0)) == []


def lose_a_record(sink: Path) -> None:
    part = next(path for path in sorted(sink.glob("part-*")) if path.stat().st_size)
    part.write_text("".join(part.read_text().splitlines(keepends=True)[1:]))


def repeat_a_record(sink: Path) -> None:
    part = next(path for path in sorted(sink.glob("part-*")) if path.stat().st_size)
    part.write_text(part.read_text() + part.read_text().splitlines(keepends=True)[0])


def leave_a_staged_file(sink: Path) -> None:
    (sink / ".checkdam").mkdir()


@pytest.mark.parametrize("name", JOBS)
def test_what_is_wrong_with_the_output_is_noticed_in_every_sink(name: str, tmp_path: Path) -> None:
    place = run(name, tmp_path)

    for sink, harm in itertools.product(place.output.iterdir(), [lose_a_record, repeat_a_record, leave_a_staged_file]):
        shutil.copytree(sink, tmp_path / "whole")
        harm(sink)
        assert len(list(job_faults(JOBS[name], place))) == 1, (sink, harm)
        shutil.rmtree(sink)
        (tmp_path / "whole").rename(sink)


@pytest.mark.parametrize("name", JOBS)
def test_a_state_that_does_not_fit_the_input_is_noticed(name: str, tmp_path: Path) -> None:
    place = run(name, tmp_path)
    last = sorted(place.input.iterdir())[-1]
    more = {"words": "another", "all-states": "key1 7100 12", "windows": "key1 7900"}[name]

    last.write_text(f"{last.read_text()}{more}\n")

    faults = list(job_faults(JOBS[name], place))
    assert any(fault.startswith(("state", "the last checkpoint")) for fault in faults), faults


def test_files_that_belong_to_no_checkpoint_and_to_no_process_are_noticed(tmp_path: Path) -> None:
    place = run("words", tmp_path)
    [directory] = place.job_directories()

    (directory / "shared" / "stranger").write_bytes(b"")
    (place.temporary / "checkdam-17-abc").mkdir()

    assert list(job_faults(JOBS["words"], place)) == ["orphaned file shared/stranger"]
    assert list(rest_faults(place.temporary, "nobody", patience_seconds=0)) == [
        "temporary files left: ['checkdam-17-abc']"
    ]
