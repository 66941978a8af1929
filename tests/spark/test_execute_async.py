"""Jobs in the background, and collected results, on Spark."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from checkdam.checkpoint.settings import JobEnd
from checkdam.errors import UserFunctionError
from checkdam.graph.operators import OP_STATE
from checkdam.runtime.job_status import JobStatus
from checkdam.state_reader import Savepoint

if TYPE_CHECKING:
    from tests.spark.conftest import Jobs

    from checkdam.api.job_handle import JobHandle

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

PATIENCE = 120


def endless(jobs: Jobs, **options: Any) -> Any:
    """Numbers without end, by parity, with their sum so far."""
    environment = jobs.environment(**options)
    rows = environment.read_stream("rate-micro-batch", rowsPerBatch=10)
    pairs = rows.map(lambda row: (row.value % 2, row.value), output_type=tuple[int, int])
    return environment, pairs.key_by(0).sum(1).uid("sums")


def started(jobs: Jobs, name: str, **options: Any) -> JobHandle:
    """An endless job in the background, that has had records."""
    environment, sums = endless(jobs, **options)
    sums.print()
    has_counted = threading.Event()
    jobs.watcher.on_printed = lambda lines: has_counted.set()
    handle: JobHandle = environment.execute_async(name)
    assert has_counted.wait(PATIENCE)
    return handle


def test_two_jobs_run_side_by_side_and_end_as_they_are_told(jobs: Jobs) -> None:
    stopped = started(jobs, "stopped", checkpoints=jobs.checkpoints(interval=None))
    cancelled = started(jobs, "cancelled")

    path = stopped.stop_with_savepoint(str(jobs.tmp_path / "sp")).result(PATIENCE)
    assert stopped.wait(PATIENCE).end is JobEnd.FINISHED
    assert cancelled.status is JobStatus.RUNNING
    cancelled.cancel()

    assert cancelled.wait(PATIENCE).end is JobEnd.CANCELLED
    assert {key for key, _ in Savepoint.load(path).keyed_state("sums", OP_STATE)} == {0, 1}


def test_results_are_collected_as_they_come_and_the_limit_ends_the_job(jobs: Jobs) -> None:
    _, sums = endless(jobs)

    collected = sums.execute_and_collect("collected", limit=25)
    records = list(collected)

    for parity in (0, 1):
        own = [total for key, total in records if key == parity]
        assert own == [sum(range(parity, parity + 2 * n + 2, 2)) for n in range(len(own))]
    assert len(records) == 25
    assert collected.job.wait(PATIENCE).end is JobEnd.CANCELLED


def test_all_results_of_bounded_input_are_collected_and_a_failure_is_raised(jobs: Jobs) -> None:
    environment = jobs.environment()
    words = environment.from_collection(["b", "a", "b"]).map(lambda word: (word, 1), output_type=tuple[str, int])

    assert sorted(words.key_by(0).sum(1).uid("count").execute_and_collect()) == [("a", 1), ("b", 1), ("b", 2)]

    failing = environment.from_collection([0]).map(lambda number: 1 // number, output_type=int)
    with pytest.raises(UserFunctionError, match="ZeroDivisionError"):
        list(failing.execute_and_collect())
