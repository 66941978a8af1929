"""API.md's word count on a real socket: counts outlive a cancelled job, though a socket cannot be read again."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from checkdam import CheckpointRetention
from checkdam.checkpoint.settings import JobEnd

if TYPE_CHECKING:
    from tests.spark.conftest import Jobs, LineServer

    from checkdam.runtime.job_result import JobResult
    from checkdam.runtime.monitor.job_events import CheckpointStats

pytestmark = pytest.mark.spark

LINE = "my name is stream"


def _stream_word_count(jobs: Jobs, port: int, lines: int, restore: str | None = None) -> JobResult:
    """Run until these many lines are counted and a later checkpoint holds them, then press Ctrl-C."""
    checkpoints = jobs.checkpoints(
        interval=timedelta(milliseconds=200), retention=CheckpointRetention.RETAIN_ON_CANCELLATION
    )
    env = jobs.environment(checkpoints=checkpoints, restore=restore)
    (
        env.socket_text_stream("localhost", port)
        .flat_map(str.split, output_type=str)
        .map(lambda word: (word, 1), output_type=tuple[str, int])
        .key_by(lambda pair: pair[0], key_type=str)
        .sum(1)
        .uid("wc-sum")
        .print()
    )

    def cancel_when_held(stats: CheckpointStats) -> None:
        counted = sum(epoch.records for epoch in jobs.watcher.epochs if epoch.epoch <= stats.epoch)
        if counted == lines * len(LINE.split()):
            jobs.cancel()

    jobs.watcher.on_checkpoint = cancel_when_held
    return env.execute("StreamWordCount")


def test_four_lines_a_checkpoint_a_cancel_and_one_more_line_make_five(jobs: Jobs, line_server: LineServer) -> None:
    with line_server(*[LINE] * 4) as port:
        first = _stream_word_count(jobs, port, lines=4)
    assert first.end is JobEnd.CANCELLED
    assert dict(jobs.watcher.values) == dict.fromkeys(LINE.split(), 4)

    with line_server(LINE) as port:
        second = _stream_word_count(jobs, port, lines=1, restore=first.last_checkpoint)

    assert second.end is JobEnd.CANCELLED
    assert jobs.watcher.restored_from == [first.last_checkpoint]
    assert sorted(jobs.watcher.values) == sorted((word, 5) for word in LINE.split())
