"""Checkpoints in the memory of the driver: slots, being other processes, write there and restore from there."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from concurrent.futures import Future
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from checkdam import CheckpointConfig, FixedDelayRestart, NoRestart
from checkdam.checkpoint.checkpoint_store import load_checkpoint
from checkdam.checkpoint.settings import IN_MEMORY, JobEnd
from checkdam.errors import CheckpointNotFoundError, JobFailedError
from checkdam.ids import JobId
from checkdam.runtime.job_control import RunningJob, SavepointFormat
from checkdam.runtime.monitor.job_events import CheckpointStats, EpochStats
from checkdam.runtime.monitor.job_records import SnapshotKind
from checkdam.storage.filesystem import open_storage

if TYPE_CHECKING:
    from tests.spark.conftest import Jobs

pytestmark = pytest.mark.spark

WORDS = ["a b a", "b c", "a c c", "d"]


class _Host:
    """Takes a savepoint behind the second epoch, and kills a slot behind the second checkpoint."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.started: list[RunningJob] = []
        self.savepoints: list[Future[str]] = []
        jobs.watcher.on_epoch = self._on_epoch
        jobs.watcher.on_checkpoint = self._on_checkpoint

    def job_started(self, job: RunningJob) -> None:
        self.started.append(job)

    def job_ended(self, job_id: JobId) -> None: ...

    def _on_epoch(self, stats: EpochStats) -> None:
        if stats.epoch == 2 and not self.savepoints:
            directory = str(self.jobs.tmp_path / "savepoints")
            self.savepoints.append(self.started[0].control.trigger_savepoint(directory, SavepointFormat.CANONICAL))

    def _on_checkpoint(self, stats: CheckpointStats) -> None:
        taken = [each for each in self.jobs.watcher.checkpoints if each.kind is SnapshotKind.CHECKPOINT]
        if len(self.jobs.watcher.attempts) == 1 and len(taken) == 3:
            os.kill(self.jobs.watcher.attempts[0][1], signal.SIGKILL)


def test_a_killed_slot_is_restored_from_memory_and_only_the_savepoint_is_on_disk(jobs: Jobs) -> None:
    env = jobs.environment(
        checkpoints=CheckpointConfig(interval=timedelta(0)), settings={"state.backend": "jobmanager"}
    )
    env.set_restart_strategy(FixedDelayRestart(attempts=1, delay=timedelta(0)))
    host = env._launch.host = _Host(jobs)
    lines = env.read_text(jobs.texts(*WORDS), max_files_per_epoch=1)
    words = lines.flat_map(str.split, output_type=str).map(lambda word: (word, 1), output_type=tuple[str, int])
    counts = words.key_by(lambda pair: pair[0], key_type=str).sum(1).uid("count")
    counts.sink_to_files(str(jobs.tmp_path / "out")).uid("out")

    result = env.execute("in memory")

    assert result.end is JobEnd.FINISHED
    assert len(jobs.watcher.attempts) == 2
    assert [path.startswith(f"{IN_MEMORY}/") for path in jobs.watcher.restored_from] == [True]
    out = [file for file in (jobs.tmp_path / "out").glob("part-*") if file.is_file()]
    shown = Counter(tuple(json.loads(line).values()) for file in out for line in file.read_text().splitlines())
    expected = Counter(" ".join(WORDS).split())
    assert shown == Counter((word, n) for word, count in expected.items() for n in range(1, count + 1))
    assert load_checkpoint(host.savepoints[0].result(0))[0].epoch >= 2
    assert sorted(each.name for each in jobs.tmp_path.iterdir()) == ["out", "savepoints", "texts"]
    assert open_storage(IN_MEMORY).list("") == []


def test_a_killed_slot_is_restored_from_local_copies_which_go_with_the_job(jobs: Jobs) -> None:
    copies = jobs.tmp_path / "copies"
    local = {"state.backend.local-recovery": "true", "execution.checkpointing.local-backup.dirs": str(copies)}
    env = jobs.environment(
        checkpoints=CheckpointConfig(interval=timedelta(0)), settings={"state.backend": "jobmanager", **local}
    )
    env.set_restart_strategy(FixedDelayRestart(attempts=1, delay=timedelta(0)))
    seen: list[int] = []

    def kill(stats: CheckpointStats) -> None:
        if len(jobs.watcher.attempts) == 1 and len(jobs.watcher.checkpoints) == 3:
            seen.append(len([file for file in copies.glob("*/*/*/*") if not file.name.startswith(".")]))
            os.kill(jobs.watcher.attempts[0][1], signal.SIGKILL)

    jobs.watcher.on_checkpoint = kill
    lines = env.read_text(jobs.texts(*WORDS), max_files_per_epoch=1)
    words = lines.flat_map(str.split, output_type=str).map(lambda word: (word, 1), output_type=tuple[str, int])
    words.key_by(lambda pair: pair[0], key_type=str).sum(1).uid("count").sink_to_files(str(jobs.tmp_path / "out")).uid(
        "out"
    )

    result = env.execute("local copies")

    assert result.end is JobEnd.FINISHED
    assert len(jobs.watcher.attempts) == 2
    (count,) = seen
    assert count > 0
    out = [file for file in (jobs.tmp_path / "out").glob("part-*") if file.is_file()]
    shown = Counter(tuple(json.loads(line).values()) for file in out for line in file.read_text().splitlines())
    expected = Counter(" ".join(WORDS).split())
    assert shown == Counter((word, n) for word, count in expected.items() for n in range(1, count + 1))
    assert list(copies.glob("*/*/*")) == []


def test_a_state_above_the_limit_declines_the_checkpoint_and_says_what_to_do(jobs: Jobs) -> None:
    small = CheckpointConfig(interval=timedelta(0), storage="jobmanager", max_state_size="2 kb")
    env = jobs.environment(checkpoints=small).set_restart_strategy(NoRestart())
    numbers = env.from_collection(list(range(5000))).key_by(lambda n: n, key_type=int)
    numbers.max().uid("largest").print()

    with pytest.raises(JobFailedError):
        env.execute()

    (reason,) = jobs.watcher.failed_checkpoints
    assert 'uid "largest"' in reason
    assert "2,048 a state" in reason
    assert "execution.checkpointing.memory-storage.max-state-size" in reason


@pytest.mark.parametrize("options", [{"resume": True}, {"restore": f"{IN_MEMORY}/1234/chk-1"}])
def test_what_was_in_memory_cannot_be_resumed(jobs: Jobs, options: dict[str, object]) -> None:
    env = jobs.environment(settings={"execution.checkpointing.storage": "jobmanager"}, **options)  # type: ignore[arg-type]  # by name
    env.from_collection([1]).print()

    with pytest.raises(CheckpointNotFoundError, match="lost when their driver ends"):
        env.execute()
