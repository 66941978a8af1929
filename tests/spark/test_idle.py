"""Checkpoints while no records come, on Spark: cheap, with the right position, and good to go on from."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from checkdam import CheckpointedFunction, NoRestart, SinkFunction
from checkdam.cli.demo.child import ChildJob
from checkdam.errors import JobFailedError

if TYPE_CHECKING:
    from tests.spark.conftest import Jobs

    from checkdam.runtime.monitor.job_events import CheckpointStats, EpochStats

pytestmark = pytest.mark.spark

COUNT = """
import sys
from checkdam import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
lines = env.read_stream("text", path=sys.argv[1]).map(lambda row: (row.value, 1), output_type=tuple[str, int])
counts = lines.key_by(lambda pair: pair[0], key_type=str).sum(1).uid("count")
counts.map(lambda pair: print("counted", *pair, file=sys.stderr) or pair, output_type=tuple[str, int]).print()
env.execute("idle")
"""


def _add(directory: Path, name: str, content: str) -> None:
    """Let a file appear whole."""
    (directory.parent / name).write_text(content)
    os.rename(directory.parent / name, directory / name)


def test_a_driver_killed_while_it_idles_goes_on_from_an_idle_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(COUNT)
    lines = tmp_path / "lines"
    lines.mkdir()
    options = ["--master", "local[2]", "-p", "2", "--no-rest", "-Dexecution.checkpointing.interval=300ms"]
    options += [f"-Dstate.checkpoints.dir={tmp_path / 'ck'}"]
    first = ChildJob([*options, str(tmp_path / "job.py"), "--", str(lines)], "idle")
    try:
        first.wait_for(r"checkpoint 2 completed: epoch 0, .*\(0 B new\)", seconds=120)  # before there is any record
        [job] = (path for path in (tmp_path / "ck").iterdir() if path.name != "_logs")
        assert (job / "taskowned").is_dir()
        _add(lines, "1.txt", "a\na\nb\n")
        first.wait_for(r"counted a 2", seconds=60)
        counted = int(first.wait_for(r"checkpoint (\d+) completed: epoch 1, ", seconds=60)[1])
        state = sorted(path.name for path in (job / "shared").iterdir())
        first.wait_for(rf"checkpoint {counted + 3} completed: epoch 1, .*\(0 B new\)", seconds=60)
        assert sorted(path.name for path in (job / "shared").iterdir()) == state
    finally:
        first.kill()
    _add(lines, "2.txt", "a\nc\n")
    second = ChildJob([*options, "--resume", "latest", str(tmp_path / "job.py"), "--", str(lines)], "idle")
    try:
        restored = second.wait_for(r"^restored \S*/chk-(\d+), continuing after epoch 1", seconds=120)
        second.wait_for(r"counted a 3", seconds=60)  # 4: the first file was read again
    finally:
        second.kill()
    assert int(restored[1]) >= counted + 3


def test_a_job_that_never_had_a_record_goes_on_with_the_first(jobs: Jobs) -> None:
    lines = jobs.tmp_path / "lines"
    lines.mkdir()

    def run(*, resume: bool) -> None:
        checkpoints = jobs.checkpoints(interval=timedelta(milliseconds=200), num_retained=2)
        env = jobs.environment(1, checkpoints, resume=resume)
        jobs.watcher.on_checkpoint = cancel_after_three
        jobs.watcher.on_epoch = cancel_after_first
        env.read_stream("text", path=str(lines)).map(lambda row: row.value, output_type=str).print()
        env.execute("first lines")

    def cancel_after_three(stats: CheckpointStats) -> None:
        if stats.checkpoint_id == 3 and not jobs.watcher.restored_from:
            jobs.cancel()

    def cancel_after_first(stats: EpochStats) -> None:
        jobs.cancel()

    run(resume=False)
    assert [stats.epoch for stats in jobs.watcher.checkpoints] == [0, 0, 0]
    (lines / "1.txt").write_text("one\ntwo\n")
    run(resume=True)

    assert [path.rpartition("/")[2] for path in jobs.watcher.restored_from] == ["chk-3"]
    assert jobs.watcher.shown == ["one", "two"]


class _SlowToSnapshot(SinkFunction, CheckpointedFunction):
    """Takes a snapshot only when the other end of a pipe is opened."""

    def __init__(self, pipe: str) -> None:
        self.pipe = pipe

    def invoke(self, value: Any, ctx: Any) -> None: ...

    def initialize_state(self, ctx: Any) -> None: ...

    def snapshot_state(self, ctx: Any) -> None:
        open(self.pipe).close()


def test_the_timeout_counts_the_synchronous_part_and_fails_the_job_over(jobs: Jobs) -> None:
    env = jobs.environment(1, jobs.checkpoints(timeout=timedelta(milliseconds=500)))
    env.set_restart_strategy(NoRestart())
    pipe = jobs.tmp_path / "pipe"
    os.mkfifo(pipe)
    env.from_collection(["a"]).add_sink(_SlowToSnapshot(str(pipe))).uid("slow")
    opened: list[int] = []
    jobs.watcher.on_failed_checkpoint = lambda reason: opened.append(os.open(pipe, os.O_RDWR))  # waits for no reader

    with pytest.raises(JobFailedError, match=r"checkpoint 1 failed \(timed out after 0:00:00.5.*tolerated: 0"):
        env.execute()

    [end] = opened
    os.close(end)
    assert jobs.watcher.checkpoints == []
