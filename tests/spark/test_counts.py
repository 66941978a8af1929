"""What a job on Spark tells of its operators: also of those that Spark runs, and after a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from checkdam import StreamExecutionEnvironment
from checkdam.graph.levels import JobPlan, plan_job
from checkdam.runtime.monitor.job_events import EpochStats
from checkdam.runtime.monitor.source_side import source_side_counts

if TYPE_CHECKING:
    from tests.spark.conftest import Jobs

pytestmark = pytest.mark.spark


def _out(plan: JobPlan, epochs: list[EpochStats]) -> dict[str, list[tuple[int, int]]]:
    """By name, the records into and out of each operator of the source side, epoch by epoch."""
    names = {op.id: op.name for op in plan.source_side}
    told: dict[str, list[tuple[int, int]]] = {}
    for stats in epochs:
        for op, counts in source_side_counts(plan, stats).items():
            told.setdefault(names[op], []).append((counts.records_in, counts.records_out))
    return told


def _plan(environment: StreamExecutionEnvironment) -> JobPlan:
    """Of what the environment holds until it is executed."""
    return plan_job("x", environment._operators, parallelism=2, max_parallelism=None)


def test_python_on_the_source_side_counts_what_every_epoch_brought(jobs: Jobs) -> None:
    environment = jobs.environment()

    lines = environment.read_text(jobs.texts("to be\nor not\n", "to be\n"), max_files_per_epoch=1)
    words = lines.flat_map(str.split, output_type=str).map(lambda word: (word, 1), output_type=tuple[str, int])
    words.key_by(lambda pair: pair[0], key_type=str).sum(1).uid("count").print()
    plan = _plan(environment)

    environment.execute("word count")

    told = _out(plan, jobs.watcher.epochs)
    assert list(told.values()) == [[(0, 2), (0, 1)], [(2, 4), (1, 2)], [(4, 4), (2, 2)]]
    assert [sum(n.records for r in e.reports for n in r.received.values()) for e in jobs.watcher.epochs] == [4, 2]
    assert all(report.memory > 0 for stats in jobs.watcher.epochs for report in stats.reports)


def test_columns_that_spark_alone_moves_are_counted_behind_the_exchange(jobs: Jobs) -> None:
    environment = jobs.environment()
    pairs = environment.from_collection([("a", 1), ("b", 2), ("a", 3)], tuple[str, int])
    pairs.key_by(0, key_type=str).sum(1).uid("sum").print()
    plan = _plan(environment)

    environment.execute("sums")

    told = _out(plan, jobs.watcher.epochs)
    assert list(told.values()) == [[(0, 3)]]
    assert not jobs.watcher.epochs[0].source_side
